/** Create elements, icons, notices and formatted values. Strings become text, never markup. */

import { describeError } from "./api.js";

const SVG = "http://www.w3.org/2000/svg";

/** Strokes on a grid of 24 by 24. */
const ICON_PATHS = {
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
  pin: "M9 4.5h6l-1 6 3 3H7l3-3zM12 13.5v6",
  trash: "M5 7h14M10 7V4.5h4V7M7 7l.8 12.5h8.4L17 7M10.5 10.5v6M13.5 10.5v6",
  panel: "M4 5h16v14H4zM14.5 5v14",
  chart: "M4 20h16M7 20v-6M12 20V6M17 20v-9",
  trace: "M4 6h7M8 12h8M12 18h8",
  tool: "M13 3.5L5.5 13.5H11L10 20.5l8-10.5h-6z",
  theme: "M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16",
  help: "M9.2 9.3a2.9 2.9 0 1 1 4.2 2.6c-.9.5-1.4 1-1.4 2.1M12 17.3h.01M12 3.5a8.5 8.5 0 1 1 0 17 8.5 8.5 0 0 1 0-17",
  file: "M6.5 3.5h7l4 4v13h-11zM13.5 3.5v4h4",
  inbox: "M4 13.5h4.5l1.5 2.5h4l1.5-2.5H20M4 13.5L6.5 5.5h11l2.5 8v5H4z",
  thought: "M12 5a7 6 0 0 1 0 12c-.7 0-1.5-.1-2.2-.3L6 18.5l.8-3A5.8 5.8 0 0 1 5 11.2 6.6 6.6 0 0 1 12 5",

};

/** @typedef {keyof typeof ICON_PATHS} Shape */

/** @param {Shape} shape */
export function icon(shape) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  svg.classList.add("i", `i-${shape}`);
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICON_PATHS[shape]);
  svg.append(path);
  return svg;
}

/**
 * Create an element: `el("p", {class: "note"}, "text", child)`. Attributes that are null or false are left out;
 * a function becomes a listener for the event of that name.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Node | string | null | undefined | false)} children
 * @returns {any}
 */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else if (name === "text") element.textContent = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) if (child || child === "") element.append(child);
  return element;
}

/** @param {string} id @returns {any} */
export function byId(id) {
  return document.getElementById(id);
}

/** Create a button with an icon and a name. @param {Shape} shape @param {string} name @param {(event: Event) => void} onClick */
export function iconButton(shape, name, onClick, attributes = {}) {
  return el("button", { type: "button", class: "icon small", "aria-label": name, title: name, click: onClick, ...attributes }, icon(shape));
}

/** Copy a text to the clipboard and return whether that worked. @param {string} text */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = el("textarea", { class: "visually-hidden", "aria-hidden": "true" }); // pages over plain HTTP have no clipboard API
    area.value = text;
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

/** Show for a moment that a button's action succeeded. @param {HTMLElement} button */
function flashIcon(button) {
  const original = button.querySelector("svg");
  if (!original) return;
  const check = icon("check");
  original.replaceWith(check);
  setTimeout(() => check.replaceWith(original), 1400);
}

/** Create a button that copies a text. @param {string} name @param {(button: HTMLElement) => string} text */
export function copyButton(name, text) {
  const button = iconButton("copy", name, async () => (await copy(text(button))) && flashIcon(button));
  return button;
}

/** Let screen readers interrupt with a text. @param {string} text */
export function alertScreenReader(text) {
  byId("alerts").replaceChildren(el("p", { text }));
}

/** Show a notice that disappears after some seconds. @param {string} text */
export function toast(text, kind = "info") {
  const box = el("div", { class: `toast ${kind}` }, text);
  byId("toasts").append(box);
  if (kind === "error") alertScreenReader(text);
  else byId("announcements").replaceChildren(el("p", { text }));
  setTimeout(() => box.remove(), kind === "error" ? 9000 : 4000);
}

/** Run an action and show its failure as a toast. @template T @param {() => Promise<T>} action @returns {Promise<T | undefined>} */
export async function withErrorToast(action) {
  try {
    return await action();
  } catch (error) {
    toast(describeError(error), "error");
  }
}

/** @type {Map<string, Promise<any>>} */
const stylesheets = new Map();

/** Load a stylesheet once. @param {string} href */
export function loadStylesheet(href) {
  const load = () => new Promise((done) => document.head.append(el("link", { rel: "stylesheet", href, load: done, error: done })));
  if (!stylesheets.has(href)) stylesheets.set(href, load());
  return stylesheets.get(href);
}

/** @param {string | number | Date} value */
export function formatTime(value) {
  const date = new Date(value);
  const today = new Date().toDateString() === date.toDateString();
  const time = date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  return today ? time : `${date.toLocaleDateString([], { day: "numeric", month: "short", year: "numeric" })}, ${time}`;
}

/** @param {number | null | undefined} seconds */
export function formatDuration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 1) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

/** @param {number} dollars */
export function formatCost(dollars) {
  if (dollars > 0 && dollars < 0.0001) return "<$0.0001";
  return `$${dollars.toFixed(dollars && dollars < 1 ? 4 : 2)}`;
}

/** @param {number} bytes */
export function formatBytes(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  return bytes < 1e6 ? `${(bytes / 1000).toFixed(0)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

const RESUME_REASONS = /** @type {Record<string, string>} */ ({
  crash: "its process died", handover: "its process was stopped", failure: "the provider or the store failed",
  update: "the application was updated",
});

/** Say when and why a turn was resumed. @param {string | null} at @param {string} reason */
export function describeResumption(at, reason) {
  return `Resumed${at ? ` ${formatTime(at)}` : ""}: ${RESUME_REASONS[reason] ?? reason}.`;
}
