/** Show dialogs and menus. Each closes with Escape and returns the focus. */

import { describeError } from "./api.js";
import { byId, el, formatTime, icon, iconButton } from "./dom.js";

/**
 * Open a dialog; resolves to `value()` when it is confirmed, else to null. While `value()` fails, it stays open and says why.
 * @param {{title: string, body?: (Node | string)[], yes: string, no?: string | null, danger?: boolean, value?: () => any, wide?: boolean, className?: string}} options
 * @returns {Promise<any>}
 */
export function openDialog({ title, body = [], yes, no = "Cancel", danger = false, value = () => true, wide = false, className = "" }) {
  return new Promise((resolve) => {
    /** @type {any} */ let result = null;
    const problem = el("p", { class: "bad", role: "alert" });
    const submit = el("button", { type: "submit", class: danger ? "danger" : "primary", value: "yes" }, yes);
    const form = el("form", { method: "dialog" },
      el("h2", { id: "dialog-title", text: title }),
      ...body, problem,
      el("div", { class: "dialog-end" },
        no && el("button", { type: "button", click: () => dialog.close("no") }, no), submit));
    const dialog = el("dialog", { class: `${wide ? "dialog wide-dialog" : "dialog"} ${className}`.trim(), "aria-labelledby": "dialog-title" }, form);
    form.addEventListener("submit", async (/** @type {Event} */ event) => {
      event.preventDefault();
      problem.textContent = "";
      submit.disabled = true;
      try {
        result = await value();
        dialog.close("yes");
      } catch (error) {
        problem.textContent = describeError(error);
      } finally {
        submit.disabled = false;
      }
    });
    dialog.addEventListener("click", (/** @type {Event} */ event) => event.target === dialog && dialog.close("no"));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(result);
    });
    document.body.append(dialog);
    dialog.showModal();
    (form.querySelector("input, textarea") ?? form.querySelector("button:not([type=submit])") ?? form.querySelector("button"))?.focus();
    form.querySelector("input")?.select();
  });
}

/**
 * Open a dialog that covers the page; its elements are named after the button that opens it.
 * @param {string} name @param {string} title @param {string} close the name of the button that closes it @param {() => void} onClose
 */
export function openPageDialog(name, title, close, onClose) {
  const dialog = el("dialog", { class: `dialog page-dialog ${name}`, "aria-labelledby": `${name}-title` },
    el("div", { class: `${name}-head` }, el("h2", { id: `${name}-title`, text: title }), iconButton("close", close, () => dialog.close())),
    el("div", { class: `${name}-body` }));
  dialog.addEventListener("close", () => {
    onClose();
    dialog.remove();
    byId(name).focus();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Replace what a dialog of `openPageDialog` shows; the control with the same name keeps the focus. @param {any} dialog @param {...Node} content */
export function redraw(dialog, ...content) {
  const body = dialog.lastElementChild;
  const focused = body.contains(document.activeElement) ? document.activeElement?.getAttribute("aria-label") : null;
  body.replaceChildren(...content);
  if (focused) body.querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
}

/** @param {string} title @param {string} text @param {string} yes */
export async function confirm(title, text, yes) {
  return (await openDialog({ title, body: [el("p", { text })], yes, danger: true })) === true;
}

/** @param {string} title @param {string} label @param {string} current @returns {Promise<string | null>} */
export function askText(title, label, current, { yes = "Save", length = 200 } = {}) {
  const input = el("input", { type: "text", maxlength: length, value: current, autocomplete: "off" });
  return openDialog({ title, body: [el("label", { class: "field" }, label, input)], yes, value: () => input.value.trim() });
}

/** Ask for a text of several lines. @param {string} title @param {string} note @param {string} current @returns {Promise<string | null>} */
export function askLongText(title, note, current) {
  const input = el("textarea", { rows: 8, maxlength: 20_000, "aria-label": title });
  input.value = current;
  return openDialog({ title, body: [el("p", { class: "note", text: note }), input], yes: "Save", value: () => input.value.trim(), wide: true });
}

/**
 * Ask which arguments a grant covers: a field for each, in which `*` stands for any characters. An empty field is any value.
 * @param {string} tool @param {Record<string, any>} input @returns {Promise<Record<string, any> | null>}
 */
export function askPatterns(tool, input) {
  const fields = Object.entries(input).map(([name, value]) => {
    const isText = typeof value === "string";
    const shown = isText ? value.replace(/[\\*]/g, "\\$&") : JSON.stringify(value);
    return { name, value, shown, isText, box: el("input", { type: "text", maxlength: 500, value: shown, autocomplete: "off", readonly: !isText }) };
  });
  const pattern = (/** @type {any} */ field) => {
    if (!field.isText || field.box.value === field.shown) return { equals: field.value };
    return field.box.value === "" ? { any: true } : { glob: field.box.value };
  };
  return openDialog({
    title: `Always for ${tool}`,
    body: [el("p", { class: "note", text: "A star stands for any characters within a line; an empty field for any value. Other calls still ask." }),
      ...fields.map(({ name, box }) => el("label", { class: "field" }, name, box))],
    yes: "Approve",
    value: () => Object.fromEntries(fields.map((field) => [field.name, pattern(field)])),
  });
}

/** @returns {Promise<string | null>} */
export async function askKey(refused = false) {
  const input = el("input", { type: "password", autocomplete: "off", required: true });
  const text = refused
    ? "The server rejected this key. Enter another one."
    : "This server needs an API key. Its operator creates one with `lango keys add --user NAME`.";
  const key = await openDialog({
    title: "API key",
    body: [el("p", { text }), el("label", { class: "field" }, "Key", input),
      el("p", { class: "note", text: "It is kept in this tab only, until you close it." })],
    yes: "Continue",
    value: () => input.value.trim(),
  });
  return key || null;
}

const SHORTCUTS = [
  ["Enter", "Send the message, or queue it while an answer runs"],
  ["Shift + Enter", "New line"],
  ["Esc", "Stop the answer (the next queued message starts); close a dialog, menu or list"],
  ["↑ in an empty box", "Withdraw the queued message, or edit your last message and send it again"],
  ["Alt + N", "New conversation"],
  ["Alt + K  or  /", "Search"],
  ["Alt + D", "Details: trace, usage, state, memory, artifacts"],
  ["Alt + L", "The list of conversations"],
  ["?", "This help"],
];

/** Say which processes run the agent, if there are several. @param {{replicas: Record<string, any>[]}} page */
function replicaNotes({ replicas }) {
  if (replicas.length < 2) return [];
  const lines = replicas.map(({ version, started_at, running_turns, is_this, place }) =>
    el("li", { text: `version ${version}${place && ` on ${place}`}, since ${formatTime(started_at)}, ${running_turns} running${is_this ? " (answers this page)" : ""}` }));
  return [el("h3", { text: `${replicas.length} replicas` }), el("ul", { class: "note" }, ...lines)];
}

export function showHelp(/** @type {Record<string, any>} */ about, /** @type {{replicas: Record<string, any>[]}} */ page) {
  const rows = SHORTCUTS.map(([keys, action]) => el("tr", {}, el("th", { scope: "row" }, el("kbd", { text: keys })), el("td", { text: action })));
  return openDialog({
    title: "Help",
    body: [
      el("p", { text: "Every message is stored before it is answered. If you close the tab, reload it or lose the network, the answer continues and you find it here." }),
      el("table", { class: "keys" }, el("caption", { class: "visually-hidden", text: "Keyboard" }), el("tbody", {}, ...rows)),
      el("p", { class: "note", text: `Lango ${about.version ?? ""} · ${byId("model").textContent}` }),
      ...replicaNotes(page),
    ],
    yes: "Close", no: null, wide: true,
  });
}

/**
 * Show a menu under a button.
 * @param {HTMLElement} button
 * @param {{label: string, shape: import("./dom.js").Shape, onClick: () => void, danger?: boolean}[]} items
 */
export function showMenu(button, items) {
  document.querySelector(".menu")?.remove();
  const menu = el("div", { class: "menu", role: "menu", popover: "auto" });
  for (const { label, shape, onClick, danger } of items) {
    menu.append(el("button", {
      role: "menuitem", type: "button", tabindex: "-1", class: danger ? "danger-item" : "",
      click: () => { menu.hidePopover(); onClick(); },
    }, icon(shape), label));
  }
  menu.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const buttons = [...menu.children];
    const index = buttons.indexOf(/** @type {any} */ (document.activeElement));
    const to = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (event.key === "Tab") menu.hidePopover();
    if (to === undefined) return;
    event.preventDefault();
    buttons.at(to % buttons.length).focus();
  });
  menu.addEventListener("toggle", (/** @type {any} */ event) => {
    button.setAttribute("aria-expanded", String(event.newState === "open"));
    if (event.newState === "open") return;
    if (menu.contains(document.activeElement) || document.activeElement === document.body) button.focus();
    menu.remove();
  });
  button.after(menu); // within the same landmark
  menu.showPopover();
  const box = button.getBoundingClientRect();
  const left = Math.max(8, Math.min(box.right - menu.offsetWidth, innerWidth - menu.offsetWidth - 8));
  const below = box.bottom + menu.offsetHeight + 8 < innerHeight;
  menu.style.left = `${left}px`;
  menu.style.top = `${below ? box.bottom + 4 : Math.max(8, box.top - menu.offsetHeight - 4)}px`;
  menu.firstElementChild?.focus();
}

export function isDialogOpen() {
  return document.querySelector("dialog[open], .menu") !== null;
}

/** Save bytes as a file. @param {Blob} blob @param {string} name */
export function download(blob, name) {
  const address = URL.createObjectURL(blob);
  const link = el("a", { href: address, download: name });
  byId("toasts").append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
