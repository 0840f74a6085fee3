/** Show the agent: its picture with what runs, is done or waits in the newest turn, and the card of the chosen node. */

import { api, sessionPath } from "../base/api.js";
import { el, loadStylesheet } from "../base/dom.js";
import { emit, state } from "../base/state.js";
import { agentCard } from "./agent-card.js";
import { drawAgent } from "./agent-picture.js";
import { findRuns, nodeKey } from "./agent-runs.js";

/** @typedef {import("./agent-layout.js").Agent} Agent @typedef {import("./agent-runs.js").Run} Run @typedef {import("./trace-view.js").Turn} Turn */

const LIVE_MS = 1000;

let newestRequest = 0;
let root = /** @type {Agent | null} */ (null);
let chosen = "";
let shownCard = "";

/** @param {HTMLElement} host @param {string | null} session */
export async function show(host, session) {
  const request = ++newestRequest;
  const [described, page] = await Promise.all([
    root ?? /** @type {Promise<Agent>} */ (api(agentPath())),
    session === null ? { turns: [] } : /** @type {Promise<{turns: Turn[]}>} */ (api(sessionPath(session, "/trace"))),
    loadStylesheet("/page/panel.css"), loadStylesheet("/page/trace.css"), loadStylesheet("/page/agent.css"),
  ]);
  if (request !== newestRequest) return;
  root = described;
  draw(host, described, page.turns);
  if (state.running && session !== null) setTimeout(() => { if (request === newestRequest && host.offsetParent) void show(host, session).catch(() => {}); }, LIVE_MS);
}

function agentPath(rest = "") {
  return `/v1/agents/${encodeURIComponent(state.about.name)}${rest}`;
}

/** @param {HTMLElement} host @param {Agent} described @param {Turn[]} turns */
function draw(host, described, turns) {
  const node = find(described, chosen) ?? described;
  const newest = turns.at(-1);
  const open = (/** @type {Run} */ run) => emit("step", { turn: run.turn, step: run.step });
  const select = (/** @type {Agent} */ other) => {
    chosen = other.name;
    shownCard = "";
    draw(host, described, turns);
    host.querySelector(".agent-card")?.scrollIntoView({ block: "nearest" });
  };
  const askToolsets = async () => {
    root = await api(agentPath("?toolsets=true"));
    shownCard = "";
    draw(host, /** @type {Agent} */ (root), turns);
  };
  const focused = host.contains(document.activeElement) ? document.activeElement?.closest("svg") && document.activeElement?.getAttribute("aria-label")?.split(",")[0] : null;
  const runs = findRuns(newest ? [newest] : []);
  const picture = drawAgent(described, runs, host.clientWidth - 32, { name: node.name, select, open });
  const note = newest ? `Turn ${newest.turn}: ${newest.status}. Choose an agent for its card, or what it did for its place in the trace.` : "Choose an agent for its card. What runs is shown here while it runs.";
  const place = el("div", { class: "agent-scroll", tabindex: "0", role: "region", "aria-label": "Picture of the agent" }, picture);
  const all = findRuns(turns).get(nodeKey(node.name)) ?? [];
  const key = JSON.stringify([node.name, all, state.session]);
  const card = key === shownCard ? host.querySelector(".agent-card") : null; // what is typed into its forms stays
  shownCard = key;
  host.replaceChildren(el("p", { class: "note", text: note }), place, card ?? agentCard(state.about.name, node, all, { select, open, askToolsets: () => void askToolsets() }));
  if (focused) /** @type {SVGElement | undefined} */ ([...picture.querySelectorAll("[role=button]")].find((one) => one.getAttribute("aria-label")?.split(",")[0] === focused))?.focus();
}

/** @param {Agent} node @param {string} name @returns {Agent | null} */
function find(node, name) {
  if (node.name === name) return node;
  const below = [...node.children, ...node.tools.flatMap((tool) => (tool.runs ? [tool.runs] : []))];
  for (const one of below) {
    const found = find(one, name);
    if (found) return found;
  }
  return null;
}
