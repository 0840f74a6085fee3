/** Show what waits for the user in any conversation, with a badge, and the turns that failed; answer and retry them. */

import { addressOf, api, ApiError, describeError, request, sessionPath } from "./base/api.js";
import { WaitCard } from "./conversation/wait-card.js";
import { byId, el, icon, formatTime, toast } from "./base/dom.js";
import { Draft } from "./base/drafts.js";
import { on, state } from "./base/state.js";

/** @typedef {{title: string, agent: string, wait: import("./conversation/wait-card.js").Wait & {opened_at: string}}} Item */

const MAX_SHOWN = 100;
const MAX_FAILED = 20;
const RETRY_MS = 2_000;
const NOTHING = "Nothing is waiting for you.";

/** @typedef {{session_id: string, turn: number, since: string, message: string | null, can_retry: boolean, first_words: string}} FailedTurn */

let dialog = /** @type {any} */ (null);
let reading = /** @type {AbortController | null} */ (null);
/** @type {Item[]} */ let items = [];
/** the cards that are shown, by item: what is being typed into them stays */ const cards = /** @type {Map<string, HTMLElement>} */ (new Map());

async function refresh() {
  reading?.abort();
  const { signal } = (reading = new AbortController());
  try {
    const page = await api(`/v1/inbox?limit=${MAX_SHOWN}&all_agents=true`, { signal });
    const waiting = new Set(page.items.map(keyOf));
    if (!page.next_cursor) for (const item of items) if (!waiting.has(keyOf(item))) new Draft(item.wait.session_id, item.wait.id).drop();
    items = page.items;
    const count = `${items.length}${page.next_cursor ? "+" : ""}`;
    byId("inbox-count").textContent = count;
    byId("inbox-count").hidden = !items.length;
    byId("inbox").setAttribute("aria-label", items.length ? `Inbox: ${count} waiting` : "Inbox");
    drawItems();
  } catch (error) {
    const isBusy = error instanceof ApiError && (error.status >= 500 || error.status === 429);
    if (isBusy) setTimeout(() => signal.aborted || void refresh(), RETRY_MS); // otherwise the next change reads it again
  }
}

function open() {
  if (dialog) return;
  const list = el("ul", { class: "inbox-items", "aria-label": "Waiting for you" });
  dialog = el("dialog", { class: "dialog wide-dialog", "aria-labelledby": "inbox-title" },
    el("h2", { id: "inbox-title", text: "Inbox" }), list, el("section", { class: "failed-turns", "aria-label": "Failed turns" }),
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
  void showFailedTurns();
}

/** Show the newest turns that failed for good, of all agents; those that another turn followed cannot be run again. */
async function showFailedTurns() {
  /** @type {string[]} */ const agents = (state.about.agents ?? [state.about]).map((/** @type {{name: string}} */ one) => one.name);
  const pages = await Promise.all(agents.map((agent) => api(`/v1/turns?state=failed&limit=${MAX_FAILED}&agent=${encodeURIComponent(agent)}`)
    .then(({ turns }) => turns.map((/** @type {FailedTurn} */ turn) => ({ agent, turn })), () => []))); // a broken agent has no turns
  const failed = pages.flat().sort((one, other) => other.turn.since.localeCompare(one.turn.since)).slice(0, MAX_FAILED);
  dialog?.querySelector(".failed-turns").replaceChildren(...(failed.length ? [el("h3", { text: "Failed turns" }),
    el("ul", { class: "inbox-items" }, ...failed.map(({ agent, turn }) => failedTurn(agent, turn)))] : []));
}

/** @param {string} agent @param {FailedTurn} turn */
function failedTurn(agent, { session_id, turn, since, message, can_retry, first_words }) {
  const retry = async () => {
    await api(sessionPath(session_id, `/turns/${turn}/retry?agent=${encodeURIComponent(agent)}`), { method: "POST" })
      .then(() => toast("It runs again."), (error) => toast(describeError(error), "error"));
    await showFailedTurns();
  };
  return el("li", { class: "inbox-item" },
    el("p", { class: "inbox-head" },
      el("a", { href: addressOf(agent, session_id), click: () => dialog?.close() }, first_words || "Untitled conversation"),
      state.about.agents?.length > 1 && el("span", { class: "note", text: agent }),
      el("span", { class: "note", text: formatTime(since) }),
      can_retry && el("button", { type: "button", click: retry }, "Run again")),
    el("p", { class: "failed-message", text: message ?? "" }));
}

function drawItems() {
  const list = dialog?.querySelector(".inbox-items");
  if (!list) return;
  const known = new Set(items.map(keyOf));
  for (const [key, card] of cards) {
    if (known.has(key)) continue;
    card.remove();
    cards.delete(key);
  }
  list.querySelector(".note.empty")?.remove();
  items.forEach((item, index) => {
    const card = cards.get(keyOf(item)) ?? itemCard(item);
    cards.set(keyOf(item), card);
    if (list.children[index] !== card) list.insertBefore(card, list.children[index] ?? null);
  });
  if (!items.length) list.append(el("li", { class: "note empty", text: NOTHING }));
}

/** Identify an item. @param {Item} item */
function keyOf({ agent, wait }) {
  return JSON.stringify([agent, wait.session_id, wait.id]);
}

/** @param {Item} item */
function itemCard({ title, agent, wait }) {
  const card = new WaitCard({ ...wait, agent });
  card.open((answer) => send({ title, agent, wait }, answer), () => void skip(agent, wait));
  card.element.toggleAttribute("open", true);
  return el("li", { class: "inbox-item", "data-kind": wait.kind },
    el("p", { class: "inbox-head" },
      el("a", { href: addressOf(agent, wait.session_id), click: () => dialog?.close() }, title || "Untitled conversation"),
      state.about.agents?.length > 1 && el("span", { class: "note", text: agent }),
      el("span", { class: "note", text: `since ${formatTime(wait.opened_at)}` })),
    card.element);
}

/** Close the waits of a conversation without an answer. @param {string} agent @param {Item["wait"]} wait */
async function skip(agent, wait) {
  await api(sessionPath(wait.session_id, `/cancel?agent=${encodeURIComponent(agent)}`), { method: "POST" }).catch((error) => toast(describeError(error), "error"));
  await refresh();
}

/** Send an answer; return why it was refused. The turn continues by itself. @param {Item} item @param {any} body @returns {Promise<string>} */
async function send(item, body) {
  const { session_id, id } = item.wait;
  try {
    const response = await request(sessionPath(session_id, `/waits/${encodeURIComponent(id)}?agent=${encodeURIComponent(item.agent)}`), { method: "POST", body });
    await response.body?.cancel();
    cards.get(keyOf(item))?.remove();
    cards.delete(keyOf(item)); // a long-running tool may wait for another result
    new Draft(session_id, id).drop();
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
