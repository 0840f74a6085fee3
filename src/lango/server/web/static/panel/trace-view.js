/** Show what happened in each turn as a waterfall: agents, their model calls, and the tools that these called. */

import { api, sessionPath } from "../base/api.js";
import { describeResumption, el, formatCost, formatDuration, formatTime, loadStylesheet, withErrorToast } from "../base/dom.js";
import { failureSlot } from "../base/failures.js";
import { state } from "../base/state.js";
import { details } from "./trace-details.js";

/**
 * @typedef {{provider: string, model: string, started_at: string, duration_s: number | null, error: string, status: number | null,
 *   request_id: string | null, size: number}} Attempt
 * @typedef {{id: string, kind: string, name: string, status: string, started_at: string, duration_s: number | null, is_estimated: boolean,
 *   is_replayed: boolean, agent: string, branch: string, call_id: string, seq: number | null, result_seq: number | null, approved_by: string | null,
 *   model: string, node: {input: any, output: any, error: string} | null, usage: {input_tokens: number, output_tokens: number, cached_tokens: number, cost_usd: number | null}, attempts: Attempt[], steps: Step[]}} Step
 * @typedef {{turn: number, status: string, started_at: string, duration_s: number | null, first_seq: number | null, last_seq: number | null,
 *   is_rewound: boolean, error: string, usage: {input_tokens: number, output_tokens: number, cached_tokens: number, model_calls: number, cost_usd: number | null},
 *   resumptions: {at: string, reason: string}[], begun_version: string, version: string, steps: Step[]}} Turn
 * @typedef {{turns: Turn[], before: number | null, keeps_requests: boolean}} Trace
 */

const LIVE_MS = 1000;
const ROWS_AT_ONCE = 300;
const KINDS = /** @type {Record<string, string>} */ ({ agent: "Agent", model_call: "Model call", tool: "Tool", node: "Node", message: "Message" });

let newestRequest = 0;
/** the message whose turn is to be shown @type {number | null} */
let wanted = null;
/** the step that is to be shown, and its turn @type {{turn: number, step: string} | null} */
let wantedStep = null;
/** what is shown of a session: its turns, which of them and of their steps are open, and how many rows
 * @type {{session: string | null, turns: Turn[], before: number | null, keeps: boolean, open: Set<string>, rows: Map<number, number>, shown: string}} */
let view = { session: null, turns: [], before: null, keeps: false, open: new Set(), rows: new Map(), shown: "" };

/** Show the turn of a message when the view is drawn next. @param {number} seq */
export function wantMessage(seq) {
  wanted = seq;
}

/** Show a step when the view is drawn next. @param {{turn: number, step: string}} step */
export function wantStep(step) {
  wantedStep = step;
}

/** @param {HTMLElement} host @param {string | null} session */
export async function show(host, session) {
  const request = ++newestRequest;
  if (session === null) return void host.replaceChildren(el("p", { class: "note", text: "Send a message first." }));
  if (view.session !== session) view = { session, turns: [], before: null, keeps: false, open: new Set(), rows: new Map(), shown: "" };
  const [page] = await Promise.all([/** @type {Promise<Trace>} */ (api(sessionPath(session, "/trace"))), loadStylesheet("/page/trace.css")]);
  if (request !== newestRequest) return;
  merge(page);
  if (wanted !== null) await loadMessage(session, wanted, request);
  if (wantedStep !== null) await loadStep(session, wantedStep, request);
  if (request !== newestRequest) return;
  const shown = JSON.stringify(view.turns);
  if (shown !== view.shown || wanted !== null || wantedStep !== null || !host.querySelector(".trace-turn")) draw(host); // else what was opened stays open
  view.shown = shown;
  if (state.running && view.turns.some((turn) => turn.status === "running" || turn.status === "queued")) {
    setTimeout(() => { if (request === newestRequest && host.offsetParent) void show(host, session).catch(() => {}); }, LIVE_MS);
  }
}

/** Take over the newest turns, beside the earlier ones that were loaded. @param {Trace} page */
function merge(page) {
  const first = page.turns[0]?.turn ?? Infinity;
  const earlier = view.turns.filter((turn) => turn.turn < first);
  view.before = earlier.length ? view.before : page.before;
  view.turns = [...earlier, ...page.turns];
  view.keeps = page.keeps_requests;
  const newest = view.turns.at(-1);
  if (newest && !earlier.length && !view.open.size) view.open.add(`turn:${newest.turn}`);
}

/** @param {string} session */
async function loadEarlier(session) {
  const page = /** @type {Trace} */ (await api(sessionPath(session, `/trace?before=${view.before}`)));
  view.turns = [...page.turns, ...view.turns];
  view.before = page.before;
}

/** Load turns until that of a message is there, and open it. @param {string} session @param {number} seq @param {number} request */
async function loadMessage(session, seq, request) {
  const holds = (/** @type {Turn} */ turn) => turn.first_seq !== null && turn.last_seq !== null && turn.first_seq <= seq && seq <= turn.last_seq;
  while (!view.turns.some(holds) && view.before !== null && request === newestRequest) await loadEarlier(session);
  const turn = view.turns.find(holds);
  if (turn) view.open = new Set([`turn:${turn.turn}`]);
}

/** Load turns until that of a step is there, and open both. @param {string} session @param {{turn: number, step: string}} step @param {number} request */
async function loadStep(session, { turn, step }, request) {
  while (!view.turns.some((one) => one.turn === turn) && view.before !== null && request === newestRequest) await loadEarlier(session);
  view.open = new Set([`turn:${turn}`, `${turn}:${step}`]);
}

/** @param {HTMLElement} host */
function draw(host) {
  const focused = host.contains(document.activeElement) ? /** @type {HTMLElement} */ (document.activeElement).dataset.key : undefined;
  const top = host.scrollTop;
  if (!view.turns.length) return host.replaceChildren(el("p", { class: "note", text: "No turn has run in this conversation yet." }));
  const earlier = el("button", { type: "button", class: "quiet", click: async () => { await loadEarlier(view.session ?? ""); draw(host); } }, "Earlier turns");
  const note = view.keeps ? "" : el("p", { class: "note", text: "Requests to the model are not kept. To see them here, set requests = true in [trace] of lango.toml." });
  host.replaceChildren(...[note, ...view.turns.toReversed().map((turn) => turnBox(host, turn)), view.before === null ? "" : earlier].filter((node) => node !== ""));
  host.scrollTop = top;
  if (focused) /** @type {HTMLElement | null} */ (host.querySelector(`[data-key="${CSS.escape(focused)}"]`))?.focus();
  if (wantedStep !== null) {
    const button = /** @type {HTMLElement | null} */ (host.querySelector(`[data-key="${CSS.escape(`${wantedStep.turn}:${wantedStep.step}`)}"]`));
    button?.closest("li")?.classList.add("found");
    button?.scrollIntoView({ block: "center" });
    button?.focus();
    wantedStep = null;
  }
  if (wanted !== null) {
    const row = host.querySelector(`[data-seqs~="${wanted}"]`) ?? host.querySelector("details[open]");
    row?.scrollIntoView({ block: "center" });
    row?.classList.add("found");
    /** @type {HTMLElement | null | undefined} */ (row?.querySelector("button, summary"))?.focus();
    wanted = null;
  }
}

/** @param {HTMLElement} host @param {Turn} turn */
function turnBox(host, turn) {
  const key = `turn:${turn.turn}`;
  const isOpen = view.open.has(key);
  const facts = [turn.is_rewound ? "rewound" : turn.status, formatDuration(turn.duration_s), formatTokens(turn.usage), turn.usage.cost_usd === null ? "" : formatCost(turn.usage.cost_usd), formatTime(turn.started_at)];
  const box = el("details", { class: "trace-turn", open: isOpen, "data-status": turn.status, "data-seqs": turn.first_seq ?? "" },
    el("summary", { "data-key": key }, el("strong", { text: `Turn ${turn.turn}` }), el("span", { class: "trace-facts", text: facts.filter(Boolean).join(" · ") })));
  box.addEventListener("toggle", () => {
    if (box.open === view.open.has(key)) return;
    box.open ? view.open.add(key) : view.open.delete(key);
    if (box.open && !box.querySelector(".trace-steps")) box.append(...turnBody(host, turn));
  });
  if (isOpen) box.append(...turnBody(host, turn));
  return box;
}

/** @param {HTMLElement} host @param {Turn} turn @returns {HTMLElement[]} */
function turnBody(host, turn) {
  const rows = [...walk(turn.steps, 0)];
  const shown = view.rows.get(turn.turn) ?? ROWS_AT_ONCE;
  const start = Date.parse(turn.started_at);
  const ends = (/** @type {number} */ last, /** @type {{step: Step}} */ { step }) => Math.max(last, Date.parse(step.started_at) + 1000 * (step.duration_s ?? 0));
  const end = rows.reduce(ends, Math.max(start + 1, turn.duration_s === null ? Date.now() : start + 1000 * turn.duration_s));
  const list = el("ol", { class: "trace-steps", "aria-label": `Steps of turn ${turn.turn}` },
    ...rows.slice(0, shown).map(({ step, depth }) => stepRow(turn, step, depth, start, end)));
  const more = rows.length > shown && el("button", {
    type: "button", class: "quiet", click: () => { view.rows.set(turn.turn, shown + 5 * ROWS_AT_ONCE); draw(host); },
  }, `Show ${Math.min(rows.length - shown, 5 * ROWS_AT_ONCE).toLocaleString()} more of ${rows.length.toLocaleString()} steps`);
  return [
    ...turn.resumptions.map(({ at, reason }) => el("p", { class: "note", text: describeResumption(at, reason) })),
    turn.version !== turn.begun_version
      && el("p", { class: "note", text: `Begun by version ${turn.begun_version} of the app, run last by version ${turn.version}.` }),
    turn.error && el("p", { class: "trace-error", text: turn.error }),
    turn.status === "failed" && failureSlot(view.session ?? "", (failure) => failure.turn === turn.turn && failure.step === ""),
    rows.length ? list : el("p", { class: "note", text: "No steps yet." }), more,
    turn.status !== "running" && turn.status !== "queued" && turn.first_seq !== null && turnActions(turn),
  ].filter(Boolean);
}

/** @param {Turn} turn */
function turnActions(turn) {
  const session = view.session ?? "";
  const button = (/** @type {string} */ text, /** @type {() => Promise<any>} */ act) => el("button", { type: "button", class: "quiet small", click: () => withErrorToast(act) }, text);
  const play = async (/** @type {number | null} */ before) => (await import("./playground.js")).openPlayground(session, turn, null, before);
  return el("p", { class: "trace-actions" },
    button("Run it again with changes", () => play(null)),
    turn.status === "failed" && turn.last_seq !== null && button("Run on after its last step", () => play((turn.last_seq ?? 0) + 1)),
    button("Compare with another run", async () => (await import("./compare.js")).chooseAndCompare({ title: `Turn ${turn.turn}`, session, turn: turn.turn })));
}

/** Yield each step before those below it. @param {Step[]} steps @param {number} depth @returns {Generator<{step: Step, depth: number}>} */
function* walk(steps, depth) {
  for (const step of steps) {
    yield { step, depth };
    yield* walk(step.steps, depth + 1);
  }
}

/** @param {Turn} turn @param {Step} step @param {number} depth @param {number} start @param {number} end */
function stepRow(turn, step, depth, start, end) {
  const key = `${turn.turn}:${step.id}`;
  const bar = el("span", { class: "trace-bar", "data-kind": step.kind, "aria-hidden": "true" }, el("span"));
  const from = Date.parse(step.started_at);
  const to = step.status === "running" ? end : from + 1000 * (step.duration_s ?? 0);
  const place = /** @type {HTMLElement} */ (bar.firstElementChild).style;
  const percent = (/** @type {number} */ ms) => (100 * Math.min(Math.max(ms, 0), end - start)) / (end - start);
  place.marginLeft = `${Math.min(98, percent(from - start))}%`;
  place.width = `${Math.max(2, percent(to - from))}%`;
  const failures = step.attempts.filter((attempt) => attempt.error).length;
  const facts = [
    step.status === "done" ? "" : step.status.replace("_", " "), formatDuration(step.duration_s) && `${step.is_estimated ? "about " : ""}${formatDuration(step.duration_s)}`,
    step.kind === "model_call" ? formatTokens(step.usage) : "", step.usage.cost_usd === null ? "" : formatCost(step.usage.cost_usd),
    failures ? `${failures} failed ${failures === 1 ? "attempt" : "attempts"}` : "", step.is_replayed ? "replayed" : "",
  ].filter(Boolean).join(" · ");
  const button = el("button", { type: "button", "data-key": key, "aria-expanded": String(view.open.has(key)) },
    el("span", { class: "trace-name" }, el("span", { class: "trace-kind", text: KINDS[step.kind] ?? step.kind }), el("span", { text: step.name.slice(0, 200) })),
    el("span", { class: "trace-facts", text: facts }), bar);
  const item = el("li", { "data-status": step.status, "data-seqs": [step.seq, step.result_seq].filter((seq) => seq !== null).join(" ") }, button);
  item.style.setProperty("--depth", String(Math.min(depth, 8)));
  const toggle = () => {
    const isOpen = view.open.has(key);
    item.querySelector(".trace-details")?.remove();
    if (isOpen) item.append(details(view.session ?? "", turn, step, start));
    button.setAttribute("aria-expanded", String(isOpen));
  };
  button.addEventListener("click", () => {
    view.open.has(key) ? view.open.delete(key) : view.open.add(key);
    toggle();
  });
  if (view.open.has(key)) toggle();
  return item;
}

/** @param {{input_tokens: number, output_tokens: number, cached_tokens: number}} usage */
function formatTokens({ input_tokens, output_tokens, cached_tokens }) {
  if (!input_tokens && !output_tokens) return "";
  const cached = cached_tokens ? ` (${cached_tokens.toLocaleString()} cached)` : "";
  return `${input_tokens.toLocaleString()}${cached} in, ${output_tokens.toLocaleString()} out`;
}
