/** Show the events of a turn as they arrive. */

import { capitalize } from "../base/api.js";
import { alertScreenReader, describeResumption, el, formatCost, icon, iconButton } from "../base/dom.js";
import { traceButton } from "./transcript.js";
import { OF_CALLS } from "./wait-card.js";
import { announcementOf } from "./wait-forms.js";

/** @typedef {import("./answer.js").Answer} Answer */
/** @typedef {import("./wait-card.js").Wait} Wait */

export class TurnView {
  /**
   * @param {import("./transcript.js").Transcript} transcript
   * @param {{retry: () => void, answer: (wait: Wait, answer: import("./wait-card.js").Answer) => Promise<string>, skip: () => void, failed: () => void, ended: (status: string) => void}} actions
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
      case "text_end": answer.endText(event); break;
      case "text_withdrawn": answer.withdraw(event); break;
      case "resumed": this.#turnResumed(answer, event); break;
      case "tool_start": answer.toolCard(event.call_id, event.name, event.author).start(event.arguments, Date.now()); break;
      case "tool_progress": answer.toolCard(event.call_id, event.name).showProgress(event); break;
      case "tool_end": answer.toolCard(event.call_id, event.name).finish({ ok: event.ok, output: event.result, duration_s: event.duration_s }); this.transcript.closeQuestions(event.call_id); if (!event.ok) this.actions.failed(); break;
      case "wait_opened": this.openWait(event.wait); break;
      case "wait_closed": this.#waitClosed(event.wait); break;
      case "artifact_saved": answer.addArtifact(event.name, event.version); break;
      case "node": answer.nodes.show(event); if (event.status === "failed") this.actions.failed(); break;
      case "turn_error": if (event.fatal) this.#turnFailed(answer, event); break;
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

  /** Show what the turn waits for, with its form: in the card of its call, or in one of its own. @param {Wait} wait */
  openWait(wait) {
    const answer = this.transcript.currentAnswer();
    const ofCall = this.transcript.toolCards.get(wait.call_id ?? "");
    if (wait.kind === "client_result") return ofCall?.handOverToClient();
    if (wait.kind === "long_running_result" && !ofCall) return;
    const tool = wait.kind === "approval" ? answer.toolCard(wait.call_id ?? "", wait.tool ?? "") : OF_CALLS.includes(wait.kind) ? ofCall ?? null : null;
    if (wait.expires_at && new Date(wait.expires_at).getTime() < Date.now()) return OF_CALLS.includes(wait.kind) ? undefined : tool?.expire();
    const card = answer.waitCard(wait, tool);
    if (card.status === "waiting") return; // a value may be typed already
    card.open((given) => this.#send(wait, given, tool), () => this.actions.skip());
    alertScreenReader(announcementOf(wait));
  }

  /** @param {Wait} wait @param {import("./wait-card.js").Answer} given @param {import("./tool-card.js").ToolCard | null} tool */
  async #send(wait, given, tool) {
    if (tool && wait.kind === "approval") [tool.approved, tool.refusal] = [given.type === "approve", given.reason ?? ""];
    const problem = await this.actions.answer(wait, given);
    if (tool && wait.kind !== "approval" && !problem) tool.endAwait();
    return problem;
  }

  /** Close the card of a wait that was answered elsewhere, or without an answer. @param {Wait} wait */
  #waitClosed(wait) {
    const card = this.transcript.waitCards.get(wait.id);
    if (card?.status === "waiting") this.transcript.closeWait(card, []);
  }

  /** @param {Answer} answer @param {any} event */
  #turnResumed(answer, event) {
    answer.endBlock();
    answer.addNote(describeResumption(event.at, event.reason));
  }

  /** @param {Answer} answer @param {any} event */
  #turnFailed(answer, event) {
    const stopped = event.error === "TurnCancelled";
    this.transcript.closeQuestions();
    if (stopped) {
      answer.endBlock();
      answer.addNote("Stopped.");
    } else {
      answer.showFailure(capitalize(event.message), this.#retryButton());
      alertScreenReader(event.message);
    }
    if (answer.texts.length) this.transcript.finishAnswer(answer, stopped && this.#retryIconButton());
    else answer.finish(traceButton(answer), stopped && this.#retryIconButton());
    if (!stopped) this.actions.failed();
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
    const { usage = {}, status, finish_reason, waits = [] } = event;
    if (finish_reason === "length") answer.addNote("The answer was cut off: it reached the model's limit. Send “continue” for the rest.");
    if (finish_reason === "safety") answer.addNote("The model's safety filter ended this answer.");
    const isForClient = waits.every((/** @type {Wait} */ wait) => wait.kind === "client_result");
    if (status === "waiting" && !isForClient) {
      answer.finish();
    } else {
      const cost = usage.cost_usd == null ? "" : ` · ${formatCost(usage.cost_usd)}`;
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
