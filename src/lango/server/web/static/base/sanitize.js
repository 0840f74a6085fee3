/** Sanitize markup with DOMPurify and short lists of what is allowed. No other module creates markup. */

import DOMPurify from "../vendor/purify.js";

const ALLOWED = {
  ALLOWED_TAGS: [
    "p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "strong", "em", "del", "code", "pre", "blockquote", "ul", "ol", "li",
    "a", "table", "thead", "tbody", "tr", "th", "td", "img", "span",
  ],
  ALLOWED_ATTR: ["href", "class", "align", "start", "src", "alt"],
  ALLOWED_URI_REGEXP: /^(?:https?:\/\/|mailto:)/i,
  ADD_URI_SAFE_ATTR: ["align", "start"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: /** @type {true} */ (true),
};

const CLASSES = /** @type {Record<string, RegExp>} */ ({
  CODE: /^language-[\w+#.-]{1,30}$/,
  SPAN: /^(?:formula|formula-block|hljs-[a-z][a-z0-9_-]*(?: [a-z]+_+)*|language-[a-z0-9-]+)$/,
});

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName === "A") {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer nofollow");
  }
  if (node.tagName === "IMG" && !node.getAttribute("src")?.startsWith("data:image/")) node.remove(); // nothing is fetched
  const classes = node.getAttribute("class");
  if (classes !== null && !CLASSES[node.tagName]?.test(classes)) node.removeAttribute("class");
});

/** Keep the elements that markdown produces. @param {string} html @returns {DocumentFragment} */
export function sanitizeMarkdown(html) {
  return DOMPurify.sanitize(html, ALLOWED);
}

/** Keep only spans and their classes. @param {string} html @returns {DocumentFragment} */
export function sanitizeSpans(html) {
  return DOMPurify.sanitize(html, { ALLOWED_TAGS: ["span"], ALLOWED_ATTR: ["class"], ALLOW_DATA_ATTR: false, ALLOW_ARIA_ATTR: false, RETURN_DOM_FRAGMENT: true });
}

const MATH = [
  "math", "semantics", "annotation", "mrow", "mi", "mn", "mo", "ms", "mtext", "mspace", "msup", "msub", "msubsup", "mover", "munder", "munderover",
  "mmultiscripts", "mfrac", "msqrt", "mroot", "mstyle", "mpadded", "mphantom", "menclose", "mtable", "mtr", "mtd", "merror",
];
const MATH_ATTRIBUTES = [
  "display", "encoding", "mathvariant", "stretchy", "fence", "separator", "lspace", "rspace", "largeop", "movablelimits", "symmetric", "minsize", "maxsize", "accent",
  "accentunder", "linethickness", "width", "height", "depth", "voffset", "scriptlevel", "displaystyle", "notation", "columnalign", "rowspacing", "columnspacing",
  "columnlines", "rowlines", "mathcolor", "mathbackground", "mathsize", "form",
];

/** Keep only MathML. @param {string} html @returns {DocumentFragment} */
export function sanitizeMath(html) {
  return DOMPurify.sanitize(html, { ALLOWED_TAGS: MATH, ALLOWED_ATTR: MATH_ATTRIBUTES, ALLOW_DATA_ATTR: false, ALLOW_ARIA_ATTR: false, RETURN_DOM_FRAGMENT: true });
}
