/** Show an approval request: its exact arguments, what changes in a file, and buttons to approve it once or always, or to refuse it. */

import { api, sessionPath } from "../base/api.js";
import { askPatterns, askText, showMenu } from "../base/dialogs.js";
import { el, icon, formatTime } from "../base/dom.js";

const SHORT_CHARACTERS = 80;

/** @typedef {{arguments?: Record<string, any>}} Grant what is approved besides this call; without arguments the whole tool */

/** @typedef {{approved: boolean, grant?: Grant, reason?: string}} Decision the body of the request that answers */

/**
 * @param {string} session @param {string} name the tool @param {{call_id: string, arguments: any, expires_at?: string | null, hint?: string, payload?: any, diff?: string}} request
 * @param {(decision: Decision) => void} onAnswer
 */
export function approvalBox(session, name, request, onAnswer) {
  const until = request.expires_at ? ` The request expires at ${formatTime(request.expires_at)}.` : "";
  const answer = (/** @type {Decision} */ decision) => {
    for (const button of box.querySelectorAll("button")) button.disabled = true;
    onAnswer(decision);
  };
  const input = request.arguments ?? {};
  const exactly = Object.fromEntries(Object.entries(input).map(([key, value]) => [key, { equals: value }]));
  const always = el("button", { type: "button", "aria-haspopup": "menu", click: () => showMenu(always, [
    { label: `Always for ${name} in this conversation`, shape: "check", onClick: () => answer({ approved: true, grant: {} }) },
    { label: "Always with exactly these arguments", shape: "copy", onClick: () => answer({ approved: true, grant: { arguments: exactly } }) },
    { label: "Always with arguments like these …", shape: "edit", onClick: async () => {
      const patterns = await askPatterns(name, input);
      if (patterns) answer({ approved: true, grant: { arguments: patterns } });
    } },
  ]) }, icon("again"), "Always");
  const explain = async () => {
    const reason = await askText(`Why may ${name} not run?`, "The model reads it", "", { yes: "Refuse", length: 4000 });
    if (reason) answer({ approved: false, reason });
  };
  const changes = el("div", { class: "changes" });
  void loadDiff(session, request).then((diff) => diff && changes.replaceChildren(...diffBlock(diff)));
  const box = el("div", { class: "approval-request", role: "group", "aria-label": `May ${name} run?` },
    el("p", {}, "May ", el("strong", { text: name }), ` run with exactly these arguments?${until}`),
    request.hint && el("p", { class: "approval-hint", text: request.hint }),
    changes, ...argumentBlocks(input),
    ...((request.payload ?? null) === null ? [] : [el("p", { class: "tool-label", text: "The tool adds" }),
      el("pre", { tabindex: "0", "aria-label": "Payload" }, JSON.stringify(request.payload, null, 2))]),
    el("div", { class: "approval-buttons" },
      el("button", { type: "button", class: "primary", click: () => answer({ approved: true }) }, icon("check"), "Approve"),
      always,
      el("button", { type: "button", click: () => answer({ approved: false }) }, icon("cross"), "Refuse"),
      el("button", { type: "button", click: explain }, icon("edit"), "No, because …")));
  return box;
}

/** Show long texts as they are, and other arguments as JSON. @param {Record<string, any>} input */
function argumentBlocks(input) {
  const isLong = (/** @type {any} */ value) => typeof value === "string" && (value.includes("\n") || value.length > SHORT_CHARACTERS);
  const rest = Object.fromEntries(Object.entries(input).filter(([, value]) => !isLong(value)));
  const texts = Object.entries(input).filter(([, value]) => isLong(value));
  return [
    (Object.keys(rest).length > 0 || !texts.length) && el("pre", { tabindex: "0", "aria-label": "Arguments" }, JSON.stringify(rest, null, 2)),
    ...texts.map(([name, value]) => el("div", {}, el("p", { class: "tool-label", text: name }), el("pre", { tabindex: "0", "aria-label": `Argument ${name}` }, value))),
  ];
}

/** Return what the call would change in a file; an event of a turn does not say. @param {string} session @param {{call_id: string, diff?: string}} request @returns {Promise<string>} */
async function loadDiff(session, { call_id, diff }) {
  if (diff !== undefined) return diff;
  const found = await api(sessionPath(session, "/approvals")).catch(() => ({ approvals: [] }));
  return found.approvals.find((/** @type {any} */ one) => one.call_id === call_id)?.diff ?? "";
}

/** @param {string} diff */
function diffBlock(diff) {
  const kinds = /** @type {Record<string, string>} */ ({ "+": "added", "-": "removed", "@": "place" });
  const lines = diff.split("\n").map((line, at) => el("span", { class: at < 2 ? "place" : kinds[line.charAt(0)] ?? null, text: `${line}\n` }));
  return [el("p", { class: "tool-label", text: "What changes in the file" }), el("pre", { tabindex: "0", class: "diff", "aria-label": "Changes" }, ...lines)];
}
