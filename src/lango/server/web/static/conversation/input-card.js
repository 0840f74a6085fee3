/** Show the request of a workflow or a running tool for input, with a form that its schema describes, and the answer that was given. */

import { el, icon, formatTime } from "../base/dom.js";
import { Draft } from "../base/drafts.js";

/** @typedef {{call_id: string, message: string, schema: any, payload?: any, expires_at?: string | null, tool_call_id?: string}} InputRequest */

export class InputCard {
  #form = /** @type {HTMLElement | null} */ (null);
  #problem = el("p", { class: "input-problem", role: "alert" });

  #draft;

  /** @param {string} session @param {string} id @param {{message?: string, payload?: any, tool_call_id?: string}} request */
  constructor(session, id, request) {
    this.id = id;
    this.#draft = new Draft(session, id);
    this.status = "closed";
    this.toolCall = request.tool_call_id ?? "";
    /** @type {((value: any) => Promise<string>) | null} */ this.onAnswer = null;
    const payload = request.payload ?? null;
    this.element = el("div", { class: "input-card", "data-call": id },
      el("p", { class: "input-message", text: request.message || `The ${this.toolCall ? "tool" : "workflow"} needs your input.` }),
      this.toolCall ? asker(payload) : payload !== null && el("pre", { tabindex: "0", "aria-label": "Details" }, JSON.stringify(payload, null, 2)));
    this.#draw();
  }

  /**
   * Show the form of an open request.
   * @param {InputRequest} request @param {(value: any) => Promise<string>} onAnswer returns why the value was refused; empty: it was accepted
   * @param {() => void} onSkip
   */
  open(request, onAnswer, onSkip) {
    if (this.#form) return; // it is open, and a value may be typed already
    this.close("waiting");
    const agrees = this.toolCall !== "" && !request.schema; // nothing to fill in: the user does what the message says
    const field = agrees ? { element: null, value: () => ({}), problem: () => "" } : fieldFor(request.schema, request.message);
    const until = request.expires_at ? `The request expires at ${formatTime(request.expires_at)}.` : "";
    const submit = async (/** @type {Event} */ event) => {
      event.preventDefault();
      const problem = field.problem();
      if (problem) return void (this.#problem.textContent = problem);
      await this.answer(field.value(), onAnswer);
    };
    this.onAnswer = onAnswer;
    this.#problem.textContent = "";
    this.#form = el("form", { class: "input-form", submit, novalidate: true, "aria-label": request.message || "Input" },
      field.element, this.#problem, until && el("p", { class: "note", text: until }),
      el("div", { class: "approval-buttons" },
        el("button", { type: "submit", class: "primary" }, icon("check"), agrees ? "Done" : "Answer"),
        el("button", { type: "button", click: onSkip }, icon("cross"), this.toolCall ? "Decline" : "Skip")));
    this.element.append(this.#form);
    this.#draft.attach(this.#form);
  }

  /** Send a value; the form stays if it is refused. @param {any} value @param {(value: any) => Promise<string>} onAnswer */
  async answer(value, onAnswer) {
    this.#disable(true);
    const problem = await onAnswer(value);
    this.#problem.textContent = problem;
    this.#disable(false);
    if (!problem) this.showAnswer(value);
    return !problem;
  }

  /** @param {any} value */
  showAnswer(value) {
    this.close("answered");
    this.element.querySelector(".input-answer")?.remove();
    const text = JSON.stringify(value);
    this.element.append(el("p", { class: "input-answer" }, icon("check"), typeof value === "string" ? value : text === "{}" ? "Done" : text));
  }

  /** Show a stored result: the answer, or why there is none. @param {any} output */
  showResult(output) {
    if (output?.error) return this.close("closed", output.error);
    const keys = Object.keys(output ?? {});
    this.showAnswer(keys.length === 1 && keys[0] === "result" ? output.result : output);
  }

  /** Remove the form. @param {string} status @param {string} [note] */
  close(status, note = "") {
    this.status = status;
    if (this.#form) this.#draft.drop(); // a card without a form may show an earlier request with the same id
    this.#form?.remove();
    this.#form = null;
    if (note) this.element.append(el("p", { class: "note", text: note }));
    this.#draw();
  }

  #draw() {
    this.element.dataset.status = this.status;
  }

  /** @param {boolean} disabled */
  #disable(disabled) {
    for (const control of this.#form?.querySelectorAll("input, select, textarea, button") ?? []) /** @type {any} */ (control).disabled = disabled;
  }
}

/**
 * @typedef {{element: HTMLElement, value: () => any, problem: () => string}} Field
 * @param {any} schema @param {string} label @returns {Field}
 */
function fieldFor(schema, label) {
  const properties = schema?.type === "object" ? schema.properties : null;
  if (properties && Object.values(properties).every(isSimple)) return objectField(properties, schema.required ?? []);
  return isSimple(schema ?? { type: "string" }) ? simpleField(schema ?? {}, label, true) : jsonField(schema);
}

/** Say which MCP server asks, with the address that it wants to be opened. @param {any} payload */
function asker(payload) {
  const address = /^https?:\/\//i.test(payload?.url ?? "") ? payload.url : "";
  return el("p", { class: "note" }, payload?.server ? `Asked by the MCP server ${payload.server}. ` : "",
    address ? el("a", { href: address, target: "_blank", rel: "noopener noreferrer", text: address }) : payload?.url ?? "");
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
    element: el("div", { class: "input-fields" }, ...fields.map(({ name, needed, field }) => el("label", {},
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
