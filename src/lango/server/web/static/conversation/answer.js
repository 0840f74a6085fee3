/** Show an answer: thoughts, tools and text in order. */

import { artifactCard } from "../artifacts/artifact-card.js";
import { el, icon } from "../base/dom.js";
import { state } from "../base/state.js";
import { GrowingMarkdown, finishBlocks, render } from "../base/markdown.js";
import { Elapsed } from "./elapsed.js";
import { NodeList } from "./node-list.js";
import { ToolCard } from "./tool-card.js";
import { WaitCard } from "./wait-card.js";

/** A text or thought, with the events that its pieces came from. @typedef {{element: HTMLElement, isThought: boolean, pieces: {id: number, author: string, text: string}[]}} Block */
const STORED = { id: 0, author: "" };

export class Answer {
  #blocks = /** @type {Block[]} */ ([]);
  #text = /** @type {GrowingMarkdown | null} */ (null);
  #thought = /** @type {HTMLElement | null} */ (null);
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
    return this.#blocks.filter((block) => !block.isThought).map(textOf);
  }

  /** @param {string} piece @param {{id: number, author: string}} event */
  addText(piece, { id, author } = STORED) {
    this.#nameSpeaker(author);
    this.#thought = null;
    if (!this.#text) {
      const host = el("div", { class: "text" });
      this.body.append(host);
      this.#text = new GrowingMarkdown(host, (block) => this.transcript.announce(block));
      this.#blocks.push({ element: host, isThought: false, pieces: [] });
    }
    this.#blocks.at(-1)?.pieces.push({ id, author, text: piece });
    this.#text.add(piece);
  }

  /** @param {string} text @param {string} author */
  addWholeText(text, author = "") {
    this.#nameSpeaker(author);
    this.endBlock();
    const host = el("div", { class: "text" }, el("div", { class: "md" }, render(text)));
    this.#blocks.push({ element: host, isThought: false, pieces: [{ ...STORED, text }] });
    this.body.append(host);
    finishBlocks(host);
  }

  /** @param {string} piece @param {{id: number, author: string}} event */
  addThought(piece, { id, author } = STORED) {
    this.#nameSpeaker(author);
    this.#endText();
    if (!this.#thought) {
      this.#thought = /** @type {HTMLElement} */ (el("div", { class: "thought-text" }));
      const element = el("details", { class: "thought" }, el("summary", {}, icon("thought"), "Thoughts"), this.#thought);
      this.body.append(element);
      this.#blocks.push({ element, isThought: true, pieces: [] });
    }
    this.#blocks.at(-1)?.pieces.push({ id, author, text: piece });
    this.#thought.append(piece);
  }

  /** Say which agent speaks: once a second one does, or at once if it is not the root agent. @param {string} author */
  #nameSpeaker(author) {
    if (!author || author === this.#speaker) return;
    const isNamed = this.body.querySelector(".speaker") !== null;
    if (this.#speaker || isNamed || (state.about.root && author !== state.about.root)) {
      this.endBlock();
      if (this.#speaker && !isNamed) this.body.prepend(el("p", { class: "speaker", text: this.#speaker }));
      this.body.append(el("p", { class: "speaker", text: author }));
    }
    this.#speaker = author;
  }

  /** Remove the text and thoughts that an event withdraws. @param {{id: number, after_id: number, author: string}} event */
  withdraw({ id, after_id, author }) {
    this.endBlock();
    this.#blocks = this.#blocks.filter((block) => {
      const kept = block.pieces.filter((piece) => piece.author !== author || piece.id <= after_id || piece.id >= id);
      if (kept.length === block.pieces.length) return true;
      block.pieces = kept;
      if (!kept.length) block.element.remove();
      else if (block.isThought) block.element.lastElementChild?.replaceChildren(textOf(block));
      else block.element.replaceChildren(el("div", { class: "md" }, render(textOf(block))));
      return kept.length > 0;
    });
  }

  /** @param {string} id @param {string} name @param {string} [author] the agent that calls it @returns {ToolCard} */
  toolCard(id, name, author = "") {
    let card = this.transcript.toolCards.get(id);
    if (!card || !this.body.contains(card.element)) { // some models reuse call ids in every turn
      this.#nameSpeaker(author);
      this.endBlock();
      card = new ToolCard(id, name);
      this.transcript.toolCards.set(id, card);
      this.body.append(card.element);
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

  #endText() {
    this.#text?.end();
    this.#text = null;
  }

  /** End the current text or thought, so that the next piece starts a new one. */
  endBlock() {
    this.#endText();
    this.#thought = null;
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
    this.endBlock();
    this.busy = false;
    this.footer.replaceChildren(...buttons.filter((button) => button !== false && button !== null));
  }
}

/** @param {Block} block */
function textOf(block) {
  return block.pieces.map((piece) => piece.text).join("");
}
