/** Showing what a turn tells, event by event. */

import { byId, el, icon, tool } from "../base/dom.js";

/** @typedef {import("./answer.js").Answered} Answered */

export class Told {
  /**
   * @param {import("./transcript.js").Transcript} log
   * @param {{retry: () => void, approve: (call: string, approved: boolean) => void, ended: (status: string) => void}} acts
   */
  constructor(log, acts) {
    this.log = log;
    this.acts = acts;
  }

  /** @param {any} event */
  show(event) {
    const answer = this.log.answer();
    switch (event.type) {
      case "accepted": this.begins(); break;
      case "queued": answer.place = event.place; break;
      case "text_delta": answer.text(event.text); break;
      case "thought_delta": answer.thought(event.text); break;
      case "tool_start": answer.tool(event.call_id, event.name).starts(event.arguments, Date.now()); break;
      case "tool_end": answer.tool(event.call_id, event.name).ends({ ok: event.ok, output: event.result, duration_s: event.duration_s }); break;
      case "approval": this.ask(event); break;
      case "error": if (event.fatal) this.#failed(answer, event); break;
      case "done": this.#done(answer, event);
    }
  }

  /** An answer is on its way. */
  begins() {
    for (const one of document.querySelectorAll("[data-retry]")) one.remove();
    const answer = this.log.answer();
    answer.finish();
    answer.busy = true;
  }

  /** A tool waits for a yes or a no. @param {any} event */
  ask(event) {
    const card = this.log.answer().tool(event.call_id, event.name);
    if (event.expires_at && new Date(event.expires_at).getTime() < Date.now()) return card.lapses();
    card.asks(event, (approved) => this.acts.approve(event.call_id, approved));
    byId("alarm").replaceChildren(el("p", { text: `The tool ${event.name} waits for your approval.` }));
  }

  /** @param {Answered} answer @param {any} event */
  #failed(answer, event) {
    const stopped = event.error === "TurnCancelled";
    if (stopped) {
      answer.rest();
      answer.note("Stopped.");
    } else {
      answer.fails(event.message.charAt(0).toUpperCase() + event.message.slice(1), this.#retryButton());
      byId("alarm").replaceChildren(el("p", { text: event.message }));
    }
    if (answer.words.length) this.log.seal(answer, stopped && this.#retryTool());
    else answer.finish(stopped && this.#retryTool());
    this.acts.ended("failed");
  }

  /** Something failed before there was a turn. @param {string} words @param {boolean} retry */
  fail(words, retry) {
    const answer = this.log.answer();
    answer.fails(words, retry && this.#retryButton());
    answer.finish();
    byId("alarm").replaceChildren(el("p", { text: words }));
  }

  /** @param {Answered} answer @param {any} event */
  #done(answer, event) {
    const { usage = {}, status, finish_reason } = event;
    answer.handsOver();
    if (finish_reason === "length") answer.note("The answer was cut: it reached the model's limit. Say “go on” for the rest.");
    if (finish_reason === "safety") answer.note("The model's safety filter ended this answer.");
    if (status === "waiting_for_approval") {
      answer.finish();
    } else {
      const cost = usage.cost_usd == null ? "" : ` · $${usage.cost_usd.toFixed(4)}`;
      const spent = usage.output_tokens ? `${usage.input_tokens.toLocaleString()} tokens in, ${usage.output_tokens.toLocaleString()} out${cost}` : "";
      this.log.seal(answer, this.#retryTool(), el("span", { class: "spent", text: spent }));
    }
    this.acts.ended(status);
  }

  #retryTool() {
    return tool("again", "Try again", () => this.acts.retry(), { "data-retry": true });
  }

  #retryButton() {
    return el("button", { type: "button", click: () => this.acts.retry(), "data-retry": true }, icon("again"), "Try again");
  }
}
