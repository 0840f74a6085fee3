/** Show an answer: thoughts, tools and text in order. */

import { colourCode } from "../base/code-colours.js";
import { el, icon } from "../base/dom.js";
import { GrowingMarkdown, render } from "../base/markdown.js";
import { ToolCard } from "./tool-card.js";

export class Answer {
  #text = /** @type {GrowingMarkdown | null} */ (null);
  #thought = /** @type {HTMLElement | null} */ (null);

  /** @param {import("./transcript.js").Transcript} transcript */
  constructor(transcript) {
    this.transcript = transcript;
    this.texts = /** @type {string[]} */ ([]);
    this.body = el("div", { class: "answer-body" });
    this.typingIndicator = el("p", { class: "typing", "aria-hidden": "true" }, el("span"), el("span"), el("span"));
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
    if (!busy) this.queuePlace = 0;
    this.element.setAttribute("aria-busy", String(busy));
  }

  /** Show the place in the server's queue; 0: the turn runs. @param {number} place */
  set queuePlace(place) {
    this.queueNote.textContent = place ? `The server is busy: this message is number ${place} in the queue.` : "";
  }

  /** @param {string} piece */
  addText(piece) {
    this.#thought = null;
    if (!this.#text) {
      const host = el("div", { class: "text" });
      this.body.append(host);
      this.#text = new GrowingMarkdown(host, (block) => this.transcript.announce(block));
      this.texts.push("");
    }
    this.texts[this.texts.length - 1] += piece;
    this.#text.add(piece);
  }

  /** @param {string} text */
  addWholeText(text) {
    this.endBlock();
    this.texts.push(text);
    const host = el("div", { class: "text" }, el("div", { class: "md" }, render(text)));
    this.body.append(host);
    void colourCode(host);
  }

  /** @param {string} piece */
  addThought(piece) {
    this.#endText();
    if (!this.#thought) {
      this.#thought = /** @type {HTMLElement} */ (el("div", { class: "thought-text" }));
      this.body.append(el("details", { class: "thought" }, el("summary", {}, icon("thought"), "Thoughts"), this.#thought));
    }
    this.#thought.append(piece);
  }

  /** @param {string} id @param {string} name @returns {ToolCard} */
  toolCard(id, name) {
    let card = this.transcript.toolCards.get(id);
    if (!card || !this.body.contains(card.element)) { // some models reuse call ids in every turn
      this.endBlock();
      card = new ToolCard(id, name);
      this.transcript.toolCards.set(id, card);
      this.body.append(card.element);
    }
    return card;
  }

  /** Mark the calls without a result as the client's: the turn is over. */
  handOverToClient() {
    for (const card of this.transcript.toolCards.values()) if (this.body.contains(card.element)) card.handOverToClient();
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

  /** End the answer and show its buttons. @param {...(Node | string | false | null)} buttons */
  finish(...buttons) {
    this.endBlock();
    this.busy = false;
    this.footer.replaceChildren(...buttons.filter((button) => button !== false && button !== null));
  }
}
