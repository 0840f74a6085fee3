/** Show a tool call and what it waits for: a line that opens to arguments, result, duration and approver. */

import { el, icon, formatDuration, formatTime } from "../base/dom.js";
import { failureBlock, shortPlace } from "../base/failures.js";

const MAX_SHOWN_LENGTH = 20_000;
/** How each status is shown. */
const STATUS_LABELS = {
  running: "running", done: "done", failed: "failed", awaiting_approval: "waits for you", awaiting_client: "waits for the client", awaiting_result: "waits for its result", refused: "refused", expired: "not run",
};

/** @typedef {{id: string, name: string, input?: any, output?: any, duration_s?: number | null, approved?: boolean | null, approved_by?: string | null, refusal?: string, grant_id?: number | null, for_client?: boolean}} Call */

export class ToolCard {
  #line = el("span", { class: "tool-args" });
  #status = el("span", { class: "tool-status" });
  #body = el("div", { class: "tool-body" });
  #reason = el("p", { class: "tool-reason" });

  /** @param {string} id @param {string} name */
  constructor(id, name) {
    this.id = id;
    this.name = name;
    /** @type {keyof typeof STATUS_LABELS} */ this.status = "running";
    /** @type {any} */ this.input = undefined;
    /** @type {any} */ this.output = undefined;
    /** @type {number | null} */ this.duration_s = null;
    /** @type {boolean | null} */ this.approved = null;
    /** why a person refused the call */ this.refusal = "";
    /** @type {string | null} */ this.approvedBy = null;
    /** @type {number | null} */ this.grantId = null;
    /** @type {string | number | null} */ this.startedAt = null;
    /** where the tool raised an error @type {import("../base/failures.js").Failure | null} */ this.failure = null;
    /** what the call waits for: an approval or a result @type {import("./wait-card.js").WaitCard | null} */ this.wait = null;
    this.box = el("details", { class: "tool" },
      el("summary", {}, icon("tool"), el("span", { class: "tool-name", text: name }), this.#line, this.#status), this.#body);
    this.element = el("div", { class: "tool-card" }, this.box, this.#reason);
    this.draw();
  }

  /** @param {any} input */
  start(input, startedAt = /** @type {string | number | null} */ (null)) {
    this.input = input ?? this.input;
    this.startedAt ??= startedAt;
    this.status = "running";
    this.#endApproval();
    this.draw();
  }

  /** Show how far the tool is. @param {{progress: number, total?: number | null, message?: string}} report */
  showProgress({ progress, total = null, message = "" }) {
    if (this.status !== "running") return;
    this.#status.textContent = [total === null ? `${progress}` : `${progress} of ${total}`, message].filter(Boolean).join(": ");
  }

  /** @param {{ok: boolean, output: any, duration_s?: number | null}} end */
  finish({ ok, output, duration_s = null }) {
    this.output = output;
    this.duration_s = duration_s ?? this.duration_s ?? null;
    this.status = ok ? "done" : "failed";
    if (this.approved === false) this.status = "refused";
    this.#endApproval();
    this.draw();
  }

  /** Take over the stored details of the call. @param {Call} call */
  update(call) {
    this.input = call.input ?? this.input;
    this.duration_s = call.duration_s ?? this.duration_s;
    this.approved = call.approved ?? this.approved;
    this.approvedBy = call.approved_by ?? this.approvedBy;
    this.refusal = call.refusal ?? this.refusal;
    this.grantId = call.grant_id ?? this.grantId;
    if (call.for_client) this.handOverToClient();
    if (this.approved === false && this.status !== "awaiting_approval") this.status = "refused";
    this.draw();
  }

  /** Mark a call without a result as the client's to run. */
  handOverToClient() {
    if (this.status !== "running" || this.wait) return;
    this.status = "awaiting_client";
    this.draw();
  }

  expire() {
    if (this.status !== "awaiting_approval" && this.output !== undefined && !isAwaitingApproval(this.output)) return;
    this.status = "expired";
    this.#endApproval();
    this.draw();
  }

  /** Show the card of what the call waits for. @param {import("./wait-card.js").WaitCard} card */
  await(card) {
    this.wait?.element.remove();
    this.wait = card;
    this.input = card.wait.arguments ?? this.input;
    this.status = card.wait.kind === "approval" ? "awaiting_approval" : "awaiting_result";
    this.element.append(card.element);
    this.draw();
  }

  /** Stop waiting for a result: one was given, here or elsewhere. */
  endAwait() {
    this.wait?.close("closed");
    this.wait = null;
    if (this.status === "awaiting_result" && this.output !== undefined) this.status = "done"; // else the stored result is shown soon
    this.draw();
  }

  #approver() {
    return this.approvedBy && this.grantId ? `${this.approvedBy} (grant ${this.grantId})` : this.approvedBy ?? "";
  }

  #endApproval() {
    if (this.wait?.wait.kind !== "approval") return;
    this.wait.close("closed");
    this.wait = null;
  }

  draw() {
    this.element.dataset.status = this.status;
    this.element.dataset.call = this.id;
    this.#reason.textContent = this.status === "refused" ? this.refusal : "";
    this.#line.textContent = this.status === "awaiting_approval" ? "" : summarize(this.input);
    this.#status.textContent = [STATUS_LABELS[this.status], formatDuration(this.duration_s)].filter(Boolean).join(" · ");
    const place = this.failure && shortPlace(this.failure);
    if (place) this.#status.append(el("span", { class: "tool-place", text: ` · ${place}` }));
    const rows = [
      this.input === undefined ? null : block("Arguments", pretty(this.input)),
      this.output === undefined || this.status === "awaiting_approval" ? null : block(this.status === "failed" ? "Error" : "Result", resultText(this.output)),
      this.failure && failureBlock(this.failure),
      details([["Took", formatDuration(this.duration_s)], [this.approved === false ? "Refused by" : "Approved by", this.#approver()], ["Started", this.startedAt ? formatTime(this.startedAt) : ""]]),
    ];
    this.#body.replaceChildren(...rows.filter((row) => row !== null));
  }
}

/** Return whether a result only reports that the call waits for approval. @param {any} output */
export function isAwaitingApproval(output) {
  return typeof output?.status === "string" && output.status.startsWith("not run yet");
}

/** @param {[string, string][]} pairs */
function details(pairs) {
  const shown = pairs.filter(([, value]) => value);
  return shown.length ? el("dl", { class: "details" }, ...shown.map(([name, value]) => el("div", {}, el("dt", { text: name }), el("dd", { text: value })))) : null;
}

/** @param {string} label @param {string} text */
function block(label, text) {
  const shown = el("pre", { tabindex: "0", "aria-label": label }, text.slice(0, MAX_SHOWN_LENGTH));
  const more = text.length > MAX_SHOWN_LENGTH && el("button", {
    type: "button", class: "quiet", click: (/** @type {any} */ event) => { shown.textContent = text; event.target.remove(); },
  }, `Show all ${text.length.toLocaleString()} characters`);
  return el("div", {}, el("p", { class: "tool-label", text: label }), shown, more);
}

/** @param {any} value */
function pretty(value) {
  return JSON.stringify(value ?? {}, null, 2);
}

/** Show a result that is a single string as that string. @param {any} output */
function resultText(output) {
  const values = output && typeof output === "object" ? Object.values(output) : [output];
  return values.length === 1 && typeof values[0] === "string" ? values[0] : pretty(output);
}

/** @param {any} input */
function summarize(input) {
  const values = Object.values(input ?? {}).map((value) => (typeof value === "string" ? value : JSON.stringify(value)));
  return values.join(", ").replace(/\s+/g, " ").slice(0, 120);
}
