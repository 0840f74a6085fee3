/** Open a conversation, send messages to it and keep it up to date. */

import { ApiError, api, describeError, request, sessionPath } from "../base/api.js";
import { byId, el, toast, withErrorToast } from "../base/dom.js";
import { loadFailures } from "../base/failures.js";
import { dropOtherDrafts } from "../base/drafts.js";
import { SessionFollower, PAGE_SIZE } from "./session-follower.js";
import { submitTurn } from "../base/event-stream.js";
import { state, emit } from "../base/state.js";
import { TurnView } from "./turn-view.js";
import { OF_CALLS } from "./wait-card.js";
import { Transcript } from "./transcript.js";
import { QueuedMessages } from "./queued-messages.js";
import { WindowMark } from "./window-mark.js";

/** @typedef {import("./transcript.js").Message} Message */
/** @typedef {import("./wait-card.js").Wait} Wait */
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
    this.windowMark = new WindowMark(this.transcript);
    this.queue = new QueuedMessages(page.withdraw);
    this.turnView = new TurnView(this.transcript, {
      retry: page.retry,
      answer: (wait, answer) => this.#answer(wait, answer),
      skip: () => void this.#skip(),
      failed: () => void this.#loadFailures(),
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
      const [messages] = await Promise.all([this.readMessages(id, null, signal), state.ready]);
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
    if (messages.length) this.loadWaits().catch(() => {});
    if (this.transcript.showsFailure) void this.#loadFailures();
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
      this.windowMark.place();
      if (this.transcript.showsFailure) void this.#loadFailures();
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

  /** Show where the user's own code raised errors. */
  async #loadFailures() {
    const { transcript: { session }, controller: { signal } } = this;
    const failures = await loadFailures(session);
    if (!signal.aborted) this.transcript.showFailures(failures);
  }

  /** Show what the session waits for, and close what it no longer waits for. While a turn runs, only results can be given. */
  async loadWaits() {
    const { signal } = this.controller;
    const { session } = this.transcript;
    const shown = this.transcript.openWaits;
    const { waits } = await api(sessionPath(session, "/waits"), { signal });
    // after the waits: messages that were read before would lack the results of those that were closed in between
    const { messages } = await api(sessionPath(session, `/messages?limit=${PAGE_SIZE}`), { signal });
    if (signal.aborted) return;
    const isMeant = (/** @type {Wait} */ wait) => !state.running || OF_CALLS.includes(wait.kind);
    const open = new Set(waits.map((/** @type {Wait} */ wait) => wait.id));
    dropOtherDrafts(session, open);
    for (const card of shown) if (card.status === "waiting" && isMeant(card.wait) && !open.has(card.wait.id)) this.transcript.closeWait(card, messages);
    for (const wait of waits) if (isMeant(wait)) this.turnView.openWait(wait);
    this.page.scrollToBottom();
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
    const open = this.transcript.openWaits.find((card) => card.wait.kind === "input");
    if (open && !state.running && !message.files.length) return open.answer({ type: "value", value: message.text }); // a message is an answer
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

  /** Answer what the session waits for; return why the answer was refused. @param {Wait} wait @param {import("./wait-card.js").Answer} body @returns {Promise<string>} */
  async #answer(wait, body) {
    const { signal } = this.controller;
    const path = sessionPath(wait.session_id, `/waits/${encodeURIComponent(wait.id)}`);
    const isQuestion = wait.kind === "tool_question"; // its turn runs, and continues with the answer
    const answer = isQuestion ? null : this.#startAnswer();
    try {
      if (answer) await this.#submit({ path, body });
      else await (await request(path, { method: "POST", body })).body?.cancel(); // the live stream carries the rest
      return "";
    } catch (error) {
      const problem = describeError(error);
      if (signal.aborted) toast(problem, "error"); // its form is no longer shown
      if (signal.aborted || !answer) return problem;
      answer.finish();
      this.setRunning(false);
      if (error instanceof ApiError && error.status === 422) return problem;
      toast(problem, "error"); // answered elsewhere, or expired
      void this.open(wait.session_id);
      return problem;
    }
  }

  /** Close what the session waits for without an answer. */
  async #skip() {
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
