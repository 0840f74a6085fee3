/** Open a conversation, send messages to it and keep it up to date. */

import { ApiError, api, describeError, request, sessionPath } from "../base/api.js";
import { byId, el, toast, withErrorToast } from "../base/dom.js";
import { dropOtherDrafts } from "../base/drafts.js";
import { SessionFollower, PAGE_SIZE } from "./session-follower.js";
import { submitTurn } from "../base/event-stream.js";
import { state, emit } from "../base/state.js";
import { TurnView } from "./turn-view.js";
import { Transcript } from "./transcript.js";
import { QueuedMessages } from "./queued-messages.js";

/** @typedef {import("./transcript.js").Message} Message */
/** @typedef {import("./user-message.js").UserMessage} UserMessage */
/** @typedef {import("./answer.js").Answer} Answer */
/** @typedef {import("./queued-messages.js").QueuedMessage} QueuedMessage */

export class Conversation {
  /**
   * @param {{welcome: () => Node, scrollToBottom: (force?: boolean) => void, stopFollowing: () => void, retry: () => void,
   *   edit: (message: UserMessage) => void, rewind: (message: UserMessage) => void, fork: (answer: Answer) => void,
   *   withdraw: (message: QueuedMessage) => void}} page
   */
  constructor(page) {
    this.page = page;
    this.transcript = new Transcript(byId("log"), page);
    this.queue = new QueuedMessages(page.withdraw);
    this.turnView = new TurnView(this.transcript, {
      retry: page.retry,
      approve: (call, decision) => void this.#approve(call, decision),
      answerInput: (call, value) => this.#answerInput(call, value),
      skipInput: () => void this.#skipInput(),
      answerTool: (call, answer) => this.#answerTool(call, answer),
      giveCredential: (call, value) => this.#giveCredential(call, value),
      skipCredential: (call) => void this.#skipCredential(call),
      ended: (status) => this.setRunning(false, status),
    });
    this.controller = new AbortController();
    /** @type {SessionFollower | null} */ this.follower = null;
    this.opened = false;
    /** resolves when the transcript has the stored sequence numbers of the last turn */ this.synced = Promise.resolve();
    /** resolves when the server has accepted or refused all that this page sent */ this.sending = /** @type {Promise<any>} */ (Promise.resolve());
    /** how many messages and answers the server has not accepted yet */ this.unsent = 0;
    /** @type {number | null} */ this.olderCursor = null;
    /** @type {Message[]} */ this.partialTurn = [];
  }

  /** Show a session; null starts a new one, which is stored with its first message. @param {string | null} id @param {number | null} [seq] */
  async open(id, seq = null) {
    this.controller.abort();
    const { signal } = (this.controller = new AbortController());
    const isOther = state.session !== id || !this.opened;
    state.session = id;
    this.opened = true;
    this.olderCursor = null;
    this.partialTurn = [];
    if (isOther) this.queue.clear();
    this.setRunning(false);
    this.showConnectionLost(null);
    if (isOther) emit("session", id);
    if (id === null) {
      this.transcript.clear("");
      this.transcript.element.append(this.page.welcome());
      this.follower = new SessionFollower(this, null, null);
      return;
    }
    try {
      const messages = await this.readMessages(id, null, signal);
      if (signal.aborted) return;
      this.transcript.clear(id);
      this.#show(id, messages, signal, seq);
    } catch (error) {
      if (!signal.aborted) this.#showOpenFailure(id, error);
    }
  }

  /** @param {string} id @param {Message[]} messages @param {AbortSignal} signal @param {number | null} seq */
  #show(id, messages, signal, seq) {
    this.transcript.append(messages);
    emit("messages", id);
    this.page.scrollToBottom(true);
    if (seq !== null) this.#scrollTo(seq, signal);
    if (!messages.length) this.transcript.element.append(this.page.welcome());
    this.follower = new SessionFollower(this, id, messages);
    if (messages.length) this.loadRequests().catch(() => {});
  }

  /** @param {string} id @param {unknown} error */
  #showOpenFailure(id, error) {
    this.transcript.clear(id);
    const again = el("button", { type: "button", click: () => this.open(id) }, "Try again");
    this.transcript.element.append(el("div", { class: "failed" }, el("p", { text: describeError(error) }), again));
  }

  /**
   * Read a page of messages that starts with a user's message, so that no answer is split.
   * @param {string} id @param {number | null} before @param {AbortSignal} signal @returns {Promise<Message[]>}
   */
  async readMessages(id, before, signal) {
    let messages = before === null ? [] : this.partialTurn;
    for (let times = 0; ; times++) {
      const query = before === null ? "" : `&before=${before}`;
      const page = await api(sessionPath(id, `/messages?limit=${PAGE_SIZE}${query}`), { signal });
      messages = [...page.messages, ...messages];
      before = this.olderCursor = page.before;
      const first = messages.findIndex((message) => message.role === "user");
      if (before !== null && first < 0 && times < 10) continue;
      const cut = before === null || first < 0 ? 0 : first;
      this.partialTurn = messages.slice(0, cut);
      return messages.slice(cut);
    }
  }

  /** Show older messages; false if there are none. */
  async loadOlder() {
    const { signal } = this.controller;
    if (this.olderCursor === null || state.session === null) return false;
    const before = this.olderCursor;
    this.olderCursor = null; // prevents a second read of the same page
    try {
      const messages = await this.readMessages(state.session, before, signal);
      if (signal.aborted) return false;
      this.transcript.prepend(messages);
      return true;
    } catch (error) {
      if (!signal.aborted) this.olderCursor = before;
      throw error;
    }
  }

  /** @param {number} seq @param {AbortSignal} signal */
  async #scrollTo(seq, signal) {
    while (!this.transcript.find(seq) && !signal.aborted && (await this.loadOlder()));
    const item = this.transcript.find(seq);
    if (!item) return;
    this.page.stopFollowing();
    item.element.scrollIntoView({ block: "center" });
    item.element.classList.add("found");
    setTimeout(() => item.element.classList.remove("found"), 2500);
  }

  /** Follow a session that was just created, from its first event. @param {string} id */
  followCreated(id) {
    this.controller.abort();
    this.controller = new AbortController();
    this.transcript.clear(id);
    this.follower = new SessionFollower(this, id, null);
  }

  /** Show the requests to the user that are still open. */
  async loadRequests() {
    const { signal } = this.controller;
    const read = (/** @type {string} */ what) => api(sessionPath(this.transcript.session, `/${what}`), { signal });
    const [{ approvals }, { inputs }, { credentials }, { results }] = await Promise.all(["approvals", "inputs", "credentials", "results"].map(read));
    if (signal.aborted || state.running) return;
    dropOtherDrafts(this.transcript.session, new Set([...inputs, ...results].map(({ call_id }) => call_id)));
    this.#awaitResults(results);
    for (const approval of approvals) this.turnView.requestApproval(approval);
    for (const input of inputs) this.turnView.requestInput(input);
    for (const credential of credentials) this.turnView.requestCredential(credential);
    this.page.scrollToBottom();
  }

  /** Show which long-running tools wait for a result. */
  async loadResults() {
    const { signal } = this.controller;
    const { results } = await api(sessionPath(this.transcript.session, "/results"), { signal });
    if (!signal.aborted) this.#awaitResults(results);
  }

  /** @param {{call_id: string, name: string, arguments: any}[]} results */
  #awaitResults(results) {
    const open = new Set(results.map((result) => result.call_id));
    for (const card of this.transcript.toolCards.values()) if (card.resultForm && !open.has(card.id)) card.endAwait();
    for (const { call_id } of results) this.transcript.toolCards.get(call_id)?.awaitResult((result, more) => this.#giveResult(call_id, result, more));
  }

  /** Give the result of a long-running tool; return why it was refused. @param {string} call @param {any} result @param {boolean} more @returns {Promise<string>} */
  async #giveResult(call, result, more) {
    const id = state.session;
    if (id === null) return "";
    const { signal } = this.controller;
    const answer = this.#startAnswer();
    try {
      await this.#submit({ path: sessionPath(id, `/results/${encodeURIComponent(call)}`), body: { result, will_continue: more } });
      return "";
    } catch (error) {
      if (signal.aborted) return refusedLate(error);
      answer.finish();
      this.setRunning(false);
      return describeError(error);
    }
  }

  /** @param {boolean} running */
  setRunning(running, status = "") {
    if (state.running === running) return;
    state.running = running;
    emit("turn", { id: state.session, running, status });
  }

  /** @param {number | null} wait_s */
  showConnectionLost(wait_s) {
    const line = byId("connection");
    line.hidden = wait_s === null;
    const unsent = " Your message is not sent yet: it will be as soon as the server answers. Keep this page open.";
    const rest = this.unsent ? unsent : state.running ? " The answer continues meanwhile, nothing is lost." : "";
    line.textContent = wait_s === null ? "" : `Connection lost. Reconnecting…${rest}`;
  }

  // -- sending --------------------------------------------------------------------------------------------------------

  /** @param {{text: string, files: any[], at: string}} message */
  addUserMessage(message) {
    this.transcript.removeWelcome();
    return this.transcript.addUserMessage(message);
  }

  /**
   * Send a message, or queue it while an answer runs. False: the server refused it, and it is not shown.
   * @param {QueuedMessage} message @param {{path: string, body: any, key?: string}} input @returns {Promise<boolean>}
   */
  async send(message, input) {
    const { signal } = this.controller;
    const open = this.transcript.openInput();
    if (open?.onAnswer && !state.running && !message.files.length) return open.answer(message.text, open.onAnswer); // a message is an answer
    if (state.running || this.queue.count) return this.#sendQueued(message, input, signal);
    const shown = this.addUserMessage(message);
    const answer = this.#startAnswer();
    void this.#submit(input).then((accepted) => {
      if (signal.aborted || !accepted.waiting) return;
      this.transcript.removeFrom(shown); // another client's message was first
      this.follower?.ownTurns.delete(accepted.turn);
      this.queue.add({ ...message, turn: accepted.turn });
    }).catch((error) => {
      if (signal.aborted) return;
      answer.busy = false;
      this.showFailure(describeError(error), true);
      this.setRunning(false);
    });
    return true;
  }

  /** @param {QueuedMessage} message @param {{path: string, body: any, key?: string}} input @param {AbortSignal} signal */
  async #sendQueued(message, input, signal) {
    const queued = this.queue.add(message);
    this.page.scrollToBottom(true);
    this.transcript.announce("Your message is queued until the answer is complete.");
    try {
      await this.#submit(input, queued);
      return true;
    } catch (error) {
      if (!signal.aborted) this.queue.remove(queued);
      toast(describeError(error), "error");
      return false;
    }
  }

  /** @param {{path: string, body: any, key?: string}} input @param {QueuedMessage} [queued] */
  #submit(input, queued) {
    const { controller: { signal }, follower } = this;
    this.unsent += 1;
    const submitted = this.sending.then(() => submitTurn(input, (wait_s) => signal.aborted || this.showConnectionLost(wait_s)));
    const sent = submitted.finally(() => void (this.unsent -= 1)).then((accepted) => {
      if (signal.aborted) return accepted;
      this.showConnectionLost(null); // if the live stream is still lost, its next attempt says so
      if (queued) this.queue.setTurn(queued, accepted.turn);
      else follower?.ownTurns.add(accepted.turn);
      return accepted;
    });
    this.sending = Promise.allSettled([this.sending, sent]);
    return sent;
  }


  #startAnswer() {
    this.turnView.start();
    this.setRunning(true);
    this.page.scrollToBottom(true);
    return this.transcript.currentAnswer();
  }

  /** @param {string} call @param {import("./approval-box.js").Decision} decision */
  async #approve(call, decision) {
    const id = state.session;
    if (id === null) return;
    const { signal } = this.controller;
    this.#startAnswer();
    try {
      await this.#submit({ path: sessionPath(id, `/approvals/${encodeURIComponent(call)}`), body: decision });
    } catch (error) {
      if (signal.aborted) return;
      toast(describeError(error), "error");
      void this.open(id);
    }
  }

  /** Answer a workflow's request; return why the value was refused. @param {string} call @param {any} value @returns {Promise<string>} */
  async #answerInput(call, value) {
    const id = state.session;
    if (id === null) return "";
    const { signal } = this.controller;
    const answer = this.#startAnswer();
    try {
      await this.#submit({ path: sessionPath(id, `/inputs/${encodeURIComponent(call)}`), body: { value } });
      return "";
    } catch (error) {
      if (signal.aborted) return refusedLate(error);
      answer.finish();
      this.setRunning(false);
      if (!(error instanceof ApiError) || error.type !== "InvalidAnswer") void this.open(id); // answered elsewhere, or expired
      return describeError(error);
    }
  }

  /** Answer or decline the question of a running tool, whose turn goes on; return why the answer was refused. @param {string} call @param {{value: any} | {decline: true}} body @returns {Promise<string>} */
  async #answerTool(call, body) {
    try {
      const response = await request(sessionPath(this.transcript.session, `/inputs/${encodeURIComponent(call)}`), { method: "POST", body });
      await response.body?.cancel(); // the live stream carries the rest
      return "";
    } catch (error) {
      return describeError(error);
    }
  }

  /** Give a tool the credential that it waits for; return why it was refused. @param {string} call @param {any} value @returns {Promise<string>} */
  async #giveCredential(call, value) {
    const id = state.session;
    if (id === null) return "";
    const { signal } = this.controller;
    const answer = this.#startAnswer();
    try {
      await this.#submit({ path: sessionPath(id, `/credentials/${encodeURIComponent(call)}`), body: { value } });
      return "";
    } catch (error) {
      if (signal.aborted) return "";
      answer.finish();
      this.setRunning(false);
      if (!(error instanceof ApiError) || error.type !== "InvalidAnswer") void this.open(id); // answered elsewhere, or expired
      return describeError(error);
    }
  }

  /** @param {string} call */
  async #skipCredential(call) {
    const id = state.session;
    if (id === null) return;
    await withErrorToast(() => api(sessionPath(id, `/credentials/${encodeURIComponent(call)}`), { method: "DELETE" }));
    void this.open(id);
  }

  async #skipInput() {
    const id = state.session;
    if (id === null) return;
    await withErrorToast(() => api(sessionPath(id, "/cancel"), { method: "POST" }));
    void this.open(id);
  }

  /** @param {string} text @param {boolean} retry */
  showFailure(text, retry) {
    this.turnView.showFailure(text, retry);
    this.setRunning(false);
    this.page.scrollToBottom();
  }
}

/** Report why an answer was refused whose form is not shown any more. @param {unknown} error */
function refusedLate(error) {
  const problem = describeError(error);
  toast(problem, "error");
  return problem;
}
