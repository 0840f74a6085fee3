/**
 * The panel beside the conversation. A view is a module with `show(host, session)`, called whenever it is to be drawn
 * anew: its tab was opened, another session is shown, or a turn ended while it is open. `session` is an id, or null
 * where there is none yet.
 */

import { byId, el } from "../base/dom.js";
import { on, state } from "../base/state.js";

/** @type {Record<string, () => Promise<{show: (host: HTMLElement, session: string | null) => any}>>} */
const VIEWS = {
  timeline: () => import("./timeline-view.js"),
  picture: () => import("./usage-view.js"),
  memory: () => import("./memory-view.js"),
};

let open = "timeline";

export function isPanelOpen() {
  return !byId("panel").hidden;
}

/** @param {boolean} is */
export function openPanel(is) {
  byId("panel").hidden = !is;
  byId("panel-open").setAttribute("aria-expanded", String(is));
  document.body.classList.toggle("with-panel", is);
  if (is) {
    draw();
    byId(`tab-${open}`).focus();
  } else {
    byId("panel-open").focus();
  }
}

/** @param {string} name */
function choose(name) {
  open = name;
  for (const one of Object.keys(VIEWS)) {
    const is = one === name;
    const tab = byId(`tab-${one}`);
    tab.setAttribute("aria-selected", String(is));
    tab.tabIndex = is ? 0 : -1;
    byId(`view-${one}`).hidden = !is;
  }
  draw();
}

async function draw() {
  if (!isPanelOpen()) return;
  const host = byId(`view-${open}`);
  try {
    const view = await VIEWS[open]();
    await view.show(host, state.session);
  } catch (error) {
    host.replaceChildren(el("p", { class: "note", text: `This cannot be shown: ${error instanceof Error ? error.message : error}` }));
  }
}

export function setUpPanel() {
  const names = Object.keys(VIEWS);
  for (const name of names) byId(`tab-${name}`).addEventListener("click", () => choose(name));
  byId("tabs").addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = names[(names.indexOf(open) + step + names.length) % names.length];
    choose(next);
    byId(`tab-${next}`).focus();
  });
  byId("panel-open").addEventListener("click", () => openPanel(!isPanelOpen()));
  byId("panel-close").addEventListener("click", () => openPanel(false));
  byId("panel").addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    openPanel(false);
  });
  on("session", draw);
  on("turn", draw);
  on("messages", draw);
}
