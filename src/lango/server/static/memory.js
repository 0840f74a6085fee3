import { el } from "./dom.js";

/** @param {HTMLElement} host @param {string | null} session */
export function show(host, session) {
  host.replaceChildren(el("p", { class: "note", text: session ? "Nothing to show yet." : "Send a message first." }));
}
