/** Make the form fields that a JSON schema describes: of choices, texts, numbers, dates, lists, objects and alternatives. */

import { el, iconButton } from "../base/dom.js";
import { choicesOf, mayFit, plainSchema } from "../base/schemas.js";

/**
 * A part of a form. `value` is undefined where a value is left out, and `set` shows a value as far as the field can.
 * @typedef {{element: HTMLElement | null, value: () => any, problem: () => string, set: (value: any) => void, isGroup?: boolean}} Field
 * @typedef {{label: string, needed: boolean, root: any, depth: number, empty: null | undefined}} Context
 */

const MAX_DEPTH = 5; // deeper values are written as JSON
const LONG_TEXT = 200;
const MISSING = "a value is missing";
const TYPES = /** @type {Record<string, string>} */ ({ email: "email", uri: "url", date: "date", time: "time", "date-time": "datetime-local" });

/** Make the field of a schema. @param {any} given @param {{label: string, root: any, needed?: boolean, depth?: number}} place @returns {Field} */
export function fieldOf(given, { label, root, needed = true, depth = 0 }) {
  const { schema, nullable } = plainSchema(given, root);
  const preset = schema.default ?? null;
  // a value that is left out becomes its default: where that is not null, null is said
  const context = { label, root, depth, needed: needed && !nullable, empty: nullable && (needed || preset !== null) ? null : undefined };
  const field = makeField(schema, context);
  const isOptional = field.isGroup && (!needed || nullable) && schema.type !== "array";
  const shown = isOptional ? optionalField(field, context) : field;
  if (preset !== null) shown.set(preset);
  return shown;
}

/** @param {any} schema @param {Context} context @returns {Field} */
function makeField(schema, context) {
  if ("const" in schema) return { element: null, value: () => schema.const, problem: () => "", set: () => {} };
  if (schema.type === "array") {
    const items = plainSchema(schema.items, context.root).schema;
    const choices = choicesOf(items);
    if (choices) return severalField(choices, context);
    return schema.prefixItems || !schema.items || context.depth >= MAX_DEPTH ? jsonField(context) : listField(schema, context);
  }
  const choices = choicesOf(schema);
  if (choices) return choiceField(choices, context);
  if (schema.anyOf) return context.depth >= MAX_DEPTH ? jsonField(context) : unionField(schema, context);
  if (schema.type === "object" && schema.properties && context.depth < MAX_DEPTH) return objectField(schema, context);
  return ["string", "integer", "number"].includes(schema.type) ? inputField(schema, context) : jsonField(context);
}

/** @param {{value: any, name: string}[]} choices @param {Context} context @returns {Field} */
function choiceField(choices, { label, needed, empty }) {
  const select = el("select", { "aria-label": label }, el("option", { value: "" }, ""), ...choices.map(({ name }, index) => el("option", { value: String(index) }, name)));
  return {
    element: select,
    value: () => (select.value === "" ? empty : choices[Number(select.value)].value),
    problem: () => (needed && select.value === "" ? MISSING : ""),
    set: (value) => { select.value = String(choices.findIndex((choice) => choice.value === value)).replace("-1", ""); },
  };
}

/** @param {{value: any, name: string}[]} choices @param {Context} context @returns {Field} */
function severalField(choices, { label, needed, empty }) {
  const select = el("select", { "aria-label": label, multiple: true }, ...choices.map(({ name }, index) => el("option", { value: String(index) }, name)));
  const chosen = () => [...select.selectedOptions].map((option) => choices[Number(option.value)].value);
  let isSet = needed;
  select.addEventListener("input", () => { isSet = true; });
  return {
    element: select,
    value: () => (isSet || chosen().length ? chosen() : empty),
    problem: () => "",
    set: (value) => {
      isSet = Array.isArray(value);
      for (const option of select.options) option.selected = isSet && value.includes(choices[Number(option.value)].value);
    },
  };
}

/** @param {any} schema @param {Context} context @returns {Field} */
function inputField(schema, { label, needed, empty }) {
  const isNumber = schema.type !== "string";
  const isLong = !isNumber && (schema.maxLength > LONG_TEXT || schema.default?.length > LONG_TEXT || schema.default?.includes?.("\n"));
  const type = isNumber ? "number" : TYPES[schema.format] ?? "text";
  const input = el(isLong ? "textarea" : "input", {
    "aria-label": label, minlength: schema.minLength, maxlength: schema.maxLength, spellcheck: isLong ? null : "false",
    ...(isLong ? { rows: "4" } : { type, step: schema.type === "number" ? "any" : type === "time" || type === "datetime-local" ? "1" : null, min: schema.minimum ?? schema.exclusiveMinimum, max: schema.maximum ?? schema.exclusiveMaximum }),
  });
  const read = () => (isNumber ? Number(input.value) : type === "datetime-local" ? new Date(input.value).toISOString() : input.value);
  const nothing = () => (needed && !isNumber ? "" : empty);
  const problem = () => {
    if (input.value === "") return input.validity.badInput ? input.validationMessage : needed && (isNumber || type !== "text" || schema.minLength > 0) ? MISSING : "";
    if (schema.minLength > input.value.length) return `at least ${schema.minLength} characters`; // a browser checks only what is typed
    if (isNumber && read() <= schema.exclusiveMinimum) return `it must be more than ${schema.exclusiveMinimum}`;
    if (isNumber && read() >= schema.exclusiveMaximum) return `it must be less than ${schema.exclusiveMaximum}`;
    return input.validationMessage;
  };
  return {
    element: input,
    value: () => (input.value === "" ? nothing() : read()),
    problem,
    set: (value) => { input.value = value === null || value === undefined || typeof value === "object" ? "" : type === "datetime-local" ? localTime(value) : value; },
  };
}

/** Return a time as the browser's field has it. @param {any} value */
function localTime(value) {
  const at = new Date(value);
  return Number.isNaN(at.getTime()) ? "" : new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

/** @param {any} schema @param {Context} context @returns {Field} */
function objectField({ properties, required = [] }, { root, depth }) {
  const fields = Object.entries(properties).map(([name, schema]) => {
    const plain = plainSchema(schema, root).schema;
    const needed = required.includes(name);
    const title = schema.title ?? (depth || !plain.properties ? plain.title : null) ?? name;
    return { name, title, needed, note: schema.description ?? plain.description, field: fieldOf(schema, { label: title, root, needed, depth: depth + 1 }) };
  });
  const rows = fields.filter(({ field }) => field.element).map(({ title, needed, note, field }) => {
    const heading = `${title}${needed ? "" : " (optional)"}`;
    const explained = note && el("span", { class: "note", text: note });
    return field.isGroup ? el("fieldset", {}, el("legend", { text: heading }), explained, field.element) : el("label", {}, el("span", { text: heading }), explained, field.element);
  });
  return {
    element: el("div", { class: "wait-fields" }, ...rows),
    isGroup: true,
    value: () => Object.fromEntries(fields.map(({ name, field }) => [name, field.value()]).filter(([, value]) => value !== undefined)),
    problem: () => fields.map(({ title, field }) => (field.problem() ? `${title}: ${field.problem()}` : "")).find(Boolean) ?? "",
    set: (value) => { for (const { name, field } of fields) if (value && name in value) field.set(value[name]); },
  };
}

/** @param {any} schema @param {Context} context @returns {Field} */
function listField({ items, minItems = 0, maxItems = Infinity }, { label, root, depth, needed, empty }) {
  /** @type {{field: Field, element: HTMLElement}[]} */ let rows = [];
  let isSet = needed;
  const list = el("ul", { class: "value-list", "aria-label": label });
  const changed = () => { isSet = true; list.dispatchEvent(new Event("input", { bubbles: true })); };
  const add = () => {
    const field = fieldOf(items, { label: `${label}, item ${rows.length + 1}`, root, depth: depth + 1 });
    const row = { field, element: el("li", {}, field.element, iconButton("trash", `Remove from ${label}`, () => {
      row.element.remove();
      rows = rows.filter((other) => other !== row);
      changed();
    })) };
    rows.push(row);
    list.append(row.element);
    return row;
  };
  const button = el("button", { type: "button", class: "quiet", click: () => {
    add().element.querySelector("input, select, textarea")?.focus();
    changed();
  } }, `Add to ${label}`);
  const set = (/** @type {any} */ value) => {
    list.replaceChildren();
    rows = [];
    isSet = Array.isArray(value);
    for (const item of isSet ? value : []) add().field.set(item);
  };
  for (let count = 0; count < Math.min(minItems, 20); count++) add();
  return {
    element: el("div", {}, list, button),
    isGroup: true,
    value: () => (isSet || rows.length ? rows.map(({ field }) => field.value()) : empty),
    problem: () => {
      const wrong = rows.map(({ field }, index) => (field.problem() ? `item ${index + 1}: ${field.problem()}` : "")).find(Boolean);
      if (wrong || (!isSet && !rows.length)) return wrong ?? "";
      return rows.length < minItems ? `at least ${minItems} are needed` : rows.length > maxItems ? `at most ${maxItems} fit` : "";
    },
    set,
  };
}

/** Choose an alternative, and give its value. @param {any} schema @param {Context} context @returns {Field} */
function unionField({ anyOf }, { label, root, depth, needed, empty }) {
  const variants = anyOf.map((/** @type {any} */ one) => plainSchema(one, root).schema);
  const names = variants.map((/** @type {any} */ one) => one.title ?? (one.format ? one.format : /** @type {Record<string, string>} */ ({ string: "text", integer: "whole number", array: "list" })[one.type] ?? one.type ?? "JSON"));
  const select = el("select", { "aria-label": `Kind of ${label}` }, ...names.map((/** @type {string} */ name, /** @type {number} */ index) => el("option", { value: String(index) }, name)));
  const place = el("div");
  const make = () => fieldOf({ ...variants[Number(select.value)], default: undefined }, { label, root, depth: depth + 1, needed });
  let field = make();
  const choose = () => {
    field = make();
    place.replaceChildren(...[field.element].filter((element) => element !== null));
  };
  select.addEventListener("input", choose);
  choose();
  return {
    element: el("div", { class: "value-kinds" }, select, place),
    isGroup: true,
    value: () => field.value() ?? empty,
    problem: () => field.problem(),
    set: (value) => {
      const fitting = variants.findIndex((/** @type {any} */ one) => mayFit(one, value));
      if (fitting >= 0 && String(fitting) !== select.value) {
        select.value = String(fitting);
        choose();
      }
      field.set(value);
    },
  };
}

/** Leave a group out, or give it. @param {Field} field @param {Context} context @returns {Field} */
function optionalField(field, { label, empty }) {
  const box = el("input", { type: "checkbox" });
  const draw = () => { if (field.element) field.element.hidden = !box.checked; };
  box.addEventListener("input", draw);
  draw();
  return {
    element: el("div", {}, el("label", { class: "give" }, box, `Give ${label}`), field.element),
    isGroup: true,
    value: () => (box.checked ? field.value() : empty),
    problem: () => (box.checked ? field.problem() : ""),
    set: (value) => {
      box.checked = value !== null && value !== undefined;
      draw();
      if (box.checked) field.set(value);
    },
  };
}

/** Give a value of any shape as JSON. @param {Context} context @returns {Field} */
function jsonField({ label, needed, empty }) {
  const area = el("textarea", { rows: "4", "aria-label": `${label || "Value"} as JSON`, placeholder: "JSON", spellcheck: "false" });
  const parse = () => {
    try {
      return { value: JSON.parse(area.value) };
    } catch {
      return null;
    }
  };
  return {
    element: area,
    value: () => (area.value.trim() ? parse()?.value : empty),
    problem: () => (area.value.trim() ? (parse() ? "" : "this is not JSON") : needed ? MISSING : ""),
    set: (value) => { area.value = value === undefined ? "" : JSON.stringify(value, null, 2); },
  };
}
