/** Show how many seconds have passed since the last output, while a model thinks or a tool runs. */

import { el } from "../base/dom.js";

const SHOWN_FROM_S = 2;

export class Elapsed {
  #since = 0;
  #timer = 0;
  element = el("span", { class: "elapsed" });

  /** @param {HTMLElement} output where output appears */
  constructor(output) {
    this.output = output;
    this.observer = new MutationObserver(() => this.#restart());
  }

  /** @param {boolean} isRunning */
  set running(isRunning) {
    clearInterval(this.#timer);
    this.observer.disconnect();
    this.#restart();
    if (!isRunning) return;
    this.observer.observe(this.output, { childList: true, subtree: true, characterData: true });
    this.#timer = window.setInterval(() => this.#draw(), 1000);
  }

  #restart() {
    this.#since = Date.now();
    this.element.textContent = "";
  }

  #draw() {
    const seconds = Math.floor((Date.now() - this.#since) / 1000);
    this.element.textContent = seconds < SHOWN_FROM_S ? "" : seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
    if (!this.element.isConnected) this.running = false; // another conversation is shown
  }
}
