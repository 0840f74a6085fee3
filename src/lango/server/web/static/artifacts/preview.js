/**
 * Show what an artifact holds: a picture, a table, text, JSON or Markdown. Nothing of it runs: a picture is an image of its
 * data, markup is shown as text, and any other file, such as a PDF, is a link that saves it.
 */

import { el, formatBytes, icon } from "../base/dom.js";
import { finishBlocks, render } from "../base/markdown.js";
import { isHere, loadContent, save } from "./artifact-files.js";

/** @typedef {import("./artifact-files.js").Artifact} Artifact */

const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml"];
const MAX_PICTURE_BYTES = 20_000_000;
const MAX_TEXT_BYTES = 300_000;
const MAX_ROWS = 100;
const MAX_COLUMNS = 100;
/** The language of a text, by the end of its file's name. */
const LANGUAGES = /** @type {Record<string, string>} */ ({
  py: "python", js: "javascript", ts: "typescript", html: "html", htm: "html", css: "css", sql: "sql", xml: "xml", svg: "xml", yaml: "yaml", yml: "yaml", sh: "bash", toml: "toml",
});

/** Show an artifact. @param {string | null} session @param {Artifact} artifact @returns {Promise<HTMLElement>} */
export async function preview(session, artifact) {
  const kind = kindOf(artifact);
  if (!isHere(artifact)) return el("p", { class: "note", text: `It is at ${artifact.uri}` });
  if (kind === "picture" && artifact.bytes <= MAX_PICTURE_BYTES) return picture(artifact, await loadContent(session, artifact));
  if (kind === "file" || kind === "picture") return fileLink(session, artifact);
  const text = await (await loadContent(session, artifact, MAX_TEXT_BYTES)).text();
  const isCut = artifact.bytes > MAX_TEXT_BYTES;
  const note = isCut && el("p", { class: "note", text: `The first ${formatBytes(MAX_TEXT_BYTES)} of ${formatBytes(artifact.bytes)}.` });
  return el("div", { class: "preview" }, kind === "table" ? table(artifact, text, isCut) : kind === "markdown" ? markdown(text) : code(artifact, text, kind === "json"), note);
}

/** @param {Artifact} artifact @returns {"picture" | "table" | "markdown" | "json" | "text" | "file"} */
function kindOf({ name, mime_type }) {
  const type = mime_type ?? "";
  const end = name.toLowerCase().split(".").pop() ?? "";
  if (PICTURES.includes(type)) return "picture";
  if (["text/csv", "text/tab-separated-values"].includes(type) || (isPlain(type) && ["csv", "tsv"].includes(end))) return "table";
  if (type === "text/markdown" || (isPlain(type) && ["md", "markdown"].includes(end))) return "markdown";
  if (/^application\/(.+\+)?json$/.test(type) || (isPlain(type) && end === "json")) return "json";
  if (type.startsWith("text/") || /^application\/(.+\+)?(xml|yaml|x-yaml|javascript|sql|toml|x-sh)$/.test(type) || (isPlain(type) && end in LANGUAGES)) return "text";
  return "file";
}

/** Whether a type says nothing more than that it is a file or a text. @param {string} type */
function isPlain(type) {
  return ["", "text/plain", "application/octet-stream"].includes(type);
}

/** A picture is its data, not an address of this server: opened in a tab of its own, its script has no rights here. @param {Artifact} artifact @param {Blob} content */
async function picture({ name, mime_type }, content) {
  const data = await new Promise((done) => {
    const reader = new FileReader();
    reader.onload = () => done(String(reader.result).replace(/^data:[^,]*,/, ""));
    reader.readAsDataURL(content);
  });
  return el("div", { class: "preview" }, el("img", { src: `data:${mime_type};base64,${data}`, alt: name }));
}

/** @param {string | null} session @param {Artifact} artifact */
function fileLink(session, artifact) {
  const kind = artifact.mime_type === "application/pdf" ? "PDF" : artifact.mime_type ?? "file";
  const open = (/** @type {Event} */ event) => {
    event.preventDefault();
    void save(session, artifact);
  };
  return el("p", { class: "preview" }, el("a", { href: "#", click: open }, icon("file"), `Save the ${kind}, ${formatBytes(artifact.bytes)}`));
}

/** @param {string} text */
function markdown(text) {
  const host = el("div", { class: "text" }, el("div", { class: "md" }, render(text)));
  finishBlocks(host);
  return host;
}

/** @param {Artifact} artifact @param {string} text @param {boolean} isJson */
function code({ name }, text, isJson) {
  const language = isJson ? "json" : LANGUAGES[name.toLowerCase().split(".").pop() ?? ""];
  const block = el("code", { class: language && `language-${language}` }, isJson ? indented(text) : text);
  const host = el("div", { class: "code" }, el("pre", { tabindex: "0", "aria-label": `Content of ${name}` }, block));
  finishBlocks(host);
  return host;
}

/** @param {string} text */
function indented(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text; // it was cut off, or is not JSON
  }
}

/** @param {Artifact} artifact @param {string} text @param {boolean} isCut */
function table({ name, mime_type }, text, isCut) {
  const [head = [], ...rows] = readRows(text, mime_type === "text/tab-separated-values" || name.toLowerCase().endsWith(".tsv") ? "\t" : null);
  const cells = (/** @type {string[]} */ row, tag = "td") => row.slice(0, MAX_COLUMNS).map((cell) => el(tag, { scope: tag === "th" && "col" }, cell));
  const wide = head.length > MAX_COLUMNS ? ` The first ${MAX_COLUMNS} of ${head.length} columns.` : "";
  const count = isCut ? `The first ${Math.min(MAX_ROWS, rows.length)} rows.` : rows.length > MAX_ROWS ? `The first ${MAX_ROWS} of ${rows.length.toLocaleString()} rows.` : `${rows.length} rows.`;
  return el("div", {},
    el("div", { class: "table", tabindex: "0", role: "group", "aria-label": `Table of ${name}` },
      el("table", {}, el("thead", {}, el("tr", {}, ...cells(head, "th"))), el("tbody", {}, ...rows.slice(0, MAX_ROWS).map((row) => el("tr", {}, ...cells(row)))))),
    el("p", { class: "note", text: count + wide }));
}

/** Split CSV into rows: a cell in quotes may hold separators, line breaks and doubled quotes. @param {string} text @param {string | null} given the separator, if it is known @returns {string[][]} */
export function readRows(text, given = null) {
  const start = text.replace(/^\ufeff/, "");
  const first = start.slice(0, (start.search(/[\r\n]/) + 1 || start.length + 1) - 1);
  const separator = given ?? [",", ";", "\t"].reduce((best, one) => (first.split(one).length > first.split(best).length ? one : best));
  const rows = /** @type {string[][]} */ ([[]]);
  const cell = new RegExp(`(?:"((?:[^"]|"")*)"|([^${separator}\\r\\n]*))(${separator}|\\r\\n|\\r|\\n|$)`, "gy");
  for (let found; cell.lastIndex < start.length && (found = cell.exec(start)); ) {
    rows.at(-1)?.push(found[1]?.replaceAll('""', '"') ?? found[2]);
    if (found[3] !== separator && cell.lastIndex < start.length) rows.push([]);
  }
  return rows;
}
