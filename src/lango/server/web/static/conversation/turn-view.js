/** Show the events of a turn as they arrive. */

import { capitalize } from "../base/api.js";
import { alertScreenReader, describeResumption, el, icon, iconButton } from "../base/dom.js";

/** @typedef {import("./answer.js").Answer} Answer */

export class TurnView {
  /**
   * @param {import("./transcript.js").Transcript} transcript
   * @param {{retry: () => void, approve: (call: string, decision: import("./approval-box.js").Decision) => void, answerInput: (call: string, value: any) => Promise<string>,
   *   skipInput: () => void, answerTool: (call: string, answer: {value: any} | {decline: true}) => Promise<string>, giveCredential: (call: string, value: any) => Promise<string>, skipCredential: (call: string) => void, ended: (status: string) => void}} actions
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
      case "tool_progress": answer.toolCard(event.call_id, event.name).showProgress(event); break;
      case "tool_end": answer.toolCard(event.call_id, event.name).finish({ ok: event.ok, output: event.result, duration_s: event.duration_s }); this.transcript.closeQuestions(event.call_id); break;
      case "approval": this.requestApproval(event); break;
      case "input_needed": this.requestInput(event); break;
      case "credential_needed": this.requestCredential(event); break;
      case "node": answer.nodes.show(event); break;
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

  /** Show an approval request on its tool card. @param {any} event */
  requestApproval(event) {
    const card = this.transcript.currentAnswer().toolCard(event.call_id, event.name);
    if (event.expires_at && new Date(event.expires_at).getTime() < Date.now()) return card.expire();
    card.requestApproval(event, (decision) => this.actions.approve(event.call_id, decision));
    alertScreenReader(`The tool ${event.name} waits for your approval.`);
  }

  /** Show a request for input, of a workflow or of a running tool, with its form. @param {import("./input-card.js").InputRequest} event */
  requestInput(event) {
    const card = this.transcript.currentAnswer().inputCard(event.call_id, event);
    if (event.expires_at && new Date(event.expires_at).getTime() < Date.now()) return card.close("closed");
    if (!event.tool_call_id) card.open(event, (value) => this.actions.answerInput(event.call_id, value), () => this.actions.skipInput());
    else card.open(event, (value) => this.actions.answerTool(event.call_id, { value }),
      async () => card.close("closed", await this.actions.answerTool(event.call_id, { decline: true }) || "Declined."));
    alertScreenReader(`The ${event.tool_call_id ? "tool" : "workflow"} waits for your input: ${event.message}`);
  }

  /** Show a tool's request for a credential. @param {import("./credential-card.js").CredentialRequest} event */
  requestCredential(event) {
    const card = this.transcript.currentAnswer().credentialCard(event.call_id, event);
    if (event.expires_at && new Date(event.expires_at).getTime() < Date.now()) return card.close("closed");
    card.open(event, (value) => this.actions.giveCredential(event.call_id, value), () => this.actions.skipCredential(event.call_id));
    alertScreenReader(`${event.message || "A tool needs access to an account of yours"}: the agent waits for it.`);
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
    if (status !== "waiting_for_result") answer.handOverToClient();
    if (finish_reason === "length") answer.addNote("The answer was cut off: it reached the model's limit. Send “continue” for the rest.");
    if (finish_reason === "safety") answer.addNote("The model's safety filter ended this answer.");
    if (["waiting_for_approval", "waiting_for_input", "waiting_for_credential", "waiting_for_result"].includes(status)) {
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
