/** Show cost, tokens, time and errors over all conversations, by agent, model and day. */

import { api } from "../base/api.js";
import { openPageDialog, redraw } from "../base/dialogs.js";
import { byId, el, formatCost, formatDuration, icon, loadStylesheet, withErrorToast } from "../base/dom.js";
import { formatShort, legend, Plot } from "../panel/plots.js";

/**
 * @typedef {{day: string, agent: string, model: string, calls: number, input_tokens: number, output_tokens: number, cached_tokens: number, duration_s: number, slowest_s: number, cost_usd: number | null}} ModelUsage
 * @typedef {{day: string, agent: string, turns: number, failed: number}} TurnCount
 * @typedef {{models: ModelUsage[], turns: TurnCount[]}} Usage
 */

const COLORS = ["accent", "link", "warn", "edge"];
const DAYS = [7, 30, 90];

let dialog = /** @type {any} */ (null);
/** @type {Plot[]} */ let plots = [];
let chosen = { days: 30, by: "model", agent: "" };

async function open() {
  if (dialog) return;
  await Promise.all(["/page/vendor/uplot.css", "/page/panel.css", "/page/overview/overview.css"].map(loadStylesheet));
  dialog = openPageDialog("overview", "Overview", "Close the overview", () => {
    clearPlots();
    dialog = null;
  });
  await load();
}

async function load() {
  const usage = await withErrorToast(() => api(`/v1/usage?days=${chosen.days}`));
  if (dialog && usage) draw(usage);
}

function clearPlots() {
  for (const plot of plots.splice(0)) plot.destroy();
}

/** @param {Usage} usage */
function draw(usage) {
  clearPlots();
  const isShown = (/** @type {{agent: string}} */ row) => !chosen.agent || row.agent === chosen.agent;
  const models = usage.models.filter(isShown);
  const turns = usage.turns.filter(isShown);
  const agents = [...new Set(usage.turns.map((row) => row.agent))].sort();
  const choices = el("div", { class: "overview-choices" },
    select("Period", DAYS.map((days) => [String(days), `${days} days`]), String(chosen.days), (value) => { chosen.days = Number(value); void load(); }),
    select("Agent", [["", "All agents"], ...agents.map((name) => [name, name])], chosen.agent, (value) => { chosen.agent = value; draw(usage); }),
    select("Split by", [["model", "By model"], ["agent", "By agent"]], chosen.by, (value) => { chosen.by = value; draw(usage); }));
  const days = lastDays(chosen.days);
  const wanted = !turns.length ? [choices, el("p", { class: "note", text: "No turn has run in this time." })] : [
    choices, totals(models, turns),
    chart("Cost per day", days, split(models, days, (row) => row.cost_usd), (dollars) => `$${+dollars.toPrecision(3)}`),
    chart("Tokens per day", days, split(models, days, (row) => row.input_tokens + row.output_tokens), formatShort),
    chart("Time per model call", days, latency(models, days), (seconds) => (seconds ? formatDuration(seconds) : "0")),
    chart("Turns per day", days, outcome(turns, days), formatShort),
    table(models, turns),
  ];
  redraw(dialog, ...wanted);
  for (const plot of plots) plot.draw();
}

/** @param {string} label @param {string[][]} options @param {string} value @param {(value: string) => void} change */
function select(label, options, value, change) {
  const box = el("select", { "aria-label": label, class: "agent", change: () => change(box.value) }, ...options.map(([name, text]) => el("option", { value: name, text })));
  box.value = value;
  return box;
}

/** @param {number} count the days up to today, in UTC as the server counts */
function lastDays(count) {
  return Array.from({ length: count }, (_, at) => new Date(Date.now() - (count - 1 - at) * 86_400_000).toISOString().slice(0, 10));
}

/** @template T @param {T[]} rows @param {(row: T) => number | null} value */
const sum = (rows, value) => rows.reduce((all, row) => all + (value(row) ?? 0), 0);

/** @param {ModelUsage[]} models @param {TurnCount[]} turns */
function totals(models, turns) {
  const failed = sum(turns, (row) => row.failed);
  const calls = sum(models, (row) => row.calls);
  const used = models.filter((row) => row.input_tokens || row.output_tokens);
  const known = used.filter((row) => row.cost_usd !== null);
  const dollars = formatCost(sum(known, (row) => row.cost_usd));
  const pairs = [
    ["Turns", sum(turns, (row) => row.turns).toLocaleString()], ["Failed", failed.toLocaleString()], ["Model calls", calls.toLocaleString()],
    ["Tokens read", formatShort(sum(models, (row) => row.input_tokens))], ["Tokens written", formatShort(sum(models, (row) => row.output_tokens))],
    ["Time per call", formatDuration(calls ? sum(models, (row) => row.duration_s) / calls : null) || "–"],
    ["Cost", known.length === used.length ? dollars : known.length ? `${dollars} or more` : "not known"],
  ];
  return el("dl", { class: "totals" }, ...pairs.map(([name, value]) => el("div", {}, el("dt", { text: name }), el("dd", { text: value }))));
}

/** Sum by model or agent: the largest few, and the rest together. @param {ModelUsage[]} rows @param {string[]} days @param {(row: ModelUsage) => number | null} value */
function split(rows, days, value) {
  const key = (/** @type {ModelUsage} */ row) => (chosen.by === "agent" ? row.agent : row.model || "unknown");
  const names = [...new Set(rows.map(key))].sort((first, second) => sum(rows.filter((row) => key(row) === second), value) - sum(rows.filter((row) => key(row) === first), value));
  const shown = names.length > COLORS.length ? names.slice(0, COLORS.length - 1) : names;
  const groups = shown.map((name) => ({ label: name, rows: rows.filter((row) => key(row) === name) }));
  if (shown.length < names.length) groups.push({ label: "others", rows: rows.filter((row) => !shown.includes(key(row))) });
  return groups.map(({ label, rows: own }, at) => ({
    label, color: COLORS[at], kind: /** @type {const} */ ("bars"), values: days.map((day) => sum(own.filter((row) => row.day === day), value) || null),
  }));
}

/** @param {ModelUsage[]} rows @param {string[]} days */
function latency(rows, days) {
  const of = (/** @type {string} */ day) => rows.filter((row) => row.day === day && row.calls);
  const mean = days.map((day) => (of(day).length ? sum(of(day), (row) => row.duration_s) / sum(of(day), (row) => row.calls) : null));
  const slowest = days.map((day) => (of(day).length ? Math.max(...of(day).map((row) => row.slowest_s)) : null));
  return [{ label: "mean", color: "accent", kind: /** @type {const} */ ("bars"), values: mean }, { label: "slowest", color: "link", kind: /** @type {const} */ ("line"), values: slowest }];
}

/** @param {TurnCount[]} rows @param {string[]} days */
function outcome(rows, days) {
  const of = (/** @type {string} */ day) => rows.filter((row) => row.day === day);
  const failed = days.map((day) => sum(of(day), (row) => row.failed) || null);
  const fine = days.map((day, at) => sum(of(day), (row) => row.turns) - (failed[at] ?? 0) || null);
  return [{ label: "answered", color: "accent", kind: /** @type {const} */ ("bars"), values: fine }, { label: "failed", color: "warn", kind: /** @type {const} */ ("bars"), values: failed }];
}

/** @param {string} title @param {string[]} days @param {import("../panel/plots.js").Series[]} series @param {(value: number) => string} format */
function chart(title, days, series, format) {
  const used = series.filter((line) => line.values.some((value) => value));
  if (!used.length) return el("section", {}, el("h3", { text: title }), el("p", { class: "note", text: title.startsWith("Cost") ? "No price is known: [agent.prices] sets those of your own models." : "Nothing in this time." }));
  const labels = days.map((day) => new Date(`${day}T12:00:00Z`).toLocaleDateString([], { day: "numeric", month: "short" }));
  const plot = new Plot(`${title}. The sums are in the table below.`, days.map((_, at) => at + 1), used, format, labels);
  plots.push(plot);
  return el("section", {}, el("h3", { text: title }), legend(used), plot.element);
}

/** @param {ModelUsage[]} models @param {TurnCount[]} turns */
function table(models, turns) {
  const groups = new Map();
  for (const row of models) {
    const key = JSON.stringify([row.agent, row.model]);
    groups.set(key, [...(groups.get(key) ?? []), row]);
  }
  const rows = [...groups.values()].map((/** @type {ModelUsage[]} */ own) => {
    const known = own.filter((row) => row.cost_usd !== null);
    return [own[0].agent, own[0].model || "unknown", sum(own, (row) => row.calls).toLocaleString(), formatShort(sum(own, (row) => row.input_tokens)), formatShort(sum(own, (row) => row.output_tokens)),
      formatDuration(sum(own, (row) => row.duration_s) / Math.max(1, sum(own, (row) => row.calls))), known.length ? formatCost(sum(known, (row) => row.cost_usd)) : "not known"];
  });
  const head = ["Agent", "Model", "Calls", "Read", "Written", "Time per call", "Cost"];
  const failed = [...new Set(turns.filter((row) => row.failed).map((row) => row.agent))].map((agent) => `${agent}: ${sum(turns.filter((row) => row.agent === agent), (row) => row.failed)} failed of ${sum(turns.filter((row) => row.agent === agent), (row) => row.turns)} turns`);
  return el("div", { class: "numbers", role: "region", "aria-label": "By agent and model", tabindex: "0" },
    el("table", {}, el("caption", { text: "By agent and model" }),
      el("thead", {}, el("tr", {}, ...head.map((name, at) => el("th", { scope: "col", class: at > 1 ? "number" : null, text: name })))),
      el("tbody", {}, ...rows.map((cells) => el("tr", {}, ...cells.map((text, at) => el(at ? "td" : "th", { class: at > 1 ? "number" : null, scope: at ? null : "row", text })))))),
    failed.length > 0 && el("p", { class: "note", text: `${failed.join("; ")}.` }));
}

export function setUpOverview() {
  byId("overview").prepend(icon("chart"));
  byId("overview").addEventListener("click", open);
  // a canvas does not follow a change of theme
  const recolour = () => plots.forEach((plot) => plot.draw());
  new MutationObserver(recolour).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
}
