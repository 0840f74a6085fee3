/** Write a message and attach files. */

import { byId, el, icon, formatBytes, toast } from "../base/dom.js";
import { on, state } from "../base/state.js";

/** @typedef {import("./actions.js").AttachedFile} AttachedFile */

/** @type {(AttachedFile & {address?: string})[]} */
let files = [];

/** What happens to a message while an answer runs: the choice, the label of its button, and what the box says. */
const WHEN_BUSY = /** @type {Record<string, [string, string]>} */ ({
  wait: ["Send after this answer", "Write the next message: it is queued"],
  steer: ["Send into this answer", "Write a message: the model reads it before its next step"],
  rollback: ["Stop this answer and send instead", "Write a message: it replaces this answer"],
});

/** @param {{send: (text: string, files: AttachedFile[], whenBusy: string) => Promise<boolean>, stop: () => void, editLast: () => void}} page */
export function setUpComposer(page) {
  const text = byId("text");
  byId("attach").append(icon("clip"));
  byId("send").append(icon("up"));
  byId("stop").append(icon("stop"));
  byId("form").addEventListener("submit", async (/** @type {Event} */ event) => {
    event.preventDefault();
    await submit(page);
  });
  text.addEventListener("input", () => {
    grow();
    saveDraft();
    updateButtons();
  });
  text.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      byId("form").requestSubmit();
    } else if (event.key === "ArrowUp" && !text.value && !files.length) {
      event.preventDefault();
      page.editLast();
    }
  });
  byId("stop").addEventListener("click", page.stop);
  byId("when-busy").addEventListener("change", () => {
    updateButtons();
    text.focus();
  });
  byId("attach").addEventListener("click", () => byId("files").click());
  byId("files").addEventListener("change", () => {
    attach([...byId("files").files]);
    byId("files").value = "";
  });
  text.addEventListener("paste", (/** @type {ClipboardEvent} */ event) => {
    const pasted = [...(event.clipboardData?.files ?? [])];
    if (!pasted.length) return;
    event.preventDefault();
    attach(pasted);
  });
  setUpDrop();
  on("turn", updateButtons);
  on("session", () => {
    text.value = sessionStorage.getItem(draftKey()) ?? "";
    draw();
    text.focus({ preventScroll: true });
  });
  updateButtons();
}

function setUpDrop() {
  const setDropping = (/** @type {boolean} */ dropping) => document.body.classList.toggle("dropping", dropping);
  const holdsFiles = (/** @type {DragEvent} */ event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragover", (event) => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    setDropping(true);
  });
  addEventListener("dragleave", (event) => event.relatedTarget === null && setDropping(false));
  addEventListener("drop", (event) => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    setDropping(false);
    attach([...(event.dataTransfer?.files ?? [])]);
  });
}

/** @param {Parameters<typeof setUpComposer>[0]} page */
async function submit(page) {
  const text = byId("text");
  const trimmed = text.value.trim();
  if (!trimmed && !files.length) return text.focus();
  const [value, sent, whenBusy] = [text.value, files, state.running ? byId("when-busy").value : "wait"];
  byId("when-busy").value = "wait"; // each message chooses anew: nobody stops an answer by habit
  text.value = "";
  files = [];
  saveDraft();
  draw();
  if (!(await page.send(trimmed, sent, whenBusy))) restoreDraft(value, sent);
}

/** While an answer runs, show the stop button and, once there is a draft, the send button. */
function updateButtons() {
  byId("stop").hidden = !state.running;
  byId("send").hidden = state.running && !byId("text").value.trim() && !files.length;
  byId("when-busy").hidden = !state.running;
  const [label, placeholder] = state.running ? WHEN_BUSY[byId("when-busy").value] : ["Send", "Write a message"];
  byId("send").setAttribute("aria-label", label);
  byId("text").placeholder = placeholder;
}

/** The storage key of the draft, which survives a reload or a look at another conversation. */
function draftKey() {
  return `lango-draft ${state.session ?? ""}`;
}

function saveDraft() {
  const { value } = byId("text");
  if (value) sessionStorage.setItem(draftKey(), value);
  else sessionStorage.removeItem(draftKey());
}

/** Give the box the height of its text, where the stylesheet does not: it lays out the page twice. */
function grow() {
  if (CSS.supports("field-sizing", "content")) return;
  const text = byId("text");
  text.style.height = "auto";
  text.style.height = `${Math.min(text.scrollHeight, innerHeight * 0.4)}px`;
}

/** @param {File[]} chosen */
function attach(chosen) {
  const { max_attachment_bytes: limit = Infinity, max_attachments: maxFiles = Infinity } = state.about;
  for (const file of chosen) {
    const total = [...files, { bytes: file.size }].reduce((sum, { bytes }) => sum + bytes, 0);
    if (files.length >= maxFiles) {
      toast(`A message can have ${maxFiles} files: ${file.name} is not attached.`, "error");
      continue;
    }
    if (total > limit) {
      toast(`${file.name} is too large: this server accepts ${formatBytes(limit)} in one message.`, "error");
      continue;
    }
    files.push({
      name: file.name.slice(-200), mime_type: file.type || "application/octet-stream", bytes: file.size, open: async () => file,
      address: file.type.startsWith("image/") ? URL.createObjectURL(file) : undefined,
    });
  }
  draw();
  byId("text").focus();
}

function draw() {
  const list = byId("attached");
  list.hidden = !files.length;
  list.replaceChildren(...files.map((file) => el("li", { class: "file" },
    file.address ? el("img", { class: "thumb", alt: "", src: file.address }) : icon("file"),
    el("span", { class: "file-name" }, file.name, el("small", { text: ` ${formatBytes(file.bytes)}` })),
    el("button", {
      type: "button", class: "icon small", "aria-label": `Remove ${file.name}`,
      click: () => { files = files.filter((other) => other !== file); draw(); byId("text").focus(); },
    }, icon("close")))));
  grow();
  updateButtons();
}

/** Replace the draft. @param {string} text @param {AttachedFile[]} [attached] */
export function setDraft(text, attached = []) {
  const box = byId("text");
  box.value = text;
  files = [...attached];
  saveDraft();
  draw();
  box.focus();
  box.setSelectionRange(text.length, text.length);
}

/** Put a message back before the current draft. @param {string} text @param {AttachedFile[]} attached */
export function restoreDraft(text, attached) {
  const { value } = byId("text");
  setDraft(value.trim() ? `${text}\n\n${value}` : text, [...attached, ...files]);
}
