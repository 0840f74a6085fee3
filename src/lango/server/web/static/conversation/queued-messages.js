/** Show the messages queued behind the running turn, and withdraw them. */

import { byId, el, icon, formatBytes } from "../base/dom.js";

/**
 * @typedef {import("./actions.js").AttachedFile} AttachedFile
 * @typedef {{turn: number | null, text: string, files: AttachedFile[], at: string, replaces?: boolean}} QueuedMessage
 */

export class QueuedMessages {
  /** @type {{message: QueuedMessage, element: HTMLElement}[]} */ #rows = [];
  /** grows with every change, so that a response from before it can be recognized */ version = 0;

  /** @param {(message: QueuedMessage) => void} withdraw */
  constructor(withdraw) {
    this.withdraw = withdraw;
    this.host = byId("queued-messages");
    this.list = el("ol", {});
    this.host.append(this.list);
  }

  get newest() {
    return this.#rows.at(-1)?.message ?? null;
  }

  get count() {
    return this.#rows.length;
  }

  clear() {
    this.#rows = [];
    this.#draw();
  }

  /** @param {QueuedMessage} message */
  add(message) {
    this.#rows.push({ message, element: this.#row(message) });
    this.#draw();
    return message;
  }

  /** @param {QueuedMessage} message */
  remove(message) {
    this.#rows = this.#rows.filter((row) => row.message !== message);
    this.#draw();
  }

  /** Note the turn that the server gave a message. @param {QueuedMessage} message @param {number} turn */
  setTurn(message, turn) {
    message.turn = turn;
    this.#rows = this.#rows.filter((row) => row.message === message || row.message.turn !== turn); // the server's list may have arrived first
    this.#draw();
  }

  /** Remove and return the message whose turn starts. @param {number} turn @returns {QueuedMessage | null} */
  removeStarted(turn) {
    const found = this.#rows.find((row) => row.message.turn === turn)?.message ?? null;
    if (found) this.remove(found);
    return found;
  }

  /** Show the messages that the server has queued, and those that are still being sent. @param {any[]} stored @param {number} newestTurn the newest turn that has started */
  show(stored, newestTurn) {
    const known = new Map(this.#rows.map((row) => [row.message.turn, row]));
    const unsent = this.#rows.filter((row) => row.message.turn === null);
    const isNew = (/** @type {any} */ entry) => known.has(entry.turn) || !unsent.some((row) => row.message.text === entry.content);
    const rows = stored.filter((entry) => !entry.is_answer && entry.turn > newestTurn && isNew(entry)).map((entry) => {
      const row = known.get(entry.turn);
      if (row) return row;
      const message = { turn: entry.turn, text: entry.content, files: entry.attachments, at: entry.created_at };
      return { message, element: this.#row(message) };
    });
    this.#rows = [...rows, ...unsent];
    this.#draw();
  }

  #draw() {
    this.version++;
    const wanted = this.#rows.map((row) => row.element);
    const shown = [...this.list.children];
    if (wanted.length !== shown.length || wanted.some((element, index) => element !== shown[index])) this.list.replaceChildren(...wanted);
    this.host.hidden = !wanted.length;
  }

  /** @param {QueuedMessage} message */
  #row(message) {
    const label = message.text.replace(/\s+/g, " ").slice(0, 60) || message.files.map((file) => file.name).join(", ");
    return el("li", { class: "queued-message" },
      message.files.length > 0 && el("p", { class: "queued-files" }, icon("file"), message.files.map((file) => `${file.name || "file"} (${formatBytes(file.bytes)})`).join(", ")),
      message.text && el("div", { class: "bubble", text: message.text }),
      el("div", { class: "queued-footer" }, el("span", { class: "when", text: "Queued" }),
        el("button", { type: "button", class: "quiet", "aria-label": `Withdraw: ${label}`, click: () => this.withdraw(message) }, icon("back"), "Withdraw")));
  }
}
