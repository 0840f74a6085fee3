/** One conversation: opened, talked to, followed, stopped, taken back and forked. */

import { api, ApiError, explain, sessionPath } from "./api.js";
import { byId, el, icon, toast, tool } from "./dom.js";
import { follow } from "./stream.js";
import { state, tell } from "./state.js";
import { opens, Transcript } from "./transcript.js";

/** @typedef {import("./transcript.js").Message} Message */
/** @typedef {import("./said.js").Said} Said */
/** @typedef {import("./answered.js").Answered} Answered */

const PAGE = 50;
const BURST_MS = 150; // what is told again comes without a pause

export class Conversation {
  /**
   * @param {{welcome: () => Node, bottom: (force?: boolean) => void, retry: () => void, edit: (said: Said) => void,
   *   rewind: (said: Said) => void, fork: (answer: Answered) => void}} page
   */
  constructor(page) {
    this.page = page;
    this.log = new Transcript(byId("log"), page);
    this.leaving = new AbortController();
    this.opened = false;
    /** resolves when what was shown as it came is known as it is stored */ this.settled = Promise.resolve();
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
    this.running(false);
    this.#lost(null);
    if (another) tell("session", id);
    if (id === null) {
      this.log.clear("");
      this.log.log.append(this.page.welcome());
      return;
    }
    try {
      const messages = await this.#read(id, null, signal);
      if (signal.aborted) return;
      this.log.clear(id);
      await this.#show(id, messages, signal, seq);
    } catch (error) {
      if (!signal.aborted) this.#cannotOpen(id, error);
    }
  }

  /** @param {string} id @param {Message[]} messages @param {AbortSignal} signal @param {number | null} seq */
  async #show(id, messages, signal, seq) {
    const opener = messages.findLastIndex(opens);
    this.log.append(messages);
    tell("messages", id);
    this.page.bottom(true);
    if (seq !== null) this.#goTo(seq, signal);
    if (opener >= 0) await this.#catchUp(id, messages, opener, signal);
    if (!messages.length) this.log.log.append(this.page.welcome());
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
  async #read(id, before, signal) {
    let found = this.carried;
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
      const messages = await this.#read(state.session, before, signal);
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
    item.element.scrollIntoView({ block: "center" });
    item.element.classList.add("found");
    setTimeout(() => item.element.classList.remove("found"), 2500);
  }

  // -- following ------------------------------------------------------------------------------------------------------

  /**
   * Hear how the newest turn stands. One that is over is shown as it is stored, with how it ended; one that runs is
   * told from its beginning, in the place of what is stored of it.
   * @param {string} id @param {Message[]} messages @param {number} opener @param {AbortSignal} signal
   */
  async #catchUp(id, messages, opener, signal) {
    /** @type {any[] | null} */ let held = [];
    let timer = 0;
    const live = () => {
      const events = held ?? [];
      held = null;
      if (!events.length) return;
      this.log.clear(id);
      this.log.append(messages.slice(0, opener + 1));
      this.running(true);
      for (const one of events) this.#apply(one);
      this.page.bottom(true);
    };
    await this.followed({ session: id, signal }, (event) => {
      if (event.type === "accepted" && event.invocation_id && !messages.some((one) => one.invocation_id === event.invocation_id)) {
        if (!event.waiting) return this.#ignore(); // it was taken back
      }
      if (!held) return this.#apply(event);
      held.push(event);
      clearTimeout(timer);
      timer = setTimeout(live, BURST_MS);
    }, (last) => {
      clearTimeout(timer);
      if (held && last) this.#apply(last);
    });
    if (!signal.aborted) await this.#questions(id, signal);
  }

  /** Ask again what waits for an answer. @param {string} id @param {AbortSignal} signal */
  async #questions(id, signal) {
    const { approvals } = await api(sessionPath(id, "/approvals"), { signal });
    for (const one of signal.aborted ? [] : approvals) this.#ask(this.log.answer(), one);
    this.page.bottom();
  }

  #ignore() {
    this.leaving.abort();
    this.leaving = new AbortController();
  }

  /**
   * @param {{session: string, signal: AbortSignal, first?: {path: string, body: any, key?: string}}} how
   * @param {(event: any) => void} hear
   * @param {(last: any) => void} [ended]
   */
  async followed(how, hear, ended = () => {}) {
    try {
      const last = await follow({ ...how, tell: hear, lost: (wait_s) => this.#lost(wait_s) });
      if (how.signal.aborted) return;
      ended(last);
      await (this.settled = this.#after(how.session, how.signal));
    } catch (error) {
      if (how.signal.aborted) return;
      if (error instanceof ApiError && error.type === "ApprovalExpired") {
        toast(explain(error), "error");
        this.open(how.session);
        return;
      }
      this.fail(explain(error), true);
    }
    this.running(false);
  }

  /** @param {boolean} is */
  running(is, status = "") {
    if (state.running === is) return;
    state.running = is;
    tell("turn", { id: state.session, running: is, status });
  }

  /** @param {number | null} wait_s */
  #lost(wait_s) {
    const line = byId("link");
    line.hidden = wait_s === null;
    line.textContent = wait_s === null ? "" : "Connection lost. Reconnecting… The answer goes on meanwhile, nothing is lost.";
  }

  /** Learn what the store made of the turn: numbers of messages, who approved. @param {string} id @param {AbortSignal} signal */
  async #after(id, signal) {
    try {
      const page = await api(sessionPath(id, `/messages?limit=${PAGE}`), { signal });
      if (signal.aborted) return;
      this.log.sync(page.messages);
      tell("messages", id);
    } catch {
      // the buttons that need the numbers say so
    }
  }

  /** @param {any} event */
  #apply(event) {
    const answer = this.log.answer();
    switch (event.type) {
      case "accepted": answer.busy = true; break;
      case "text_delta": answer.text(event.text); break;
      case "thought_delta": answer.thought(event.text); break;
      case "tool_start": answer.tool(event.call_id, event.name).starts(event.arguments, Date.now()); break;
      case "tool_end": answer.tool(event.call_id, event.name).ends({ ok: event.ok, output: event.result, duration_s: event.duration_s }); break;
      case "approval": this.#ask(answer, event); break;
      case "error": if (event.fatal) this.#failed(answer, event); break;
      case "done": this.#done(answer, event);
    }
    this.page.bottom();
  }

  /** @param {Answered} answer @param {any} event */
  #ask(answer, event) {
    const card = answer.tool(event.call_id, event.name);
    if (event.expires_at && new Date(event.expires_at).getTime() < Date.now()) return card.lapses();
    card.asks(event, (approved) => this.#approve(event.call_id, approved));
    byId("alarm").replaceChildren(el("p", { text: `The tool ${event.name} waits for your approval.` }));
  }

  /** @param {string} call @param {boolean} approved */
  #approve(call, approved) {
    const id = state.session;
    if (id === null) return;
    const path = sessionPath(id, `/approvals/${encodeURIComponent(call)}`);
    this.begin(id, { path, body: { approved } });
  }

  /** Begin a turn and follow it. @param {string} id @param {{path: string, body: any, key?: string}} first */
  begin(id, first) {
    this.leaving.abort();
    const { signal } = (this.leaving = new AbortController());
    for (const one of document.querySelectorAll("[data-retry]")) one.remove();
    this.running(true);
    const answer = this.log.answer();
    answer.finish();
    answer.busy = true;
    this.page.bottom(true);
    return this.followed({ session: id, signal, first }, (event) => this.#apply(event));
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
    this.running(false, "failed");
  }

  /** @param {string} words @param {boolean} retry */
  fail(words, retry) {
    const answer = this.log.answer();
    answer.fails(words, retry && this.#retryButton());
    answer.finish();
    byId("alarm").replaceChildren(el("p", { text: words }));
    this.page.bottom();
  }

  /** @param {Answered} answer @param {any} event */
  #done(answer, event) {
    const { usage = {}, status, finish_reason } = event;
    if (finish_reason === "length") answer.note("The answer was cut: it reached the model's limit. Say “go on” for the rest.");
    if (finish_reason === "safety") answer.note("The model's safety filter ended this answer.");
    if (status === "waiting_for_approval") {
      answer.finish();
    } else {
      const cost = usage.cost_usd == null ? "" : ` · $${usage.cost_usd.toFixed(4)}`;
      const spent = usage.output_tokens ? `${usage.input_tokens.toLocaleString()} tokens in, ${usage.output_tokens.toLocaleString()} out${cost}` : "";
      this.log.seal(answer, this.#retryTool(), el("span", { class: "spent", text: spent }));
    }
    this.running(false, status);
  }

  #retryTool() {
    return tool("again", "Try again", () => this.page.retry(), { "data-retry": true });
  }

  #retryButton() {
    return el("button", { type: "button", click: () => this.page.retry(), "data-retry": true }, icon("again"), "Try again");
  }
}
