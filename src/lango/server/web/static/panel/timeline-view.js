/** The calls of tools of this conversation, in their order; each leads to its place. */

import { el, lasted } from "../base/dom.js";

const WORDS = /** @type {Record<string, string>} */ ({
  running: "running", done: "done", failed: "failed", asked: "waits for you", client: "waits for the client", refused: "refused", lapsed: "not run",
});

/** @type {() => import("../conversation/tool-card.js").ToolCard[]} */
let cards = () => [];

/** @param {() => import("../conversation/tool-card.js").ToolCard[]} read */
export function readCardsWith(read) {
  cards = read;
}

/** @param {HTMLElement} host */
export function show(host) {
  const found = cards();
  if (!found.length) {
    host.replaceChildren(el("p", { class: "note", text: "No tool was called in this conversation. Calls are listed here as they happen." }));
    return;
  }
  const longest = Math.max(...found.map((one) => one.duration_s ?? 0), 0.001);
  host.replaceChildren(el("ol", { class: "timeline" }, ...found.map((card) => {
    const bar = el("span", { class: "bar", "aria-hidden": "true" });
    bar.style.width = `${Math.max(2, (100 * (card.duration_s ?? 0)) / longest)}%`;
    const line = [WORDS[card.status], lasted(card.duration_s), card.approvedBy && `${card.approved === false ? "refused" : "approved"} by ${card.approvedBy}`];
    return el("li", { "data-status": card.status }, el("button", { type: "button", click: () => goTo(card) },
      el("span", { class: "tool-name", text: card.name }),
      el("span", { class: "timeline-facts", text: line.filter(Boolean).join(" · ") }), bar));
  })));
}

/** @param {import("../conversation/tool-card.js").ToolCard} card */
function goTo(card) {
  card.box.open = true;
  card.element.scrollIntoView({ block: "center" });
  card.box.querySelector("summary")?.focus();
}
