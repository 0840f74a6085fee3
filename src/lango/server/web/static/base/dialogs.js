/** Questions to the user, and menus. Each closes with Escape and gives the focus back. */

import { byId, el, icon } from "./dom.js";

/**
 * Ask something in a dialog; resolves to the value of the button that was pressed, or null.
 * @param {{title: string, body?: (Node | string)[], yes: string, no?: string | null, danger?: boolean, value?: () => any, wide?: boolean}} how
 * @returns {Promise<any>}
 */
function ask({ title, body = [], yes, no = "Cancel", danger = false, value = () => true, wide = false }) {
  return new Promise((answer) => {
    const form = el("form", { method: "dialog" },
      el("h2", { id: "dialog-title", text: title }),
      ...body,
      el("div", { class: "dialog-end" },
        no && el("button", { type: "button", click: () => dialog.close("no") }, no),
        el("button", { type: "submit", class: danger ? "danger" : "primary", value: "yes" }, yes)));
    const dialog = el("dialog", { class: wide ? "dialog wide-dialog" : "dialog", "aria-labelledby": "dialog-title" }, form);
    form.addEventListener("submit", (/** @type {Event} */ event) => {
      event.preventDefault();
      dialog.close("yes");
    });
    dialog.addEventListener("click", (/** @type {Event} */ event) => event.target === dialog && dialog.close("no"));
    dialog.addEventListener("close", () => {
      const said = dialog.returnValue === "yes" ? value() : null;
      dialog.remove();
      answer(said);
    });
    document.body.append(dialog);
    dialog.showModal();
    (form.querySelector("input, textarea") ?? form.querySelector("button:not([type=submit])") ?? form.querySelector("button"))?.focus();
    form.querySelector("input")?.select();
  });
}

/** @param {string} title @param {string} words @param {string} yes */
export async function confirm(title, words, yes, danger = true) {
  return (await ask({ title, body: [el("p", { text: words })], yes, danger })) === true;
}

/** @param {string} title @param {string} label @param {string} now @returns {Promise<string | null>} */
export function askText(title, label, now, yes = "Save") {
  const input = el("input", { type: "text", maxlength: 200, value: now, autocomplete: "off" });
  return ask({ title, body: [el("label", { class: "field" }, label, input)], yes, value: () => input.value.trim() });
}

/** @returns {Promise<string | null>} */
export async function askKey(refused = false) {
  const input = el("input", { type: "password", autocomplete: "off", required: true });
  const words = refused
    ? "The server did not take this key. Enter another one."
    : "This server needs an API key. Whoever runs it makes one with `lango keys add NAME`.";
  const given = await ask({
    title: "API key",
    body: [el("p", { text: words }), el("label", { class: "field" }, "Key", input),
      el("p", { class: "note", text: "It is kept in this tab only, until you close it." })],
    yes: "Go on",
    value: () => input.value.trim(),
  });
  return given || null;
}

const SHORTCUTS = [
  ["Enter", "Send the message; while an answer runs, it waits"],
  ["Shift + Enter", "New line"],
  ["Esc", "Stop the answer (a message that waits begins then); close what is open"],
  ["↑ in an empty box", "Take back the message that waits, or edit your last one and send it again"],
  ["Alt + N", "New conversation"],
  ["Alt + K  or  /", "Search"],
  ["Alt + D", "Details: timeline, picture, memory"],
  ["Alt + L", "The list of conversations"],
  ["?", "This help"],
];

export function showHelp(/** @type {Record<string, any>} */ about) {
  const rows = SHORTCUTS.map(([keys, what]) => el("tr", {}, el("th", { scope: "row" }, el("kbd", { text: keys })), el("td", { text: what })));
  return ask({
    title: "Help",
    body: [
      el("p", { text: "Every message is stored before it is answered. Close the tab, reload, lose the network: the answer goes on, and you find it here." }),
      el("table", { class: "keys" }, el("caption", { class: "hidden", text: "Keyboard" }), el("tbody", {}, ...rows)),
      el("p", { class: "note", text: `Lango ${about.version ?? ""} · ${about.model ?? ""}` }),
    ],
    yes: "Close", no: null, wide: true,
  });
}

/**
 * Show a menu under a button.
 * @param {HTMLElement} button
 * @param {{label: string, shape: import("./dom.js").Shape, then: () => void, danger?: boolean}[]} items
 */
export function showMenu(button, items) {
  document.querySelector(".menu")?.remove();
  const menu = el("div", { class: "menu", role: "menu", popover: "auto" });
  for (const { label, shape, then, danger } of items) {
    menu.append(el("button", {
      role: "menuitem", type: "button", tabindex: "-1", class: danger ? "danger-item" : "",
      click: () => { menu.hidePopover(); then(); },
    }, icon(shape), label));
  }
  menu.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const all = [...menu.children];
    const at = all.indexOf(/** @type {any} */ (document.activeElement));
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (event.key === "Tab") menu.hidePopover();
    if (to === undefined) return;
    event.preventDefault();
    all.at(to % all.length).focus();
  });
  menu.addEventListener("toggle", (/** @type {any} */ event) => {
    button.setAttribute("aria-expanded", String(event.newState === "open"));
    if (event.newState === "open") return;
    if (menu.contains(document.activeElement) || document.activeElement === document.body) button.focus();
    menu.remove();
  });
  button.after(menu); // within the same landmark
  menu.showPopover();
  const place = button.getBoundingClientRect();
  const left = Math.max(8, Math.min(place.right - menu.offsetWidth, innerWidth - menu.offsetWidth - 8));
  const below = place.bottom + menu.offsetHeight + 8 < innerHeight;
  menu.style.left = `${left}px`;
  menu.style.top = `${below ? place.bottom + 4 : Math.max(8, place.top - menu.offsetHeight - 4)}px`;
  menu.firstElementChild?.focus();
}

export function isOpen() {
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
