/** Show the events of a turn as they arrive. */

import { capitalize } from "../base/api.js";
import { alertScreenReader, describeResumption, el, icon, iconButton } from "../base/dom.js";

/** @typedef {import("./answer.js").Answer} Answer */

export class TurnView {
  /**
   * @param {import("./transcript.js").Transcript} transcript
   * @param {{retry: () => void, approve: (call: string, approved: boolean) => void, ended: (status: string) => void}} actions
   */
  constructor(transcript, actions) {
    this.transcript = transcript;
    this.actions = actions;
  }

  /** @param {any} event */
  show(event) {
    const answer = this.transcript.currentAnswer();
    switch (event.type) {
      case "accepted": this.start(); break;
      case "queued": answer.queuePlace = event.place; break;
      case "text_delta": answer.addText(event.text, event); break;
      case "thought_delta": answer.addThought(event.text, event); break;
      case "text_withdrawn": answer.withdraw(event); break;
      case "resumed": this.#turnResumed(answer, event); break;
      case "tool_start": answer.toolCard(event.call_id, event.name).start(event.arguments, Date.now()); break;
      case "tool_end": answer.toolCard(event.call_id, event.name).finish({ ok: event.ok, output: event.result, duration_s: event.duration_s }); break;
      case "approval": this.requestApproval(event); break;
      case "error": if (event.fatal) this.#turnFailed(answer, event); break;
      case "done": this.#turnDone(answer, event);
    }
  }

  /** Show that an answer is on its way. */
  start() {
    for (const button of document.querySelectorAll("[data-retry]")) button.remove();
    const answer = this.transcript.currentAnswer();
    answer.finish();
    answer.busy = true;
  }

  /** Show an approval request on its tool card. @param {any} event */
  requestApproval(event) {
    const card = this.transcript.currentAnswer().toolCard(event.call_id, event.name);
    if (event.expires_at && new Date(event.expires_at).getTime() < Date.now()) return card.expire();
    card.requestApproval(event, (approved) => this.actions.approve(event.call_id, approved));
    alertScreenReader(`The tool ${event.name} waits for your approval.`);
  }

  /** @param {Answer} answer @param {any} event */
  #turnResumed(answer, event) {
    answer.endBlock();
    answer.addNote(describeResumption(event.at, event.reason));
  }

  /** @param {Answer} answer @param {any} event */
  #turnFailed(answer, event) {
    const stopped = event.error === "TurnCancelled";
    if (stopped) {
      answer.endBlock();
      answer.addNote("Stopped.");
    } else {
      answer.showFailure(capitalize(event.message), this.#retryButton());
      alertScreenReader(event.message);
    }
    if (answer.texts.length) this.transcript.finishAnswer(answer, stopped && this.#retryIconButton());
    else answer.finish(stopped && this.#retryIconButton());
    this.actions.ended("failed");
  }

  /** Show a failure outside of a turn. @param {string} text @param {boolean} retry */
  showFailure(text, retry) {
    const answer = this.transcript.currentAnswer();
    answer.showFailure(text, retry && this.#retryButton());
    answer.finish();
    alertScreenReader(text);
  }

  /** @param {Answer} answer @param {any} event */
  #turnDone(answer, event) {
    const { usage = {}, status, finish_reason } = event;
    answer.handOverToClient();
    if (finish_reason === "length") answer.addNote("The answer was cut: it reached the model's limit. Send “continue” for the rest.");
    if (finish_reason === "safety") answer.addNote("The model's safety filter ended this answer.");
    if (status === "waiting_for_approval") {
      answer.finish();
    } else {
      const cost = usage.cost_usd == null ? "" : ` · $${usage.cost_usd.toFixed(4)}`;
      const tokens = usage.output_tokens ? `${usage.input_tokens.toLocaleString()} tokens in, ${usage.output_tokens.toLocaleString()} out${cost}` : "";
      this.transcript.finishAnswer(answer, this.#retryIconButton(), el("span", { class: "usage", text: tokens }));
    }
    this.actions.ended(status);
  }

  #retryIconButton() {
    return iconButton("again", "Try again", () => this.actions.retry(), { "data-retry": true });
  }

  #retryButton() {
    return el("button", { type: "button", click: () => this.actions.retry(), "data-retry": true }, icon("again"), "Try again");
  }
}
