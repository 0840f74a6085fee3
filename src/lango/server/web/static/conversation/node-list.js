/** Show the nodes of a workflow in the order in which they started, each with its state and its output. */

import { el } from "../base/dom.js";

const LABELS = /** @type {Record<string, string>} */ ({ started: "running", ended: "done", failed: "failed", waiting: "waiting" });
const MAX_SHOWN_LENGTH = 400;

/** @typedef {{name: string, path: string, status: string, attempt: number, output: any, error: string}} NodeProgress */

export class NodeList {
  /** @type {Map<string, {line: HTMLElement, status: HTMLElement, output: HTMLElement}>} */ #nodes = new Map();

  constructor() {
    this.element = el("ol", { class: "nodes", "aria-label": "Steps of the workflow" });
  }

  /** @param {NodeProgress} event */
  show(event) {
    const node = this.#nodes.get(event.path) ?? this.#add(event.path);
    node.line.dataset.status = event.status;
    node.status.textContent = event.attempt > 1 ? `${LABELS[event.status]}, attempt ${event.attempt}` : LABELS[event.status];
    const shown = event.error || (event.output === null || event.output === undefined ? "" : typeof event.output === "string" ? event.output : JSON.stringify(event.output));
    node.output.textContent = shown.length > MAX_SHOWN_LENGTH ? `${shown.slice(0, MAX_SHOWN_LENGTH)}…` : shown;
  }

  /** @param {string} path */
  #add(path) {
    const names = path.split("/").slice(1).map((step) => step.replace(/@1$/, "").replace("@", " "));
    const [status, output] = [el("span", { class: "node-status" }), el("span", { class: "node-output" })];
    const line = el("li", { "data-path": path }, el("span", { class: "node-name", text: names.join(" / ") || path }), status, output);
    const node = { line, status, output };
    this.#nodes.set(path, node);
    this.element.append(line);
    return node;
  }
}
