/** Show what a case expected beside what happened. */

import { el } from "../base/dom.js";

/** @typedef {{tool_calls: {name: string, args: any}[], answer: string}} Exchange */

/** @param {{criteria: any[], messages: {text: string, expected: Exchange, actual: Exchange | null}[]}} result */
export function resultDetails({ criteria, messages }) {
  const scores = criteria.map(({ name, passed, score, threshold }) =>
    el("li", { text: `${name}: ${passed ? "passed" : "failed"}${score === null ? " (nothing was expected)" : ` (${score.toFixed(2)} of ${threshold})`}` }));
  return el("div", { class: "evals-details" }, el("ul", { class: "note" }, ...scores), ...messages.map(exchangeTable));
}

/** @param {{text: string, expected: Exchange, actual: Exchange | null}} message */
function exchangeTable({ text, expected, actual }) {
  const rows = [["Tools", calls(expected), actual ? calls(actual) : "–"], ["Answer", expected.answer, actual?.answer ?? "–"]];
  return el("div", { class: "evals-table", role: "region", tabindex: "0", "aria-label": text },
    el("table", {}, el("caption", { text }),
      el("thead", {}, el("tr", {}, el("td"), el("th", { scope: "col", text: "Expected" }), el("th", { scope: "col", text: "Actual" }))),
      el("tbody", {}, ...rows.map(([name, left, right]) =>
        el("tr", { "data-differs": String(left !== right) }, el("th", { scope: "row", text: name }), el("td", { text: left }), el("td", { text: right }))))));
}

/** @param {Exchange} exchange */
function calls({ tool_calls: all }) {
  return all.map(({ name, args }) => `${name} ${JSON.stringify(args)}`).join("\n") || "no tool";
}
