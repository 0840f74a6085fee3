/** Show one step of a trace: its facts, its requests to the model, and its event as it is stored. */

import { api, describeError, sessionPath } from "../base/api.js";
import { copyButton, el, formatBytes, formatDuration } from "../base/dom.js";
import { failureSlot } from "../base/failures.js";
import { emit } from "../base/state.js";

/** @typedef {import("./trace-view.js").Step} Step */

const SHOWN_LENGTH = 20_000;

/** @param {string} session @param {Step} step @param {number} start when the turn began */
export function details(session, step, start) {
  const facts = [
    ["Agent", step.agent], ["Branch", step.branch], ["Model", step.model], ["Call", step.call_id],
    ["Started", `${((Date.parse(step.started_at) - start) / 1000).toFixed(3)} s after the turn began${step.is_estimated ? ", estimated" : ""}`],
    ["Took", formatDuration(step.duration_s)],
    ["Tokens read", step.kind === "model_call" ? step.usage.input_tokens.toLocaleString() : ""],
    ["Of these cached", step.usage.cached_tokens ? step.usage.cached_tokens.toLocaleString() : ""],
    ["Tokens written", step.kind === "model_call" ? step.usage.output_tokens.toLocaleString() : ""],
    ["Approved by", step.approved_by ?? ""],
    ["Replayed", step.is_replayed ? "from the record, when the turn was resumed" : ""],
  ].filter(([, value]) => value);
  const event = (/** @type {number | null} */ seq, /** @type {string} */ label) => seq !== null && opener(label, () => api(sessionPath(session, `/trace/events/${seq}`)));
  const isTool = step.kind === "tool";
  return el("div", { class: "trace-details" },
    el("dl", {}, ...facts.map(([name, value]) => el("div", {}, el("dt", { text: name }), el("dd", { text: value })))),
    step.status === "failed" && failureSlot(session, (failure) => failure.step !== "" && (failure.step === step.call_id || step.id.includes(failure.step))),
    ...[["Input", step.input], ["Output", step.output], ["Error", step.error || null]].flatMap(([name, value]) => (value === null ? [] : valueBlock(name, value))),
    step.attempts.length > 0 && el("ol", { class: "trace-attempts", "aria-label": "Requests to the model" },
      ...step.attempts.map((attempt) => attemptItem(session, attempt))),
    step.seq !== null && el("button", {
      type: "button", class: "quiet small", click: () => emit("reveal", { call_id: isTool ? step.call_id : "", seq: step.seq }),
    }, "Show in the conversation"),
    event(step.seq, isTool ? `Message ${step.seq}, with the call, as stored` : `Message ${step.seq} as stored`),
    isTool && event(step.result_seq, `Message ${step.result_seq}, with the result, as stored`));
}

/** @param {string} session @param {import("./trace-view.js").Attempt} attempt */
function attemptItem(session, attempt) {
  const line = [`${attempt.provider}/${attempt.model}`, attempt.status && `HTTP ${attempt.status}`, formatDuration(attempt.duration_s), attempt.size > 0 && formatBytes(attempt.size)];
  const load = () => api(sessionPath(session, `/trace/requests/${attempt.request_id}`));
  return el("li", {},
    el("p", { text: line.filter(Boolean).join(" · ") }),
    attempt.error && el("p", { class: "trace-error", text: attempt.error }),
    attempt.request_id && opener("Request", async () => (await load()).request),
    attempt.request_id && opener("Response", async () => (await load()).response));
}

/** Create a disclosure that loads a JSON value when it is opened. @param {string} label @param {() => Promise<any>} load */
function opener(label, load) {
  const box = el("details", { class: "trace-json" }, el("summary", { text: label }));
  box.addEventListener("toggle", async () => {
    if (!box.open || box.querySelector("pre, .note")) return;
    try {
      box.append(...jsonBlock(label, await load()));
    } catch (error) {
      box.append(el("p", { class: "note", text: describeError(error) }));
    }
  });
  return box;
}

/** Show a value with its name: text as it is, else JSON. @param {string} name @param {any} value */
function valueBlock(name, value) {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  return [el("p", { class: "trace-value-name", text: name }), el("pre", { class: "trace-value", tabindex: "0", "aria-label": name, text: text.slice(0, SHOWN_LENGTH) })];
}

/** @param {string} label @param {any} value @returns {Node[]} */
export function jsonBlock(label, value) {
  const text = JSON.stringify(value, null, 2);
  const shown = el("pre", { tabindex: "0", "aria-label": label, text: text.slice(0, SHOWN_LENGTH) });
  const more = el("button", { type: "button", class: "quiet", click: () => { shown.textContent = text; more.remove(); } }, `Show all ${text.length.toLocaleString()} characters`);
  return [el("div", { class: "trace-copy" }, copyButton(`Copy: ${label}`, () => text)), shown, ...(text.length > SHOWN_LENGTH ? [more] : [])];
}
