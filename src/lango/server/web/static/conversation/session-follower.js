/** Hearing of a conversation: the turns that others begin and those of this page, each event once. */

import { ApiError, api, explain, sessionPath } from "../base/api.js";
import { toast } from "../base/dom.js";
import { isLast, listen } from "../base/event-stream.js";
import { state, tell } from "../base/state.js";
import { opens } from "./transcript.js";

/** @typedef {import("./transcript.js").Message} Message */

export const PAGE = 50;
const BURST_MS = 150; // what is told again comes without a pause
const LONGEST_BURST_MS = 500; // and what comes for longer is news: a model need not pause, either

/**
 * How the turn that is told stands to what is shown: "live", each event is shown; "held", it is shown as it is stored,
 * and only how it goes on is news; "ignored", it was taken back, or is over.
 * @typedef {"live" | "held" | "ignored"} Mode
 */

export class Hearing {
  #mode = /** @type {Mode} */ ("ignored");
  #held = /** @type {any[]} */ ([]);
  #heldSince = 0;
  #timer = 0;
  /** the messages as they were read, until the first turn is told */ #first = /** @type {Message[] | null} */ (null);
  /** the newest message that is shown as it is stored */ #seen = 0;
  /** the newest turn that has begun */ #turn = 0;
  #invocation = "";
  /** a process that tells nobody runs the turn: it is read from the store */ #elsewhere = false;
  #chain = Promise.resolve();
  /** turns that this page began */ own = /** @type {Set<number>} */ (new Set());

  /** @param {import("./conversation.js").Conversation} talk @param {string | null} id @param {Message[] | null} messages as they are shown; null: a session that has none */
  constructor(talk, id, messages) {
    this.talk = talk;
    this.log = talk.log;
    this.id = id ?? "";
    this.signal = talk.leaving.signal;
    this.#first = messages;
    this.#seen = messages?.at(-1)?.seq ?? 0;
    this.#listen(id, messages === null && id !== null ? "0" : null);
  }

  /** @param {string | null} id @param {string | null} last */
  #listen(id, last) {
    const { signal, talk } = this;
    const hear = (/** @type {any} */ event) => {
      if (event.type === "changed") return void this.#changed(event.what).catch(() => {});
      this.#chain = this.#chain.then(() => (signal.aborted ? undefined : this.#hear(event))).catch((error) => {
        if (!signal.aborted) toast(explain(error), "error");
      });
    };
    listen({ session: id, signal, last, tell: hear, lost: (wait_s) => signal.aborted || talk.lost(wait_s), idle: () => !state.running }).catch((error) => {
      if (signal.aborted || id === null) return;
      if (error instanceof ApiError && error.status === 410) return void talk.open(id); // too much was missed: all is read again
      talk.fail(explain(error), false);
    });
  }

  /** Read again what the server says has changed. @param {string} what */
  async #changed(what) {
    if (what === "sessions") return tell("sessions", null);
    if (what === "messages") return this.#stored();
    if (what === "rewound") return this.#rewound();
    await this.talk.sending; // what is on its way there would be shown twice
    for (;;) {
      const { changes } = this.talk.waiting;
      const { waiting } = await this.#ask("/waiting");
      if (this.signal.aborted) return;
      if (changes !== this.talk.waiting.changes) continue; // something happened meanwhile: this may be older than that
      this.talk.waiting.show(waiting, this.#turn);
      return this.talk.page.bottom();
    }
  }

  /** @param {string} path @returns {Promise<any>} */
  #ask(path) {
    return api(sessionPath(this.id, path), { signal: this.signal });
  }

  /** @returns {Promise<Message[]>} */
  async #newest() {
    return (await this.#ask(`/messages?limit=${PAGE}`)).messages;
  }

  /** Show what a process that tells nobody has stored of its turn so far. */
  async #stored() {
    await this.talk.settled;
    const told = () => this.signal.aborted || (state.running && !this.#elsewhere);
    if (told()) return;
    const more = (await this.#newest()).filter((one) => one.seq > this.#seen);
    if (told() || !more.length) return;
    this.#elsewhere = true;
    this.#more(more);
    this.log.answer().busy = true;
    this.talk.running(true);
  }

  /** Somebody may have taken back what is shown: then all is read again. */
  async #rewound() {
    await this.talk.sending;
    await this.talk.settled;
    if (this.signal.aborted) return;
    const newest = await this.#newest();
    if (!this.signal.aborted && this.log.outlives(newest, newest.length < PAGE)) void this.talk.open(this.id);
  }

  /** @param {Message[]} messages */
  #more(messages) {
    this.log.greeted();
    this.log.append(messages);
    this.#seen = messages.at(-1)?.seq ?? this.#seen;
    this.talk.page.bottom();
  }

  /** @param {any} event */
  async #hear(event) {
    if (event.type === "accepted") await this.#begins(event);
    if (this.signal.aborted) return;
    if (event.error === "SessionNotFound") return this.#gone();
    if (this.#mode === "live") this.#show(event);
    else if (this.#mode === "held") await this.#hold(event);
    if (!isLast(event) || this.#mode === "ignored") return;
    const known = this.#mode === "held";
    this.#mode = "ignored";
    this.#elsewhere = false;
    this.talk.settled = this.#after();
    if (known) await this.talk.questions().catch(() => {});
  }

  /** Somebody deleted the session; what happens around it is still heard. */
  #gone() {
    this.talk.fail("This conversation was deleted.", false);
    this.talk.waiting.clear();
    this.talk.hearing = new Hearing(this.talk, null, null);
  }

  /** Find out what a turn that begins has to do with what is shown. @param {any} event */
  async #begins(event) {
    await this.talk.sending; // it may be what this page is about to send
    await this.talk.settled;
    const first = this.#first;
    this.#first = null;
    this.#turn = event.turn;
    this.#invocation = event.invocation_id;
    this.#mode = "live";
    const waited = this.talk.waiting.take(event.turn);
    if (waited) this.talk.says(waited);
    if (this.own.delete(event.turn) || waited) return;
    if (this.#elsewhere || first?.some((one) => one.invocation_id === event.invocation_id)) {
      this.#mode = "held";
      this.#held = [];
      this.#heldSince = Date.now();
      return;
    }
    const waits = (await this.#ask("/waiting")).waiting.find((/** @type {any} */ one) => one.turn === event.turn);
    if (waits) return void (waits.is_answer || this.talk.says({ text: waits.content, files: waits.attachments, at: waits.created_at }));
    // an answer to a question goes on under the id of the message that led to it
    const opener = (await this.#newest()).findLast((one) => one.invocation_id === event.invocation_id && opens(one));
    if (!opener) this.#mode = "ignored";
    else if (first?.length) void this.talk.open(this.id); // it began between two reads: what came before it may be missing
    else if (opener.role === "user" && opener.seq > this.#seen) this.#more([opener]);
  }

  /** What is stored of a turn is shown: where it goes on, it is told from its beginning in the place of that. @param {any} event */
  async #hold(event) {
    this.#held.push(event);
    clearTimeout(this.#timer);
    if (isLast(event)) {
      const own = (/** @type {Message} */ one) => this.#elsewhere || one.invocation_id === this.#invocation;
      const more = (await this.#newest()).filter((one) => one.seq > this.#seen && own(one)); // it may have ended since it was read
      if (more.length) this.#more(more);
      this.#show(event);
    } else if (!this.#elsewhere) {
      const wait_ms = Math.min(BURST_MS, this.#heldSince + LONGEST_BURST_MS - Date.now());
      this.#timer = setTimeout(() => void (this.#chain = this.#chain.then(() => this.#retell()).catch(() => {})), wait_ms);
    }
  }

  async #retell() {
    if (this.#mode !== "held" || this.signal.aborted) return;
    const messages = await this.talk.read(this.id, null, this.signal);
    if (this.signal.aborted) return;
    const opener = messages.findLastIndex((one) => one.invocation_id === this.#invocation && opens(one));
    this.log.clear(this.id);
    this.log.append(opener < 0 ? messages : messages.slice(0, opener + 1));
    this.#mode = "live";
    for (const one of this.#held) this.#show(one);
    this.talk.page.bottom(true);
  }

  /** @param {any} event */
  #show(event) {
    if (event.type === "accepted") this.talk.running(true);
    this.talk.told.show(event);
    this.talk.page.bottom();
  }

  /** Learn what the store made of the turn: numbers of messages, who approved. */
  async #after() {
    try {
      const messages = await this.#newest();
      if (this.signal.aborted) return;
      const began = messages.findIndex((one) => one.invocation_id === this.#invocation);
      const next = messages.findIndex((one, at) => began >= 0 && at > began && one.role === "user");
      const own = next < 0 ? messages : messages.slice(0, next); // the next one may have begun
      this.log.sync(own);
      this.#seen = own.at(-1)?.seq ?? this.#seen;
      tell("messages", this.id);
      if (this.log.lacks(own)) void this.talk.open(this.id); // it was told without its tools
    } catch {
      // the buttons that need the numbers say so
    }
  }
}
