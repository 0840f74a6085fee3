/** The conversation as it is shown: messages of the user, and answers. */

import { request, sessionPath } from "../base/api.js";
import { Answered } from "./answer.js";
import { byId, copier, el, tool } from "../base/dom.js";
import { Said } from "./user-message.js";
import { waits } from "./tool-card.js";

const CONFIRMATION = "adk_request_confirmation";

/** @typedef {import("./tool-card.js").Call} Call */
/**
 * @typedef {{seq: number, role: string, author: string, content: string, tool_calls: Call[], created_at: string,
 *   invocation_id?: string, thoughts?: string, attachments?: {index: number, name: string, mime_type: string, bytes: number}[]}} Message
 */

/** Whether a turn begins with it: a message of the user, or the user's answer to a question. @param {Message} message */
export function opens(message) {
  return message.role === "user" || (message.role === "tool" && message.author === "user");
}

export class Transcript {
  /** @type {Map<string, import("./tool-card.js").ToolCard>} */ tools = new Map();
  /** @type {(Said | Answered)[]} */ items = [];
  /** the calls that confirmations are about */ #asked = new Map();

  /** @param {HTMLElement} log @param {Record<"edit" | "rewind", (said: Said) => void> & {fork: (answer: Answered) => void}} acts */
  constructor(log, acts) {
    this.log = log;
    this.acts = acts;
    this.session = "";
  }

  /** @param {string} session */
  clear(session) {
    this.session = session;
    this.tools = new Map();
    this.items = [];
    this.#asked = new Map();
    this.log.replaceChildren();
    byId("said").replaceChildren();
  }

  /** Say something to a screen reader, block by block. @param {string} words */
  speak(words) {
    const said = byId("said");
    if (words) said.append(el("p", { text: words }));
    while (said.childElementCount > 5) said.firstElementChild?.remove();
  }

  /** @param {ConstructorParameters<typeof Said>[0]} what */
  say(what) {
    const said = new Said(what, this.acts);
    this.#add(said);
    return said;
  }

  /** The answer that grows at the end; a new one where the user spoke last. */
  answer() {
    const last = this.items.at(-1);
    if (last instanceof Answered) return last;
    const answer = new Answered(this);
    this.#add(answer);
    return answer;
  }

  /** @param {Said | Answered} item */
  #add(item) {
    this.items.push(item);
    this.log.append(item.element);
  }

  /** Show stored messages at the end. @param {Message[]} messages */
  append(messages) {
    for (const message of messages) this.#stored(message);
    for (const item of this.items) if (item instanceof Answered && !item.end.hasChildNodes()) this.seal(item);
  }

  /** Show older messages, which begin with one of the user, before everything. @param {Message[]} messages */
  prepend(messages) {
    const { items, tools } = this;
    const nodes = [...this.log.childNodes];
    this.items = [];
    this.tools = new Map();
    this.log.replaceChildren();
    this.append(messages);
    this.items.push(...items);
    this.tools = new Map([...this.tools, ...tools]);
    this.log.append(...nodes);
  }

  /** @param {Message} message */
  #stored(message) {
    if (message.role === "user") {
      this.say({ text: message.content, seq: message.seq, at: message.created_at, files: this.#files(message) });
      return;
    }
    const answer = this.answer();
    answer.firstSeq ??= message.seq;
    answer.lastSeq = message.seq;
    if (message.thoughts) answer.thought(message.thoughts);
    if (message.role !== "tool" && message.content) answer.whole(message.content);
    for (const call of message.tool_calls) this.#call(answer, message, call);
  }

  /** @param {Answered} answer @param {Message} message @param {Call} call */
  #call(answer, message, call) {
    if (call.name === CONFIRMATION) {
      if (call.input) this.#asked.set(call.id, call.input.originalFunctionCall?.id);
      else this.#answered(call);
      return;
    }
    if (message.role !== "tool") {
      answer.tool(call.id, call.name).starts(call.input, message.created_at);
      this.tools.get(call.id)?.knows(call);
      return;
    }
    const card = answer.tool(call.id, call.name);
    if (waits(call.output)) card.lapses();
    else card.ends({ ok: !call.output?.error, output: call.output, duration_s: call.duration_s });
    card.knows({ ...call, input: undefined });
  }

  /** The user answered a question. @param {Call} call */
  #answered(call) {
    const card = this.tools.get(this.#asked.get(call.id));
    card?.knows({ id: card.id, name: card.name, approved: call.output?.confirmed === true, approved_by: card.approvedBy ?? "you" });
  }

  /** @param {Message} message */
  #files(message) {
    const address = (/** @type {number} */ index) => sessionPath(this.session, `/messages/${message.seq}/attachments/${index}`);
    return (message.attachments ?? []).map((one) => ({ ...one, open: async () => (await request(address(one.index))).blob() }));
  }

  /** Take over what the store says of the newest messages: their numbers, and what is known of their calls. @param {Message[]} messages */
  sync(messages) {
    let at = messages.length - 1;
    for (const item of this.items.toReversed()) {
      if (at < 0) return;
      if (item instanceof Said) {
        if (messages[at].role !== "user" || messages[at].content !== item.text) return; // somebody else spoke meanwhile
        item.seq = messages[at--].seq;
        continue;
      }
      item.firstSeq = null;
      item.lastSeq = messages[at].seq; // a turn that failed may have left nothing
      for (; at >= 0 && messages[at].role !== "user"; at--) item.firstSeq = messages[at].seq;
    }
    this.#brought(messages);
    const user = messages.findLastIndex((one) => one.role === "user");
    const answer = this.items.at(-1);
    if (answer instanceof Answered) for (const one of messages.slice(user + 1)) this.#learn(answer, one);
  }

  /** Show what came of the calls that waited for a client; the newest of an id is meant. @param {Message[]} messages */
  #brought(messages) {
    const results = /** @type {Map<string, Call>} */ (new Map());
    for (const message of messages) {
      for (const call of message.tool_calls) message.role === "tool" ? results.set(call.id, call) : results.delete(call.id);
    }
    for (const [id, call] of results) {
      const card = this.tools.get(id);
      if (card?.status === "client") card.ends({ ok: !call.output?.error, output: call.output });
    }
  }

  /** Somebody spoke: what stood there while nobody had is gone. */
  greeted() {
    this.log.querySelector(":scope > .welcome, :scope > .failed")?.remove();
  }

  /** Whether the newest answer is shown without some of its tools. @param {Message[]} messages */
  lacks(messages) {
    const user = messages.findLastIndex((one) => one.role === "user");
    return messages.slice(user + 1).some((one) => one.tool_calls.some((call) => call.name !== CONFIRMATION && !this.tools.has(call.id)));
  }

  /**
   * Whether something is shown that is not there any more.
   * @param {Message[]} newest @param {boolean} all whether these are all that there are
   */
  outlives(newest, all) {
    const from = all ? 0 : newest[0].seq;
    const there = new Set(newest.map((one) => one.seq));
    const shown = this.items.map((one) => (one instanceof Said ? one.seq : one.lastSeq));
    return shown.some((seq) => seq !== null && seq >= from && !there.has(seq));
  }

  /** @param {Answered} answer @param {Message} message */
  #learn(answer, message) {
    for (const call of message.tool_calls) {
      if (call.name === CONFIRMATION) this.#call(answer, message, call);
      else this.tools.get(call.id)?.knows(call);
    }
  }

  /** Give an answer its buttons. @param {Answered} answer @param {...(Node | string | false | null)} more */
  seal(answer, ...more) {
    const words = () => answer.words.join("\n\n").trim();
    answer.finish(
      answer.words.length > 0 && copier("Copy the answer", words),
      tool("fork", "Fork from here", () => this.acts.fork(answer)),
      ...more);
  }

  /** @param {number} seq */
  find(seq) {
    return this.items.find((one) => (one instanceof Said ? one.seq === seq
      : one.firstSeq !== null && one.lastSeq !== null && one.firstSeq <= seq && seq <= one.lastSeq)) ?? null;
  }
}
