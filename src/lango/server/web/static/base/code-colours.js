/**
 * Colour complete code blocks. The library is loaded with the first of them, and rare languages with
 * their first block; the output is sanitized like all markup.
 */

import { loadLanguage } from "./code-languages.js";
import { sanitizeSpans } from "./sanitize.js";

const MAX_BLOCK_LENGTH = 60_000; // characters: longer blocks would block the page
const CODE_WITH_LANGUAGE = 'pre > code[class^="language-"]';

let library = /** @type {Promise<any> | null} */ (null);
const coloured = new WeakMap();

/** Return whether an element is coloured code with the same text as another element. @param {Element} current @param {Element} next */
export function isColouredCopy(current, next) {
  return coloured.has(current) && coloured.get(current) === next.textContent;
}

/** Colour the code blocks below an element, one after the other. @param {Element} root */
export async function colourCode(root) {
  const blocks = [...root.querySelectorAll(CODE_WITH_LANGUAGE)].filter((block) => !coloured.has(block));
  if (!blocks.length) return;
  library ??= import("../vendor/highlight.js").then((module) => module.default).catch(() => null);
  const highlighter = await library;
  for (const block of highlighter ? blocks : []) {
    await new Promise((done) => setTimeout(done)); // let the page respond between two blocks
    await colourBlock(highlighter, block);
  }
}

/** @param {any} highlighter @param {Element} block */
async function colourBlock(highlighter, block) {
  const text = block.textContent ?? "";
  const language = block.className.replace("language-", "").toLowerCase();
  if (coloured.has(block) || text.length > MAX_BLOCK_LENGTH) return;
  if (!highlighter.getLanguage(language) && !(await loadLanguage(highlighter, language))) return;
  const fragment = sanitizeSpans(highlighter.highlight(text, { language, ignoreIllegals: true }).value);
  if (fragment.textContent !== text || block.textContent !== text) return; // colours must not change the text
  coloured.set(block, text);
  block.replaceChildren(fragment);
}
