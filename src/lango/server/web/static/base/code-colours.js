/**
 * Colours in code. The library comes when the first block that it knows is complete, never while one still grows, and
 * what it makes of the words goes the way of all markup: through DOMPurify, spans and their classes only.
 */

import { spans } from "./sanitize.js";

const LONGEST = 60_000; // characters of one block: longer ones would hold up the page
const NAMED = 'pre > code[class^="language-"]';

let library = /** @type {Promise<any> | null} */ (null);
const coloured = new WeakMap();

/** Whether an element of code has its colours, and the same words as another one. @param {Element} now @param {Element} next */
export function keeps(now, next) {
  return coloured.has(now) && coloured.get(now) === next.textContent;
}

/** Colour the blocks of code below an element, one after the other. @param {Element} root */
export async function colour(root) {
  const blocks = [...root.querySelectorAll(NAMED)].filter((one) => !coloured.has(one));
  if (!blocks.length) return;
  library ??= import("../vendor/highlight.js").then((module) => module.default).catch(() => null);
  const highlighter = await library;
  for (const block of highlighter ? blocks : []) {
    await new Promise((done) => setTimeout(done)); // each in a moment of its own
    paint(highlighter, block);
  }
}

/** @param {any} highlighter @param {Element} block */
function paint(highlighter, block) {
  const words = block.textContent ?? "";
  const language = block.className.replace("language-", "").toLowerCase();
  if (coloured.has(block) || words.length > LONGEST || !highlighter.getLanguage(language)) return;
  const made = spans(highlighter.highlight(words, { language, ignoreIllegals: true }).value);
  if (made.textContent !== words) return; // colours never change what is said
  coloured.set(block, words);
  block.replaceChildren(made);
}
