/** Compare the turn after which a fork differs with the same turn of the original, side by side. */

import { api, sessionHash, sessionPath } from "../base/api.js";
import { openDialog } from "../base/dialogs.js";
import { el, formatDuration, loadStylesheet } from "../base/dom.js";

/** @typedef {import("./trace-view.js").Step} Step */
/** @typedef {import("./trace-view.js").Turn} Turn */
/** @typedef {{session: string, message: string, models: string, prompt: string, tools: string[], answer: string, cost: string, tokens: string, took: string, status: string}} Run */

const MAX_EVENTS = 40;

/** @param {string} fork @param {{id: string, seq: number}} origin the session that it was made from, and its last shared message */
export async function compareWithOrigin(fork, origin) {
  await loadStylesheet("/page/trace.css");
  const runs = await Promise.all([readRun(origin.id, origin.seq + 1), readRun(fork, origin.seq + 1)]);
  const titles = ["The original", "This fork"];
  const missing = titles.filter((_, side) => runs[side] === null);
  const body = missing.length
    ? [el("p", { text: `${missing.join(" and ")} ${missing.length === 1 ? "has" : "have"} no message after the place of the fork. Send one, then compare.` })]
    : [table(titles, /** @type {Run[]} */ (runs))];
  await openDialog({ title: "Compare two runs", body, yes: "Close", no: null, wide: true, className: "compare-dialog" });
}

/** Read the turn that begins with a message; null: there is none. @param {string} session @param {number} seq @returns {Promise<Run | null>} */
async function readRun(session, seq) {
  const turn = await findTurn(session, seq);
  if (!turn || turn.first_seq === null) return null;
  const steps = [...walk(turn.steps)];
  const calls = steps.filter((step) => step.kind === "model_call");
  const event = (/** @type {number} */ number) => api(sessionPath(session, `/trace/events/${number}`));
  const numbers = calls.map((step) => step.seq).filter((number) => number !== null).slice(-MAX_EVENTS);
  const [message, prompt, ...answers] = await Promise.all([event(turn.first_seq), readPrompt(session, calls), ...numbers.map(event)]);
  return {
    session, prompt,
    message: message.content,
    models: [...new Set(calls.map((step) => step.model))].join(", "),
    tools: steps.filter((step) => step.kind === "tool").map((step) => `${step.name}${step.status === "done" ? "" : ` (${step.status})`}`),
    answer: answers.map((one) => one.content).filter(Boolean).join("\n\n"),
    cost: turn.usage.cost_usd === null ? "not known" : `$${turn.usage.cost_usd.toFixed(4)}`,
    tokens: `${turn.usage.input_tokens.toLocaleString()} in (${turn.usage.cached_tokens.toLocaleString()} cached), ${turn.usage.output_tokens.toLocaleString()} out`,
    took: formatDuration(turn.duration_s), status: turn.status,
  };
}

/** @param {string} session @param {number} seq @returns {Promise<Turn | undefined>} */
async function findTurn(session, seq) {
  for (let before = ""; ;) {
    const page = await api(sessionPath(session, `/trace?limit=50${before}`));
    const turns = /** @type {Turn[]} */ (page.turns).filter((turn) => turn.first_seq !== null && turn.first_seq >= seq);
    if (page.before === null || turns.length < page.turns.length) return turns[0];
    before = `&before=${page.before}`;
  }
}

/** Read the instructions of the first request, if it was kept. @param {string} session @param {Step[]} calls */
async function readPrompt(session, calls) {
  const id = calls[0]?.attempts.at(-1)?.request_id;
  if (!id) return "not kept: set requests = true in [trace]";
  const { sent } = await api(sessionPath(session, `/trace/requests/${id}`));
  return sent.system || "none";
}

/** @param {Step[]} steps @returns {Generator<Step>} */
function* walk(steps) {
  for (const step of steps) {
    yield step;
    yield* walk(step.steps);
  }
}

/** @param {string[]} titles @param {Run[]} runs */
function table(titles, runs) {
  const rows = /** @type {[string, (run: Run) => string][]} */ ([
    ["Message", (run) => run.message], ["Model", (run) => run.models], ["Prompt", (run) => run.prompt], ["Tools", (run) => run.tools.join("\n") || "none"],
    ["Answer", (run) => run.answer || run.status], ["Cost", (run) => run.cost], ["Tokens", (run) => run.tokens], ["Took", (run) => run.took],
  ]);
  return el("div", { class: "compare", tabindex: "0", role: "region", "aria-label": "The two runs" }, el("table", {},
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, el("span", { class: "visually-hidden", text: "What" })),
      ...runs.map((run, side) => el("th", { scope: "col" }, el("a", { href: sessionHash(run.session), text: titles[side] }))))),
    el("tbody", {}, ...rows.map(([name, read]) => {
      const differs = read(runs[0]) !== read(runs[1]);
      return el("tr", { class: differs ? "differs" : "" }, el("th", { scope: "row" }, name, differs && el("span", { class: "visually-hidden", text: " (differs)" })),
        ...runs.map((run) => el("td", { text: read(run) })));
    }))));
}
