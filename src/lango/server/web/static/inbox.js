/** Show what waits for the user in any conversation: a badge with its number, and a dialog to answer it. */

import { api, ApiError, describeError, request, sessionHash } from "./base/api.js";
import { approvalBox } from "./conversation/approval-box.js";
import { CredentialCard } from "./conversation/credential-card.js";
import { InputCard } from "./conversation/input-card.js";
import { byId, el, icon, formatTime, toast } from "./base/dom.js";
import { Draft } from "./base/drafts.js";
import { on } from "./base/state.js";

/**
 * @typedef {{kind: string, id: string, session_id: string, title: string, call_id: string, waiting_since: string, expires_at: string | null,
 *   answer: {path: string}, tool: string, arguments: any, message: string, schema: any, payload: any, auth_url: string, scopes: string[], credential_kind: string, scheme: string}} Item
 */

const MAX_SHOWN = 100;
const NOTHING = "Nothing is waiting for you.";

let dialog = /** @type {any} */ (null);
let reading = /** @type {AbortController | null} */ (null);
/** @type {Item[]} */ let items = [];
/** the cards that are shown, by item: what is being typed into them stays */ const cards = /** @type {Map<string, HTMLElement>} */ (new Map());

async function refresh() {
  reading?.abort();
  const { signal } = (reading = new AbortController());
  try {
    const page = await api(`/v1/inbox?limit=${MAX_SHOWN}`, { signal });
    const waiting = new Set(page.items.map((/** @type {Item} */ item) => item.id));
    if (!page.next_cursor) for (const item of items) if (!waiting.has(item.id)) draftOf(item).drop();
    items = page.items;
    const count = `${items.length}${page.next_cursor ? "+" : ""}`;
    byId("inbox-count").textContent = count;
    byId("inbox-count").hidden = !items.length;
    byId("inbox").setAttribute("aria-label", items.length ? `Inbox: ${count} waiting` : "Inbox");
    drawItems();
  } catch {
    // the next change reads it again
  }
}

function open() {
  if (dialog) return;
  const list = el("ul", { class: "inbox-items", "aria-label": "Waiting for you" });
  dialog = el("dialog", { class: "dialog wide-dialog", "aria-labelledby": "inbox-title" },
    el("h2", { id: "inbox-title", text: "Inbox" }), list,
    el("div", { class: "dialog-end" }, el("button", { type: "button", click: () => dialog.close() }, "Close")));
  dialog.addEventListener("close", () => {
    dialog.remove();
    dialog = null;
    cards.clear();
    byId("inbox").focus();
  });
  document.body.append(dialog);
  dialog.showModal();
  drawItems();
  void refresh();
}

function drawItems() {
  const list = dialog?.querySelector(".inbox-items");
  if (!list) return;
  const known = new Set(items.map((item) => item.id));
  for (const [id, card] of cards) {
    if (known.has(id)) continue;
    card.remove();
    cards.delete(id);
  }
  list.querySelector(".note.empty")?.remove();
  items.forEach((item, index) => {
    const card = cards.get(item.id) ?? itemCard(item);
    cards.set(item.id, card);
    if (list.children[index] !== card) list.insertBefore(card, list.children[index] ?? null);
  });
  if (!items.length) list.append(el("li", { class: "note empty", text: NOTHING }));
}

/** @param {Item} item */
function itemCard(item) {
  const title = item.title || "Untitled conversation";
  return el("li", { class: "inbox-item", "data-kind": item.kind },
    el("p", { class: "inbox-head" },
      el("a", { href: sessionHash(item.session_id), click: () => dialog?.close() }, title),
      el("span", { class: "note", text: `since ${formatTime(item.waiting_since)}` })),
    content(item));
}

/** @param {Item} item @returns {HTMLElement} */
function content(item) {
  switch (item.kind) {
    case "approval": return approvalBox(item.session_id, item.tool, item, async (decision) => {
      const problem = await send(item, decision);
      if (!problem) return;
      toast(problem, "error");
      cards.get(item.id)?.remove(); // another one, whose buttons can be used
      cards.delete(item.id);
      drawItems();
    });
    case "input": return inputCard(item);
    case "result": return resultForm(item);
    case "credential": return credentialCard(item);
    default: return el("p", { class: "note", text: "Open the conversation to answer." });
  }
}

/** @param {Item} item */
function inputCard(item) {
  const card = new InputCard(item.session_id, item.call_id, item);
  const skip = async () => {
    if (item.tool_call_id) return void send(item, { decline: true });
    await api(`/v1/sessions/${encodeURIComponent(item.session_id)}/cancel`, { method: "POST" }).catch((error) => toast(describeError(error), "error"));
    await refresh();
  };
  card.open(item, (value) => send(item, { value }), () => void skip());
  return card.element;
}

/** @param {Item} item */
function resultForm(item) {
  const area = el("textarea", { rows: "3", "aria-label": `Result of ${item.tool} as JSON`, placeholder: '{"status": "done"}' });
  const more = el("input", { type: "checkbox" });
  const problem = el("p", { class: "input-problem", role: "alert" });
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    let result;
    try {
      result = JSON.parse(area.value);
    } catch {
      result = null;
    }
    if (result === null || typeof result !== "object" || Array.isArray(result)) return void (problem.textContent = "A result is a JSON object.");
    problem.textContent = await send(item, { result, will_continue: more.checked });
    if (problem.textContent) return;
    area.value = "";
    draftOf(item).drop();
  };
  const form = el("form", { class: "input-card input-form", submit, novalidate: true, "aria-label": `Result of ${item.tool}` },
    el("p", {}, el("strong", { text: item.tool }), " waits for its result."),
    el("pre", { tabindex: "0", "aria-label": "Arguments" }, JSON.stringify(item.arguments ?? {}, null, 2)),
    area, el("label", { class: "check" }, more, "More results follow"), problem,
    el("div", { class: "approval-buttons" }, el("button", { type: "submit", class: "primary" }, icon("check"), "Deliver")));
  draftOf(item).attach(form);
  return form;
}

/** @param {Item} item */
function draftOf(item) {
  return new Draft(item.session_id, item.call_id);
}

/** @param {Item} item */
function credentialCard(item) {
  const card = new CredentialCard(item.call_id, item);
  const skip = async () => {
    await api(item.answer.path, { method: "DELETE" }).catch((error) => toast(describeError(error), "error"));
    await refresh();
  };
  card.open({ ...item, kind: item.credential_kind }, (value) => send(item, { value }), () => void skip());
  return card.element;
}

/** Send an answer; return why it was refused. The turn goes on by itself. @param {Item} item @param {any} body @returns {Promise<string>} */
async function send(item, body) {
  try {
    const response = await request(item.answer.path, { method: "POST", body });
    await response.body?.cancel();
    await refresh();
    return "";
  } catch (error) {
    if (error instanceof ApiError && error.status === 409) await refresh(); // answered elsewhere, or expired
    return describeError(error);
  }
}

export function setUpInbox() {
  byId("inbox").prepend(icon("inbox"));
  byId("inbox").addEventListener("click", open);
  let timer = 0;
  on("inbox", () => {
    clearTimeout(timer);
    timer = setTimeout(refresh, 100);
  });
}
