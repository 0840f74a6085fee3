/** Show the state of the conversation, the user and the app, at any message, with what each event changed. */

import { api, sessionPath } from "../base/api.js";
import { el, formatTime, loadStylesheet, withErrorToast } from "../base/dom.js";
import { state } from "../base/state.js";
import { newValueForm, valueRow } from "./state-editor.js";

/**
 * @typedef {{scope: string, name: string, before: any, after: any}} ValueChange
 * @typedef {{seq: number, is_message: boolean, created_at: string, author: string, values: ValueChange[]}} Change
 * @typedef {{at: number | null, session: Record<string, any>, user: Record<string, any>, app: Record<string, any>, changes: Change[],
 *   all_changes: number, may_set_app: boolean}} State
 */

const SCOPES = /** @type {const} */ (["session", "user", "app"]);
const TITLES = { session: "This conversation", user: "All your conversations", app: "All users" };
const PREFIXES = { session: "", user: "user:", app: "app:" };
const STYLES = ["/page/trace.css", "/page/panel.css"];

let newestRequest = 0;
/** the message whose state is shown; null: the newest @type {{session: string | null, at: number | null}} */
let view = { session: null, at: null };

/** @param {HTMLElement} host @param {string | null} session */
export async function show(host, session) {
  const request = ++newestRequest;
  if (session === null) return showNew(host);
  if (view.session !== session) view = { session, at: null };
  const [found] = await Promise.all([
    /** @type {Promise<State>} */ (api(sessionPath(session, `/state${view.at === null ? "" : `?at=${view.at}`}`))), ...STYLES.map(loadStylesheet),
  ]);
  if (request !== newestRequest || host.querySelector("form :focus")) return; // a draft is not replaced
  draw(host, session, found);
}

/** Show what the next conversation begins with; it is stored with its first message. @param {HTMLElement} host */
async function showNew(host) {
  await Promise.all(STYLES.map(loadStylesheet));
  if (state.session !== null || host.querySelector("form :focus")) return;
  /** @param {string} name @param {any} value */
  const save = async (name, value) => {
    if (value === null) delete state.initial[name];
    else state.initial[name] = value;
    await showNew(host);
    return true;
  };
  host.replaceChildren(
    el("p", { class: "note", text: "The new conversation begins with these values." }),
    values("", "session", state.initial, save),
    newValueForm({ "": TITLES.session, "user:": TITLES.user }, save));
}

/** @param {HTMLElement} host @param {string} session @param {State} found */
function draw(host, session, found) {
  const goTo = (/** @type {number | null} */ at) => { view.at = at; void withErrorToast(() => show(host, session)); };
  const scopes = SCOPES.filter((scope) => scope !== "app" || found.may_set_app);
  /** @param {string} name with the prefix of its scope @param {any} value null deletes it */
  const save = async (name, value) => {
    if (!(await withErrorToast(() => api(sessionPath(session, "/state"), { method: "PATCH", body: { delta: { [name]: value } } })))) return false;
    await show(host, session);
    return true;
  };
  const isNow = found.at === null;
  host.replaceChildren(
    isNow ? el("p", { class: "note", text: "The state now." })
      : el("p", { class: "state-at" }, `The state at message ${found.at}.`, el("button", { type: "button", class: "quiet", click: () => goTo(null) }, "Show the state now")),
    ...scopes.map((scope) => values(TITLES[scope], scope, found[scope], isNow ? save : null)),
    ...(isNow ? [newValueForm(Object.fromEntries(scopes.map((scope) => [PREFIXES[scope], TITLES[scope]])), save)] : []),
    changeList(found, goTo));
}

/** @param {string} title @param {keyof typeof PREFIXES} scope @param {Record<string, any>} members @param {import("./state-editor.js").Save | null} save */
function values(title, scope, members, save) {
  const names = Object.keys(members).filter((name) => members[name] !== null).sort(); // null: deleted
  return el("section", { class: "state-values", "aria-label": title || "Values" }, title && el("h2", { text: title }),
    names.length ? el("dl", {}, ...names.map((name) => valueRow(name, members[name], save && ((value) => save(PREFIXES[scope] + name, value)))))
      : el("p", { class: "note", text: "No values." }));
}

/** @param {State} found @param {(at: number | null) => void} goTo */
function changeList(found, goTo) {
  if (!found.changes.length) return el("p", { class: "note", text: "No event changed the state." });
  const hidden = found.all_changes - found.changes.length;
  return el("section", {}, el("h2", { text: "Changes, the newest first" }),
    el("ol", { class: "state-changes" }, ...found.changes.toReversed().map((change) => {
      const place = change.seq === 0 ? "at the start" : `${change.is_message ? "" : "after "}message ${change.seq}`;
      return el("li", {},
        el("p", {}, el("button", { type: "button", class: "quiet", click: () => goTo(change.seq), title: "Show the state at this message" }, place),
          el("span", { class: "trace-facts", text: [change.author, formatTime(change.created_at)].filter(Boolean).join(" · ") })),
        ...change.values.map((one) => el("p", { class: "state-change" }, el("code", { text: `${PREFIXES[/** @type {keyof typeof PREFIXES} */ (one.scope)]}${one.name}` }),
          " ", one.before === null ? "" : el("del", { text: brief(one.before) }), one.before === null ? "" : " → ", one.after === null ? "deleted" : el("ins", { text: brief(one.after) }))));
    })),
    hidden > 0 && el("p", { class: "note", text: `${hidden.toLocaleString()} earlier changes are not shown.` }));
}

/** @param {any} value */
function brief(value) {
  const text = JSON.stringify(value) ?? "null";
  return text.length > 200 ? `${text.slice(0, 200)}…` : text;
}
