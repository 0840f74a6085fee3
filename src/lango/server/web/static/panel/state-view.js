/** Show the state of the conversation, the user and the app, at any message, with what each event changed; set values. */

import { api, sessionPath } from "../base/api.js";
import { el, formatTime, loadStylesheet, toast, withErrorToast } from "../base/dom.js";
import { state } from "../base/state.js";

/**
 * @typedef {{scope: string, name: string, before: any, after: any}} ValueChange
 * @typedef {{seq: number, is_message: boolean, created_at: string, author: string, values: ValueChange[]}} Change
 * @typedef {{at: number | null, session: Record<string, any>, user: Record<string, any>, app: Record<string, any>, changes: Change[],
 *   all_changes: number, may_set_app: boolean}} State
 */

const SCOPES = /** @type {const} */ (["session", "user", "app"]);
const TITLES = { session: "This conversation", user: "All your conversations", app: "All users" };
const PREFIXES = { session: "", user: "user:", app: "app:" };
const SHOWN_LENGTH = 2000;

let newestRequest = 0;
/** the message whose state is shown; null: the newest @type {{session: string | null, at: number | null}} */
let view = { session: null, at: null };

/** @param {HTMLElement} host @param {string | null} session */
export async function show(host, session) {
  const request = ++newestRequest;
  if (session === null) return void host.replaceChildren(el("p", { class: "note", text: "Send a message first." }));
  if (view.session !== session) view = { session, at: null };
  const [found] = await Promise.all([
    /** @type {Promise<State>} */ (api(sessionPath(session, `/state${view.at === null ? "" : `?at=${view.at}`}`))), loadStylesheet("/page/trace.css"), loadStylesheet("/page/panel.css"),
  ]);
  if (request !== newestRequest || host.querySelector("form :focus")) return; // a draft is not replaced
  draw(host, session, found);
}

/** @param {HTMLElement} host @param {string} session @param {State} found */
function draw(host, session, found) {
  const goTo = (/** @type {number | null} */ at) => { view.at = at; void withErrorToast(() => show(host, session)); };
  const scopes = SCOPES.filter((scope) => scope !== "app" || found.may_set_app);
  host.replaceChildren(
    found.at === null ? el("p", { class: "note", text: "The state now." })
      : el("p", { class: "state-at" }, `The state at message ${found.at}.`, el("button", { type: "button", class: "quiet", click: () => goTo(null) }, "Show the state now")),
    ...scopes.map((scope) => values(TITLES[scope], found[scope])),
    ...(found.at === null ? [editor(host, session, found)] : []),
    changeList(found, goTo));
}

/** @param {string} title @param {Record<string, any>} members */
function values(title, members) {
  const names = Object.keys(members).sort();
  return el("section", { class: "state-values" }, el("h2", { text: title }),
    names.length ? el("dl", {}, ...names.map((name) => el("div", {}, el("dt", { text: name }), el("dd", {}, el("pre", { tabindex: "0", "aria-label": name, text: shorten(members[name]) })))))
      : el("p", { class: "note", text: "No values." }));
}

/** @param {any} value */
function shorten(value) {
  const text = JSON.stringify(value, null, 2) ?? "null";
  return text.length > SHOWN_LENGTH ? `${text.slice(0, SHOWN_LENGTH)}… (${text.length.toLocaleString()} characters)` : text;
}

/** @param {HTMLElement} host @param {string} session @param {State} found */
function editor(host, session, found) {
  const scope = el("select", { "aria-label": "Belongs to" },
    ...SCOPES.filter((one) => one !== "app" || found.may_set_app).map((one) => el("option", { value: one, text: TITLES[one] })));
  const name = el("input", { type: "text", maxlength: 200, autocomplete: "off", required: true });
  const value = el("textarea", { rows: 2 });
  const form = el("form", { class: "state-form", "aria-label": "Set a value" }, el("h2", { text: "Set a value" }),
    el("label", { class: "field" }, "Belongs to", scope), el("label", { class: "field" }, "Name", name),
    el("label", { class: "field" }, "Value, as JSON or text", value), el("button", { type: "submit" }, "Set"));
  form.addEventListener("submit", async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (state.running) return toast("A turn runs: set values when it is done.", "error");
    const member = `${PREFIXES[/** @type {keyof typeof PREFIXES} */ (scope.value)]}${name.value.trim()}`;
    const set = await withErrorToast(() => api(sessionPath(session, "/state"), { method: "PATCH", body: { delta: { [member]: parse(value.value) } } }));
    if (!set) return;
    toast(`Set: ${member}`);
    /** @type {HTMLElement | null} */ (document.activeElement)?.blur();
    await show(host, session);
  });
  return form;
}

/** Return the value that a text stands for: JSON, or else the text. @param {string} text */
function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
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
          " ", one.before === null ? "" : el("del", { text: brief(one.before) }), one.before === null ? "" : " → ", el("ins", { text: brief(one.after) }))));
    })),
    hidden > 0 && el("p", { class: "note", text: `${hidden.toLocaleString()} earlier changes are not shown.` }));
}

/** @param {any} value */
function brief(value) {
  const text = JSON.stringify(value) ?? "null";
  return text.length > 200 ? `${text.slice(0, 200)}…` : text;
}
