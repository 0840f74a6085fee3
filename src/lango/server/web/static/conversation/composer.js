/** The box where a message is written, and the files that go with it. */

import { byId, el, icon, size, toast } from "../base/dom.js";
import { on, state } from "../base/state.js";

/** @typedef {import("./actions.js").File_} File_ */

/** @type {(File_ & {address?: string})[]} */
let files = [];

/** @param {{send: (text: string, files: File_[]) => Promise<boolean>, stop: () => void, editLast: () => void}} page */
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
    keep();
    show();
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
  on("turn", show);
  on("session", () => {
    text.value = sessionStorage.getItem(place()) ?? "";
    draw();
    text.focus({ preventScroll: true });
  });
  show();
}

function setUpDrop() {
  const over = (/** @type {boolean} */ is) => document.body.classList.toggle("dropping", is);
  const holdsFiles = (/** @type {DragEvent} */ event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragover", (event) => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    over(true);
  });
  addEventListener("dragleave", (event) => event.relatedTarget === null && over(false));
  addEventListener("drop", (event) => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    over(false);
    attach([...(event.dataTransfer?.files ?? [])]);
  });
}

/** @param {Parameters<typeof setUpComposer>[0]} page */
async function submit(page) {
  const text = byId("text");
  const words = text.value.trim();
  if (!words && !files.length) return text.focus();
  const [value, sent] = [text.value, files];
  text.value = "";
  files = [];
  keep();
  draw();
  if (!(await page.send(words, sent))) putBack(value, sent);
}

/** While an answer runs there is a button that stops it, and, once something is written, one that sends the next message. */
function show() {
  byId("stop").hidden = !state.running;
  byId("send").hidden = state.running && !byId("text").value.trim() && !files.length;
  byId("send").setAttribute("aria-label", state.running ? "Send after this answer" : "Send");
  byId("text").placeholder = state.running ? "Write the next message: it waits its turn" : "Write a message";
}

/** Where the words that were not sent yet are kept, for a reload or another conversation in between. */
function place() {
  return `lango-draft ${state.session ?? ""}`;
}

function keep() {
  const { value } = byId("text");
  if (value) sessionStorage.setItem(place(), value);
  else sessionStorage.removeItem(place());
}

function grow() {
  const text = byId("text");
  text.style.height = "auto";
  text.style.height = `${Math.min(text.scrollHeight, innerHeight * 0.4)}px`;
}

/** @param {File[]} chosen */
function attach(chosen) {
  const { max_attachment_bytes: limit = Infinity, max_attachments: most = Infinity } = state.about;
  for (const file of chosen) {
    const together = [...files, { bytes: file.size }].reduce((sum, one) => sum + one.bytes, 0);
    if (files.length >= most) {
      toast(`A message takes ${most} files: ${file.name} is one too many.`, "error");
      continue;
    }
    if (together > limit) {
      toast(`${file.name} is too large: this server takes ${size(limit)} in one message.`, "error");
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
    el("span", { class: "file-name" }, file.name, el("small", { text: ` ${size(file.bytes)}` })),
    el("button", {
      type: "button", class: "icon small", "aria-label": `Remove ${file.name}`,
      click: () => { files = files.filter((one) => one !== file); draw(); byId("text").focus(); },
    }, icon("close")))));
  grow();
  show();
}

/** Put a message into the box. @param {string} text @param {File_[]} [before] */
export function draft(text, before = []) {
  const box = byId("text");
  box.value = text;
  files = [...before];
  keep();
  draw();
  box.focus();
  box.setSelectionRange(text.length, text.length);
}

/** Put a message back before what is written already. @param {string} text @param {File_[]} before */
export function putBack(text, before) {
  const { value } = byId("text");
  draft(value.trim() ? `${text}\n\n${value}` : text, [...before, ...files]);
}
