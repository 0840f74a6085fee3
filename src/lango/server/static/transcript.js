/** The conversation as it is shown: messages of the user, and answers made of thoughts, tools and text in their order. */

import { request, sessionPath } from "./api.js";
import { download } from "./dialogs.js";
import { byId, copier, el, icon, moment, size, tool } from "./dom.js";
import { Growing, render } from "./markdown.js";
import { ToolCard, waits } from "./tools.js";

const CONFIRMATION = "adk_request_confirmation";
const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

/** @typedef {import("./tools.js").Call} Call */
/**
 * @typedef {{seq: number, role: string, author: string, content: string, tool_calls: Call[], created_at: string,
 *   invocation_id?: string, thoughts?: string, attachments?: {index: number, name: string, mime_type: string, bytes: number}[]}} Message
 */

/** Whether a turn begins with it: a message of the user, or the user's answer to a question. @param {Message} message */
export function opens(message) {
  return message.role === "user" || (message.role === "tool" && message.author === "user");
}

/** What the user said. */
export class Said {
  /**
   * @param {{text: string, seq?: number | null, at?: string | null, files?: {name: string, mime_type: string, bytes: number, open?: () => Promise<Blob>}[]}} what
   * @param {Record<"edit" | "rewind", (said: Said) => void>} acts
   */
  constructor({ text, seq = null, at = null, files = [] }, acts) {
    this.text = text;
    this.files = files;
    this.bubble = el("div", { class: "bubble" });
    this.bubble.textContent = text;
    this.element = el("article", { class: "turn user", "aria-label": "You" },
      files.length > 0 && el("ul", { class: "files", "aria-label": "Attached files" }, ...files.map(shownFile)),
      text && this.bubble,
      el("div", { class: "acts" },
        at && el("time", { class: "when", datetime: at, text: moment(at) }),
        copier("Copy", () => text),
        tool("edit", "Edit and send again", () => acts.edit(this)),
        tool("back", "Rewind to here", () => acts.rewind(this))));
    this.seq = seq;
  }

  /** @param {number | null} seq */
  set seq(seq) {
    this.element.dataset.seq = seq ?? "";
  }

  get seq() {
    return Number(this.element.dataset.seq) || null;
  }
}

/** @param {{name: string, mime_type: string, bytes: number, open?: () => Promise<Blob>}} file */
function shownFile(file) {
  const label = el("span", { class: "file-name" }, file.name || "file", el("small", { text: ` ${size(file.bytes)}` }));
  const save = () => file.open?.().then((blob) => download(blob, file.name || "file"));
  const box = el("button", { type: "button", class: "file", click: save, "aria-label": `Save ${file.name || "file"}` }, icon("file"), label);
  if (PICTURES.has(file.mime_type)) {
    file.open?.().then((blob) => {
      // the type that the server says may be anything: only bytes as a known picture type become one
      const image = el("img", { class: "thumb", alt: "", src: URL.createObjectURL(new Blob([blob], { type: file.mime_type })) });
      image.addEventListener("load", () => URL.revokeObjectURL(image.src));
      image.addEventListener("error", () => image.remove());
      box.querySelector("svg")?.replaceWith(image);
    }).catch(() => {});
  }
  return el("li", {}, box);
}

/** What came back. */
export class Answered {
  #text = /** @type {Growing | null} */ (null);
  #thought = /** @type {{words: HTMLElement, box: HTMLElement} | null} */ (null);

  /** @param {Transcript} log */
  constructor(log) {
    this.log = log;
    this.words = /** @type {string[]} */ ([]);
    this.body = el("div", { class: "answer-body" });
    this.wait = el("p", { class: "typing", "aria-hidden": "true" }, el("span"), el("span"), el("span"));
    this.end = el("div", { class: "answer-end" });
    this.element = el("article", { class: "turn answer", "aria-label": "Answer" }, this.body, this.wait, this.end);
    this.wait.hidden = true;
    /** @type {number | null} */ this.firstSeq = null;
    /** @type {number | null} */ this.lastSeq = null;
  }

  /** @param {boolean} is */
  set busy(is) {
    this.wait.hidden = !is;
    this.element.setAttribute("aria-busy", String(is));
  }

  /** @param {string} piece */
  text(piece) {
    this.#thought = null;
    if (!this.#text) {
      const host = el("div", { class: "text" });
      this.body.append(host);
      this.#text = new Growing(host, (block) => this.log.speak(block));
      this.words.push("");
    }
    this.words[this.words.length - 1] += piece;
    this.#text.add(piece);
  }

  /** A text that is there as a whole. @param {string} words */
  whole(words) {
    this.rest();
    this.words.push(words);
    this.body.append(el("div", { class: "text" }, el("div", { class: "md" }, render(words))));
  }

  /** @param {string} piece */
  thought(piece) {
    this.#endText();
    if (!this.#thought) {
      const words = el("div", { class: "thought-words" });
      const box = el("details", { class: "thought" }, el("summary", {}, icon("thought"), "Thoughts"), words);
      this.body.append(box);
      this.#thought = { words, box };
    }
    this.#thought.words.append(piece);
  }

  /** @param {string} id @param {string} name @returns {ToolCard} */
  tool(id, name) {
    let card = this.log.tools.get(id);
    if (!card || !this.body.contains(card.element)) { // some models begin to count anew in every turn
      this.rest();
      card = new ToolCard(id, name);
      this.log.tools.set(id, card);
      this.body.append(card.element);
    }
    return card;
  }

  #endText() {
    this.#text?.end();
    this.#text = null;
  }

  /** Whatever comes now is something new. */
  rest() {
    this.#endText();
    this.#thought = null;
  }

  /** @param {string} words @param {(Node | false)[]} [more] */
  fails(words, ...more) {
    this.rest();
    this.body.append(el("div", { class: "failed", role: "group" }, el("p", { text: words }), ...more));
  }

  /** @param {string} words */
  note(words) {
    this.body.append(el("p", { class: "note", text: words }));
  }

  /** What can be done with it, when nothing comes any more. @param {(Node | string | false | null)[]} acts */
  finish(...acts) {
    this.rest();
    this.busy = false;
    this.end.replaceChildren(...acts.filter((one) => one !== false && one !== null));
  }
}

export class Transcript {
  /** @type {Map<string, ToolCard>} */ tools = new Map();
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
      else if (call.output?.confirmed) this.tools.get(this.#asked.get(call.id))?.knows({ ...call, approved_by: call.approved_by ?? "you" });
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

  /** @param {Message} message */
  #files(message) {
    const address = (/** @type {number} */ index) => sessionPath(this.session, `/messages/${message.seq}/attachments/${index}`);
    return (message.attachments ?? []).map((one) => ({ ...one, open: async () => (await request(address(one.index))).blob() }));
  }

  /** Take over what the store says of the newest messages: their numbers, and what is known of their calls. @param {Message[]} messages */
  sync(messages) {
    const user = messages.findLast((one) => one.role === "user");
    const said = this.items.findLast((one) => one instanceof Said);
    if (!user || !(said instanceof Said) || said.text !== user.content) return false;
    said.seq = user.seq;
    const answer = this.items.at(-1);
    const rest = messages.filter((one) => one.seq > user.seq);
    if (answer instanceof Answered && rest.length) {
      answer.firstSeq = rest[0].seq;
      answer.lastSeq = rest[rest.length - 1].seq;
    }
    for (const message of rest) {
      for (const call of message.tool_calls) {
        if (call.name === CONFIRMATION) this.#call(/** @type {Answered} */ (answer), message, call);
        else this.tools.get(call.id)?.knows(call);
      }
    }
    return true;
  }

  /** Give an answer its buttons. @param {Answered} answer @param {(Node | string | false | null)[]} more */
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
