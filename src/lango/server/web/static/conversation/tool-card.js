/** A call of a tool: a line that opens to what went in, what came out, how long it took and who allowed it. */

import { el, icon, lasted, moment } from "../base/dom.js";

const LONGEST = 20_000;
const WORDS = /** @type {Record<string, string>} */ ({
  running: "running", done: "done", failed: "failed", asked: "waits for you", client: "waits for the client", refused: "refused", lapsed: "not run",
});

/** @typedef {{id: string, name: string, input?: any, output?: any, duration_s?: number | null, approved?: boolean | null, approved_by?: string | null, for_client?: boolean}} Call */

export class ToolCard {
  #line = el("span", { class: "tool-args" });
  #status = el("span", { class: "tool-status" });
  #body = el("div", { class: "tool-body" });

  /** @param {string} id @param {string} name */
  constructor(id, name) {
    this.id = id;
    this.name = name;
    this.status = "running";
    /** @type {any} */ this.input = undefined;
    /** @type {any} */ this.output = undefined;
    /** @type {number | null} */ this.duration_s = null;
    /** @type {boolean | null} */ this.approved = null;
    /** @type {string | null} */ this.approvedBy = null;
    /** @type {string | number | null} */ this.startedAt = null;
    /** @type {HTMLElement | null} */ this.question = null;
    this.box = el("details", { class: "tool" },
      el("summary", {}, icon("tool"), el("span", { class: "tool-name", text: name }), this.#line, this.#status), this.#body);
    this.element = el("div", { class: "tool-place" }, this.box);
    this.draw();
  }

  /** @param {any} input */
  starts(input, startedAt = /** @type {string | number | null} */ (null)) {
    this.input = input ?? this.input;
    this.startedAt ??= startedAt;
    this.status = "running";
    this.#answered();
    this.draw();
  }

  /** @param {{ok: boolean, output: any, duration_s?: number | null}} end */
  ends({ ok, output, duration_s = null }) {
    this.output = output;
    this.duration_s = duration_s ?? this.duration_s ?? null;
    this.status = ok ? "done" : "failed";
    if (this.approved === false) this.status = "refused";
    this.#answered();
    this.draw();
  }

  /** Take what the store knows of it. @param {Call} call */
  knows(call) {
    this.input = call.input ?? this.input;
    this.duration_s = call.duration_s ?? this.duration_s;
    this.approved = call.approved ?? this.approved;
    this.approvedBy = call.approved_by ?? this.approvedBy;
    if (call.for_client) this.isHandedOver();
    if (this.approved === false && this.status !== "asked") this.status = "refused";
    this.draw();
  }

  /** Nothing runs here: whoever brought the tool runs it, and has not said yet what came of it. */
  isHandedOver() {
    if (this.status !== "running") return;
    this.status = "client";
    this.draw();
  }

  lapses() {
    if (this.status !== "asked" && this.output !== undefined && !waits(this.output)) return;
    this.status = "lapsed";
    this.#answered();
    this.draw();
  }

  /**
   * Ask for approval, in place and with the exact arguments.
   * @param {any} event @param {(approved: boolean) => void} answer
   */
  asks(event, answer) {
    this.input = event.arguments;
    this.status = "asked";
    this.#answered();
    const until = event.expires_at ? ` The question stands until ${moment(event.expires_at)}.` : "";
    const say = (/** @type {boolean} */ yes) => () => {
      for (const one of this.question?.querySelectorAll("button") ?? []) one.disabled = true;
      this.approved = yes;
      answer(yes);
    };
    this.question = el("div", { class: "question", role: "group", "aria-label": `May ${this.name} run?` },
      el("p", {}, "May ", el("strong", { text: this.name }), ` run with exactly these arguments?${until}`),
      el("pre", { class: "exact", tabindex: "0", "aria-label": "Arguments" }, pretty(event.arguments)),
      el("div", { class: "question-end" },
        el("button", { type: "button", class: "primary", click: say(true) }, icon("check"), "Approve"),
        el("button", { type: "button", click: say(false) }, icon("cross"), "Refuse")));
    this.element.append(this.question);
    this.draw();
  }

  #answered() {
    this.question?.remove();
    this.question = null;
  }

  draw() {
    this.element.dataset.status = this.status;
    this.element.dataset.call = this.id;
    this.#line.textContent = this.status === "asked" ? "" : brief(this.input);
    this.#status.textContent = [WORDS[this.status], lasted(this.duration_s)].filter(Boolean).join(" · ");
    const rows = [
      this.input === undefined ? null : block("Arguments", pretty(this.input)),
      this.output === undefined || this.status === "asked" ? null : block(this.status === "failed" ? "Error" : "Result", plain(this.output)),
      facts([["Took", lasted(this.duration_s)], [this.approved === false ? "Refused by" : "Approved by", this.approvedBy ?? ""], ["Began", this.startedAt ? moment(this.startedAt) : ""]]),
    ];
    this.#body.replaceChildren(...rows.filter((one) => one !== null));
  }
}

/** Whether a result only says that the call waits for approval. @param {any} output */
export function waits(output) {
  return typeof output?.status === "string" && output.status.startsWith("not run: it waits");
}

/** @param {[string, string][]} pairs */
function facts(pairs) {
  const known = pairs.filter(([, value]) => value);
  return known.length ? el("dl", { class: "facts" }, ...known.map(([name, value]) => el("div", {}, el("dt", { text: name }), el("dd", { text: value })))) : null;
}

/** @param {string} label @param {string} text */
function block(label, text) {
  const shown = el("pre", { tabindex: "0", "aria-label": label }, text.slice(0, LONGEST));
  const more = text.length > LONGEST && el("button", {
    type: "button", class: "quiet", click: (/** @type {any} */ event) => { shown.textContent = text; event.target.remove(); },
  }, `Show all ${text.length.toLocaleString()} characters`);
  return el("div", { class: "tool-part" }, el("p", { class: "tool-label", text: label }), shown, more);
}

/** @param {any} value */
function pretty(value) {
  return JSON.stringify(value ?? {}, null, 2);
}

/** A result that is one text is shown as that text. @param {any} output */
function plain(output) {
  const values = output && typeof output === "object" ? Object.values(output) : [output];
  return values.length === 1 && typeof values[0] === "string" ? values[0] : pretty(output);
}

/** @param {any} input */
function brief(input) {
  const values = Object.values(input ?? {}).map((one) => (typeof one === "string" ? one : JSON.stringify(one)));
  return values.join(", ").replace(/\s+/g, " ").slice(0, 120);
}
