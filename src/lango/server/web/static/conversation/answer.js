/** An answer: thoughts, tools and text in the order in which they came. */

import { colour } from "../base/code-colours.js";
import { el, icon } from "../base/dom.js";
import { Growing, render } from "../base/markdown.js";
import { ToolCard } from "./tool-card.js";

/** What came back. */
export class Answered {
  #text = /** @type {Growing | null} */ (null);
  #thought = /** @type {{words: HTMLElement, box: HTMLElement} | null} */ (null);

  /** @param {import("./transcript.js").Transcript} log */
  constructor(log) {
    this.log = log;
    this.words = /** @type {string[]} */ ([]);
    this.body = el("div", { class: "answer-body" });
    this.wait = el("p", { class: "typing", "aria-hidden": "true" }, el("span"), el("span"), el("span"));
    this.queued = el("p", { class: "note queued", role: "status" });
    this.end = el("div", { class: "answer-end" });
    this.element = el("article", { class: "turn answer", "aria-label": "Answer" }, this.body, this.queued, this.wait, this.end);
    this.wait.hidden = true;
    /** @type {number | null} */ this.firstSeq = null;
    /** @type {number | null} */ this.lastSeq = null;
  }

  /** @param {boolean} is */
  set busy(is) {
    this.wait.hidden = !is;
    if (!is) this.place = 0;
    this.element.setAttribute("aria-busy", String(is));
  }

  /** Show the place in the queue while the server is full; 0: the turn runs. @param {number} place */
  set place(place) {
    this.queued.textContent = place ? `The server is busy: this message is number ${place} in the queue.` : "";
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
    const text = el("div", { class: "text" }, el("div", { class: "md" }, render(words)));
    this.body.append(text);
    void colour(text);
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

  /** The turn is over: what has no result yet is somebody else's to bring. */
  handsOver() {
    for (const card of this.log.tools.values()) if (this.body.contains(card.element)) card.isHandedOver();
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

  /** @param {string} words @param {...(Node | false)} more */
  fails(words, ...more) {
    this.rest();
    this.body.append(el("div", { class: "failed", role: "group" }, el("p", { text: words }), ...more));
  }

  /** @param {string} words */
  note(words) {
    this.body.append(el("p", { class: "note", text: words }));
  }

  /** What can be done with it, when nothing comes any more. @param {...(Node | string | false | null)} acts */
  finish(...acts) {
    this.rest();
    this.busy = false;
    this.end.replaceChildren(...acts.filter((one) => one !== false && one !== null));
  }
}
