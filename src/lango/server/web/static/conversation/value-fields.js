/** Make the form fields that a JSON schema describes. */

import { el } from "../base/dom.js";

/**
 * @typedef {{element: HTMLElement, value: () => any, problem: () => string}} Field
 * @param {any} schema @param {string} label @returns {Field}
 */
export function fieldFor(schema, label) {
  const properties = schema?.type === "object" ? schema.properties : null;
  if (properties && Object.values(properties).every(isSimple)) return objectField(properties, schema.required ?? []);
  return isSimple(schema ?? { type: "string" }) ? simpleField(schema ?? {}, label, true) : jsonField(schema);
}

/** The values to choose from, with their names: MCP has several ways to list them. @param {any} schema @returns {{value: any, name: string}[] | null} */
function choicesOf(schema) {
  const titled = schema.oneOf ?? schema.anyOf;
  if (Array.isArray(titled) && titled.every((choice) => "const" in choice)) return titled.map((choice) => ({ value: choice.const, name: choice.title ?? String(choice.const) }));
  const values = schema.enum ?? (schema.type === "boolean" ? [true, false] : null);
  const name = (/** @type {any} */ value) => (value === true ? "Yes" : value === false ? "No" : String(value));
  return Array.isArray(values) ? values.map((value, at) => ({ value, name: schema.enumNames?.[at] ?? name(value) })) : null;
}

/** @param {any} schema */
function isSimple(schema) {
  if (schema.type === "array") return choicesOf(schema.items ?? {}) !== null;
  return choicesOf(schema) !== null || ["string", "integer", "number", "boolean"].includes(schema.type);
}

/** @param {Record<string, any>} properties @param {string[]} required @returns {Field} */
function objectField(properties, required) {
  const fields = Object.entries(properties).map(([name, schema]) => ({ name, needed: required.includes(name), field: simpleField(schema, schema.title ?? name, required.includes(name)) }));
  return {
    element: el("div", { class: "wait-fields" }, ...fields.map(({ name, needed, field }) => el("label", {},
      el("span", { text: `${properties[name].title ?? name}${needed ? "" : " (optional)"}` }), properties[name].description && el("span", { class: "note", text: properties[name].description }), field.element))),
    value: () => Object.fromEntries(fields.map(({ name, field }) => [name, field.value()]).filter(([, value]) => value !== undefined)),
    problem: () => fields.map(({ name, field }) => (field.problem() ? `${properties[name].title ?? name}: ${field.problem()}` : "")).find(Boolean) ?? "",
  };
}

/** @param {any} schema @param {string} label @param {boolean} needed @returns {Field} */
function simpleField(schema, label, needed) {
  const several = schema.type === "array";
  const choices = choicesOf(several ? schema.items ?? {} : schema);
  if (choices) {
    const isDefault = (/** @type {any} */ value) => (several ? schema.default?.includes(value) : schema.default === value);
    const select = el("select", { "aria-label": label, multiple: several }, !needed && !several && el("option", { value: "" }, ""),
      ...choices.map(({ value, name }, index) => el("option", { value: String(index), selected: isDefault(value) }, name)));
    const chosen = () => [...select.selectedOptions].filter((option) => option.value !== "").map((option) => choices[Number(option.value)].value);
    return { element: select, value: () => (several && (needed || chosen().length) ? chosen() : chosen()[0]), problem: () => "" };
  }
  const isNumber = schema.type === "integer" || schema.type === "number";
  const type = isNumber ? "number" : (/** @type {Record<string, string>} */ ({ email: "email", uri: "url", date: "date" }))[schema.format] ?? "text";
  const input = el("input", { type, step: schema.type === "number" ? "any" : null, min: schema.minimum, max: schema.maximum, minlength: schema.minLength, maxlength: schema.maxLength, "aria-label": label, value: schema.default });
  return {
    element: input,
    value: () => (input.value === "" && (isNumber || !needed) ? undefined : isNumber ? Number(input.value) : input.value),
    problem: () => (needed && input.value === "" ? "a value is missing" : input.validationMessage),
  };
}

/** @param {any} schema @returns {Field} */
function jsonField(schema) {
  const area = el("textarea", { rows: "4", "aria-label": "Value as JSON", placeholder: "JSON" });
  const parse = () => {
    try {
      return { value: JSON.parse(area.value) };
    } catch {
      return null;
    }
  };
  return {
    element: el("div", {}, area, el("details", {}, el("summary", {}, "What fits"), el("pre", { tabindex: "0", "aria-label": "Schema" }, JSON.stringify(schema, null, 2)))),
    value: () => parse()?.value,
    problem: () => (parse() ? "" : "this is not JSON"),
  };
}
