/** Messages that wait until the answer before them is done: shown below it, and taken back before they begin. */

import { byId, el, icon, size } from "../base/dom.js";

/**
 * @typedef {import("./actions.js").File_} File_
 * @typedef {{turn: number | null, text: string, files: File_[], at: string}} Waits
 */

export class Waiting {
  /** @type {{one: Waits, element: HTMLElement}[]} */ #rows = [];
  /** grows whenever something happens here: what was asked before may be old */ changes = 0;

  /** @param {(one: Waits) => void} takeBack */
  constructor(takeBack) {
    this.takeBack = takeBack;
    this.host = byId("waiting");
    this.list = el("ol", {});
    this.host.append(this.list);
  }

  /** The one that came last. */
  get newest() {
    return this.#rows.at(-1)?.one ?? null;
  }

  get count() {
    return this.#rows.length;
  }

  clear() {
    this.#rows = [];
    this.#draw();
  }

  /** @param {Waits} one */
  add(one) {
    this.#rows.push({ one, element: this.#row(one) });
    this.#draw();
    return one;
  }

  /** @param {Waits} one */
  remove(one) {
    this.#rows = this.#rows.filter((row) => row.one !== one);
    this.#draw();
  }

  /** It has reached the server. @param {Waits} one @param {number} turn */
  placed(one, turn) {
    one.turn = turn;
    this.#rows = this.#rows.filter((row) => row.one === one || row.one.turn !== turn); // the server's list may have been faster
    this.#draw();
  }

  /** Its turn begins: it waits no more. @param {number} turn @returns {Waits | null} */
  take(turn) {
    const found = this.#rows.find((row) => row.one.turn === turn)?.one ?? null;
    if (found) this.remove(found);
    return found;
  }

  /** Show what waits at the server, and what is still on its way there. @param {any[]} stored @param {number} begun the newest turn that has begun */
  show(stored, begun) {
    const known = new Map(this.#rows.map((row) => [row.one.turn, row]));
    const onTheWay = this.#rows.filter((row) => row.one.turn === null);
    const isNew = (/** @type {any} */ one) => known.has(one.turn) || !onTheWay.some((row) => row.one.text === one.content);
    const rows = stored.filter((one) => !one.is_answer && one.turn > begun && isNew(one)).map((one) => {
      const row = known.get(one.turn);
      if (row) return row;
      const waits = { turn: one.turn, text: one.content, files: one.attachments, at: one.created_at };
      return { one: waits, element: this.#row(waits) };
    });
    this.#rows = [...rows, ...onTheWay];
    this.#draw();
  }

  #draw() {
    this.changes++;
    const wanted = this.#rows.map((row) => row.element);
    const shown = [...this.list.children];
    if (wanted.length !== shown.length || wanted.some((one, at) => one !== shown[at])) this.list.replaceChildren(...wanted);
    this.host.hidden = !wanted.length;
  }

  /** @param {Waits} one */
  #row(one) {
    const about = one.text.replace(/\s+/g, " ").slice(0, 60) || one.files.map((file) => file.name).join(", ");
    return el("li", { class: "waits" },
      one.files.length > 0 && el("p", { class: "waits-files" }, icon("file"), one.files.map((file) => `${file.name || "file"} (${size(file.bytes)})`).join(", ")),
      one.text && el("div", { class: "bubble", text: one.text }),
      el("div", { class: "waits-end" }, el("span", { class: "when", text: "Waits its turn" }),
        el("button", { type: "button", class: "quiet", "aria-label": `Take back: ${about}`, click: () => this.takeBack(one) }, icon("back"), "Take back")));
  }
}
