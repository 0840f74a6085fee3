/**
 * Switch between the views beside the conversation. A view is a module with `show(host, session)`, called when its tab
 * is opened, another session is shown, or a turn starts or ends while it is open. `session` is an id, or null for a
 * session that is not stored yet.
 */

import { byId, el } from "../base/dom.js";
import { on, state } from "../base/state.js";

/** @type {Record<string, () => Promise<{show: (host: HTMLElement, session: string | null) => any}>>} */
const VIEWS = {
  agent: () => import("./agent-view.js"),
  trace: () => import("./trace-view.js"),
  usage: () => import("./usage-view.js"),
  state: () => import("./state-view.js"),
  memory: () => import("./memory-view.js"),
  artifacts: () => import("./artifacts-view.js"),
  grants: () => import("./grants-view.js"),
};

let currentView = "trace";
/** whether the panel covers the conversation */ const covers = matchMedia("(max-width: 50rem)");

export function isPanelOpen() {
  return !byId("panel").hidden;
}

/** @param {boolean} isOpen */
export function openPanel(isOpen) {
  byId("panel").hidden = !isOpen;
  byId("panel-open").setAttribute("aria-expanded", String(isOpen));
  document.body.classList.toggle("with-panel", isOpen);
  if (isOpen) {
    draw();
    byId(`tab-${currentView}`).focus();
  } else {
    byId("panel-open").focus();
  }
}

/** @param {string} name */
function selectView(name) {
  currentView = name;
  for (const other of Object.keys(VIEWS)) {
    const selected = other === name;
    const tab = byId(`tab-${other}`);
    tab.setAttribute("aria-selected", String(selected));
    tab.tabIndex = selected ? 0 : -1;
    byId(`view-${other}`).hidden = !selected;
  }
  draw();
}

async function draw() {
  if (!isPanelOpen()) return;
  const host = byId(`view-${currentView}`);
  try {
    const view = await VIEWS[currentView]();
    await view.show(host, state.session);
  } catch (error) {
    host.replaceChildren(el("p", { class: "note", text: `This view cannot be shown: ${error instanceof Error ? error.message : error}` }));
  }
}

/** Show the trace of the turn that a message belongs to. @param {number | null} seq */
async function showTrace(seq) {
  if (seq !== null) (await import("./trace-view.js")).wantMessage(seq);
  if (!isPanelOpen()) openPanel(true);
  selectView("trace");
}

/** Show a step of the trace. @param {{turn: number, step: string}} step */
async function showStep(step) {
  (await import("./trace-view.js")).wantStep(step);
  if (!isPanelOpen()) openPanel(true);
  selectView("trace");
}

/** Show the agent: its picture, and the cards of its nodes. */
export function showAgent() {
  currentView = "agent";
  if (!isPanelOpen()) openPanel(true);
  selectView("agent");
}

/** Scroll to a tool call, or to a message, in the conversation. @param {{call_id: string, seq: number}} step */
function reveal({ call_id, seq }) {
  if (covers.matches) openPanel(false);
  const card = call_id && document.querySelector(`.tool-card[data-call="${CSS.escape(call_id)}"] details`);
  if (!(card instanceof HTMLDetailsElement)) return void (location.hash = `#/s/${encodeURIComponent(state.session ?? "")}/${seq}`);
  card.open = true;
  card.scrollIntoView({ block: "center" });
  card.querySelector("summary")?.focus();
}

export function setUpPanel() {
  const names = Object.keys(VIEWS);
  for (const name of names) byId(`tab-${name}`).addEventListener("click", () => selectView(name));
  byId("tabs").addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = names[(names.indexOf(currentView) + step + names.length) % names.length];
    selectView(next);
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
  on("trace", showTrace);
  on("step", showStep);
  on("reveal", reveal);
}
