/** A message of the user: its words, its files, and what can be done with it. */

import { download } from "../base/dialogs.js";
import { copier, el, icon, moment, size, tool } from "../base/dom.js";

const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

/** What the user said. */
export class Said {
  /**
   * @param {{text: string, seq?: number | null, at?: string | null, files?: {name: string, mime_type: string, bytes: number, open?: () => Promise<Blob>}[]}} what
   * @param {Record<"edit" | "rewind", (said: Said) => void>} acts
   */
  constructor({ text, seq = null, at = null, files = [] }, acts) {
    this.text = text;
    this.files = files;
    this.bubble = el("div", { class: "bubble" });
    this.bubble.textContent = text;
    this.element = el("article", { class: "turn user", "aria-label": "You" },
      files.length > 0 && el("ul", { class: "files", "aria-label": "Attached files" }, ...files.map(shownFile)),
      text && this.bubble,
      el("div", { class: "acts" },
        at && el("time", { class: "when", datetime: at, text: moment(at) }),
        copier("Copy", () => text),
        tool("edit", "Edit and send again", () => acts.edit(this)),
        tool("back", "Rewind to here", () => acts.rewind(this))));
    this.seq = seq;
  }

  /** @param {number | null} seq */
  set seq(seq) {
    this.element.dataset.seq = seq ?? "";
  }

  get seq() {
    return Number(this.element.dataset.seq) || null;
  }
}

/** @param {{name: string, mime_type: string, bytes: number, open?: () => Promise<Blob>}} file */
function shownFile(file) {
  const label = el("span", { class: "file-name" }, file.name || "file", el("small", { text: ` ${size(file.bytes)}` }));
  const save = () => file.open?.().then((blob) => download(blob, file.name || "file"));
  const box = el("button", { type: "button", class: "file", click: save, "aria-label": `Save ${file.name || "file"}` }, icon("file"), label);
  if (PICTURES.has(file.mime_type)) {
    file.open?.().then((blob) => {
      // the type that the server says may be anything: only bytes as a known picture type become one
      const image = el("img", { class: "thumb", alt: "", src: URL.createObjectURL(new Blob([blob], { type: file.mime_type })) });
      image.addEventListener("load", () => URL.revokeObjectURL(image.src));
      image.addEventListener("error", () => image.remove());
      box.querySelector("svg")?.replaceWith(image);
    }).catch(() => {});
  }
  return el("li", {}, box);
}
