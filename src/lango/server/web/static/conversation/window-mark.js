/** Mark the place in the conversation where the window of the next request begins, if a limit cuts it. */

import { api, sessionPath } from "../base/api.js";
import { el } from "../base/dom.js";
import { on, state } from "../base/state.js";
import { UserMessage } from "./user-message.js";

export class WindowMark {
  /** @type {HTMLElement | null} */ #element = null;
  /** the first message that the model sees; null: it sees none of those that are shown @type {number | null} */ #firstSeq = null;

  /** @param {import("./transcript.js").Transcript} transcript */
  constructor(transcript) {
    this.transcript = transcript;
    on("messages", (id) => void this.#update(id).catch(() => {})); // the conversation is usable without it
  }

  /** @param {string} id */
  async #update(id) {
    const { window } = await api(sessionPath(id, "/usage?limit=1"));
    if (state.session !== id) return;
    this.#element?.remove();
    this.#firstSeq = window.first_seq;
    this.#element = window.reason ? el("p", { class: "window-mark", role: "note" }, el("span", {}, "The model no longer sees the messages above: ", ...withCode(window.reason), ".")) : null;
    this.place();
  }

  /** Put the mark before the first message of the window, unless that is not shown. */
  place() {
    if (!this.#element) return;
    const first = this.#firstSeq;
    const { items, element } = this.transcript;
    const seqs = items.map((item) => (item instanceof UserMessage ? [item.seq, item.seq] : [item.firstSeq, item.lastSeq]));
    const index = first === null ? -1 : seqs.findIndex(([, last]) => last !== null && last !== undefined && last >= first);
    const isAbove = index === 0 && first !== null && (seqs[0][0] ?? 0) > first;
    if (isAbove || (first !== null && index < 0)) this.#element.remove();
    else element.insertBefore(this.#element, items[index]?.element ?? null);
  }
}

/** Return a text whose parts in backticks are code. @param {string} text @returns {(Node | string)[]} */
function withCode(text) {
  return text.split("`").map((part, index) => (index % 2 ? el("code", { text: part }) : part));
}
