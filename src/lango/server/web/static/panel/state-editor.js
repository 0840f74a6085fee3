/** Edit values of the state in place, delete them, and set new ones. */

import { el, iconButton, toast } from "../base/dom.js";
import { state } from "../base/state.js";

/** Set a value, or delete it with null; false: it was refused. @typedef {(name: string, value: any) => Promise<boolean>} Save */

const SHOWN_LENGTH = 2000;

/** Show a value with its buttons. @param {string} name @param {any} value @param {((value: any) => Promise<boolean>) | null} save null: it cannot be changed */
export function valueRow(name, value, save) {
  const whole = JSON.stringify(value, null, 2) ?? "null";
  const shown = whole.length > SHOWN_LENGTH ? `${whole.slice(0, SHOWN_LENGTH)}… (${whole.length.toLocaleString()} characters)` : whole;
  const content = el("dd", {}, el("pre", { tabindex: "0", "aria-label": name, text: shown }));
  const row = el("div", {}, el("dt", {}, el("span", { text: name }),
    save && iconButton("edit", `Edit ${name}`, () => edit(content, name, whole, save)),
    save && iconButton("trash", `Delete ${name}`, async () => {
      if (mayChange() && (await save(null))) toast(`Deleted: ${name}`);
    })), content);
  return row;
}

/** @param {HTMLElement} content @param {string} name @param {string} whole @param {(value: any) => Promise<boolean>} save */
function edit(content, name, whole, save) {
  if (content.querySelector("form")) return;
  const before = [...content.childNodes];
  const close = () => {
    content.replaceChildren(...before);
    /** @type {HTMLElement} */ (before[0]).focus();
  };
  const box = el("textarea", { rows: Math.min(12, whole.split("\n").length + 1), "aria-label": `New value of ${name}, as JSON or text` });
  box.value = whole;
  const form = el("form", { class: "state-form", "aria-label": `Edit ${name}` }, box,
    el("div", { class: "dialog-end" }, el("button", { type: "button", click: close }, "Cancel"), el("button", { type: "submit", class: "primary" }, "Save")));
  form.addEventListener("submit", (/** @type {Event} */ event) => {
    event.preventDefault();
    void submit(() => save(parse(box.value)), name);
  });
  form.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    if (event.key !== "Escape") return;
    event.stopPropagation();
    close();
  });
  content.replaceChildren(form);
  box.focus();
}

/** Show a form for a new value. @param {Record<string, string>} scopes what a prefix of names stands for @param {Save} save */
export function newValueForm(scopes, save) {
  const scope = el("select", { "aria-label": "Belongs to" }, ...Object.entries(scopes).map(([prefix, title]) => el("option", { value: prefix, text: title })));
  const name = el("input", { type: "text", maxlength: 200, autocomplete: "off", required: true });
  const value = el("textarea", { rows: 2 });
  const form = el("form", { class: "state-form", "aria-label": "Set a value" }, el("h2", { text: "Set a value" }),
    el("label", { class: "field" }, "Belongs to", scope), el("label", { class: "field" }, "Name", name),
    el("label", { class: "field" }, "Value, as JSON or text", value), el("button", { type: "submit" }, "Set"));
  form.addEventListener("submit", (/** @type {Event} */ event) => {
    event.preventDefault();
    const member = `${scope.value}${name.value.trim()}`;
    void submit(() => save(member, parse(value.value)), member);
  });
  return form;
}

/** @param {() => Promise<boolean>} save @param {string} name */
async function submit(save, name) {
  if (!mayChange()) return;
  /** @type {HTMLElement | null} */ (document.activeElement)?.blur(); // the view is not drawn again under a draft
  if (await save()) toast(`Set: ${name}`);
}

function mayChange() {
  if (state.running) toast("A turn runs: change values when it is done.", "error");
  return !state.running;
}

/** Return the value that a text stands for: JSON, or else the text. @param {string} text */
function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
