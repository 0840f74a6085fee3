/** The list of conversations: pages of it, search, and what can be done with one. */

import { api, ApiError, explain, request, sessionPath } from "./base/api.js";
import { fork } from "./conversation/actions.js";
import { askText, confirm, download, showMenu } from "./base/dialogs.js";
import { byId, el, icon, moment, toast } from "./base/dom.js";
import { on, state, tell } from "./base/state.js";

/** @typedef {{id: string, title?: string, updated_at: string, messages: number, forked_from?: {id: string, seq: number} | null}} Session */

const PAGE = 40;
const DAY_MS = 86_400_000;

/** @type {Session[]} */ let shown = [];
/** @type {string | null} */ let next = null;
let reading = /** @type {AbortController | null} */ (null);
let query = "";

const watched = new IntersectionObserver((entries) => {
  if (entries.some((one) => one.isIntersecting) && next !== null && !query) void read(next);
});

/** @param {Session} session */
export function titleOf(session) {
  return session.title || "Untitled conversation";
}

/** @param {string} id @returns {Session | undefined} */
export function known(id) {
  return shown.find((one) => one.id === id);
}

/** Read the list anew, as far as it was read. */
export async function refresh() {
  if (!query) await read(null);
}

/** @param {string | null} cursor */
async function read(cursor) {
  reading?.abort();
  const { signal } = (reading = new AbortController());
  const limit = cursor ? PAGE : Math.min(200, Math.max(PAGE, shown.length));
  try {
    const page = await api(`/v1/sessions?limit=${limit}${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`, { signal });
    shown = cursor ? [...shown, ...page.sessions] : page.sessions;
    next = page.next_cursor;
    if (!query) draw();
    const now = state.session && known(state.session);
    if (now) tell("title", { id: now.id, title: titleOf(now) });
  } catch (error) {
    if (!signal.aborted && !shown.length) fail(error);
  }
}

/** @param {unknown} error */
function fail(error) {
  byId("list").replaceChildren(el("p", { class: "note", text: explain(error) }), el("button", { type: "button", class: "quiet", click: refresh }, "Try again"));
}

function draw() {
  const list = byId("list");
  const focused = list.contains(document.activeElement) ? /** @type {HTMLElement} */ (document.activeElement).dataset.id : undefined;
  if (!shown.length) return list.replaceChildren(el("p", { class: "note", text: "Your conversations appear here." }));
  const groups = Map.groupBy ? Map.groupBy(shown, (one) => day(one.updated_at)) : grouped();
  const parts = [...groups].map(([name, sessions]) => el("section", { "aria-label": name },
    el("h2", { class: "day", text: name }), el("ul", {}, ...sessions.map(row))));
  const wanted = [...parts, el("div", { class: "end" })];
  // what stands there stays where it is the same: a click that is just being made on it would be lost
  const same = wanted.length === list.children.length && wanted.every((one, at) => one.isEqualNode(list.children[at]));
  if (!same) list.replaceChildren(...wanted);
  watched.disconnect();
  if (next !== null) watched.observe(/** @type {Element} */ (list.lastElementChild));
  if (focused) list.querySelector(`a[data-id="${CSS.escape(focused)}"]`)?.focus();
}

function grouped() {
  /** @type {Map<string, Session[]>} */ const groups = new Map();
  for (const one of shown) groups.set(day(one.updated_at), [...(groups.get(day(one.updated_at)) ?? []), one]);
  return groups;
}

/** @param {string} when */
function day(when) {
  const days = Math.floor((new Date().setHours(0, 0, 0, 0) - new Date(when).getTime()) / DAY_MS) + 1;
  if (days <= 0) return "Today";
  if (days === 1) return "Yesterday";
  return days < 7 ? "This week" : days < 31 ? "This month" : "Older";
}

/** @param {Session} session */
function row(session) {
  const now = session.id === state.session;
  const title = titleOf(session);
  return el("li", { class: now ? "row now" : "row" },
    el("a", { href: `#/s/${encodeURIComponent(session.id)}`, "data-id": session.id, title: `${title}\n${moment(session.updated_at)}`, "aria-current": now ? "page" : null },
      session.forked_from && icon("fork"), el("span", { text: title })),
    el("button", {
      type: "button", class: "icon small", "aria-label": `Actions for ${title}`, "aria-haspopup": "menu",
      click: (/** @type {Event} */ event) => menuFor(/** @type {any} */ (event.currentTarget), session.id),
    }, icon("more")));
}

/** What can be done with a conversation. @param {HTMLElement} button @param {string} id */
export function menuFor(button, id) {
  showMenu(button, [
    { label: "Rename", shape: "edit", then: () => rename(id) },
    { label: "Fork", shape: "fork", then: () => fork(id, null) },
    { label: "Export", shape: "save", then: () => save(id) },
    { label: "Delete", shape: "trash", danger: true, then: () => remove(id) },
  ]);
}

/** @param {string} id */
async function rename(id) {
  const session = known(id);
  const title = await askText("Rename the conversation", "Title", session ? titleOf(session) : state.title);
  if (!title) return;
  await trying(async () => {
    await api(sessionPath(id), { method: "PATCH", body: { title } });
    await refresh();
  });
}

/** @param {string} id */
async function save(id) {
  await trying(async () => {
    const response = await request(sessionPath(id, "/export"));
    download(await response.blob(), `${id.replace(/[^\w.-]+/g, "_").slice(0, 80)}.jsonl`);
  });
}

/** @param {string} id */
async function remove(id) {
  const session = known(id);
  const words = `“${session ? titleOf(session) : state.title}” and everything in it is deleted for good.`;
  if (!(await confirm("Delete the conversation?", words, "Delete"))) return;
  await trying(async () => {
    await api(sessionPath(id), { method: "DELETE" });
    if (state.session === id) location.hash = "#/";
    await refresh();
    toast("Deleted.");
  });
}

/** @param {File} file */
async function load(file) {
  const sent = { method: "POST", raw: file, type: "application/x-ndjson" };
  await trying(async () => {
    const made = await api("/v1/sessions/import", sent).catch((error) => {
      if (!(error instanceof ApiError) || error.type !== "SessionExists") throw error;
      toast("That conversation is here already: this is a copy of it.");
      return api(`/v1/sessions/import?id=${Date.now().toString(36)}${Math.random().toString(36).slice(2)}`, sent);
    });
    location.hash = `#/s/${encodeURIComponent(made.id)}`;
    await refresh();
  });
}

/** @param {() => Promise<void>} act */
async function trying(act) {
  try {
    await act();
  } catch (error) {
    toast(explain(error), "error");
  }
}

// -- search -------------------------------------------------------------------------------------------------------------

async function search() {
  reading?.abort();
  const { signal } = (reading = new AbortController());
  try {
    const { hits } = await api(`/v1/search?q=${encodeURIComponent(query)}&limit=30`, { signal });
    const list = byId("list");
    if (!hits.length) return list.replaceChildren(el("p", { class: "note", role: "status", text: `Nothing found for “${query}”.` }));
    list.replaceChildren(
      el("p", { class: "hidden", role: "status", text: `${hits.length} found` }),
      el("ul", { "aria-label": "Found" }, ...hits.map(hitRow)));
  } catch (error) {
    if (!signal.aborted) fail(error);
  }
}

/** @param {{session_id: string, title: string, seq: number, role: string, created_at: string, text: string, marks: [number, number][]}} hit */
function hitRow(hit) {
  return el("li", { class: "hit" }, el("a", { href: `#/s/${encodeURIComponent(hit.session_id)}${hit.seq ? `/${hit.seq}` : ""}` },
    el("strong", { text: hit.title || "Untitled conversation" }),
    el("span", { class: "hit-text" }, ...marked([...hit.text], hit.marks)),
    el("small", { text: `${hit.role === "user" ? "you" : hit.role} · ${moment(hit.created_at)}` })));
}

/** @param {string[]} letters the text by code points, as the server counts @param {[number, number][]} marks */
function marked(letters, marks) {
  const parts = /** @type {(Node | string)[]} */ ([]);
  let at = 0;
  for (const [start, end] of marks ?? []) {
    parts.push(letters.slice(at, start).join(""), el("mark", { text: letters.slice(start, end).join("") }));
    at = end;
  }
  return [...parts, letters.slice(at).join("")].filter((one) => one !== "");
}

/** @param {() => void} begin */
export function setUpSessions(begin) {
  const box = byId("search");
  let timer = 0;
  box.addEventListener("input", () => {
    clearTimeout(timer);
    query = box.value.trim();
    if (query.length < 2) {
      query = "";
      draw();
      return;
    }
    timer = setTimeout(search, 200);
  });
  box.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Escape" || !box.value) return;
    event.stopPropagation();
    box.value = query = "";
    draw();
  });
  byId("new").prepend(icon("plus"));
  byId("new").addEventListener("click", begin);
  byId("import").prepend(icon("load"));
  byId("import").addEventListener("click", () => byId("import-file").click());
  byId("import-file").addEventListener("change", () => {
    const [file] = byId("import-file").files;
    byId("import-file").value = "";
    if (file) void load(file);
  });
  byId("session-menu").append(icon("more"));
  byId("session-menu").addEventListener("click", () => state.session && menuFor(byId("session-menu"), state.session));
  let soon = 0;
  on("sessions", () => {
    clearTimeout(soon);
    soon = setTimeout(refresh, 150);
  });
  on("session", () => (query ? undefined : draw()));
  on("turn", ({ running }) => void (running ? setTimeout(refresh, 300) : refresh()));
}
