/** What the agent remembers: notes of this conversation with the messages they came from, and facts about the user. */

import { api, explain, sessionPath } from "../base/api.js";
import { el, moment, toast, tool } from "../base/dom.js";

/**
 * @typedef {{id: string, batch: number, generation: number, standing: string, first_seq: number, last_seq: number, priority: string,
 *   day: string, text: string, sources: number[], model: string, input_tokens: number, output_tokens: number, created_at: string}} Note
 * @typedef {{id: string, name: string, text: string, session_id: string, first_seq: number, last_seq: number, day: string,
 *   model: string, created_at: string}} Fact
 */

const STANDING = /** @type {Record<string, string>} */ ({ condensed: "condensed into a later note", taken_back: "taken back by a rewind" });

let newest = 0;
let all = false;
/** @type {Promise<any> | null} */
let styled = null;

/** @param {HTMLElement} host @param {string | null} session */
export async function show(host, session) {
  const me = ++newest;
  styled ??= new Promise((done) => document.head.append(el("link", { rel: "stylesheet", href: "/page/panel.css", load: done, error: done })));
  const [memory, known] = await Promise.all([
    session === null ? null : api(sessionPath(session, `/memory${all ? "?all=true" : ""}`)), api("/v1/memory"), styled,
  ]);
  if (me !== newest) return;
  host.replaceChildren(...(memory && session ? notes(host, session, memory) : []), ...facts(host, session, known.facts));
}

/** @param {HTMLElement} host @param {string} session @param {{observed_seq: number, tokens: number, observations: Note[]}} memory */
function notes(host, session, memory) {
  const found = memory.observations;
  const more = el("label", { class: "check" }, el("input", {
    type: "checkbox", checked: all, change: (/** @type {any} */ event) => { all = event.target.checked; show(host, session); },
  }), " Also what was condensed or taken back");
  const summary = memory.observed_seq
    ? `Messages up to ${memory.observed_seq} were observed. The agent is given these notes in their place: ${memory.tokens.toLocaleString()} tokens.`
    : "Nothing of this conversation was observed yet. With memory on, long conversations are noted here, and every note names its messages.";
  return [el("h2", { text: "Notes of this conversation" }), el("p", { class: "note", text: summary }), memory.observed_seq || all ? more : "",
    el("ol", { class: "memory", "aria-label": "Notes" }, ...found.map((note) => noteItem(session, note)))].filter((one) => one !== "");
}

/** @param {string} session @param {Note} note */
function noteItem(session, note) {
  const generation = note.generation ? `reflection ${note.generation}${note.sources.length ? `, of batches ${note.sources.join(", ")}` : ""}` : "observation";
  const made = [generation, note.model, `batch ${note.batch}: ${note.input_tokens.toLocaleString()} tokens in, ${note.output_tokens.toLocaleString()} out`,
    moment(note.created_at)].filter(Boolean).join(" · ");
  return el("li", { class: note.standing === "current" ? null : "gone" },
    el("p", { text: note.text }),
    el("p", { class: "facts" }, el("span", { class: note.priority, text: note.priority }), ` · ${note.day} · `, source(session, note),
      STANDING[note.standing] ? ` · ${STANDING[note.standing]}` : ""),
    el("p", { class: "facts", text: made }));
}

/** A way to the messages that something came from. @param {string} session @param {{first_seq: number, last_seq: number}} from */
function source(session, { first_seq, last_seq }) {
  const words = first_seq === last_seq ? `message ${first_seq}` : `messages ${first_seq} to ${last_seq}`;
  const href = `#/s/${encodeURIComponent(session)}/${first_seq}`;
  // the same address again is no change to the page: the way there is to be walked each time
  const again = () => { if (location.hash === href) dispatchEvent(new HashChangeEvent("hashchange")); };
  return el("a", { href, click: again, text: words });
}

/** @param {HTMLElement} host @param {string | null} session @param {Fact[]} known */
function facts(host, session, known) {
  const list = known.map((fact) => {
    const forget = async () => {
      try {
        await api(`/v1/memory/${encodeURIComponent(fact.id)}`, { method: "DELETE" });
        toast(`Forgotten: ${fact.name}`);
      } catch (error) {
        toast(explain(error), "error");
      }
      await show(host, session);
    };
    return el("li", { class: "fact" }, el("div", {}, el("p", {}, el("strong", { text: `${fact.name}: ` }), fact.text),
      el("p", { class: "facts" }, `${fact.day} · `, source(fact.session_id, fact), fact.model ? ` · ${fact.model}` : "")),
    tool("trash", `Forget ${fact.name}`, forget));
  });
  const none = "Nothing is known across conversations. It is off by default; a fact that is kept can be deleted here.";
  return [el("h2", { text: "What is known about you" }),
    list.length ? el("ul", { class: "memory", "aria-label": "Facts" }, ...list) : el("p", { class: "note", text: none })];
}
