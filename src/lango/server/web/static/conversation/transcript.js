/** Hold the user's messages and the answers that are shown. */

import { capitalize, request, sessionPath } from "../base/api.js";
import { Answer } from "./answer.js";
import { failureBlock } from "../base/failures.js";
import { byId, copyButton, el, iconButton } from "../base/dom.js";
import { UserMessage } from "./user-message.js";
import { isAwaitingApproval } from "./tool-card.js";
import { OF_CALLS } from "./wait-card.js";
import { emit } from "../base/state.js";

const CONFIRMATION = "adk_request_confirmation";
const INPUT = "adk_request_input";
const CREDENTIAL = "adk_request_credential";
const TRANSFER = "transfer_to_agent"; // shown by the name of the agent that speaks next
const ENDED = "The question is closed: it was answered elsewhere, or its time is over.";

/** @typedef {import("./tool-card.js").Call} Call */
/**
 * @typedef {{seq: number, role: string, author: string, content: string, tool_calls: Call[], created_at: string,
 *   invocation_id?: string, is_steering?: boolean, text_place?: number[] | null, thoughts?: string, attachments?: {index: number, name: string, mime_type: string, bytes: number}[],
 *   artifacts?: {name: string, version: number}[], nodes?: import("./node-list.js").NodeProgress[], error?: {type: string, message: string} | null}} Message
 */

/** Return whether a message starts a turn: a user's message, or the user's answer to a request for approval or input. @param {Message} message */
export function startsTurn(message) {
  return (message.role === "user" && !message.is_steering) || (message.role === "tool" && message.author === "user");
}

/** Return messages in the order in which their texts began: they are stored as they ended. @param {Message[]} messages */
function byBeginning(messages) {
  const place = (/** @type {Message} */ message) => message.text_place ?? [message.seq - 1, Infinity];
  return messages.toSorted((one, other) => place(one)[0] - place(other)[0] || place(one)[1] - place(other)[1] || one.seq - other.seq);
}

/** Return what a stored request for input or a credential was about. @param {Call} call */
function describeRequest({ name, input }) {
  if (name === INPUT) return { kind: "input", message: input?.message, payload: input?.payload };
  const scheme = input?.authConfig?.authScheme;
  const flow = /** @type {any} */ (Object.values(scheme?.flows ?? {}).find((/** @type {any} */ one) => one?.scopes));
  return { kind: "credential", message: scheme?.description ?? "", scopes: Object.keys(flow?.scopes ?? {}) };
}

export class Transcript {
  /** @type {Map<string, import("./tool-card.js").ToolCard>} */ toolCards = new Map();
  /** @type {Map<string, import("./wait-card.js").WaitCard>} */ waitCards = new Map();
  /** @type {(UserMessage | Answer)[]} */ items = [];
  /** marks what has its size */ #sizes = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      target.classList.add("was-drawn");
      this.#sizes.unobserve(target);
    }
  });
  /** ids of the calls that confirmations refer to */ #confirmations = new Map();

  /** @param {HTMLElement} element @param {Record<"edit" | "rewind", (message: UserMessage) => void> & {fork: (answer: Answer) => void}} actions */
  constructor(element, actions) {
    this.element = element;
    this.actions = actions;
    this.session = "";
  }

  /** @param {string} session */
  clear(session) {
    this.session = session;
    this.toolCards = new Map();
    this.waitCards = new Map();
    this.items = [];
    this.#confirmations = new Map();
    this.#sizes.disconnect();
    this.element.replaceChildren();
    byId("announcements").replaceChildren();
  }

  /** Let screen readers read a text when they are idle. @param {string} text */
  announce(text) {
    const region = byId("announcements");
    if (text) region.append(el("p", { text }));
    while (region.childElementCount > 5) region.firstElementChild?.remove();
  }

  /** @param {ConstructorParameters<typeof UserMessage>[0]} options */
  addUserMessage(options) {
    const message = new UserMessage(options, this.actions);
    this.#add(message);
    return message;
  }

  /** Return the answer at the end; create it after a user's message. */
  currentAnswer() {
    const last = this.items.at(-1);
    if (last instanceof Answer) return last;
    const answer = new Answer(this);
    this.#add(answer);
    return answer;
  }

  /** @param {UserMessage | Answer} item */
  #add(item) {
    this.items.push(item);
    this.element.append(item.element);
    this.#sizes.observe(item.element);
  }

  /** Show stored messages at the end. The end of the newest turn comes with its events. @param {Message[]} messages */
  append(messages, areNewest = true) {
    let error = /** @type {Message["error"]} */ (null);
    for (const message of byBeginning(messages)) {
      if (startsTurn(message)) {
        this.#showError(error);
        error = message.error;
      }
      this.#addStored(message);
    }
    if (!areNewest) this.#showError(error);
    for (const item of this.items) if (item instanceof Answer && !item.footer.hasChildNodes()) this.finishAnswer(item);
  }

  /** Show why a turn ended without an answer. @param {Message["error"]} error */
  #showError(error) {
    if (error?.type === "TurnCancelled") this.currentAnswer().addNote("Stopped.");
    else if (error) this.currentAnswer().showFailure(capitalize(error.message));
  }

  /** Whether a tool, a node or a turn that failed is shown. */
  get showsFailure() {
    return this.element.querySelector('[data-status="failed"], .failed') !== null;
  }

  /** Show where the user's own code raised errors: on its tools, nodes and answers. @param {import("../base/failures.js").Failure[]} failures */
  showFailures(failures) {
    const shown = new Set();
    for (const failure of failures.toReversed()) {
      const card = this.toolCards.get(failure.step);
      if (card) {
        card.failure = failure;
        card.draw();
        continue;
      }
      const message = failure.error.slice(failure.error.indexOf(": ") + 2).split("\n")[0];
      const elements = failure.step ? /** @type {HTMLElement[]} */ ([...this.element.querySelectorAll('li[data-status="failed"]')]).filter((line) => line.dataset.path === failure.step)
        : [...this.element.querySelectorAll(".failed")].filter((box) => box.textContent?.includes(message));
      const element = elements.findLast((one) => !shown.has(one)); // a path comes again in every turn
      if (!element || shown.has(`${failure.turn} ${failure.step}`)) continue;
      shown.add(element).add(`${failure.turn} ${failure.step}`);
      element.querySelector(".failure")?.remove();
      element.append(failureBlock(failure));
    }
  }

  /** Remove an item and all after it. @param {UserMessage | Answer} item */
  removeFrom(item) {
    for (const removed of this.items.splice(this.items.indexOf(item))) removed.element.remove();
  }

  /** @returns {UserMessage | undefined} */
  lastUserMessage() {
    return this.items.findLast((item) => item instanceof UserMessage);
  }

  /** Show older messages, which start with a user's message, above all others. @param {Message[]} messages */
  prepend(messages) {
    const { items, toolCards, waitCards } = this;
    const nodes = [...this.element.childNodes];
    this.items = [];
    this.toolCards = new Map();
    this.waitCards = new Map();
    this.element.replaceChildren();
    this.append(messages, false);
    this.items.push(...items);
    this.toolCards = new Map([...this.toolCards, ...toolCards]);
    this.waitCards = new Map([...this.waitCards, ...waitCards]);
    this.element.append(...nodes);
  }

  /** @param {Message} message */
  #addStored(message) {
    if (message.role === "user") {
      this.addUserMessage({ text: message.content, seq: message.seq, at: message.created_at, files: this.#files(message) });
      this.#addNodes(message);
      this.#addArtifacts(message);
      return;
    }
    const answer = this.currentAnswer();
    this.#addNodes(message);
    answer.firstSeq = Math.min(answer.firstSeq ?? message.seq, message.seq);
    answer.lastSeq = Math.max(answer.lastSeq ?? 0, message.seq);
    if (message.thoughts) answer.addThought(message.thoughts, { id: 0, author: message.author, block: 0 });
    if (message.role === "system") return answer.addSystemNote(message.content);
    if (message.role !== "tool" && message.content) answer.addWholeText(message.content, message.author);
    for (const call of message.tool_calls) this.#addCall(answer, message, call);
    this.#addArtifacts(message);
  }

  /** Show the artifacts that were saved with a message. @param {Message} message */
  #addArtifacts(message) {
    for (const { name, version } of message.artifacts ?? []) this.currentAnswer().addArtifact(name, version);
  }

  /** Show the nodes of a workflow that ran in the turn of a message. @param {Message} message */
  #addNodes(message) {
    for (const node of message.nodes ?? []) this.currentAnswer().nodes.show(node);
  }

  /** @param {Answer} answer @param {Message} message @param {Call} call */
  #addCall(answer, message, call) {
    if (call.name === TRANSFER) return;
    if (call.name === CONFIRMATION) return this.#addConfirmation(call);
    if (call.name === INPUT || call.name === CREDENTIAL) {
      if (message.role === "tool") this.waitCards.get(call.id)?.showResult(call.output);
      else answer.waitCard({ id: call.id, session_id: this.session, ...describeRequest(call) });
      return;
    }
    if (message.role !== "tool") {
      answer.toolCard(call.id, call.name, message.author).start(call.input, message.created_at);
      this.toolCards.get(call.id)?.update(call);
      return;
    }
    const card = answer.toolCard(call.id, call.name);
    if (isAwaitingApproval(call.output)) card.expire();
    else card.finish({ ok: !call.output?.error, output: call.output, duration_s: call.duration_s });
    card.update({ ...call, input: undefined });
  }

  /** Note an approval request, or apply the user's answer to it. @param {Call} call */
  #addConfirmation(call) {
    if (call.input) return void this.#confirmations.set(call.id, call.input.originalFunctionCall?.id);
    const card = this.toolCards.get(this.#confirmations.get(call.id));
    card?.update({ id: card.id, name: card.name, approved: call.output?.confirmed === true, approved_by: card.approvedBy ?? "you", refusal: call.output?.payload?.reason });
  }

  /** @param {Message} message */
  #files(message) {
    const address = (/** @type {number} */ index) => sessionPath(this.session, `/messages/${message.seq}/attachments/${index}`);
    return (message.attachments ?? []).map((file) => ({ ...file, open: async () => (await request(address(file.index))).blob() }));
  }

  /** Take over the sequence numbers and call details of the newest stored messages. @param {Message[]} messages */
  sync(messages) {
    let index = messages.length - 1;
    for (const item of this.items.toReversed()) {
      if (index < 0) return;
      if (item instanceof UserMessage) {
        if (messages[index].role !== "user" || messages[index].content !== item.text) return; // another client sent a message meanwhile
        item.seq = messages[index--].seq;
        continue;
      }
      item.firstSeq = null;
      item.lastSeq = messages[index].seq; // a failed turn may have stored no message
      for (; index >= 0 && messages[index].role !== "user"; index--) item.firstSeq = messages[index].seq;
    }
    this.#applyClientResults(messages);
    for (const call of messages.flatMap((message) => message.tool_calls)) if (call.name === CONFIRMATION) this.#addConfirmation(call);
    const user = messages.findLastIndex((message) => message.role === "user");
    const answer = this.items.at(-1);
    if (answer instanceof Answer) for (const message of messages.slice(user + 1)) this.#updateCalls(answer, message);
  }

  /** Show the results that came from outside: of a client's tools and long-running tools. @param {Message[]} messages */
  #applyClientResults(messages) {
    for (const [id, call] of newestResults(messages)) {
      const card = this.toolCards.get(id);
      if (card?.status === "awaiting_client" || card?.status === "awaiting_result" || OF_CALLS.includes(card?.wait?.wait.kind ?? "")) card.finish({ ok: !call.output?.error, output: call.output });
    }
  }

  /** Remove the welcome text or open failure that stands in for messages. */
  removeWelcome() {
    this.element.querySelector(":scope > .welcome, :scope > .failed")?.remove();
  }

  /** Return whether the newest answer is shown without some of its tools, or without a note of Lango to the model. @param {Message[]} messages */
  isIncomplete(messages) {
    const own = messages.slice(messages.findLastIndex((message) => message.role === "user") + 1);
    const isUnknown = (/** @type {Call} */ call) => ![CONFIRMATION, INPUT, CREDENTIAL, TRANSFER].includes(call.name) && !this.toolCards.has(call.id);
    const answer = this.items.at(-1);
    const hasNote = answer instanceof Answer && answer.body.querySelector(".system-note") !== null;
    return own.some((message) => message.tool_calls.some(isUnknown) || (message.role === "system" && !hasNote));
  }

  /**
   * Return whether a message is shown that is not stored any more.
   * @param {Message[]} newest @param {boolean} complete whether these are all messages
   */
  showsRemovedMessages(newest, complete) {
    const from = complete ? 0 : newest[0].seq;
    const stored = new Set(newest.map((message) => message.seq));
    const shown = this.items.map((item) => (item instanceof UserMessage ? item.seq : item.lastSeq));
    return shown.some((seq) => seq !== null && seq >= from && !stored.has(seq));
  }

  /** @param {Answer} answer @param {Message} message */
  #updateCalls(answer, message) {
    for (const call of message.tool_calls) {
      if (call.name === CONFIRMATION || ([INPUT, CREDENTIAL].includes(call.name) && message.role === "tool")) this.#addCall(answer, message, call);
      else this.toolCards.get(call.id)?.update(call);
    }
  }

  /** The cards of what waits for an answer. */
  get openWaits() {
    return [...this.waitCards.values()].filter((card) => card.status === "waiting");
  }

  /** Close the open questions of a tool call that has ended, or of all. @param {string} [call] */
  closeQuestions(call) {
    for (const card of this.openWaits) if (card.wait.kind === "tool_question" && (call ?? card.wait.call_id) === card.wait.call_id) card.close("closed", ENDED);
  }

  /** Close a card whose wait is no longer open, and show the result that it got. @param {import("./wait-card.js").WaitCard} card @param {Message[]} messages */
  closeWait(card, messages) {
    const tool = [...this.toolCards.values()].find((one) => one.wait === card);
    const result = newestResults(messages).get(card.wait.id);
    if (card.wait.kind === "approval") tool?.expire();
    else if (tool) tool.endAwait();
    else if (result) card.showResult(result.output);
    else card.close("closed", card.wait.kind === "tool_question" ? ENDED : "");
  }

  /** Finish an answer and show its buttons. @param {Answer} answer @param {...(Node | string | false | null)} more */
  finishAnswer(answer, ...more) {
    const text = () => answer.texts.join("\n\n").trim();
    answer.finish(
      answer.texts.length > 0 && copyButton("Copy the answer", text),
      traceButton(answer),
      iconButton("fork", "Fork from here", () => this.actions.fork(answer)),
      ...more);
  }

  /** @param {number} seq */
  find(seq) {
    return this.items.find((item) => (item instanceof UserMessage ? item.seq === seq
      : item.firstSeq !== null && item.lastSeq !== null && item.firstSeq <= seq && seq <= item.lastSeq)) ?? null;
  }
}

/** @param {Answer} answer */
export function traceButton(answer) {
  return iconButton("trace", "Trace of this answer", () => emit("trace", answer.lastSeq));
}

/** Return the results of calls; where ids repeat, of the newest call. @param {Message[]} messages @returns {Map<string, Call>} */
function newestResults(messages) {
  const results = new Map();
  for (const message of messages) {
    for (const call of message.tool_calls) message.role === "tool" ? results.set(call.id, call) : results.delete(call.id);
  }
  return results;
}
