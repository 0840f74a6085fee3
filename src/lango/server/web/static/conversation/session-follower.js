/** Follow a session's live events, of this page's turns and of other clients', and apply each event once. */

import { ApiError, api, describeError, sessionPath } from "../base/api.js";
import { toast } from "../base/dom.js";
import { isFinalEvent, followLive } from "../base/event-stream.js";
import { state, emit } from "../base/state.js";
import { startsTurn } from "./transcript.js";

/** @typedef {import("./transcript.js").Message} Message */

export const PAGE_SIZE = 50;
const REPLAY_GAP_MS = 150; // replayed events arrive without a pause: a pause ends the replay
const MAX_REPLAY_MS = 500; // a model may stream without a pause, too

/**
 * How the events of the current turn are applied. "live": each event is shown. "held": the turn is already shown as it is
 * stored, so its replayed events are held until new ones arrive. "ignored": the turn was rewound or is over.
 * @typedef {"live" | "held" | "ignored"} Mode
 */

export class SessionFollower {
  #mode = /** @type {Mode} */ ("ignored");
  #heldEvents = /** @type {any[]} */ ([]);
  #heldSince = 0;
  #timer = 0;
  /** the messages as they were read, until the first turn starts */ #initialMessages = /** @type {Message[] | null} */ (null);
  /** the newest stored message that is shown */ #lastSeq = 0;
  /** the newest turn that has started */ #turn = 0;
  #invocation = "";
  /** the current turn replaced another one, which is still shown */ #replaces = false;
  #chain = Promise.resolve();
  /** turns that this page started */ ownTurns = /** @type {Set<number>} */ (new Set());

  /** @param {import("./conversation.js").Conversation} conversation @param {string | null} id @param {Message[] | null} messages those shown; null: the session has none */
  constructor(conversation, id, messages) {
    this.conversation = conversation;
    this.transcript = conversation.transcript;
    this.id = id ?? "";
    this.signal = conversation.controller.signal;
    this.#initialMessages = messages;
    this.#lastSeq = messages?.at(-1)?.seq ?? 0;
    this.#connect(id, messages === null && id !== null ? "0" : null);
  }

  /** @param {string | null} session @param {string | null} lastEventId */
  #connect(session, lastEventId) {
    const { signal, conversation } = this;
    const onEvent = (/** @type {any} */ event) => {
      if (event.type === "changed") return void this.#reload(event.what).catch(() => {});
      this.#chain = this.#chain.then(() => (signal.aborted ? undefined : this.#handle(event))).catch((error) => {
        if (!signal.aborted) toast(describeError(error), "error");
      });
    };
    const onLost = (/** @type {number | null} */ wait_s) => signal.aborted || conversation.showConnectionLost(wait_s);
    followLive({ session, signal, lastEventId, onEvent, onLost, isIdle: () => !state.running }).catch((error) => {
      if (signal.aborted || session === null) return;
      if (error instanceof ApiError && error.status === 410) return void conversation.open(session); // the missed events are gone
      conversation.showFailure(describeError(error), false);
    });
  }

  /** Reload what changed according to the server. @param {string} what */
  async #reload(what) {
    if (what === "inbox" && !state.running && this.transcript.openWaits.length) void this.conversation.loadWaits().catch(() => {}); // some may have expired
    if (what === "sessions" || what === "inbox") return emit(what, null);
    if (what === "rewound") return this.#reopenIfRewound();
    await this.conversation.sending; // messages being sent would be shown twice
    for (;;) {
      const { version } = this.conversation.queue;
      const { waiting } = await this.#get("/waiting");
      if (this.signal.aborted) return;
      if (version !== this.conversation.queue.version) continue; // the response may be older than the change
      this.conversation.queue.show(waiting, this.#turn);
      return this.conversation.page.scrollToBottom();
    }
  }

  /** @param {string} path @returns {Promise<any>} */
  #get(path) {
    return api(sessionPath(this.id, path), { signal: this.signal });
  }

  /** @returns {Promise<Message[]>} */
  async #newestMessages() {
    return (await this.#get(`/messages?limit=${PAGE_SIZE}`)).messages;
  }

  /** Read the conversation again if another client rewound messages that are shown. */
  async #reopenIfRewound() {
    await this.conversation.sending;
    await this.conversation.synced;
    if (this.signal.aborted) return;
    const newest = await this.#newestMessages();
    if (!this.signal.aborted && this.transcript.showsRemovedMessages(newest, newest.length < PAGE_SIZE)) void this.conversation.open(this.id);
  }

  /** @param {Message[]} messages */
  #appendMessages(messages) {
    this.transcript.removeWelcome();
    this.transcript.append(messages);
    this.#lastSeq = messages.at(-1)?.seq ?? this.#lastSeq;
    this.conversation.page.scrollToBottom();
  }

  /** @param {any} event */
  async #handle(event) {
    if (event.type === "accepted") await this.#turnStarted(event);
    if (this.signal.aborted) return;
    if (event.error === "SessionNotFound") return this.#sessionDeleted();
    if (this.#mode === "live") this.#show(event);
    else if (this.#mode === "held") await this.#hold(event);
    if (!isFinalEvent(event) || this.#mode === "ignored") return;
    const wasHeld = this.#mode === "held";
    this.#mode = "ignored";
    if (this.#replaces) return void this.conversation.open(this.id); // the answer that was replaced is no longer part of it
    this.conversation.synced = this.#syncWithStore(event.error === "TurnCancelled");
    if (wasHeld) await this.conversation.loadWaits().catch(() => {});
  }

  /** Another client deleted the session: keep following the session list only. */
  #sessionDeleted() {
    this.conversation.showFailure("This conversation was deleted.", false);
    this.conversation.queue.clear();
    this.conversation.follower = new SessionFollower(this.conversation, null, null);
  }

  /** Choose the mode of a turn that starts, and show its input unless it is shown already. @param {any} event */
  async #turnStarted(event) {
    await this.conversation.sending; // the turn may be one that this page is sending
    await this.conversation.synced;
    const initial = this.#initialMessages;
    this.#initialMessages = null;
    this.#turn = event.turn;
    this.#invocation = event.invocation_id;
    this.#mode = "live";
    const queued = this.conversation.queue.removeStarted(event.turn);
    if (queued) this.conversation.addUserMessage(queued);
    this.#replaces = queued?.replaces ?? false;
    if (this.ownTurns.delete(event.turn) || queued) return;
    if (initial?.some((message) => message.invocation_id === event.invocation_id)) {
      this.#mode = "held";
      this.#heldEvents = [];
      this.#heldSince = Date.now();
      return;
    }
    const stored = (await this.#get("/waiting")).waiting.find((/** @type {any} */ entry) => entry.turn === event.turn);
    if (stored) return void (stored.is_answer || this.conversation.addUserMessage({ text: stored.content, files: stored.attachments, at: stored.created_at }));
    // the answer to a request for approval or input continues under the invocation id of the message that led to it
    const opener = (await this.#newestMessages()).findLast((message) => message.invocation_id === event.invocation_id && startsTurn(message));
    if (!opener) this.#mode = "ignored";
    else if (initial?.length) void this.conversation.open(this.id); // messages between the two reads may be missing
    else if (opener.role === "user" && opener.seq > this.#lastSeq) this.#appendMessages([opener]);
  }

  /** Collect the events of a turn that is shown as stored; once it continues, replace that by its events. @param {any} event */
  async #hold(event) {
    this.#heldEvents.push(event);
    clearTimeout(this.#timer);
    if (isFinalEvent(event)) {
      const own = (/** @type {Message} */ message) => message.invocation_id === this.#invocation;
      const more = (await this.#newestMessages()).filter((message) => message.seq > this.#lastSeq && own(message)); // stored after the first read
      if (more.length) this.#appendMessages(more);
      for (const held of this.#heldEvents) if (held.type === "node") this.transcript.currentAnswer().nodes.show(held);
      this.#show(event);
    } else {
      const wait_ms = Math.min(REPLAY_GAP_MS, this.#heldSince + MAX_REPLAY_MS - Date.now());
      this.#timer = setTimeout(() => void (this.#chain = this.#chain.then(() => this.#replayHeld()).catch(() => {})), wait_ms);
    }
  }

  async #replayHeld() {
    if (this.#mode !== "held" || this.signal.aborted) return;
    const messages = await this.conversation.readMessages(this.id, null, this.signal);
    if (this.signal.aborted) return;
    const opener = messages.findLastIndex((message) => message.invocation_id === this.#invocation && startsTurn(message));
    const opened = [...this.transcript.toolCards.values()].filter((card) => card.box.open).map((card) => card.id);
    this.transcript.clear(this.id);
    this.transcript.append(opener < 0 ? messages : messages.slice(0, opener + 1));
    this.#mode = "live";
    for (const event of this.#heldEvents) this.#show(event);
    for (const id of opened) this.transcript.toolCards.get(id)?.box.toggleAttribute("open", true);
    this.conversation.page.scrollToBottom(true);
  }

  /** @param {any} event */
  #show(event) {
    if (event.type === "accepted") this.conversation.setRunning(true);
    if (event.type === "steered") this.#showSteering(event);
    else this.conversation.turnView.show(event);
    this.conversation.page.scrollToBottom();
  }

  /** Show a message where the running turn took it in; the answer continues below it. @param {any} event */
  #showSteering(event) {
    const answer = this.transcript.currentAnswer();
    answer.endBlock();
    answer.finish();
    const queued = this.conversation.queue.removeStarted(event.turn);
    const files = queued?.files ?? [];
    this.conversation.addUserMessage({ text: event.text, files, at: queued?.at ?? new Date().toISOString() }).seq = event.seq;
    this.transcript.currentAnswer().busy = true;
    this.transcript.announce("The model reads your message now.");
  }

  /** Take over the stored sequence numbers and approvers of the turn. @param {boolean} stopped */
  async #syncWithStore(stopped) {
    try {
      const messages = await this.#newestMessages();
      if (this.signal.aborted) return;
      const start = messages.findIndex((message) => message.invocation_id === this.#invocation);
      if (stopped && start < 0) return void this.conversation.open(this.id); // the next turn has replaced it already
      const next = messages.findIndex((message, index) => start >= 0 && index > start && message.role === "user" && !message.is_steering);
      const own = next < 0 ? messages : messages.slice(0, next); // the next turn may have started
      this.transcript.sync(own);
      this.#lastSeq = own.at(-1)?.seq ?? this.#lastSeq;
      emit("messages", this.id);
      if (own.some((message) => message.tool_calls.length)) await this.conversation.loadWaits().catch(() => {});
      if (this.transcript.isIncomplete(own)) void this.conversation.open(this.id); // the stream left something out
    } catch {
      // actions that need a sequence number report that it is missing
    }
  }
}
