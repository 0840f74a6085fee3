/** Draw formulas in TeX as MathML, which browsers show and read aloud. The library is loaded with the first of them. */

import { sanitizeMath } from "./sanitize.js";

const MAX_LENGTH = 5_000; // characters: longer formulas would block the page
const DELIMITERS = /^(?:\$\$([^]*)\$\$|\$([^]*)\$|\\\(([^]*)\\\)|\\\[([^]*)\\\])$/;

let library = /** @type {Promise<any> | null} */ (null);
/** the text of each formula that is drawn, or that is not TeX @type {WeakMap<Element, string>} */
const drawn = new WeakMap();

/** Return whether an element is a drawn formula with the same text as another element. @param {Element} current @param {Element} next */
export function isDrawnCopy(current, next) {
  return drawn.has(current) && drawn.get(current) === next.textContent;
}

/** Draw the formulas below an element. One that is not TeX stays as it is. @param {Element} root */
export async function drawFormulas(root) {
  const found = [...root.querySelectorAll(".formula, .formula-block")].filter((formula) => !drawn.has(formula));
  if (!found.length) return;
  library ??= import("../vendor/katex.js").then(() => /** @type {any} */ (globalThis).katex).catch(() => null);
  const katex = await library;
  for (const formula of katex ? found : []) drawFormula(katex, formula);
}

/** @param {any} katex @param {Element} formula */
function drawFormula(katex, formula) {
  const text = formula.textContent ?? "";
  const tex = DELIMITERS.exec(text)?.slice(1).find((part) => part !== undefined) ?? "";
  if (drawn.has(formula) || text.length > MAX_LENGTH) return;
  drawn.set(formula, text);
  try {
    const displayMode = formula.className === "formula-block" || text.startsWith("$$") || text.startsWith("\\[");
    formula.replaceChildren(sanitizeMath(katex.renderToString(tex, { displayMode, output: "mathml", strict: "ignore" })));
    if (formula.className === "formula-block") formula.setAttribute("tabindex", "0"); // a wide one scrolls
  } catch {
    // it is not TeX, and is shown as it is written
  }
}
