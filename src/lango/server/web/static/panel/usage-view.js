/** Show a conversation's usage: tokens against the budget, the next request's window, cost and time. */

import { api, sessionPath } from "../base/api.js";
import { describeResumption, el, formatCost, formatDuration, loadStylesheet } from "../base/dom.js";
import { legend, Plot, formatShort } from "./plots.js";

/**
 * @typedef {{input_tokens: number, output_tokens: number, cached_tokens: number, model_calls: number, cost_usd: number | null}} TokenUsage
 * @typedef {{model: string, agent: string, started_at: string, duration_s: number, input_tokens: number, output_tokens: number}} Call
 * @typedef {{call_id: string, name: string, status: string, started_at: string | null, duration_s: number | null, approved_by?: string | null}} Tool
 * @typedef {{turn: number, status: string, started_at: string, ended_at: string | null, first_seq: number | null,
 *   last_seq: number | null, tokens: number, is_rewound: boolean, usage: TokenUsage, model_calls: Call[], tools: Tool[],
 *   resumptions?: {at: string, reason: string}[]}} Turn
 * @typedef {{budget_tokens: number, max_messages: number | null, window: {first_seq: number | null, messages: number, tokens: number,
 *   left_out_messages: number, left_out_tokens: number, observed_seq: number, memory_tokens: number, reason: string}, turns: Turn[], before: number | null, total: {turns: number, usage: TokenUsage}, memory: TokenUsage}} Usage
 */

const STYLES = ["/page/vendor/uplot.css", "/page/panel.css"];

/** @type {Plot[]} */
let plots = [];
let newestRequest = 0;
/** the session shown, the turns before its newest page, and the turn whose calls are shown
 * @type {{session: string | null, earlier: Turn[], before: number | null, turn: number | null}} */
let view = { session: null, earlier: [], before: null, turn: null };

/** @param {HTMLElement} host @param {string | null} session */
export async function show(host, session) {
  const request = ++newestRequest;
  if (session === null) return replaceContent(host, () => [el("p", { class: "note", text: "Send a message first." })]);
  const [usage] = await Promise.all([api(sessionPath(session, "/usage")), ...STYLES.map(loadStylesheet)]);
  if (request !== newestRequest) return;
  if (view.session !== session) view = { session, earlier: [], before: null, turn: null };
  draw(host, usage);
}

/** @param {HTMLElement} host @param {() => Node[]} children */
function replaceContent(host, children) {
  for (const plot of plots.splice(0)) plot.destroy();
  host.replaceChildren(...children());
  for (const plot of plots) plot.draw();
}

/** @param {HTMLElement} host @param {Usage} usage */
function draw(host, usage) {
  if (!usage.turns.length) return replaceContent(host, () => [el("p", { class: "note", text: "No turn has run in this conversation yet." })]);
  const first = usage.turns[0].turn;
  const turns = [...view.earlier.filter((turn) => turn.turn < first), ...usage.turns];
  const before = view.earlier.length ? view.before : usage.before;
  const top = host.scrollTop;
  replaceContent(host, () => [
    totals(usage), windowBar(usage), tokenChart(usage, turns), costChart(turns), timeChart(turns),
    before === null ? "" : el("button", { type: "button", class: "quiet", click: () => loadEarlier(host, usage, before, turns) }, "Earlier turns"),
    turnTable(turns, (turn) => { view.turn = turn; draw(host, usage); }), resumptions(turns), callTable(turns),
  ].filter((node) => node !== ""));
  host.scrollTop = top;
}

/** @param {HTMLElement} host @param {Usage} usage @param {number} before @param {Turn[]} turns */
async function loadEarlier(host, usage, before, turns) {
  const request = ++newestRequest;
  const page = /** @type {Usage} */ (await api(sessionPath(view.session ?? "", `/usage?before=${before}`)));
  if (request !== newestRequest) return;
  view.earlier = [...page.turns, ...turns.filter((turn) => turn.turn < usage.turns[0].turn)];
  view.before = page.before;
  draw(host, usage);
}

/** @param {Usage} usage */
function totals({ total, memory }) {
  const { usage } = total;
  const pairs = [
    ["Turns", total.turns.toLocaleString()], ["Model calls", usage.model_calls.toLocaleString()],
    ["Tokens read", formatShort(usage.input_tokens)], ["Tokens written", formatShort(usage.output_tokens)], ["Cost", usage.cost_usd === null ? "not known" : formatCost(usage.cost_usd)],
  ];
  // what the observer and the reflector took is no part of a turn
  if (memory.model_calls) pairs.push(["Memory calls", memory.model_calls.toLocaleString()], ["Tokens for memory", formatShort(memory.input_tokens + memory.output_tokens)]);
  return el("dl", { class: "totals" }, ...pairs.map(([name, value]) => el("div", {}, el("dt", { text: name }), el("dd", { text: value }))));
}

/** Show what the next request keeps, what it leaves out, and how much is free. @param {Usage} usage */
function windowBar({ window, budget_tokens, max_messages }) {
  const free = Math.max(0, budget_tokens - window.tokens - window.memory_tokens);
  const parts = [["left-out", window.left_out_tokens], ["notes", window.memory_tokens], ["kept", window.tokens], ["free", free]];
  const total = Math.max(1, parts.reduce((sum, [, tokens]) => sum + Number(tokens), 0));
  const bar = el("div", { class: "window-bar", "aria-hidden": "true" });
  for (const [name, tokens] of parts) {
    const part = el("span", { class: name });
    part.style.width = `${(100 * Number(tokens)) / total}%`;
    if (tokens) bar.append(part);
  }
  const kept = `The next request keeps ${countMessages(window.messages)} (${window.tokens.toLocaleString()} tokens)`;
  const leftOut = window.left_out_messages || window.left_out_tokens
    ? ` and leaves out ${countMessages(window.left_out_messages)} (${window.left_out_tokens.toLocaleString()} tokens).` : ". Nothing is left out.";
  const notes = window.memory_tokens
    ? ` Notes of the messages up to ${window.observed_seq} take ${window.memory_tokens.toLocaleString()} tokens.` : "";
  const bound = `Budget: ${budget_tokens.toLocaleString()} tokens${max_messages === null ? "" : `, at most ${max_messages} messages`}.`;
  return el("section", {}, el("h2", { text: "Next request to the model" }), bar, el("p", { class: "note", text: `${kept}${leftOut}${notes} ${bound}${window.reason && ` The window is cut: ${window.reason.replaceAll("`", "")}.`}` }));
}

/** @param {number} count */
function countMessages(count) {
  return `${count.toLocaleString()} message${count === 1 ? "" : "s"}`;
}

/** @param {string} title @param {Turn[]} turns @param {import("./plots.js").Series[]} series @param {(value: number) => string} format @param {string} [note] */
function chart(title, turns, series, format, note) {
  const used = series.filter((line) => line.values.some((value) => value));
  const plot = new Plot(`${title}, turn by turn. The same numbers are in the table below.`, turns.map((turn) => turn.turn), used, format);
  plots.push(plot);
  return el("section", {}, el("h2", { text: title }), legend(used), plot.element, note ? el("p", { class: "note", text: note }) : "");
}

/** @param {Usage} usage @param {Turn[]} turns */
function tokenChart({ window, budget_tokens }, turns) {
  const isKept = (/** @type {Turn} */ turn) => window.first_seq !== null && turn.last_seq !== null && turn.last_seq >= window.first_seq;
  const only = (/** @type {(turn: Turn) => boolean} */ which) => turns.map((turn) => (which(turn) ? turn.tokens : null));
  const largest = turns.map((turn) => Math.max(0, ...turn.model_calls.map((call) => call.input_tokens)) || null);
  const far = Math.max(...largest.map((tokens) => tokens ?? 0), ...turns.map((turn) => turn.tokens)) < budget_tokens / 4;
  return chart("Tokens per turn", turns, [
    { label: "its messages, kept", values: only((turn) => !turn.is_rewound && isKept(turn)), color: "accent", kind: "bars" },
    { label: "its messages, left out", values: only((turn) => !turn.is_rewound && !isKept(turn)), color: "edge", kind: "bars" },
    { label: "rewound", values: only((turn) => turn.is_rewound), color: "warn", kind: "bars" },
    { label: "largest request", values: largest, color: "link", kind: "line" },
    { label: "budget", values: turns.map(() => budget_tokens), color: "bad", kind: "bound" },
  ], formatShort, far ? `The budget of ${budget_tokens.toLocaleString()} is far above these values.` : "A request also contains the system prompt and the tools: the budget covers messages only.");
}

/** @param {Turn[]} turns */
function costChart(turns) {
  if (turns.every((turn) => turn.usage.cost_usd === null)) {
    return el("section", {}, el("h2", { text: "Cost" }), el("p", { class: "note", text: "No price is known for this model." }));
  }
  let sum = 0;
  const values = turns.map((turn) => (sum += turn.usage.cost_usd ?? 0));
  return chart("Cumulative cost", turns, [{ label: "US dollars", values, color: "accent", kind: "line" }], (dollars) => `$${+dollars.toPrecision(3)}`);
}

/** @param {Turn[]} turns */
function timeChart(turns) {
  return chart("Time per turn", turns, [
    { label: "model", values: turns.map(modelTime), color: "accent", kind: "bars" },
    { label: "tools", values: turns.map(toolTime), color: "warn", kind: "bars" },
  ], (seconds) => `${formatShort(seconds)} s`);
}

/** @param {Turn} turn */
const modelTime = (turn) => turn.model_calls.reduce((sum, call) => sum + call.duration_s, 0);
/** @param {Turn} turn */
const toolTime = (turn) => turn.tools.reduce((sum, tool) => sum + (tool.duration_s ?? 0), 0);

/** @param {Turn[]} turns @param {(turn: number) => void} select */
function turnTable(turns, select) {
  const rows = [...turns].reverse().map((turn) => el("tr", {},
    el("th", { scope: "row" }, el("button", {
      type: "button", class: "quiet", "aria-pressed": String(turn.turn === selectedTurn(turns).turn), "aria-label": `Turn ${turn.turn}: show its calls`,
      click: () => select(turn.turn),
    }, String(turn.turn))),
    el("td", { text: `${turn.is_rewound ? "rewound" : turn.status}${turn.resumptions?.length ? ", resumed" : ""}` }),
    ...[turn.tokens, turn.usage.input_tokens, turn.usage.output_tokens].map((number) => el("td", { class: "number", text: number.toLocaleString() })),
    el("td", { class: "number", text: turn.usage.cost_usd === null ? "–" : formatCost(turn.usage.cost_usd) }),
    el("td", { class: "number", text: formatDuration(modelTime(turn) || null) || "–" }),
    el("td", { class: "number", text: formatDuration(toolTime(turn) || null) || "–" })));
  return scrollRegion("Turns", el("table", {}, el("caption", { text: "Turns, newest first" }),
    head("Turn", "Status", "Messages", "Read", "Written", "Cost", "Model", "Tools"), el("tbody", {}, ...rows)));
}

/** Say when and why the selected turn was resumed. @param {Turn[]} turns */
function resumptions(turns) {
  const { turn, resumptions: all = [] } = selectedTurn(turns);
  const text = all.map(({ at, reason }) => describeResumption(at, reason)).join(" ");
  return text ? el("p", { class: "note", text: `Turn ${turn}: ${text}` }) : "";
}

/** @param {Turn[]} turns */
function selectedTurn(turns) {
  return turns.find((turn) => turn.turn === view.turn) ?? turns[turns.length - 1];
}

const NUMBERS = new Set(["Messages", "Read", "Written", "Cost", "Model", "Tools", "Time"]);

/** @param {...string} names */
function head(...names) {
  return el("thead", {}, el("tr", {}, ...names.map((name) => el("th", { scope: "col", class: NUMBERS.has(name) ? "number" : null, text: name }))));
}

/** @param {string} name @param {Node} content */
function scrollRegion(name, content) {
  return el("div", { class: "numbers", role: "region", "aria-label": name, tabindex: "0" }, content);
}

/** List the model and tool calls of the selected turn by their start. @param {Turn[]} turns */
function callTable(turns) {
  const turn = selectedTurn(turns);
  const startMs = (/** @type {string | null} */ at) => Date.parse(at ?? turn.started_at);
  const calls = [
    ...turn.model_calls.map((call) => ({ kind: "model", name: call.model, start: startMs(call.started_at), duration_s: call.duration_s, details: `${call.input_tokens.toLocaleString()} in, ${call.output_tokens.toLocaleString()} out` })),
    ...turn.tools.map((tool) => ({ kind: "tool", name: tool.name, start: startMs(tool.started_at), duration_s: tool.duration_s, details: [tool.status.replace("_", " "), tool.approved_by && `approved by ${tool.approved_by}`].filter(Boolean).join(", ") })),
  ].sort((first, second) => first.start - second.start);
  if (!calls.length) return el("p", { class: "note", text: `Turn ${turn.turn} called neither model nor tool.` });
  const from = Math.min(...calls.map((call) => call.start));
  const until = Math.max(...calls.map((call) => call.start + 1000 * (call.duration_s ?? 0)));
  const total = Math.max(1, until - from);
  const rows = calls.map((call) => {
    const bar = el("span", { class: `span ${call.kind}`, "aria-hidden": "true" });
    bar.style.marginLeft = `${(97 * (call.start - from)) / total}%`;
    bar.style.width = `${Math.max(3, (100 * 1000 * (call.duration_s ?? 0)) / total)}%`;
    return el("tr", {}, el("th", { scope: "row" }, el("span", { class: "kind", text: call.kind }), " ", call.name), el("td", {}, el("span", { class: "lane" }, bar)),
      el("td", { class: "number", text: formatDuration(call.duration_s) || "–" }), el("td", { text: call.details }));
  });
  return scrollRegion(`Calls of turn ${turn.turn}`, el("table", { class: "calls" }, el("caption", { text: `Calls of turn ${turn.turn}` }),
    head("Call", "Start", "Time", "Details"), el("tbody", {}, ...rows)));
}

// a canvas does not follow a change of theme
const recolour = () => { for (const plot of plots) plot.draw(); };
new MutationObserver(recolour).observe(document.documentElement, { attributeFilter: ["data-theme"] });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
