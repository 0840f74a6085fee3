/** Send, stop, retry, edit, rewind and fork. */

import { api, ApiError, describeError, sessionHash, sessionPath } from "../base/api.js";
import { confirm } from "../base/dialogs.js";
import { el, icon, toast, withErrorToast } from "../base/dom.js";
import { state, emit } from "../base/state.js";
import { storePendingOptions } from "../session-options.js";

/** @typedef {import("./conversation.js").Conversation} Conversation */
/** @typedef {import("./user-message.js").UserMessage} UserMessage */
/** @typedef {{name: string, mime_type: string, bytes: number, open?: () => Promise<Blob>}} AttachedFile */

let previousSend = /** @type {Promise<any>} */ (Promise.resolve()); // messages are sent in the order in which they were written

/**
 * Send a message. A new conversation is stored first and its id put into the page's address.
 * @param {Conversation} conversation @param {string} text @param {AttachedFile[]} files @param {string} [whenBusy] what happens to it while an answer runs @returns {Promise<boolean>} whether it was sent
 */
export async function send(conversation, text, files, whenBusy = "wait") {
  const ready = previousSend.then(async () => {
    const attachments = await Promise.all(files.map(encodeFile));
    const id = state.session ?? (await createSession(conversation));
    const body = { text, ...(attachments.length && { attachments }), ...(whenBusy !== "wait" && { when_busy: whenBusy }) };
    return { path: sessionPath(id, "/messages"), body, key: crypto.randomUUID?.() ?? String(Math.random()) };
  });
  previousSend = ready.catch(() => {});
  const message = { turn: null, text, files, at: new Date().toISOString(), replaces: whenBusy === "rollback" };
  return (await withErrorToast(async () => conversation.send(message, await ready))) ?? false;
}

/** @param {Conversation} conversation */
async function createSession(conversation) {
  const { id } = await api("/v1/sessions", { method: "POST", body: { state: state.initial } });
  state.initial = {};
  await storePendingOptions(id);
  state.session = id;
  conversation.followCreated(id);
  history.pushState(null, "", sessionHash(id));
  emit("session", id);
  return id;
}

/** @param {AttachedFile} file */
async function encodeFile(file) {
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

/** Stop the answer; the part that arrived stays. */
export async function stop() {
  const { session, running } = state;
  if (session && running) await withErrorToast(() => api(sessionPath(session, "/cancel"), { method: "POST" }));
}

/**
 * Withdraw a queued message and put it back into the composer, before the text that is there.
 * @param {Conversation} conversation @param {import("./queued-messages.js").QueuedMessage} message @param {(text: string, files: AttachedFile[]) => void} draft
 */
export async function withdrawQueued(conversation, message, draft) {
  await conversation.sending;
  const id = state.session;
  if (id === null || message.turn === null) return;
  try {
    await api(sessionPath(id, `/waiting/${message.turn}`), { method: "DELETE" });
    conversation.queue.remove(message);
    const files = message.files.filter((file) => file.open);
    draft(message.text, files);
    if (files.length < message.files.length) toast("Message withdrawn. Its files must be attached again.");
    else conversation.transcript.announce("Message withdrawn: its text is in the message box.");
  } catch (error) {
    toast(error instanceof ApiError && error.status === 409 ? "It has started already. Esc stops it." : describeError(error), "error");
  }
}

/** Replace the newest answer: send the user's newest message again. @param {Conversation} conversation */
export async function retry(conversation) {
  if (state.running) return;
  await conversation.synced;
  const message = conversation.transcript.lastUserMessage();
  if (!message) return;
  const { text, files, seq } = message;
  await withErrorToast(async () => {
    if (state.session !== null && seq !== null) await rewindTo(conversation, state.session, seq);
    else conversation.transcript.removeFrom(message); // it never reached the server
    await send(conversation, text, files);
  });
}

/** @param {Conversation} conversation @param {string} id @param {number} before */
async function rewindTo(conversation, id, before) {
  await api(sessionPath(id, "/rewind"), { method: "POST", body: { before } });
  await conversation.open(id);
}

/** Remove a message and all after it from the conversation, once the user confirms. @param {Conversation} conversation @param {UserMessage} message @param {(text: string, files: AttachedFile[]) => void} draft */
export async function rewind(conversation, message, draft) {
  if (state.running) return;
  await conversation.synced;
  const { session: id } = state;
  const { seq } = message;
  if (id === null || seq === null) return;
  const explanation = "This message and everything after it are removed from the conversation. Your message returns to the message box, so that you can change it.";
  if (!(await confirm("Rewind to here?", explanation, "Rewind"))) return;
  await withErrorToast(async () => {
    await rewindTo(conversation, id, seq);
    draft(message.text, message.files);
  });
}

/**
 * Fork a conversation at a message and open the fork.
 * @param {string} id @param {number | null} at the last message that is copied; null: all of them
 */
export async function fork(id, at) {
  await withErrorToast(async () => {
    const forked = await api(sessionPath(id, "/fork"), { method: "POST", body: { at } });
    emit("sessions", forked);
    location.hash = sessionHash(forked.id);
    toast("A new conversation, with everything up to here. The old one stays as it is.");
  });
}

/** Edit a message in place and send it again in a fork. @param {Conversation} conversation @param {UserMessage} message */
export function edit(conversation, message) {
  if (message.element.querySelector(".editing") || state.running) return;
  const input = el("textarea", { rows: 3, "aria-label": "Change your message" });
  input.value = message.text;
  const close = () => {
    form.remove();
    message.element.classList.remove("is-editing");
    message.element.querySelector("button")?.focus();
  };
  const form = el("form", { class: "editing" }, input,
    el("div", { class: "editing-end" },
      el("span", { class: "note", text: "The edited message continues in a new conversation; this one stays as it is." }),
      el("button", { type: "button", click: close }, "Cancel"),
      el("button", { type: "submit", class: "primary" }, icon("up"), "Send")));
  form.addEventListener("submit", (/** @type {Event} */ event) => {
    event.preventDefault();
    const text = input.value.trim();
    if (text || message.files.length) void withErrorToast(() => resend(conversation, message, text));
  });
  input.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      close();
    } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  message.element.classList.add("is-editing");
  message.element.append(form);
  input.focus();
  input.setSelectionRange(input.value.length, input.value.length);
}

/** @param {Conversation} conversation @param {UserMessage} message @param {string} text */
async function resend(conversation, message, text) {
  await conversation.synced;
  const id = state.session;
  if (id === null || message.seq === null) throw new ApiError(0, "Unreachable", "This message has not reached the server yet.");
  const forked = await api(sessionPath(id, "/fork"), { method: "POST", body: { at: message.seq - 1 } });
  emit("sessions", forked);
  history.pushState(null, "", sessionHash(forked.id));
  await conversation.open(forked.id);
  await send(conversation, text, message.files);
}
