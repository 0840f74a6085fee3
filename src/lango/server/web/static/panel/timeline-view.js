/** List the tool calls of this conversation; a click scrolls to the call. */

import { el, formatDuration } from "../base/dom.js";
import { STATUS_LABELS } from "../conversation/tool-card.js";

/** @type {() => import("../conversation/tool-card.js").ToolCard[]} */
let readCards = () => [];

/** @param {() => import("../conversation/tool-card.js").ToolCard[]} read */
export function setCardSource(read) {
  readCards = read;
}

/** @param {HTMLElement} host */
export function show(host) {
  const cards = readCards();
  if (!cards.length) {
    host.replaceChildren(el("p", { class: "note", text: "No tool was called in this conversation. Calls are listed here as they happen." }));
    return;
  }
  const longest = Math.max(...cards.map((card) => card.duration_s ?? 0), 0.001);
  host.replaceChildren(el("ol", { class: "timeline" }, ...cards.map((card) => {
    const bar = el("span", { class: "bar", "aria-hidden": "true" });
    bar.style.width = `${Math.max(2, (100 * (card.duration_s ?? 0)) / longest)}%`;
    const line = [STATUS_LABELS[card.status], formatDuration(card.duration_s), card.approvedBy && `${card.approved === false ? "refused" : "approved"} by ${card.approvedBy}`];
    return el("li", { "data-status": card.status }, el("button", { type: "button", click: () => scrollToCard(card) },
      el("span", { class: "tool-name", text: card.name }),
      el("span", { class: "timeline-details", text: line.filter(Boolean).join(" · ") }), bar));
  })));
}

/** @param {import("../conversation/tool-card.js").ToolCard} card */
function scrollToCard(card) {
  card.box.open = true;
  card.element.scrollIntoView({ block: "center" });
  card.box.querySelector("summary")?.focus();
}
