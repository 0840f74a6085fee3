/** List the grants of this conversation: tools that run without asking. A click revokes one. */

import { api, sessionPath } from "../base/api.js";
import { el, formatTime, iconButton, loadStylesheet, withErrorToast } from "../base/dom.js";

/**
 * @typedef {{id: number, tool: string, arguments: Record<string, any> | null, granted_by: string, granted_at: string, expires_at: string | null,
 *   revoked_at: string | null, revoked_by: string | null, active: boolean}} Grant
 */

const NONE = "Nothing is granted. Choose “Always” when a tool asks, and it runs without asking in this conversation.";

let newestRequest = 0;

/** @param {HTMLElement} host @param {string | null} session */
export async function show(host, session) {
  const number = ++newestRequest;
  const [listed] = await Promise.all([session === null ? { grants: [] } : api(sessionPath(session, "/grants")), loadStylesheet("/page/panel.css")]);
  if (number !== newestRequest) return;
  const rows = listed.grants.map((/** @type {Grant} */ grant) => grantItem(host, session ?? "", grant));
  host.replaceChildren(rows.length ? el("ul", { class: "memory", "aria-label": "Grants" }, ...rows) : el("p", { class: "note", text: NONE }));
}

/** @param {HTMLElement} host @param {string} session @param {Grant} grant */
function grantItem(host, session, grant) {
  const revoke = () => withErrorToast(async () => {
    await api(sessionPath(session, `/grants/${grant.id}`), { method: "DELETE" });
    await show(host, session);
  });
  const fits = grant.arguments === null ? "whatever the arguments" : Object.entries(grant.arguments).map(([name, pattern]) => `${name}: ${describe(pattern)}`).join(", ");
  return el("li", {}, el("div", { class: "fact" },
    el("div", {}, el("p", {}, el("strong", { text: grant.tool }), ` ${fits}`), el("p", { class: "details", text: `${status(grant)} · given ${formatTime(grant.granted_at)} by ${grant.granted_by}` })),
    grant.active ? iconButton("trash", `Revoke grant ${grant.id} for ${grant.tool}`, revoke) : ""));
}

/** @param {Grant} grant */
function status(grant) {
  if (grant.revoked_at) return `revoked ${formatTime(grant.revoked_at)}`;
  if (!grant.active) return "expired";
  return grant.expires_at ? `until ${formatTime(grant.expires_at)}` : "until you revoke it";
}

/** @param {any} pattern */
function describe(pattern) {
  if ("equals" in pattern) return JSON.stringify(pattern.equals);
  return "glob" in pattern ? pattern.glob : "anything";
}
