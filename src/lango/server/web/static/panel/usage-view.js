/** The picture of a conversation: tokens against the budget, what the next request keeps, cost, and where time went. */

import { api, sessionPath } from "../base/api.js";
import { el, lasted } from "../base/dom.js";
import { legend, Plot, short } from "./plots.js";

/**
 * @typedef {{input_tokens: number, output_tokens: number, cached_tokens: number, model_calls: number, cost_usd: number | null}} Spent
 * @typedef {{model: string, agent: string, started_at: string, duration_s: number, input_tokens: number, output_tokens: number}} Call
 * @typedef {{call_id: string, name: string, status: string, started_at: string | null, duration_s: number | null, approved_by?: string | null}} Tool
 * @typedef {{turn: number, status: string, started_at: string, ended_at: string | null, first_seq: number | null,
 *   last_seq: number | null, tokens: number, taken_back: boolean, usage: Spent, model_calls: Call[], tools: Tool[]}} Turn
 * @typedef {{budget_tokens: number, max_messages: number | null, window: {first_seq: number | null, messages: number, tokens: number,
 *   left_out_messages: number, left_out_tokens: number, observed_seq: number, memory_tokens: number}, turns: Turn[], before: number | null, total: {turns: number, usage: Spent}}} Usage
 */

const STYLES = ["/page/vendor/uplot.css", "/page/panel.css"];

/** @type {Promise<any> | null} */
let styled = null;
/** @type {Plot[]} */
let plots = [];
let newest = 0;
/** which session is shown, the turns before its newest page, and the turn whose calls are shown
 * @type {{session: string | null, earlier: Turn[], before: number | null, turn: number | null}} */
let shown = { session: null, earlier: [], before: null, turn: null };

/** @param {HTMLElement} host @param {string | null} session */
export async function show(host, session) {
  const me = ++newest;
  if (session === null) return put(host, () => [el("p", { class: "note", text: "Send a message first." })]);
  const [usage] = await Promise.all([api(sessionPath(session, "/usage")), (styled ??= Promise.all(STYLES.map(load)))]);
  if (me !== newest) return;
  if (shown.session !== session) shown = { session, earlier: [], before: null, turn: null };
  draw(host, usage);
}

/** @param {string} href */
function load(href) {
  return new Promise((done) => document.head.append(el("link", { rel: "stylesheet", href, load: done, error: done })));
}

/** @param {HTMLElement} host @param {() => Node[]} children */
function put(host, children) {
  for (const plot of plots.splice(0)) plot.destroy();
  host.replaceChildren(...children());
  for (const plot of plots) plot.draw();
}

/** @param {HTMLElement} host @param {Usage} usage */
function draw(host, usage) {
  if (!usage.turns.length) return put(host, () => [el("p", { class: "note", text: "No turn has run here yet." })]);
  const first = usage.turns[0].turn;
  const turns = [...shown.earlier.filter((one) => one.turn < first), ...usage.turns];
  const before = shown.earlier.length ? shown.before : usage.before;
  const top = host.scrollTop;
  put(host, () => [
    figures(usage), windowBand(usage), tokens(usage, turns), cost(turns), times(turns),
    before === null ? "" : el("button", { type: "button", class: "quiet", click: () => earlier(host, usage, before, turns) }, "Earlier turns"),
    table(turns, (turn) => { shown.turn = turn; draw(host, usage); }), calls(turns),
  ].filter((one) => one !== ""));
  host.scrollTop = top;
}

/** @param {HTMLElement} host @param {Usage} usage @param {number} before @param {Turn[]} turns */
async function earlier(host, usage, before, turns) {
  const me = ++newest;
  const page = /** @type {Usage} */ (await api(sessionPath(shown.session ?? "", `/usage?before=${before}`)));
  if (me !== newest) return;
  shown.earlier = [...page.turns, ...turns.filter((one) => one.turn < usage.turns[0].turn)];
  shown.before = page.before;
  draw(host, usage);
}

/** @param {number | null} dollars */
function money(dollars) {
  if (dollars === null) return "not known";
  return `$${dollars.toFixed(dollars && dollars < 0.1 ? 4 : 2)}`;
}

/** @param {Usage} usage */
function figures({ total }) {
  const { usage } = total;
  const facts = [
    ["Turns", total.turns.toLocaleString()], ["Model calls", usage.model_calls.toLocaleString()],
    ["Tokens read", short(usage.input_tokens)], ["Tokens written", short(usage.output_tokens)], ["Cost", money(usage.cost_usd)],
  ];
  return el("dl", { class: "figures" }, ...facts.map(([name, value]) => el("div", {}, el("dt", { text: name }), el("dd", { text: value }))));
}

/** What the next request keeps, what it leaves out, and the room that is left. @param {Usage} usage */
function windowBand({ window, budget_tokens, max_messages }) {
  const free = Math.max(0, budget_tokens - window.tokens - window.memory_tokens);
  const parts = [["left-out", window.left_out_tokens], ["notes", window.memory_tokens], ["kept", window.tokens], ["free", free]];
  const all = Math.max(1, parts.reduce((sum, [, tokens]) => sum + Number(tokens), 0));
  const bar = el("div", { class: "band", "aria-hidden": "true" });
  for (const [name, tokens] of parts) {
    const part = el("span", { class: name });
    part.style.width = `${(100 * Number(tokens)) / all}%`;
    if (tokens) bar.append(part);
  }
  const kept = `The next request keeps ${messages(window.messages)} (${window.tokens.toLocaleString()} tokens)`;
  const left = window.left_out_messages || window.left_out_tokens
    ? ` and leaves out ${messages(window.left_out_messages)} (${window.left_out_tokens.toLocaleString()} tokens).` : ". Nothing is left out.";
  const notes = window.memory_tokens
    ? ` Notes of the messages up to ${window.observed_seq} take ${window.memory_tokens.toLocaleString()} tokens.` : "";
  const bound = `Budget: ${budget_tokens.toLocaleString()} tokens${max_messages === null ? "" : `, at most ${max_messages} messages`}.`;
  return el("section", { class: "window" }, el("h2", { text: "What the model is sent" }), bar, el("p", { class: "note", text: `${kept}${left}${notes} ${bound}` }));
}

/** @param {number} count */
function messages(count) {
  return `${count.toLocaleString()} message${count === 1 ? "" : "s"}`;
}

/** @param {string} title @param {Turn[]} turns @param {import("./plots.js").Series[]} series @param {(one: number) => string} format @param {string} [note] */
function chart(title, turns, series, format, note) {
  const used = series.filter((one) => one.values.some((value) => value));
  const plot = new Plot(`${title}, turn by turn. The same numbers are in the table below.`, turns.map((one) => one.turn), used, format);
  plots.push(plot);
  return el("section", {}, el("h2", { text: title }), legend(used), plot.element, note ? el("p", { class: "note", text: note }) : "");
}

/** @param {Usage} usage @param {Turn[]} turns */
function tokens({ window, budget_tokens }, turns) {
  const isKept = (/** @type {Turn} */ one) => window.first_seq !== null && one.last_seq !== null && one.last_seq >= window.first_seq;
  const only = (/** @type {(one: Turn) => boolean} */ which) => turns.map((one) => (which(one) ? one.tokens : null));
  const largest = turns.map((one) => Math.max(0, ...one.model_calls.map((call) => call.input_tokens)) || null);
  const far = Math.max(...largest.map((one) => one ?? 0), ...turns.map((one) => one.tokens)) < budget_tokens / 4;
  return chart("Tokens per turn", turns, [
    { label: "its messages, kept", values: only((one) => !one.taken_back && isKept(one)), color: "accent", kind: "bars" },
    { label: "its messages, left out", values: only((one) => !one.taken_back && !isKept(one)), color: "edge", kind: "bars" },
    { label: "taken back", values: only((one) => one.taken_back), color: "warn", kind: "bars" },
    { label: "largest request", values: largest, color: "link", kind: "line" },
    { label: "budget", values: turns.map(() => budget_tokens), color: "bad", kind: "bound" },
  ], short, far ? `The budget of ${budget_tokens.toLocaleString()} is far above.` : "A request also holds the system prompt and the tools: the budget is for messages.");
}

/** @param {Turn[]} turns */
function cost(turns) {
  if (turns.every((one) => one.usage.cost_usd === null)) {
    return el("section", {}, el("h2", { text: "Cost" }), el("p", { class: "note", text: "No price is known for this model." }));
  }
  let sum = 0;
  const values = turns.map((one) => (sum += one.usage.cost_usd ?? 0));
  return chart("Cost, added up", turns, [{ label: "US dollars", values, color: "accent", kind: "line" }], (one) => `$${+one.toPrecision(3)}`);
}

/** @param {Turn[]} turns */
function times(turns) {
  return chart("Time per turn", turns, [
    { label: "model", values: turns.map(modelTime), color: "accent", kind: "bars" },
    { label: "tools", values: turns.map(toolTime), color: "warn", kind: "bars" },
  ], (one) => `${short(one)} s`);
}

/** @param {Turn} turn */
const modelTime = (turn) => turn.model_calls.reduce((sum, one) => sum + one.duration_s, 0);
/** @param {Turn} turn */
const toolTime = (turn) => turn.tools.reduce((sum, one) => sum + (one.duration_s ?? 0), 0);

/** @param {Turn[]} turns @param {(turn: number) => void} choose */
function table(turns, choose) {
  const rows = [...turns].reverse().map((one) => el("tr", {},
    el("th", { scope: "row" }, el("button", {
      type: "button", class: "quiet", "aria-pressed": String(one.turn === chosen(turns).turn), "aria-label": `Turn ${one.turn}: show its calls`,
      click: () => choose(one.turn),
    }, String(one.turn))),
    el("td", { text: one.taken_back ? "taken back" : one.status }),
    ...[one.tokens, one.usage.input_tokens, one.usage.output_tokens].map((number) => el("td", { class: "number", text: number.toLocaleString() })),
    el("td", { class: "number", text: one.usage.cost_usd === null ? "–" : money(one.usage.cost_usd) }),
    el("td", { class: "number", text: lasted(modelTime(one) || null) || "–" }),
    el("td", { class: "number", text: lasted(toolTime(one) || null) || "–" })));
  return frame("Turns", el("table", {}, el("caption", { text: "Turns, the newest first" }),
    head("Turn", "Status", "Messages", "Read", "Written", "Cost", "Model", "Tools"), el("tbody", {}, ...rows)));
}

/** @param {Turn[]} turns */
function chosen(turns) {
  return turns.find((one) => one.turn === shown.turn) ?? turns[turns.length - 1];
}

const NUMBERS = new Set(["Messages", "Read", "Written", "Cost", "Model", "Tools", "Time"]);

/** @param {...string} names */
function head(...names) {
  return el("thead", {}, el("tr", {}, ...names.map((name) => el("th", { scope: "col", class: NUMBERS.has(name) ? "number" : null, text: name }))));
}

/** @param {string} name @param {Node} inside */
function frame(name, inside) {
  return el("div", { class: "numbers", role: "region", "aria-label": name, tabindex: "0" }, inside);
}

/** Each call of the model and of a tool in one turn, one under the other, as they went on. @param {Turn[]} turns */
function calls(turns) {
  const turn = chosen(turns);
  const all = [
    ...turn.model_calls.map((one) => ({ kind: "model", name: one.model, at: one.started_at, took: one.duration_s, more: `${one.input_tokens.toLocaleString()} in, ${one.output_tokens.toLocaleString()} out` })),
    ...turn.tools.map((one) => ({ kind: "tool", name: one.name, at: one.started_at, took: one.duration_s, more: [one.status, one.approved_by && `approved by ${one.approved_by}`].filter(Boolean).join(", ") })),
  ].sort((one, other) => Date.parse(one.at ?? turn.started_at) - Date.parse(other.at ?? turn.started_at));
  if (!all.length) return el("p", { class: "note", text: `Turn ${turn.turn} called neither model nor tool.` });
  const from = Math.min(...all.map((one) => Date.parse(one.at ?? turn.started_at)));
  const until = Math.max(...all.map((one) => Date.parse(one.at ?? turn.started_at) + 1000 * (one.took ?? 0)));
  const whole = Math.max(1, until - from);
  const rows = all.map((one) => {
    const bar = el("span", { class: `span ${one.kind}`, "aria-hidden": "true" });
    bar.style.marginLeft = `${(97 * (Date.parse(one.at ?? turn.started_at) - from)) / whole}%`;
    bar.style.width = `${Math.max(3, (100 * 1000 * (one.took ?? 0)) / whole)}%`;
    return el("tr", {}, el("th", { scope: "row" }, el("span", { class: "kind", text: one.kind }), " ", one.name), el("td", {}, el("span", { class: "lane" }, bar)),
      el("td", { class: "number", text: lasted(one.took) || "–" }), el("td", { text: one.more }));
  });
  return frame(`Calls of turn ${turn.turn}`, el("table", { class: "calls" }, el("caption", { text: `Calls of turn ${turn.turn}` }),
    head("Call", "When", "Time", "What"), el("tbody", {}, ...rows)));
}

// another theme has other colours, which the canvas does not hear of by itself
const recolour = () => { for (const plot of plots) plot.draw(); };
new MutationObserver(recolour).observe(document.documentElement, { attributeFilter: ["data-theme"] });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
