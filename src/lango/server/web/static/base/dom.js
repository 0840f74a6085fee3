/** Making elements. Words go in as text and never as markup. */

const SVG = "http://www.w3.org/2000/svg";

/** Strokes on a grid of 24. */
const SHAPES = {
  plus: "M12 5v14M5 12h14",
  menu: "M4 7h16M4 12h16M4 17h10",
  close: "M6 6l12 12M18 6L6 18",
  more: "M5.5 12h.01M12 12h.01M18.5 12h.01",
  up: "M12 19V6M6 11.5L12 5.5l6 6",
  down: "M12 5v13M6 12.5l6 6 6-6",
  stop: "M8 8h8v8H8z",
  clip: "M19.5 11.5l-7.6 7.6a4.6 4.6 0 0 1-6.5-6.5l8-8a3.1 3.1 0 0 1 4.4 4.4l-7.9 7.9a1.5 1.5 0 0 1-2.2-2.2l7-7",
  copy: "M9 9h10v11H9zM15 9V4.5H5V15h4",
  check: "M5 12.5l4.5 4.5L19 7.5",
  cross: "M7 7l10 10M17 7L7 17",
  again: "M19.5 12a7.5 7.5 0 1 1-2.4-5.5M19.5 4v4h-4",
  edit: "M5 19l1-4L16 5l3 3L9 18zM14 7l3 3",
  fork: "M7 7.5v9M7 12h6a4 4 0 0 0 4-4V7.5M7 3.5a2 2 0 1 1 0 4 2 2 0 0 1 0-4M17 3.5a2 2 0 1 1 0 4 2 2 0 0 1 0-4M7 16.5a2 2 0 1 1 0 4 2 2 0 0 1 0-4",
  back: "M9 5.5L4.5 10 9 14.5M5 10h9a5 5 0 0 1 0 10h-3",
  save: "M12 4.5v10M7.5 10.5L12 15l4.5-4.5M5 19.5h14",
  load: "M12 15V5M7.5 9L12 4.5 16.5 9M5 19.5h14",
  trash: "M5 7h14M10 7V4.5h4V7M7 7l.8 12.5h8.4L17 7M10.5 10.5v6M13.5 10.5v6",
  panel: "M4 5h16v14H4zM14.5 5v14",
  tool: "M13 3.5L5.5 13.5H11L10 20.5l8-10.5h-6z",
  theme: "M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16",
  help: "M9.2 9.3a2.9 2.9 0 1 1 4.2 2.6c-.9.5-1.4 1-1.4 2.1M12 17.3h.01M12 3.5a8.5 8.5 0 1 1 0 17 8.5 8.5 0 0 1 0-17",
  file: "M6.5 3.5h7l4 4v13h-11zM13.5 3.5v4h4",
  thought: "M12 5a7 6 0 0 1 0 12c-.7 0-1.5-.1-2.2-.3L6 18.5l.8-3A5.8 5.8 0 0 1 5 11.2 6.6 6.6 0 0 1 12 5",
  key: "M9 11a4 4 0 1 1 0 .01M12.5 12.5L20 20M17.5 17.5l2-2",
};

/** @typedef {keyof typeof SHAPES} Shape */

/** @param {Shape} shape */
export function icon(shape) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  svg.classList.add("i", `i-${shape}`);
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", SHAPES[shape]);
  svg.append(path);
  return svg;
}

/**
 * Make an element: `el("p", {class: "note"}, "words", child)`. Attributes that are null or false are left out;
 * a function is a listener under the event's name.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Node | string | null | undefined | false)} children
 * @returns {any}
 */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") made.addEventListener(name, value);
    else if (name === "text") made.textContent = value;
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) if (child || child === "") made.append(child);
  return made;
}

/** @param {string} id @returns {any} */
export function byId(id) {
  return document.getElementById(id);
}

/** A button with a drawing and a name. @param {Shape} shape @param {string} name @param {(event: Event) => void} then */
export function tool(shape, name, then, more = {}) {
  return el("button", { type: "button", class: "icon small", "aria-label": name, title: name, click: then, ...more }, icon(shape));
}

/** @param {string} words */
export async function copy(words) {
  try {
    await navigator.clipboard.writeText(words);
    return true;
  } catch {
    const area = el("textarea", { class: "hidden", "aria-hidden": "true" }); // pages over plain http have no clipboard
    area.value = words;
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

/** Show for a moment that something was done. @param {HTMLElement} button */
export function blink(button, shape = /** @type {Shape} */ ("check")) {
  const drawn = button.querySelector("svg");
  if (!drawn) return;
  const shown = icon(shape);
  drawn.replaceWith(shown);
  setTimeout(() => shown.replaceWith(drawn), 1400);
}

/** A button that copies some words. @param {string} name @param {() => string} words */
export function copier(name, words) {
  const button = tool("copy", name, async () => (await copy(words())) && blink(button));
  return button;
}

/** A sentence that goes away by itself. @param {string} words */
export function toast(words, kind = "info") {
  const box = el("div", { class: `toast ${kind}` }, words);
  byId("toasts").append(box);
  byId(kind === "error" ? "alarm" : "said").replaceChildren(el("p", { text: words }));
  setTimeout(() => box.remove(), kind === "error" ? 9000 : 4000);
}

/** @param {string | number | Date} when */
export function moment(when) {
  const date = new Date(when);
  const today = new Date().toDateString() === date.toDateString();
  const time = date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  return today ? time : `${date.toLocaleDateString([], { day: "numeric", month: "short", year: "numeric" })}, ${time}`;
}

/** @param {number | null | undefined} seconds */
export function lasted(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 1) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

/** @param {number} bytes */
export function size(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  return bytes < 1e6 ? `${(bytes / 1000).toFixed(0)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}
