/** One conversation: opened, talked to, heard of, whoever speaks in it. */

import { api, explain, sessionPath } from "../base/api.js";
import { byId, el, toast } from "../base/dom.js";
import { Hearing, PAGE } from "./session-follower.js";
import { submit } from "../base/event-stream.js";
import { state, tell } from "../base/state.js";
import { Told } from "./turn-view.js";
import { Transcript } from "./transcript.js";
import { Waiting } from "./queued-messages.js";

/** @typedef {import("./transcript.js").Message} Message */
/** @typedef {import("./user-message.js").Said} Said */
/** @typedef {import("./answer.js").Answered} Answered */
/** @typedef {import("./queued-messages.js").Waits} Waits */

export class Conversation {
  /**
   * @param {{welcome: () => Node, bottom: (force?: boolean) => void, away: () => void, retry: () => void, edit: (said: Said) => void,
   *   rewind: (said: Said) => void, fork: (answer: Answered) => void, takeBack: (one: Waits) => void}} page
   */
  constructor(page) {
    this.page = page;
    this.log = new Transcript(byId("log"), page);
    this.waiting = new Waiting(page.takeBack);
    this.told = new Told(this.log, {
      retry: page.retry,
      approve: (call, approved) => void this.#approve(call, approved),
      ended: (status) => this.running(false, status),
    });
    this.leaving = new AbortController();
    /** @type {Hearing | null} */ this.hearing = null;
    this.opened = false;
    /** resolves when what was shown as it came is known as it is stored */ this.settled = Promise.resolve();
    /** resolves when what this page sends has reached the server, or failed */ this.sending = /** @type {Promise<any>} */ (Promise.resolve());
    /** @type {number | null} */ this.before = null;
    /** @type {Message[]} */ this.carried = [];
  }

  /** Show a session; null is a new one, which is stored with its first message. @param {string | null} id @param {number | null} [seq] */
  async open(id, seq = null) {
    this.leaving.abort();
    const { signal } = (this.leaving = new AbortController());
    const another = state.session !== id || !this.opened;
    state.session = id;
    this.opened = true;
    this.before = null;
    this.carried = [];
    if (another) this.waiting.clear();
    this.running(false);
    this.lost(null);
    if (another) tell("session", id);
    if (id === null) {
      this.log.clear("");
      this.log.log.append(this.page.welcome());
      this.hearing = new Hearing(this, null, null);
      return;
    }
    try {
      const messages = await this.read(id, null, signal);
      if (signal.aborted) return;
      this.log.clear(id);
      this.#show(id, messages, signal, seq);
    } catch (error) {
      if (!signal.aborted) this.#cannotOpen(id, error);
    }
  }

  /** @param {string} id @param {Message[]} messages @param {AbortSignal} signal @param {number | null} seq */
  #show(id, messages, signal, seq) {
    this.log.append(messages);
    tell("messages", id);
    this.page.bottom(true);
    if (seq !== null) this.#goTo(seq, signal);
    if (!messages.length) this.log.log.append(this.page.welcome());
    this.hearing = new Hearing(this, id, messages);
    if (messages.length) this.questions().catch(() => {});
  }

  /** @param {string} id @param {unknown} error */
  #cannotOpen(id, error) {
    this.log.clear(id);
    const again = el("button", { type: "button", click: () => this.open(id) }, "Try again");
    this.log.log.append(el("div", { class: "failed" }, el("p", { text: explain(error) }), again));
  }

  /**
   * Read a page that begins with a message of the user, so that no answer is torn in two.
   * @param {string} id @param {number | null} before @param {AbortSignal} signal @returns {Promise<Message[]>}
   */
  async read(id, before, signal) {
    let found = before === null ? [] : this.carried;
    for (let times = 0; ; times++) {
      const query = before === null ? "" : `&before=${before}`;
      const page = await api(sessionPath(id, `/messages?limit=${PAGE}${query}`), { signal });
      found = [...page.messages, ...found];
      before = this.before = page.before;
      const first = found.findIndex((one) => one.role === "user");
      if (before !== null && first < 0 && times < 10) continue;
      const cut = before === null || first < 0 ? 0 : first;
      this.carried = found.slice(0, cut);
      return found.slice(cut);
    }
  }

  /** Show what is older; false: there is nothing. */
  async older() {
    const { signal } = this.leaving;
    if (this.before === null || state.session === null) return false;
    const before = this.before;
    this.before = null; // not twice at once
    try {
      const messages = await this.read(state.session, before, signal);
      if (signal.aborted) return false;
      this.log.prepend(messages);
      return true;
    } catch (error) {
      if (!signal.aborted) this.before = before;
      throw error;
    }
  }

  /** @param {number} seq @param {AbortSignal} signal */
  async #goTo(seq, signal) {
    while (!this.log.find(seq) && !signal.aborted && (await this.older()));
    const item = this.log.find(seq);
    if (!item) return;
    this.page.away();
    item.element.scrollIntoView({ block: "center" });
    item.element.classList.add("found");
    setTimeout(() => item.element.classList.remove("found"), 2500);
  }

  /** A session that was made just now is heard from its beginning. @param {string} id */
  adopt(id) {
    this.leaving.abort();
    this.leaving = new AbortController();
    this.log.clear(id);
    this.hearing = new Hearing(this, id, null);
  }

  /** Ask again what waits for an answer. */
  async questions() {
    const { signal } = this.leaving;
    const { approvals } = await api(sessionPath(this.log.session, "/approvals"), { signal });
    for (const one of signal.aborted || state.running ? [] : approvals) this.told.ask(one);
    this.page.bottom();
  }

  /** @param {boolean} is */
  running(is, status = "") {
    if (state.running === is) return;
    state.running = is;
    tell("turn", { id: state.session, running: is, status });
  }

  /** @param {number | null} wait_s */
  lost(wait_s) {
    const line = byId("link");
    line.hidden = wait_s === null;
    line.textContent = wait_s === null ? "" : `Connection lost. Reconnecting…${state.running ? " The answer goes on meanwhile, nothing is lost." : ""}`;
  }

  // -- speaking -------------------------------------------------------------------------------------------------------

  /** @param {{text: string, files: any[], at: string}} what */
  says(what) {
    this.log.greeted();
    return this.log.say(what);
  }

  /**
   * Send a message: it is answered at once, or waits until the answer that runs is done. False: it was not taken, and is not shown.
   * @param {Waits} what @param {{path: string, body: any, key?: string}} first @returns {Promise<boolean>}
   */
  async send(what, first) {
    const { signal } = this.leaving;
    if (state.running || this.waiting.count) return this.#queue(what, first, signal);
    const said = this.says(what);
    const answer = this.#wait();
    void this.#submit(first).then((accepted) => {
      if (signal.aborted || !accepted.waiting) return;
      for (const one of this.log.items.splice(this.log.items.indexOf(said))) one.element.remove(); // somebody was faster
      this.hearing?.own.delete(accepted.turn);
      this.waiting.add({ ...what, turn: accepted.turn });
    }).catch((error) => {
      if (signal.aborted) return;
      answer.busy = false;
      this.fail(explain(error), true);
      this.running(false);
    });
    return true;
  }

  /** @param {Waits} what @param {{path: string, body: any, key?: string}} first @param {AbortSignal} signal */
  async #queue(what, first, signal) {
    const waits = this.waiting.add(what);
    this.page.bottom(true);
    this.log.speak("Your message waits until the answer is done.");
    try {
      await this.#submit(first, waits);
      return true;
    } catch (error) {
      if (!signal.aborted) this.waiting.remove(waits);
      toast(explain(error), "error");
      return false;
    }
  }

  /** @param {{path: string, body: any, key?: string}} first @param {Waits} [waits] */
  #submit(first, waits) {
    const { leaving: { signal }, hearing } = this;
    const sent = this.sending.then(() => submit(first, (wait_s) => signal.aborted || this.lost(wait_s))).then((accepted) => {
      if (signal.aborted) return accepted;
      if (waits) this.waiting.placed(waits, accepted.turn);
      else hearing?.own.add(accepted.turn);
      return accepted;
    });
    this.sending = Promise.allSettled([this.sending, sent]);
    return sent;
  }

  /** An answer is to come. */
  #wait() {
    this.told.begins();
    this.running(true);
    this.page.bottom(true);
    return this.log.answer();
  }

  /** @param {string} call @param {boolean} approved */
  async #approve(call, approved) {
    const id = state.session;
    if (id === null) return;
    const { signal } = this.leaving;
    this.#wait();
    try {
      await this.#submit({ path: sessionPath(id, `/approvals/${encodeURIComponent(call)}`), body: { approved } });
    } catch (error) {
      if (signal.aborted) return;
      toast(explain(error), "error");
      void this.open(id);
    }
  }

  /** @param {string} words @param {boolean} retry */
  fail(words, retry) {
    this.told.fail(words, retry);
    this.running(false);
    this.page.bottom();
  }
}
