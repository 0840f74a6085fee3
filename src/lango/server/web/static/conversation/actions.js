/** What a user does in a conversation: send, stop, try again, edit and send again, rewind, fork. */

import { api, ApiError, explain, sessionPath } from "../base/api.js";
import { confirm } from "../base/dialogs.js";
import { el, icon, toast } from "../base/dom.js";
import { state, tell } from "../base/state.js";
import { Said } from "./user-message.js";

/** @typedef {import("./conversation.js").Conversation} Conversation */
/** A file that is sent or was sent. @typedef {{name: string, mime_type: string, bytes: number, open?: () => Promise<Blob>}} File_ */

let before = /** @type {Promise<any>} */ (Promise.resolve()); // what was written first is sent first

/**
 * Send a message. A new conversation is stored first, and gets its place in the address.
 * @param {Conversation} talk @param {string} text @param {File_[]} files @returns {Promise<boolean>} whether it was sent
 */
export async function send(talk, text, files) {
  const ready = before.then(async () => {
    const attachments = await Promise.all(files.map(encoded));
    const id = state.session ?? (await made(talk));
    return { path: sessionPath(id, "/messages"), body: attachments.length ? { text, attachments } : { text }, key: crypto.randomUUID?.() ?? String(Math.random()) };
  });
  before = ready.catch(() => {});
  try {
    const first = await ready;
    return await talk.send({ turn: null, text, files, at: new Date().toISOString() }, first);
  } catch (error) {
    toast(explain(error), "error");
    return false;
  }
}

/** @param {Conversation} talk */
async function made(talk) {
  const { id } = await api("/v1/sessions", { method: "POST", body: {} });
  state.session = id;
  talk.adopt(id);
  history.pushState(null, "", `#/s/${encodeURIComponent(id)}`);
  tell("session", id);
  return id;
}

/** @param {File_} file */
async function encoded(file) {
  const blob = await file.open?.();
  if (!blob) throw new Error(`${file.name} cannot be read`);
  const data = await new Promise((done, fail) => {
    const reader = new FileReader();
    reader.onload = () => done(String(reader.result).replace(/^[^,]*,/, ""));
    reader.onerror = () => fail(new Error(`${file.name} cannot be read`));
    reader.readAsDataURL(blob);
  });
  return { name: file.name, mime_type: file.mime_type, data };
}

/** Stop the answer; what came so far stays. */
export async function stop() {
  if (!state.session || !state.running) return;
  try {
    await api(sessionPath(state.session, "/cancel"), { method: "POST" });
  } catch (error) {
    toast(explain(error), "error");
  }
}

/**
 * Take a message back that waits for its turn; its words come back into the box, before those that are there.
 * @param {Conversation} talk @param {import("./queued-messages.js").Waits} one @param {(text: string, files: File_[]) => void} draft
 */
export async function takeBack(talk, one, draft) {
  await talk.sending;
  const id = state.session;
  if (id === null || one.turn === null) return;
  try {
    await api(sessionPath(id, `/waiting/${one.turn}`), { method: "DELETE" });
    talk.waiting.remove(one);
    const files = one.files.filter((file) => file.open);
    draft(one.text, files);
    if (files.length < one.files.length) toast("Taken back. Its files must be attached again.");
    else talk.log.speak("Taken back: your words are in the box.");
  } catch (error) {
    toast(error instanceof ApiError && error.status === 409 ? "It has begun already. Esc stops it." : explain(error), "error");
  }
}

/** The newest message of the user is sent again in the place of its answer. @param {Conversation} talk */
export async function retry(talk) {
  if (state.running) return;
  await talk.settled;
  const said = talk.log.items.findLast((one) => one instanceof Said);
  if (!(said instanceof Said)) return;
  const { text, files } = said;
  try {
    const id = state.session;
    if (id !== null && said.seq !== null) {
      await api(sessionPath(id, "/rewind"), { method: "POST", body: { before: said.seq } });
      await talk.open(id);
    } else {
      for (const one of talk.log.items.splice(talk.log.items.indexOf(said))) one.element.remove(); // it never reached the server
    }
    await send(talk, text, files);
  } catch (error) {
    toast(explain(error), "error");
  }
}

/** Take a message and all after it back. @param {Conversation} talk @param {Said} said @param {(text: string, files: File_[]) => void} draft */
export async function rewind(talk, said, draft) {
  if (state.running) return;
  await talk.settled;
  const id = state.session;
  if (id === null || said.seq === null) return;
  const words = "This message and everything after it leave the conversation. Your message comes back into the box, so that you can change it.";
  if (!(await confirm("Rewind to here?", words, "Rewind"))) return;
  try {
    await api(sessionPath(id, "/rewind"), { method: "POST", body: { before: said.seq } });
    await talk.open(id);
    draft(said.text, said.files);
  } catch (error) {
    toast(explain(error), "error");
  }
}

/**
 * Make a new conversation of what came up to a message, and open it.
 * @param {string} id @param {number | null} at the last message that is kept; null: all of them
 */
export async function fork(id, at) {
  try {
    const made = await api(sessionPath(id, "/fork"), { method: "POST", body: { at } });
    location.hash = `#/s/${encodeURIComponent(made.id)}`;
    toast("A new conversation, with everything up to here. The old one stays as it is.");
  } catch (error) {
    toast(explain(error), "error");
  }
}

/** Let the user change a message where it stands, and send it again in a fork. @param {Conversation} talk @param {Said} said */
export function edit(talk, said) {
  if (said.element.querySelector(".editing") || state.running) return;
  const box = el("textarea", { rows: 3, "aria-label": "Change your message" });
  box.value = said.text;
  const leave = () => {
    form.remove();
    said.element.classList.remove("is-editing");
    said.element.querySelector("button")?.focus();
  };
  const form = el("form", { class: "editing" }, box,
    el("div", { class: "editing-end" },
      el("span", { class: "note", text: "It goes on in a new conversation; this one stays as it is." }),
      el("button", { type: "button", click: leave }, "Cancel"),
      el("button", { type: "submit", class: "primary" }, icon("up"), "Send")));
  form.addEventListener("submit", (/** @type {Event} */ event) => {
    event.preventDefault();
    const text = box.value.trim();
    if (text || said.files.length) resend(talk, said, text).catch((error) => toast(explain(error), "error"));
  });
  box.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      leave();
    } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  said.element.classList.add("is-editing");
  said.element.append(form);
  box.focus();
  box.setSelectionRange(box.value.length, box.value.length);
}

/** @param {Conversation} talk @param {Said} said @param {string} text */
async function resend(talk, said, text) {
  await talk.settled;
  const id = state.session;
  if (id === null || said.seq === null) throw new ApiError(0, "Unreachable", "This message has not reached the server yet.");
  const made = await api(sessionPath(id, "/fork"), { method: "POST", body: { at: said.seq - 1 } });
  history.pushState(null, "", `#/s/${encodeURIComponent(made.id)}`);
  await talk.open(made.id);
  await send(talk, text, said.files);
}
