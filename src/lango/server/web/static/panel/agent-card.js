/** Show what an agent or node is: its description, instruction, model, tools with their schemas, and what is below it. */

import { el, formatDuration } from "../base/dom.js";
import { jsonBlock } from "./request-view.js";
import { kindOf } from "./agent-picture.js";
import { toolForm } from "./tool-form.js";

/** @typedef {import("./agent-layout.js").Agent} Agent @typedef {import("./agent-layout.js").Tool} Tool @typedef {import("./agent-runs.js").Run} Run */

const DECISIONS = /** @type {Record<string, string>} */ ({ ask: "asks before it runs", deny: "denied by the settings" });
const SHOWN_RUNS = 5;

/** @param {string} app @param {Agent} node @param {Run[]} runs @param {{select: (node: Agent) => void, open: (run: Run) => void, askToolsets: () => void}} actions */
export function agentCard(app, node, runs, { select, open, askToolsets }) {
  const facts = [["Kind", kindOf(node)], ["Class", node.of_class], ["Model", node.model], ["Instruction", node.instruction_from && `made by ${node.instruction_from}()`]].filter(([, value]) => value);
  return el("section", { class: "agent-card", "aria-label": `Agent ${node.name}` },
    el("h2", { text: node.name }),
    node.description && el("p", { class: "agent-about", text: node.description }),
    el("dl", {}, ...facts.map(([name, value]) => el("div", {}, el("dt", { text: name }), el("dd", { text: value })))),
    node.instruction && el("details", { class: "agent-instruction" }, el("summary", { text: "Instruction" }), el("pre", { tabindex: "0", "aria-label": "Instruction", text: node.instruction })),
    runs.length > 0 && el("div", { class: "agent-runs" }, el("h3", { text: "Runs" }),
      el("ul", {}, ...runs.slice(-SHOWN_RUNS).toReversed().map((run) => el("li", {}, el("button", { type: "button", class: "quiet small", click: () => open(run) },
        [`Turn ${run.turn}`, run.status, formatDuration(run.duration_s)].filter(Boolean).join(" · ")))))),
    node.tools.length > 0 && el("div", {}, el("h3", { text: "Tools" }), ...node.tools.map((tool) => toolBox(app, node.name, tool, askToolsets, select))),
    node.children.length > 0 && el("div", {}, el("h3", { text: node.kind === "llm" ? "Transfers to" : "Steps" }),
      el("ul", { class: "agent-below" }, ...node.children.map((child) => el("li", {}, el("button", { type: "button", class: "quiet", click: () => select(child) }, child.name), child.description && el("span", { class: "note", text: child.description }))))));
}

/** @param {string} app @param {string} agent @param {Tool} tool @param {() => void} askToolsets @param {(node: Agent) => void} select @returns {HTMLElement} */
function toolBox(app, agent, tool, askToolsets, select) {
  const { runs } = tool;
  const name = tool.name || tool.kind;
  const box = el("details", { class: "agent-tool-box", open: tool.tools.length > 0 },
    el("summary", {}, el("strong", { text: name }), DECISIONS[tool.decision] && el("span", { class: "note", text: ` ${DECISIONS[tool.decision]}` })),
    tool.description && el("p", { class: "agent-about", text: tool.description }),
    tool.problem && el("p", { class: "bad", text: tool.problem }),
    runs && el("p", {}, "It runs ", el("button", { type: "button", class: "quiet", click: () => select(runs) }, runs.name), "."),
    tool.is_toolset && !tool.tools.length && el("button", { type: "button", click: askToolsets }, "Ask for its tools"),
    ...tool.tools.map((one) => toolBox(app, agent, one, askToolsets, select)));
  box.addEventListener("toggle", () => {
    if (!box.open || !tool.schema || box.querySelector("form")) return;
    const schema = el("details", {}, el("summary", { text: "Schema of its arguments" }), ...jsonBlock("Schema", tool.schema));
    box.append(schema, ...(runs || tool.decision === "deny" ? [] : [toolForm(app, agent, tool)]));
  });
  return box;
}
