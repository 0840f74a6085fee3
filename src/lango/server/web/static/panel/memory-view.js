/** Show the agent's memory: notes of this conversation with their source messages, and facts about the user. */

import { api, sessionHash, sessionPath } from "../base/api.js";
import { askText } from "../base/dialogs.js";
import { el, formatTime, iconButton, loadStylesheet, toast, withErrorToast } from "../base/dom.js";

/**
 * @typedef {{id: string, batch: number, generation: number, standing: string, first_seq: number, last_seq: number, priority: string,
 *   day: string, text: string, sources: number[], model: string, input_tokens: number, output_tokens: number, created_at: string}} Note
 * @typedef {{id: string, name: string, text: string, session_id: string, first_seq: number, last_seq: number, day: string,
 *   model: string, created_at: string, pinned: boolean}} Fact
 */

const STANDING_LABELS = /** @type {Record<string, string>} */ ({ condensed: "condensed into a later note", rewound: "removed by a rewind" });

let newestRequest = 0;
let showsInactive = false;

/** @param {HTMLElement} host @param {string | null} session */
export async function show(host, session) {
  const request = ++newestRequest;
  const [memory, shared] = await Promise.all([
    session === null ? null : api(sessionPath(session, `/memory${showsInactive ? "?all=true" : ""}`)), api("/v1/memory"), loadStylesheet("/page/panel.css"),
  ]);
  if (request !== newestRequest) return;
  host.replaceChildren(...(memory && session ? notes(host, session, memory) : []), ...factList(host, session, shared.facts));
}

/** @param {HTMLElement} host @param {string} session @param {{observed_seq: number, tokens: number, observations: Note[]}} memory */
function notes(host, session, memory) {
  const toggle = el("label", {}, el("input", {
    type: "checkbox", checked: showsInactive, change: (/** @type {any} */ event) => { showsInactive = event.target.checked; show(host, session); },
  }), " Include condensed and rewound notes");
  const summary = memory.observed_seq
    ? `Messages up to ${memory.observed_seq} were observed. The agent receives these notes in their place: ${memory.tokens.toLocaleString()} tokens.`
    : "No notes yet. With memory enabled, notes on long conversations appear here, each with its messages.";
  return [el("h2", { text: "Notes of this conversation" }), el("p", { class: "note", text: summary }), memory.observed_seq || showsInactive ? toggle : "",
    el("ol", { class: "memory", "aria-label": "Notes" }, ...memory.observations.map((note) => noteItem(host, session, note)))].filter((node) => node !== "");
}

/** @param {HTMLElement} host @param {string} session @param {Note} note */
function noteItem(host, session, note) {
  const generation = note.generation ? `reflection ${note.generation}${note.sources.length ? `, of batches ${note.sources.join(", ")}` : ""}` : "observation";
  const origin = [generation, note.model, `batch ${note.batch}: ${note.input_tokens.toLocaleString()} tokens in, ${note.output_tokens.toLocaleString()} out`,
    formatTime(note.created_at)].filter(Boolean).join(" · ");
  const path = sessionPath(session, `/memory/${encodeURIComponent(note.id)}`);
  const buttons = note.standing === "current" ? itemButtons(host, session, path, `note ${note.id}`, note.text, note.priority === "pinned") : [];
  return el("li", { class: note.standing === "current" ? "fact" : "fact inactive" }, el("div", {},
    el("p", { text: note.text }),
    el("p", { class: "details" }, el("span", { class: note.priority, text: note.priority }), ` · ${note.day} · `, source(session, note),
      STANDING_LABELS[note.standing] ? ` · ${STANDING_LABELS[note.standing]}` : ""),
    el("p", { class: "details", text: origin })), ...buttons);
}

/** Make the buttons that pin, correct and forget a note or a fact.
 * @param {HTMLElement} host @param {string | null} session @param {string} path @param {string} name @param {string} text @param {boolean} pinned */
function itemButtons(host, session, path, name, text, pinned) {
  const change = async (/** @type {string} */ done, /** @type {object} */ options) => {
    await withErrorToast(async () => {
      await api(path, options);
      toast(`${done}: ${name}`);
    });
    await show(host, session);
  };
  const edit = (/** @type {object} */ body) => ({ method: "PATCH", body });
  const correct = async () => {
    const corrected = await askText(`Correct ${name}`, "What holds", text, { length: 1_000 });
    if (corrected?.trim()) await change("Corrected", edit({ text: corrected }));
  };
  return [
    iconButton("pin", `${pinned ? "Unpin" : "Pin"} ${name}`, () => change(pinned ? "Unpinned" : "Pinned", edit({ pinned: !pinned })), { "aria-pressed": String(pinned) }),
    iconButton("edit", `Correct ${name}`, correct),
    iconButton("trash", `Forget ${name}`, () => change("Forgotten", { method: "DELETE" })),
  ];
}

/** Link to the messages that a note or fact came from. @param {string} session @param {{first_seq: number, last_seq: number}} from */
function source(session, { first_seq, last_seq }) {
  const label = first_seq === last_seq ? `message ${first_seq}` : `messages ${first_seq} to ${last_seq}`;
  const href = sessionHash(session, first_seq);
  // the browser fires no event for the current address: scroll there again
  const again = () => { if (location.hash === href) dispatchEvent(new HashChangeEvent("hashchange")); };
  return el("a", { href, click: again, text: label });
}

/** @param {HTMLElement} host @param {string | null} session @param {Fact[]} facts */
function factList(host, session, facts) {
  const list = facts.map((fact) => el("li", { class: "fact" }, el("div", {}, el("p", {}, el("strong", { text: `${fact.name}: ` }), fact.text),
    el("p", { class: "details" }, `${fact.day} · `, source(fact.session_id, fact), fact.pinned ? " · pinned" : fact.model ? ` · ${fact.model}` : "")),
  ...itemButtons(host, session, `/v1/memory/${encodeURIComponent(fact.id)}`, fact.name, fact.text, fact.pinned)));
  const none = "No facts are kept across conversations. This is off by default; you can delete kept facts here.";
  return [el("h2", { text: "Facts about you" }),
    list.length ? el("ul", { class: "memory", "aria-label": "Facts" }, ...list) : el("p", { class: "note", text: none })];
}
