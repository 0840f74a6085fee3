/**
 * Markdown to elements. What a model, a tool or a user wrote is never trusted: raw HTML is shown as the text that it
 * is, pictures from elsewhere become links, and what is left goes through DOMPurify with a short list.
 */

import { Marked } from "../vendor/marked.js";
import { cleaned } from "./sanitize.js";
import { colour, keeps } from "./code-colours.js";
import { el, icon } from "./dom.js";

const ESCAPES = /** @type {Record<string, string>} */ ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" });

/** @param {string} words */
function escape(words) {
  return words.replace(/[&<>"']/g, (one) => ESCAPES[one]);
}

/** @param {string} href */
function safe(href) {
  return /^(?:https?:\/\/|mailto:)/i.test(href.trim());
}

const marked = new Marked({
  gfm: true,
  breaks: false,
  renderer: {
    html({ text, block }) {
      if (/^<br\s*\/?>$/i.test(text.trim())) return "<br>";
      return block ? `<p>${escape(text.trim())}</p>\n` : escape(text);
    },
    text(token) {
      // after an open <code>, <pre>, <kbd> or <script> the library takes words for markup
      return "escaped" in token && token.escaped ? escape(token.text) : false;
    },
    image({ href, text }) {
      const words = `${text || "picture"} (${href})`;
      return safe(href) ? `<a href="${escape(href)}">${escape(words)}</a>` : escape(words);
    },
    link({ href, tokens }) {
      const words = this.parser.parseInline(tokens);
      return safe(href) ? `<a href="${escape(href)}">${words}</a>` : words;
    },
    checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
  },
});

/** @param {import("../vendor/marked.js").Token[]} tokens @returns {DocumentFragment} */
function made(tokens) {
  const fragment = cleaned(marked.parser(tokens));
  for (const pre of fragment.querySelectorAll("pre")) dress(pre);
  for (const table of fragment.querySelectorAll("table")) {
    const frame = el("div", { class: "table", tabindex: "0", role: "group", "aria-label": "Table" });
    table.replaceWith(frame);
    frame.append(table);
  }
  return fragment;
}

/** Put a code block into a frame with its language and a button that copies it. @param {HTMLPreElement} pre */
function dress(pre) {
  const language = pre.querySelector("code")?.className.replace("language-", "") ?? "";
  pre.setAttribute("tabindex", "0");
  const button = el("button", { type: "button", class: "icon small", "data-copy": "code", "aria-label": "Copy the code", title: "Copy the code" }, icon("copy"));
  const frame = el("div", { class: "code" }, el("div", { class: "code-top" }, el("span", { text: language || "text" }), button));
  pre.replaceWith(frame);
  frame.append(pre);
}

/** Render a whole text. @param {string} text @returns {DocumentFragment} */
export function render(text) {
  return made(marked.lexer(text.replace(/\r\n?/g, "\n")));
}

/**
 * Make the children of one element those of another, touching only what is different: no flicker, and what is
 * selected or scrolled stays so.
 * @param {Node} to @param {Node} from
 */
export function morph(to, from) {
  const wanted = [...from.childNodes];
  wanted.forEach((next, at) => {
    const now = to.childNodes[at];
    if (!now) to.appendChild(next);
    else if (now.isEqualNode(next) || (now instanceof Element && next instanceof Element && keeps(now, next))) return;
    else if (now.nodeType === Node.TEXT_NODE && next.nodeType === Node.TEXT_NODE) now.nodeValue = next.nodeValue;
    else if (now instanceof Element && next instanceof Element && sameShell(now, next)) morph(now, next);
    else to.replaceChild(next, now);
  });
  while (to.childNodes.length > wanted.length) to.lastChild?.remove();
}

/** @param {Element} one @param {Element} other */
function sameShell(one, other) {
  return one.cloneNode(false).isEqualNode(other.cloneNode(false));
}

/** An answer that grows. Blocks that are complete are drawn once; only the last ones are drawn again. */
export class Growing {
  #settled = 0;
  #timer = 0;
  #pauseMs = 40;
  #head = el("div", { class: "md" });
  #tail = el("div", { class: "md" });

  /** @param {HTMLElement} host @param {(block: string) => void} [spoken] is told each block that is complete, as plain text */
  constructor(host, spoken = () => {}) {
    this.host = host;
    this.text = "";
    this.spoken = spoken;
    host.append(this.#head, this.#tail);
  }

  /** @param {string} more */
  add(more) {
    this.text += more;
    // not requestAnimationFrame: a tab in the background would show nothing until it is looked at
    this.#timer ||= setTimeout(() => this.#draw(), this.#pauseMs);
  }

  #draw() {
    const began = performance.now();
    this.#timer = 0;
    this.#drawn();
    this.#pauseMs = Math.max(40, 4 * (performance.now() - began)); // a block without an end must not take all the time
  }

  #drawn() {
    const rest = this.text.slice(this.#settled);
    const tokens = marked.lexer(rest);
    morph(this.#tail, made(tokens));
    const open = tokens.findLastIndex((one) => one.type !== "space"); // it may still grow, and the one before it be joined
    const whole = tokens.slice(0, Math.max(0, open - 1));
    const length = whole.reduce((sum, one) => sum + one.raw.length, 0);
    if (!length || rest.includes("\r") || !rest.startsWith(whole.map((one) => one.raw).join(""))) return;
    const fragment = made(Object.assign(whole, { links: tokens.links }));
    this.spoken(fragment.textContent?.trim() ?? "");
    for (let count = fragment.childNodes.length; count > 0 && this.#tail.firstChild; count--) this.#head.append(this.#tail.firstChild);
    this.#settled += length;
    void colour(this.#head);
  }

  /** Draw the whole once more, when nothing comes any more: what refers to a later line finds it now. */
  end() {
    clearTimeout(this.#timer);
    const said = this.text.slice(this.#settled).trim();
    if (said) this.spoken(render(said).textContent?.trim() ?? "");
    this.#head.append(...this.#tail.childNodes);
    this.#tail.remove();
    morph(this.#head, render(this.text));
    void colour(this.#head);
  }
}
