/** Ask for a value that fits a JSON schema: fields, with the same value as JSON beside them. Either changes the other. */

import { el } from "../base/dom.js";
import { fieldOf } from "./value-fields.js";

/** @typedef {import("./value-fields.js").Field} Field */

/** Make the form of a schema; without one, a text is asked for. @param {any} schema @param {string} label @param {any} [value] what it begins with @returns {Field} */
export function formFor(schema, label, value) {
  const wanted = schema ?? { type: "string" };
  const field = fieldOf(wanted, { label, root: wanted });
  if (value !== undefined) field.set(value);
  if (field.isGroup) return withJson(field, schema);
  return field.element?.tagName === "TEXTAREA" && schema ? { ...field, element: el("div", {}, field.element, whatFits(schema)) } : field;
}

/** @param {any} schema */
function whatFits(schema) {
  return el("details", {}, el("summary", {}, "What fits"), el("pre", { tabindex: "0", "aria-label": "Schema" }, JSON.stringify(schema, null, 2)));
}

/** @param {Field} field @param {any} schema @returns {Field} */
function withJson(field, schema) {
  const area = el("textarea", { class: "raw-json", rows: "10", "aria-label": "The whole value as JSON", spellcheck: "false" });
  let isWritten = false; // the JSON was changed by hand: it counts, whatever the fields can show of it
  const show = () => {
    isWritten = false;
    area.value = JSON.stringify(field.value(), null, 2) ?? "";
  };
  const parse = () => {
    try {
      return { value: JSON.parse(area.value) };
    } catch {
      return null;
    }
  };
  area.addEventListener("input", () => {
    isWritten = true;
    const parsed = parse();
    if (parsed) field.set(parsed.value);
  });
  field.element?.addEventListener("input", show);
  show();
  const json = el("details", { class: "raw" }, el("summary", {}, "JSON"), area, whatFits(schema));
  return {
    element: el("div", { class: "value-form" }, field.element, json),
    isGroup: true,
    value: () => (isWritten ? parse()?.value : field.value()),
    problem: () => (isWritten ? (parse() ? "" : "this is not JSON") : field.problem()),
    set: (value) => { field.set(value); show(); },
  };
}
