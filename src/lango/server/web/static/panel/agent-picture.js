/** Draw an app as SVG: its agents, nodes and tools, with what runs, is done or waits. */

import { formatDuration } from "../base/dom.js";
import { MAX_TOOLS, layOut, shownTools } from "./agent-layout.js";
import { durationOf, nodeKey, statusOf, toolKey } from "./agent-runs.js";

/** @typedef {import("./agent-layout.js").Agent} Agent @typedef {import("./agent-layout.js").Box} Box @typedef {import("./agent-layout.js").Line} Line */
/** @typedef {import("./agent-runs.js").Run} Run */

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = 10;
const FACT_CHARACTER = 6;
const LABELS = /** @type {Record<string, string>} */ ({ running: "runs", done: "done", failed: "failed", waiting: "waits", not_run: "not run", unknown: "unknown" });
const KINDS = /** @type {Record<string, string>} */ ({ llm: "agent", sequence: "in sequence", parallel: "in parallel", loop: "in a loop", workflow: "workflow", function: "function", other: "node" });

/** @param {Agent} node */
export function kindOf(node) {
  return KINDS[node.kind] ?? node.kind;
}

/**
 * @param {Agent} root @param {Map<string, Run[]>} runs @param {number} room the width of the place for the picture
 * @param {{name: string, select: (node: Agent) => void, open: (run: Run) => void}} actions `name` is that of the chosen node
 */
export function drawAgent(root, runs, room, { name, select, open }) {
  const picture = layOut(root, Math.max(260, room - 2 * MARGIN));
  const [width, height] = [picture.width + 2 * MARGIN, picture.height + 2 * MARGIN];
  const svg = shape("svg", { class: "agent-picture", viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": `Picture of ${root.name}` });
  const page = shape("g", { transform: `translate(${MARGIN} ${MARGIN})` });
  svg.append(arrow(), page);
  for (const frame of picture.frames) page.append(drawFrame(frame, runs, name, select));
  const lines = picture.lines.map(drawLine);
  page.append(...lines.map(([path]) => path), ...lines.flatMap(([, label]) => label ?? [])); // no line crosses a label
  for (const box of picture.boxes) page.append(drawBox(box, runs, name, select, open));
  return svg;
}

/** @param {Agent} node @param {Map<string, Run[]>} runs @returns {Run[]} */
function runsWithin(node, runs) {
  return [...(runs.get(nodeKey(node.name)) ?? []), ...node.children.flatMap((child) => runsWithin(child, runs))];
}

/** @param {Box} frame @param {Map<string, Run[]>} runs @param {string} chosen @param {(node: Agent) => void} select */
function drawFrame({ node, x, y, width, height }, runs, chosen, select) {
  const status = statusOf(runsWithin(node, runs));
  const head = button(`${node.name}, ${kindOf(node)}${status && `, ${LABELS[status]}`}`, () => select(node), "agent-frame-head");
  head.append(
    shape("rect", { x, y, width, height: 26, rx: 8, class: "agent-hit" }),
    text(node.name, x + 12, y + 18, "agent-name"), text(kindOf(node), x + width - 12, y + 18, "agent-kind", "end"));
  const group = shape("g", { class: "agent-frame", "data-status": status, "data-name": node.name, "data-chosen": String(node.name === chosen) });
  group.append(shape("rect", { x, y, width, height, rx: 12, class: "agent-frame-edge" }), head);
  return group;
}

/** @param {Box} box @param {Map<string, Run[]>} runs @param {string} chosen @param {(node: Agent) => void} select @param {(run: Run) => void} open */
function drawBox({ node, x, y, width, height }, runs, chosen, select, open) {
  const own = runs.get(nodeKey(node.name)) ?? [];
  const status = statusOf(own);
  const group = shape("g", { class: "agent-node", "data-status": status, "data-name": node.name, "data-kind": node.kind, "data-chosen": String(node.name === chosen) });
  const head = button([node.name, kindOf(node), describe(own)].filter(Boolean).join(", "), () => select(node), "agent-head");
  head.append(shape("rect", { x, y, width, height: own.length ? 22 : 42, rx: 10, class: "agent-hit" }), text(short(node.name, width - 24), x + 12, y + 17, "agent-name"));
  group.append(shape("rect", { x, y, width, height, rx: 10, class: "agent-box" }), head);
  group.addEventListener("click", () => select(node)); // the rest of the box, too
  if (!own.length) head.append(text(kindOf(node), x + 12, y + 33, "agent-kind"));
  else group.append(runLine(describe(own), `Show ${node.name} in the trace`, x + 12, y + 33, width - 24, own, open));
  shownTools(node).forEach((tool, at) => {
    const calls = runs.get(toolKey(node.name, tool.name)) ?? [];
    const top = y + 42 + at * 22;
    const name = tool.name || tool.kind;
    if (calls.length) {
      const row = runLine(describe(calls, true), `Show ${name} in the trace`, x + width - 12, top + 15, width - 16, calls, open, "end");
      row.prepend(shape("rect", { x: x + 6, y: top, width: width - 12, height: 20, rx: 5, class: "agent-hit" }), text(short(name, width - 34 - describe(calls, true).length * FACT_CHARACTER), x + 14, top + 15, "agent-tool"));
      group.append(row);
    } else group.append(text(`${short(name, width - 40)}${tool.is_toolset ? " …" : ""}`, x + 14, top + 15, "agent-tool"));
  });
  if (node.tools.length > MAX_TOOLS) group.append(text(`and ${node.tools.length - MAX_TOOLS} more tools`, x + 14, y + 42 + MAX_TOOLS * 22 + 15, "agent-kind"));
  return group;
}

/** Say how often something ran, how long, and how it is. @param {Run[]} runs */
function describe(runs, isShort = false) {
  if (!runs.length) return "";
  const status = statusOf(runs);
  const state = isShort && status === "done" ? "" : LABELS[status] ?? status;
  return [state, runs.length > 1 ? `${runs.length}×` : "", formatDuration(durationOf(runs))].filter(Boolean).join(" · ");
}

/** A line that leads to the newest run in the trace. @param {string} words @param {string} label @param {number} x @param {number} y @param {number} width @param {Run[]} runs @param {(run: Run) => void} open */
function runLine(words, label, x, y, width, runs, open, anchor = "start") {
  const newest = /** @type {Run} */ (runs.at(-1));
  const line = button(`${label}: ${words}`, () => open(newest), "agent-run");
  line.dataset.status = statusOf(runs);
  line.append(shape("rect", { x: anchor === "end" ? x - width + 4 : x - 4, y: y - 12, width, height: 17, class: "agent-hit" }), text(words, x, y, "agent-facts", anchor));
  return line;
}

/** @param {Line} line */
function drawLine({ points, label, isBack }) {
  const [[x1, y1], [x2, y2]] = [points[0], points[points.length - 1]];
  const middle = (y1 + y2) / 2;
  const d = points.length === 2 ? `M${x1} ${y1}C${x1} ${middle} ${x2} ${middle} ${x2} ${y2}` : `M${points.map(([x, y]) => `${x} ${y}`).join("L")}`;
  const drawn = [shape("path", { d, class: isBack ? "agent-line agent-back" : "agent-line", "marker-end": "url(#agent-arrow)" })];
  const [lx, ly] = points.length === 2 ? [(x1 + x2) / 2, middle + 4] : [points[2][0] - 4, points[2][1] + 14];
  return label ? [...drawn, text(label, lx, ly, "agent-route", points.length === 2 ? "middle" : "end")] : drawn;
}

function arrow() {
  const marker = shape("marker", { id: "agent-arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" });
  marker.append(shape("path", { d: "M0 0L8 4L0 8z", class: "agent-tip" }));
  const defs = shape("defs", {});
  defs.append(marker);
  return defs;
}

/** @param {string} label @param {() => void} action @param {string} name */
function button(label, action, name) {
  const group = shape("g", { role: "button", tabindex: 0, "aria-label": label, class: name });
  group.addEventListener("click", (event) => {
    event.stopPropagation();
    action();
  });
  group.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    action();
  });
  return group;
}

/** @param {string} words @param {number} x @param {number} y @param {string} name */
function text(words, x, y, name, anchor = "start") {
  const element = shape("text", { x, y, class: name, "text-anchor": anchor });
  element.textContent = words;
  return element;
}

/** @param {string} words @param {number} width */
function short(words, width) {
  const most = Math.max(4, Math.floor(width / 7.2));
  return words.length > most ? `${words.slice(0, most - 1)}…` : words;
}

/** @param {string} tag @param {Record<string, string | number>} attributes @returns {SVGElement} */
function shape(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  return element;
}
