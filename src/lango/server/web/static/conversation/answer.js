/** Show an answer: thoughts, tools and text in order. */

import { artifactCard } from "../artifacts/artifact-card.js";
import { el, icon } from "../base/dom.js";
import { state } from "../base/state.js";
import { GrowingMarkdown, finishBlocks, render } from "../base/markdown.js";
import { Elapsed } from "./elapsed.js";
import { NodeList } from "./node-list.js";
import { ToolCard } from "./tool-card.js";
import { WaitCard } from "./wait-card.js";

/** The event of a piece of text. @typedef {{id: number, author: string, block: number}} Piece */
/** A text or thought. @typedef {{element: HTMLElement, isThought: boolean, text: string, block: Block | null}} Part */
/** A response of a model, which may grow beside others; its calls follow it, and then the next response of its agent. @typedef {{author: string, text: GrowingMarkdown | null, thought: HTMLElement | null, part: Part | null, last: Element | null, hasCalls: boolean}} Block */
const STORED = { id: 0, author: "", block: 0 };
const IDS_PER_TURN = 1_000_000;
const EXIT_LOOP = "exit_loop";

export class Answer {
  #parts = /** @type {Part[]} */ ([]);
  /** by turn and number */ #blocks = /** @type {Map<string, Block>} */ (new Map());
  /** the newest of each agent, of those that speak at once */ #newest = /** @type {Map<string, Block>} */ (new Map());
  #nodes = /** @type {NodeList | null} */ (null);
  #speaker = "";

  /** @param {import("./transcript.js").Transcript} transcript */
  constructor(transcript) {
    this.transcript = transcript;
    this.body = el("div", { class: "answer-body" });
    this.elapsed = new Elapsed(this.body);
    this.typingIndicator = el("p", { class: "typing", "aria-hidden": "true" }, el("i"), el("i"), el("i"), this.elapsed.element);
    this.queueNote = el("p", { class: "note queue-place", role: "status" });
    this.footer = el("div", { class: "answer-end" });
    this.element = el("article", { class: "turn answer", "aria-label": "Answer" }, this.body, this.queueNote, this.typingIndicator, this.footer);
    this.typingIndicator.hidden = true;
    /** @type {number | null} */ this.firstSeq = null;
    /** @type {number | null} */ this.lastSeq = null;
  }

  /** @param {boolean} busy */
  set busy(busy) {
    this.typingIndicator.hidden = !busy;
    this.elapsed.running = busy;
    if (!busy) this.queuePlace = 0;
    this.element.setAttribute("aria-busy", String(busy));
  }

  /** Show the place in the server's queue; 0: the turn runs. @param {number} place */
  set queuePlace(place) {
    this.queueNote.textContent = place ? `The server is busy: this message is number ${place} in the queue.` : "";
  }

  /** The texts of the answer, without thoughts. @returns {string[]} */
  get texts() {
    return this.#parts.filter((part) => !part.isThought).map((part) => part.text);
  }

  /** @param {string} piece @param {Piece} event */
  addText(piece, event = STORED) {
    const block = this.#block(event);
    block.thought = null;
    if (!block.text) {
      const host = el("div", { class: "text" });
      this.#place(block, host, false);
      block.text = new GrowingMarkdown(host, (text) => this.transcript.announce(text));
    }
    if (block.part) block.part.text += piece;
    block.text.add(piece);
  }

  /** @param {string} text @param {string} author */
  addWholeText(text, author = "") {
    const block = this.#block({ ...STORED, author });
    const host = el("div", { class: "text" }, el("div", { class: "md" }, render(text)));
    this.#place(block, host, false, text);
    this.endBlock();
    finishBlocks(host);
  }

  /** @param {string} piece @param {Piece} event */
  addThought(piece, event = STORED) {
    const block = this.#block(event);
    block.text?.end();
    block.text = null;
    if (!block.thought) {
      block.thought = /** @type {HTMLElement} */ (el("div", { class: "thought-text" }));
      this.#place(block, el("details", { class: "thought" }, el("summary", {}, icon("thought"), "Thoughts"), block.thought), true);
    }
    if (block.part) block.part.text += piece;
    block.thought.append(piece);
  }

  /** End a block: its response is complete. @param {Piece} event */
  endText(event) {
    const block = this.#blocks.get(keyOf(event));
    if (block) endGrowth(block);
  }

  /** Return the block that a piece belongs to; pieces without a number belong to the one at the end. @param {Piece} event @returns {Block} */
  #block(event) {
    const key = keyOf(event);
    let block = this.#blocks.get(key);
    if (!block || (!key && block.author !== event.author)) {
      this.endBlock();
      const before = this.#newest.get(event.author);
      block = { author: event.author, text: null, thought: null, part: null, last: (before?.hasCalls && before.last) || null, hasCalls: false };
      this.#blocks.set(key, block);
      this.#newest.set(block.author, block);
    }
    return block;
  }

  /** Put an element at the end of its block, which begins at the end of the answer. @param {Block} block @param {HTMLElement} element @param {boolean} isThought */
  #place(block, element, isThought, text = "") {
    this.#insert(block, element);
    block.part = { element, isThought, text, block };
    this.#parts.push(block.part);
  }

  /** @param {Block} block @param {HTMLElement} element */
  #insert(block, element) {
    if (block.last?.parentNode === this.body && block.last.nextElementSibling?.matches(".speaker")) block.last.after(element);
    else {
      this.#nameSpeaker(block.author);
      this.body.append(element);
    }
    block.last = element;
  }

  /** Say which agent speaks: once a second one does, or at once if it is not the root agent. @param {string} author */
  #nameSpeaker(author) {
    if (!author || author === this.#speaker) return;
    const isNamed = this.body.querySelector(".speaker") !== null;
    if (this.#speaker || isNamed || (state.about.root && author !== state.about.root)) {
      if (this.#speaker && !isNamed) this.body.prepend(el("p", { class: "speaker", text: this.#speaker }));
      this.body.append(el("p", { class: "speaker", text: author }));
    }
    this.#speaker = author;
  }

  /** Remove the text and thoughts of a block. @param {Piece} event */
  withdraw(event) {
    this.endText(event);
    const block = this.#blocks.get(keyOf(event));
    this.#parts = this.#parts.filter((part) => {
      if (part.block === block) part.element.remove();
      return part.block !== block;
    });
    this.#blocks.delete(keyOf(event));
    if (this.#newest.get(event.author) === block) this.#newest.delete(event.author);
    const labels = [...this.body.querySelectorAll(".speaker")];
    const empty = labels.filter((label) => label.nextElementSibling?.matches(".speaker") ?? true);
    for (const label of empty) label.remove();
    if (empty.length) this.#speaker = labels.findLast((label) => !empty.includes(label))?.textContent ?? "";
  }

  /** @param {string} id @param {string} name @param {string} [author] the agent that calls it @returns {ToolCard} */
  toolCard(id, name, author = "") {
    let card = this.transcript.toolCards.get(id);
    if (!card || !this.body.contains(card.element)) { // some models reuse call ids in every turn
      this.endBlock();
      card = new ToolCard(id, name);
      this.transcript.toolCards.set(id, card);
      const block = this.#newest.get(author) ?? { author, text: null, thought: null, part: null, last: null, hasCalls: false };
      this.#insert(block, card.element);
      block.hasCalls = name !== EXIT_LOOP; // after which its agent does not go on
      this.#newest.set(author, block);
    }
    return card;
  }

  /** Return the card of a wait; a new one stands at the end, or in a tool's card. @param {import("./wait-card.js").Wait} wait @param {ToolCard | null} tool @returns {WaitCard} */
  waitCard(wait, tool = null) {
    const known = this.transcript.waitCards.get(wait.id);
    const isShown = known && this.transcript.element.contains(known.element);
    // a workflow may ask again with the same id
    if (isShown && (known.status === "waiting" || (!tool && known.status === "closed" && (wait.kind === "credential" || this.body.contains(known.element))))) {
      known.wait = wait;
      return known;
    }
    const card = new WaitCard(wait);
    this.transcript.waitCards.set(wait.id, card);
    if (tool) tool.await(card);
    else {
      this.endBlock();
      this.body.append(card.element);
    }
    return card;
  }

  /** The nodes of a workflow: of the user's message, and of the answers that continue it. */
  get nodes() {
    if (!this.#nodes) {
      this.endBlock();
      this.#nodes = new NodeList();
      this.body.append(this.#nodes.element);
    }
    return this.#nodes;
  }

  /** Show a version of an artifact that the turn saved. @param {string} name @param {number} version */
  addArtifact(name, version) {
    this.endBlock();
    this.body.append(artifactCard(this.transcript.session, name, version));
  }

  /** End the text or thought without a number, so that the next piece starts a new one. */
  endBlock() {
    const key = keyOf(STORED);
    const block = this.#blocks.get(key);
    if (block) endGrowth(block);
    this.#blocks.delete(key);
  }

  /** @param {string} text @param {...(Node | false)} more */
  showFailure(text, ...more) {
    this.endBlock();
    this.body.append(el("div", { class: "failed", role: "group" }, el("p", { text }), ...more));
  }

  /** @param {string} text */
  addNote(text) {
    this.body.append(el("p", { class: "note", text }));
  }

  /** Show what Lango told the model. @param {string} text */
  addSystemNote(text) {
    this.endBlock();
    this.body.append(el("p", { class: "note system-note" }, el("strong", { text: "System: " }), text.replace(/^\[System: |\]$/g, "")));
  }

  /** End the answer and show its buttons. @param {...(Node | string | false | null)} buttons */
  finish(...buttons) {
    for (const block of this.#blocks.values()) endGrowth(block);
    this.#blocks.clear();
    this.busy = false;
    this.footer.replaceChildren(...buttons.filter((button) => button !== false && button !== null));
  }
}

/** @param {Piece} event */
function keyOf({ id, block }) {
  return block ? `${Math.floor(id / IDS_PER_TURN)} ${block}` : "";
}

/** @param {Block} block */
function endGrowth(block) {
  block.text?.end();
  block.text = block.thought = null;
}
