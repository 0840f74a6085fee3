/**
 * Render markdown, whole or while it grows. Its author is never trusted: raw HTML is shown as text, only images
 * that are part of the text are shown, others become links, and the result is sanitized. Complete code is coloured, and
 * complete formulas are drawn.
 */

import { Marked } from "../vendor/marked.js";
import { sanitizeMarkdown } from "./sanitize.js";
import { colourCode, isColouredCopy } from "./code-colours.js";
import { copyButton, el } from "./dom.js";
import { drawFormulas, isDrawnCopy } from "./formulas.js";

const ESCAPES = /** @type {Record<string, string>} */ ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" });

/** @param {string} text */
function escape(text) {
  return text.replace(/[&<>"']/g, (letter) => ESCAPES[letter]);
}

const IMAGE_DATA = /^data:image\/(?:png|jpeg|gif|webp);base64,[\w+/=]+$/i;

/** @param {string} href */
function isSafeLink(href) {
  return /^(?:https?:\/\/|mailto:)/i.test(href.trim());
}

const INLINE_FORMULA = /^(?:\$\$[^$]+\$\$|\$(?![\s\d])[^$\n]*[^$\s\\]\$(?![\w$])|\\\([^\n]+?\\\)|\\\[[^\n]+?\\\])/;
const FORMULA_BLOCK = /^(?:\$\$[^$]+\$\$|\\\[[^]+?\\\])[ \t]*(?:\n+|$)/;

/** Formulas, whose letters markdown would take for markup. @type {import("../vendor/marked.js").TokenizerExtension[]} */
const formulas = [
  {
    name: "formula",
    level: "inline",
    start: (text) => text.match(/\$|\\[([]/)?.index,
    tokenizer: (text) => asToken("formula", INLINE_FORMULA.exec(text)),
    renderer: ({ raw }) => `<span class="formula">${escape(raw)}</span>`,
  },
  {
    name: "formula-block",
    level: "block",
    start: (text) => text.match(/^(?:\$\$|\\\[)/m)?.index,
    tokenizer: (text) => asToken("formula-block", FORMULA_BLOCK.exec(text)),
    renderer: ({ raw }) => `<p><span class="formula-block">${escape(raw.trim())}</span></p>\n`,
  },
];

/** @param {string} type @param {RegExpExecArray | null} found */
function asToken(type, found) {
  return found ? { type, raw: found[0] } : undefined;
}

const marked = new Marked({
  gfm: true,
  breaks: false,
  extensions: formulas,
  renderer: {
    html({ text, block }) {
      if (/^<br\s*\/?>$/i.test(text.trim())) return "<br>";
      return block ? `<p>${escape(text.trim())}</p>\n` : escape(text);
    },
    text(token) {
      // after an open <code>, <pre>, <kbd> or <script> the library takes text for markup
      return "escaped" in token && token.escaped ? escape(token.text) : false;
    },
    image({ href, text }) {
      if (IMAGE_DATA.test(href)) return `<img src="${escape(href)}" alt="${escape(text || "picture")}">`;
      const label = `${text || "picture"} (${href})`;
      return isSafeLink(href) ? `<a href="${escape(href)}">${escape(label)}</a>` : escape(label);
    },
    link({ href, tokens }) {
      const label = this.parser.parseInline(tokens);
      return isSafeLink(href) ? `<a href="${escape(href)}">${label}</a>` : label;
    },
    checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
  },
});

/** @param {import("../vendor/marked.js").Token[]} tokens @returns {DocumentFragment} */
function toFragment(tokens) {
  const fragment = sanitizeMarkdown(marked.parser(tokens));
  for (const block of fragment.children) block.setAttribute("dir", "auto"); // Arabic and Hebrew run from right to left
  for (const pre of fragment.querySelectorAll("pre")) frameCode(pre);
  for (const table of fragment.querySelectorAll("table")) {
    const frame = el("div", { class: "table", tabindex: "0", role: "group", "aria-label": "Table" });
    table.replaceWith(frame);
    frame.append(table);
  }
  return fragment;
}

/** Put a code block into a frame with its language and a copy button. @param {HTMLPreElement} pre */
function frameCode(pre) {
  const language = pre.querySelector("code")?.className.replace("language-", "") ?? "";
  pre.setAttribute("tabindex", "0");
  const button = copyButton("Copy the code", (self) => self.closest(".code")?.querySelector("pre")?.textContent ?? "");
  const frame = el("div", { class: "code" }, el("div", { class: "code-top" }, el("span", { text: language || "text" }), button));
  pre.replaceWith(frame);
  frame.append(pre);
}

/** Render a whole text. @param {string} text @returns {DocumentFragment} */
export function render(text) {
  return toFragment(marked.lexer(text.replace(/\r\n?/g, "\n")));
}

/** Colour the complete code blocks below an element, and draw its formulas. @param {Element} root */
export function finishBlocks(root) {
  void colourCode(root);
  void drawFormulas(root);
}

/**
 * Replace the children of an element by those of another, touching only what differs: selection and scroll positions stay.
 * @param {Node} to @param {Node} from
 */
function morph(to, from) {
  const wanted = [...from.childNodes];
  wanted.forEach((next, index) => {
    const current = to.childNodes[index];
    if (!current) to.appendChild(next);
    else if (current.isEqualNode(next) || (current instanceof Element && next instanceof Element && (isColouredCopy(current, next) || isDrawnCopy(current, next)))) return;
    else if (current.nodeType === Node.TEXT_NODE && next.nodeType === Node.TEXT_NODE) current.nodeValue = next.nodeValue;
    else if (current instanceof Element && next instanceof Element && sameElement(current, next)) morph(current, next);
    else to.replaceChild(next, current);
  });
  while (to.childNodes.length > wanted.length) to.lastChild?.remove();
}

/** @param {Element} first @param {Element} second */
function sameElement(first, second) {
  return first.cloneNode(false).isEqualNode(second.cloneNode(false));
}

/** Render a text that grows. Complete blocks are rendered once, only the last ones again. */
export class GrowingMarkdown {
  #completeLength = 0;
  #timer = 0;
  #pauseMs = 40;
  #head = el("div", { class: "md" });
  #tail = el("div", { class: "md" });

  /** @param {HTMLElement} host @param {(block: string) => void} onBlock called with the plain text of each complete block */
  constructor(host, onBlock) {
    this.host = host;
    this.text = "";
    this.onBlock = onBlock;
    host.append(this.#head, this.#tail);
  }

  /** @param {string} more */
  add(more) {
    this.text += more;
    // not requestAnimationFrame: it does not run in a background tab
    this.#timer ||= setTimeout(() => this.#draw(), this.#pauseMs);
  }

  #draw() {
    const startedAt = performance.now();
    this.#timer = 0;
    this.#render();
    this.#pauseMs = Math.max(40, 4 * (performance.now() - startedAt)); // a very long block must not take all the time
  }

  #render() {
    const rest = this.text.slice(this.#completeLength);
    const tokens = marked.lexer(rest);
    morph(this.#tail, toFragment(tokens));
    const open = tokens.findLastIndex((token) => token.type !== "space"); // it may still grow, or join the block before it
    const complete = tokens.slice(0, Math.max(0, open - 1));
    const length = complete.reduce((sum, token) => sum + token.raw.length, 0);
    if (!length || rest.includes("\r") || !rest.startsWith(complete.map((token) => token.raw).join(""))) return;
    const fragment = toFragment(Object.assign(complete, { links: tokens.links }));
    this.onBlock(fragment.textContent?.trim() ?? "");
    for (let count = fragment.childNodes.length; count > 0 && this.#tail.firstChild; count--) this.#head.append(this.#tail.firstChild);
    this.#completeLength += length;
    finishBlocks(this.#head);
  }

  /** Render the whole text once more: a reference may be defined in a later line. */
  end() {
    clearTimeout(this.#timer);
    const rest = this.text.slice(this.#completeLength).trim();
    if (rest) this.onBlock(render(rest).textContent?.trim() ?? "");
    this.#head.append(...this.#tail.childNodes);
    this.#tail.remove();
    morph(this.#head, render(this.text));
    finishBlocks(this.#head);
  }
}
