/** Show the list of conversations, search it, and rename, fork, export, save as a test case or delete a conversation. */

import { addressOf, api, ApiError, describeError, request, sessionHash, sessionPath } from "./base/api.js";
import { fork } from "./conversation/actions.js";
import { askText, confirm, download, showMenu } from "./base/dialogs.js";
import { byId, el, icon, iconButton, formatTime, toast, withErrorToast } from "./base/dom.js";
import { on, state, emit } from "./base/state.js";

/** @typedef {{id: string, title?: string, updated_at: string, messages: number, forked_from?: {id: string, seq: number} | null}} Session */

const PAGE_SIZE = 40;
const DAY_MS = 86_400_000;

/** @type {Session[]} */ let sessions = [];
/** @type {string | null} */ let nextCursor = null;
let reading = /** @type {AbortController | null} */ (null);
let query = "";

const endObserver = new IntersectionObserver((entries) => {
  if (entries.some((entry) => entry.isIntersecting) && nextCursor !== null && !query) void read(nextCursor);
});

/** @param {Session} session */
export function titleOf(session) {
  return session.title || "Untitled conversation";
}

/** @param {string} id @returns {Session | undefined} */
export function findSession(id) {
  return sessions.find((session) => session.id === id);
}

/** Read the title of the open conversation, if the list is not loaded that far. @param {string} id */
export async function readTitle(id) {
  if (nextCursor === null || findSession(id)) return;
  const session = await api(sessionPath(id)).catch(() => null);
  if (session) emit("title", { id, title: titleOf(session) });
}

/** Read the list again, as far as it was loaded. */
export async function refresh() {
  if (!query) await read(null);
}

/** @param {string | null} cursor */
async function read(cursor) {
  reading?.abort();
  const { signal } = (reading = new AbortController());
  const limit = cursor ? PAGE_SIZE : Math.min(200, Math.max(PAGE_SIZE, sessions.length));
  try {
    const page = await api(`/v1/sessions?limit=${limit}${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`, { signal });
    sessions = cursor ? [...sessions, ...page.sessions] : page.sessions;
    nextCursor = page.next_cursor;
    if (!query) draw();
    const current = state.session && findSession(state.session);
    if (current) emit("title", { id: current.id, title: titleOf(current) });
    else if (state.session) void readTitle(state.session);
  } catch (error) {
    if (!signal.aborted && !sessions.length) showFailure(error);
  }
}

/** @param {unknown} error */
function showFailure(error) {
  byId("list").replaceChildren(el("p", { class: "note", text: describeError(error) }), el("button", { type: "button", class: "quiet", click: refresh }, "Try again"));
}

function draw() {
  const list = byId("list");
  const focused = list.contains(document.activeElement) ? /** @type {HTMLElement} */ (document.activeElement).dataset.id : undefined;
  if (!sessions.length) return list.replaceChildren(el("p", { class: "note", text: "Your conversations appear here." }));
  /** @type {Map<string, Session[]>} */ const groups = new Map();
  for (const session of sessions) groups.set(day(session.updated_at), [...(groups.get(day(session.updated_at)) ?? []), session]);
  const parts = [...groups].map(([name, group]) => el("section", { "aria-label": name },
    el("h2", { class: "day", text: name }), el("ul", {}, ...group.map(row))));
  const wanted = [...parts, el("div", { class: "list-end" })];
  // replacing an equal list would lose a click that is in progress
  const isSame = wanted.length === list.children.length && wanted.every((part, index) => part.isEqualNode(list.children[index]));
  if (!isSame) list.replaceChildren(...wanted);
  endObserver.disconnect();
  if (nextCursor !== null) endObserver.observe(/** @type {Element} */ (list.lastElementChild));
  if (focused) list.querySelector(`a[data-id="${CSS.escape(focused)}"]`)?.focus();
}

/** @param {string} time */
function day(time) {
  const days = Math.floor((new Date().setHours(0, 0, 0, 0) - new Date(time).getTime()) / DAY_MS) + 1;
  if (days <= 0) return "Today";
  if (days === 1) return "Yesterday";
  return days < 7 ? "This week" : days < 31 ? "This month" : "Older";
}

/** @param {Session} session */
function row(session) {
  const current = session.id === state.session;
  const title = titleOf(session);
  return el("li", { class: current ? "row current" : "row" },
    el("a", { href: sessionHash(session.id), "data-id": session.id, title: `${title}\n${formatTime(session.updated_at)}`, "aria-current": current ? "page" : null },
      session.forked_from && icon("fork"), el("span", { text: title })),
    iconButton("more", `Actions for ${title}`, (event) => openMenu(/** @type {any} */ (event.currentTarget), session.id), { "aria-haspopup": "menu", title: null }));
}

/** Compare the first turn of a fork with that of its original. @param {string} id @param {{id: string, seq: number}} origin */
async function compare(id, origin) {
  await withErrorToast(async () => (await import("./panel/compare.js")).compareWithOrigin(id, origin));
}

/** @param {HTMLElement} button @param {string} id */
function openMenu(button, id) {
  const origin = findSession(id)?.forked_from;
  showMenu(button, [
    { label: "Rename", shape: "edit", onClick: () => rename(id) },
    { label: "Fork", shape: "fork", onClick: () => fork(id, null) },
    { label: "Share …", shape: "load", onClick: () => showMenu(button, [
      { label: "Web page (HTML)", shape: "file", onClick: () => save(id, "/export?format=html", ".html") },
      { label: "Markdown", shape: "file", onClick: () => save(id, "/export?format=markdown", ".md") },
    ]) },
    { label: "Export", shape: "save", onClick: () => save(id, "/export", ".jsonl") },
    { label: "Save as test case", shape: "check", onClick: () => (state.about.is_operator ? saveCase(id) : save(id, "/evalset", ".evalset.json")) },
    ...(origin ? [{ label: "Compare with the original", shape: /** @type {const} */ ("trace"), onClick: () => compare(id, origin) }] : []),
    { label: "Delete", shape: "trash", danger: true, onClick: () => deleteSession(id) },
  ]);
}

/** @param {string} id */
async function rename(id) {
  const session = findSession(id);
  const title = await askText("Rename the conversation", "Title", session ? titleOf(session) : state.title);
  if (!title) return;
  await withErrorToast(async () => {
    await api(sessionPath(id), { method: "PATCH", body: { title } });
    await refresh();
  });
}

/** Add a conversation to a set of test cases on the server. @param {string} id */
async function saveCase(id) {
  await withErrorToast(async () => (await import("./evals/save-case.js")).saveCase(id, findSession(id)?.title ?? state.title, () => save(id, "/evalset", ".evalset.json")));
}

/** @param {string} id @param {string} path @param {string} extension */
async function save(id, path, extension) {
  await withErrorToast(async () => {
    const response = await request(sessionPath(id, path));
    download(await response.blob(), `${id.replace(/[^\w.-]+/g, "_").slice(0, 80)}${extension}`);
  });
}

/** @param {string} id */
async function deleteSession(id) {
  const session = findSession(id);
  const explanation = `“${session ? titleOf(session) : state.title}” and everything in it will be deleted permanently.`;
  if (!(await confirm("Delete the conversation?", explanation, "Delete"))) return;
  await withErrorToast(async () => {
    await api(sessionPath(id), { method: "DELETE" });
    if (state.session === id) location.hash = "#/";
    await refresh();
    toast("Deleted.");
  });
}

/** @param {File} file */
async function importFile(file) {
  const options = { method: "POST", raw: file, type: "application/x-ndjson" };
  await withErrorToast(async () => {
    const imported = await api("/v1/sessions/import", options).catch((error) => {
      if (!(error instanceof ApiError) || error.type !== "SessionExists") throw error;
      toast("That conversation exists already: this is a copy of it.");
      return api(`/v1/sessions/import?id=${Date.now().toString(36)}${Math.random().toString(36).slice(2)}`, options);
    });
    location.hash = sessionHash(imported.id);
    await refresh();
  });
}

// -- search -------------------------------------------------------------------------------------------------------------

async function search() {
  reading?.abort();
  const { signal } = (reading = new AbortController());
  try {
    const { hits } = await api(`/v1/search?q=${encodeURIComponent(query)}&limit=30&all_agents=true`, { signal });
    const list = byId("list");
    if (!hits.length) return list.replaceChildren(el("p", { class: "note", role: "status", text: `Nothing found for “${query}”.` }));
    list.replaceChildren(
      el("p", { class: "visually-hidden", role: "status", text: `${hits.length} found` }),
      el("ul", { "aria-label": "Found" }, ...hits.map(hitRow)));
  } catch (error) {
    if (!signal.aborted) showFailure(error);
  }
}

/** @param {{session_id: string, agent: string, title: string, seq: number, role: string, created_at: string, text: string, marks: [number, number][]}} hit */
function hitRow(hit) {
  return el("li", { class: "hit" }, el("a", { href: addressOf(hit.agent, hit.session_id, hit.seq) },
    el("strong", { text: hit.title || "Untitled conversation" }),
    el("span", { class: "hit-text" }, ...highlightMarks([...hit.text], hit.marks)),
    el("small", { text: [hit.role === "user" ? "you" : hit.role, state.about.agents?.length > 1 && hit.agent, formatTime(hit.created_at)].filter(Boolean).join(" · ") })));
}

/** @param {string[]} characters the text by code points, as the server counts @param {[number, number][]} marks */
function highlightMarks(characters, marks) {
  const parts = /** @type {(Node | string)[]} */ ([]);
  let at = 0;
  for (const [start, end] of marks ?? []) {
    parts.push(characters.slice(at, start).join(""), el("mark", { text: characters.slice(start, end).join("") }));
    at = end;
  }
  return [...parts, characters.slice(at).join("")].filter((part) => part !== "");
}

/** @param {() => void} startNewConversation */
export function setUpSessionList(startNewConversation) {
  const box = byId("search");
  let searchTimer = 0;
  box.addEventListener("input", () => {
    clearTimeout(searchTimer);
    query = box.value.trim();
    if (query.length < 2) {
      query = "";
      draw();
      return;
    }
    searchTimer = setTimeout(search, 200);
  });
  box.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Escape" || !box.value) return;
    event.stopPropagation();
    box.value = query = "";
    draw();
  });
  byId("new").prepend(icon("plus"));
  byId("new").addEventListener("click", startNewConversation);
  byId("import").prepend(icon("load"));
  byId("import").addEventListener("click", () => byId("import-file").click());
  byId("import-file").addEventListener("change", () => {
    const [file] = byId("import-file").files;
    byId("import-file").value = "";
    if (file) void importFile(file);
  });
  byId("session-menu").append(icon("more"));
  byId("session-menu").addEventListener("click", () => state.session && openMenu(byId("session-menu"), state.session));
  let refreshTimer = 0;
  on("sessions", (/** @type {Session | null} */ added) => {
    if (added && !findSession(added.id)) {
      reading?.abort(); // the list on its way may have been read before
      sessions = [added, ...sessions];
    }
    clearTimeout(refreshTimer);
    refreshTimer = setTimeout(refresh, 150);
  });
  on("session", () => (query ? undefined : draw()));
  on("turn", ({ running }) => void (running ? setTimeout(refresh, 300) : refresh()));
}
