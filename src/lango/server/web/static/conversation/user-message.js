/** Show a user's message with its files and actions. */

import { download } from "../base/dialogs.js";
import { copyButton, el, icon, formatTime, formatBytes, iconButton } from "../base/dom.js";
import { emit } from "../base/state.js";

/** @typedef {import("./actions.js").AttachedFile} AttachedFile */

const IMAGE_TYPES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

export class UserMessage {
  /**
   * @param {{text: string, seq?: number | null, at?: string | null, files?: AttachedFile[]}} message
   * @param {Record<"edit" | "rewind", (message: UserMessage) => void>} actions
   */
  constructor({ text, seq = null, at = null, files = [] }, actions) {
    this.text = text;
    this.files = files;

    this.element = el("article", { class: "turn user", "aria-label": "You" },
      files.length > 0 && el("ul", { class: "files", "aria-label": "Attached files" }, ...files.map(fileItem)),
      text && el("div", { class: "bubble", text }),
      el("div", { class: "actions" },
        at && el("time", { class: "when", datetime: at, text: formatTime(at) }),
        copyButton("Copy", () => text),
        iconButton("trace", "Trace of this message", () => emit("trace", this.seq)),
        iconButton("edit", "Edit and send again", () => actions.edit(this)),
        iconButton("back", "Rewind to here", () => actions.rewind(this))));
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

/** @param {AttachedFile} file */
function fileItem(file) {
  const label = el("span", { class: "file-name" }, file.name || "file", el("small", { text: ` ${formatBytes(file.bytes)}` }));
  const save = () => file.open?.().then((blob) => download(blob, file.name || "file"));
  const box = el("button", { type: "button", class: "file", click: save, "aria-label": `Save ${file.name || "file"}` }, icon("file"), label);
  if (IMAGE_TYPES.has(file.mime_type)) {
    file.open?.().then((blob) => {
      // the server may send any content type: show the bytes only as a known image type
      const image = el("img", { class: "thumb", alt: "", src: URL.createObjectURL(new Blob([blob], { type: file.mime_type })) });
      image.addEventListener("load", () => URL.revokeObjectURL(image.src));
      image.addEventListener("error", () => image.remove());
      box.querySelector("svg")?.replaceWith(image);
    }).catch(() => {});
  }
  return el("li", {}, box);
}
