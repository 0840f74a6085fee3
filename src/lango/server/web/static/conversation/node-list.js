/** Show the nodes of a workflow in the order in which they started, each with its state; a click shows its input and output. */

import { el } from "../base/dom.js";

const LABELS = /** @type {Record<string, string>} */ ({ started: "running", ended: "done", failed: "failed", waiting: "waiting" });
const MAX_SHOWN_LENGTH = 400;

/** @typedef {{name: string, path: string, status: string, attempt: number, input: any, output: any, error: string}} NodeProgress */
/** @typedef {{line: HTMLElement, status: HTMLElement, output: HTMLElement, values: HTMLElement, input: any, end: NodeProgress}} Line */

/** @param {any} value @param {number} [indent] */
function text(value, indent) {
  if (value === null || value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value, null, indent);
}

/** @param {Line} node */
function showValues({ values, input, end }) {
  const shown = [["Input", text(input, 2)], [end.error ? "Error" : "Output", end.error || text(end.output, 2)]].filter(([, value]) => value);
  values.replaceChildren(...shown.flatMap(([name, value]) => [el("dt", { text: name }), el("dd", {}, el("pre", { tabindex: "0", "aria-label": name, text: value }))]));
}

export class NodeList {
  /** @type {Map<string, Line>} */ #nodes = new Map();

  constructor() {
    this.element = el("ol", { class: "nodes", "aria-label": "Steps of the workflow" });
  }

  /** @param {NodeProgress} event */
  show(event) {
    const node = this.#nodes.get(event.path) ?? this.#add(event.path);
    node.line.dataset.status = event.status;
    node.status.textContent = event.attempt > 1 ? `${LABELS[event.status]}, attempt ${event.attempt}` : LABELS[event.status];
    if (event.status === "started") node.input = event.input;
    const shown = event.error || text(event.output);
    node.end = event;
    if (!node.values.hidden) showValues(node);
    node.output.textContent = shown.length > MAX_SHOWN_LENGTH ? `${shown.slice(0, MAX_SHOWN_LENGTH)}…` : shown;
  }

  /** @param {string} path */
  #add(path) {
    const names = path.split("/").slice(1).map((step) => step.replace(/@1$/, "").replace("@", " "));
    const [status, output] = [el("span", { class: "node-status" }), el("span", { class: "node-output" })];
    const values = el("dl", { class: "node-values", hidden: true });
    const name = el("button", { type: "button", class: "node-name", "aria-expanded": "false", title: "Show its input and output", text: names.join(" / ") || path });
    name.addEventListener("click", () => {
      values.hidden = !values.hidden;
      if (!values.hidden) showValues(node);
      name.setAttribute("aria-expanded", String(!values.hidden));
    });
    const line = el("li", { "data-path": path }, name, status, output, values);
    const node = /** @type {Line} */ ({ line, status, output, values, input: null });
    this.#nodes.set(path, node);
    this.element.append(line);
    return node;
  }
}
