/** Show what a turn waits for: the form of its kind while it waits, then what became of it. */

import { api, capitalize, describeError, sessionPath } from "../base/api.js";
import { el, icon, formatTime } from "../base/dom.js";
import { Draft } from "../base/drafts.js";
import { describeWait, formOf, labelOf } from "./wait-forms.js";

/**
 * What a turn waits for, as the server sends it; the members after `expires_at` depend on the kind.
 * @typedef {{kind: string, id: string, session_id: string, agent?: string, expires_at?: string | null, call_id?: string, tool?: string, arguments?: any, hint?: string, payload?: any, diff?: string,
 *   message?: string, reason?: string, event?: string, match?: any, schema?: any, auth_url?: string, scopes?: string[], scheme_type?: string, scheme?: string}} Wait
 * @typedef {{type: string, [member: string]: any}} Answer the body of the request that answers
 */

/** Kinds whose card is a part of another one, which shows what became of them. */
const PARTS = ["approval", "long_running_result", "client_result", "timer", "event"];
/** Kinds whose wait is a part of the card of the call that waits, and goes on while the conversation does. */
export const OF_CALLS = ["long_running_result", "timer", "event"];

export class WaitCard {
  #form = /** @type {HTMLElement | null} */ (null);
  #problem = el("p", { class: "wait-problem", role: "alert" });
  #send = /** @type {(answer: Answer) => Promise<string>} */ (async () => "");
  #draft;

  /** @param {Wait} wait */
  constructor(wait) {
    this.wait = wait;
    this.status = "closed";
    this.#draft = new Draft(wait.session_id, wait.id);
    this.element = el(wait.kind.endsWith("result") ? "details" : "div", { class: "wait-card", "data-kind": wait.kind, "data-wait": wait.id }, ...describeWait(wait));
    this.#setStatus("closed");
  }

  /**
   * Show the form.
   * @param {(answer: Answer) => Promise<string>} send returns why the answer was refused; empty: it was accepted
   * @param {() => void} skip closes the wait without an answer
   */
  open(send, skip) {
    if (this.#form) return; // a value may be typed already
    if (this.wait.expires_at && new Date(this.wait.expires_at).getTime() < Date.now()) return;
    this.element.querySelector(".wait-end")?.remove();
    this.#setStatus("waiting");
    this.#send = send;
    this.#problem.textContent = "";
    const { body, buttons, isSecret = false } = formOf(this.wait, skip);
    const press = async (/** @type {import("./wait-forms.js").Button} */ button) => {
      const answer = await button.read();
      if (typeof answer === "string") this.#problem.textContent = answer;
      else if (answer?.type === "cancel") await this.#cancel();
      else if (answer) await this.answer(answer);
    };
    const submit = (/** @type {Event} */ event) => {
      event.preventDefault();
      const first = buttons.find((button) => button.primary);
      if (first) void press(first);
    };
    const form = el("form", { submit, novalidate: true, autocomplete: isSecret && "off" },
      ...body, this.#problem,
      !OF_CALLS.includes(this.wait.kind) && this.wait.expires_at && el("p", { class: "note", text: `The request expires at ${formatTime(this.wait.expires_at)}.` }),
      el("div", { class: "wait-buttons" }, ...buttons.map((button) => el("button", {
        type: button.primary ? "submit" : "button", class: button.primary && "primary", "aria-haspopup": button.opensMenu && "menu",
        click: button.primary ? null : () => void press(button),
      }, icon(button.shape), button.text))));
    this.#form = /** @type {HTMLElement} */ (el("div", { class: "wait-form", role: "group", "aria-label": labelOf(this.wait) }, form));
    this.element.append(this.#form);
    if (!isSecret) this.#draft.attach(this.#form);
    this.element.toggleAttribute("open", this.#draft.exists);
  }

  /** Send an answer; the form stays if it is refused, without what is secret. @param {Answer} answer @returns {Promise<boolean>} */
  async answer(answer) {
    this.#disable(true);
    const problem = await this.#send(answer);
    for (const secret of this.#form?.querySelectorAll("input[type=password]") ?? []) /** @type {any} */ (secret).value = "";
    this.#problem.textContent = problem;
    this.#disable(false);
    if (!problem) this.showAnswer(answer);
    return !problem;
  }

  /** End a timer or a wait for an event without an answer. */
  async #cancel() {
    const { session_id, id, agent } = this.wait;
    this.#disable(true);
    try {
      await api(sessionPath(session_id, `/waits/${encodeURIComponent(id)}${agent ? `?agent=${encodeURIComponent(agent)}` : ""}`), { method: "DELETE" });
      this.close("closed", "Cancelled.");
    } catch (error) {
      this.#problem.textContent = describeError(error);
    }
    this.#disable(false);
  }

  /** Remove the form, and show the answer. @param {Answer} answer */
  showAnswer(answer) {
    if (answer.type === "credential") return this.close("answered", "Given.");
    if (answer.type === "decline") return this.close("closed", "Declined.");
    this.close("answered");
    if (answer.type !== "value") return;
    const text = JSON.stringify(answer.value);
    this.element.append(el("p", { class: "wait-end wait-answer" }, icon("check"), typeof answer.value === "string" ? answer.value : text === "{}" ? "Done" : text));
  }

  /** Show a stored result: the answer, or why there is none. @param {any} output */
  showResult(output) {
    if (output?.error) return this.close("closed", capitalize(String(output.error)));
    const keys = Object.keys(output ?? {});
    const value = keys.length === 1 && keys[0] === "result" ? output.result : output;
    this.showAnswer({ type: this.wait.kind === "credential" ? "credential" : "value", value });
  }

  /** Remove the form. @param {string} status @param {string} [note] */
  close(status, note = "") {
    if (this.#form) this.#draft.drop(); // a card without a form may show an earlier wait with the same id
    this.#form?.remove();
    this.#form = null;
    this.#setStatus(status);
    this.element.querySelector(".wait-end")?.remove();
    if (note) this.element.append(el("p", { class: "note wait-end", text: note }));
    if (PARTS.includes(this.wait.kind)) this.element.remove();
  }

  /** @param {string} status */
  #setStatus(status) {
    this.status = status;
    this.element.dataset.status = status;
  }

  /** @param {boolean} disabled */
  #disable(disabled) {
    for (const control of this.#form?.querySelectorAll("input, select, textarea, button") ?? []) /** @type {any} */ (control).disabled = disabled;
  }
}
