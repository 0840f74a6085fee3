/** Show one step of a trace: its facts, its requests to the model, and its event as it is stored. */

import { api, sessionPath } from "../base/api.js";
import { el, formatBytes, formatDuration, withErrorToast } from "../base/dom.js";
import { failureSlot } from "../base/failures.js";
import { emit } from "../base/state.js";
import { jsonBlock, opener, requestViews, valueBlock } from "./request-view.js";

/** @typedef {import("./trace-view.js").Step} Step */

/** @param {string} session @param {import("./trace-view.js").Turn} turn @param {Step} step @param {number} start when the turn began */
export function details(session, turn, step, start) {
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
  const event = (/** @type {number | null} */ seq, /** @type {string} */ label) => seq !== null && opener(label, async () => jsonBlock(label, await api(sessionPath(session, `/trace/events/${seq}`))));
  const isTool = step.kind === "tool";
  return el("div", { class: "trace-details" },
    el("dl", {}, ...facts.map(([name, value]) => el("div", {}, el("dt", { text: name }), el("dd", { text: value })))),
    step.status === "failed" && failureSlot(session, (failure) => failure.step !== "" && (failure.step === step.call_id || step.id.includes(failure.step))),
    ...[["Input", step.node?.input ?? null], ["Output", step.node?.output ?? null], ["Error", step.node?.error || null]].flatMap(([name, value]) => (value === null ? [] : valueBlock(name, value))),
    step.attempts.length > 0 && el("ol", { class: "trace-attempts", "aria-label": "Requests to the model" },
      ...step.attempts.map((attempt) => attemptItem(session, attempt))),
    canRunOn(turn, step) && el("button", {
      type: "button", class: "quiet small", click: () => withErrorToast(async () => (await import("./playground.js")).openPlayground(session, turn, step)),
    }, isTool ? "Change the result and run on" : "Change and run on from here"),
    step.seq !== null && el("button", {
      type: "button", class: "quiet small", click: () => emit("reveal", { call_id: isTool ? step.call_id : "", seq: step.seq }),
    }, "Show in the conversation"),
    isTool && step.seq !== null && opener("Arguments and result", () => argumentsAndResult(session, step)),
    event(step.seq, isTool ? `Message ${step.seq}, with the call, as stored` : `Message ${step.seq} as stored`),
    isTool && event(step.result_seq, `Message ${step.result_seq}, with the result, as stored`));
}

/** Whether a fork can begin at a step: it is no part of a tool. @param {import("./trace-view.js").Turn} turn @param {Step} step */
function canRunOn(turn, step) {
  return (step.kind === "model_call" && step.seq !== null) || (step.kind === "tool" && step.result_seq !== null && turn.first_seq !== null);
}

/** @param {string} session @param {Step} step */
async function argumentsAndResult(session, { seq, result_seq, call_id }) {
  const read = async (/** @type {number | null} */ number) => (number === null ? null
    : (await api(sessionPath(session, `/trace/events/${number}`))).tool_calls.find((/** @type {any} */ call) => call.id === call_id));
  const [call, result] = await Promise.all([read(seq), read(result_seq)]);
  return [...valueBlock("Arguments", call?.input ?? {}), ...(result ? valueBlock("Result", result.output) : [])];
}

/** @param {string} session @param {import("./trace-view.js").Attempt} attempt */
function attemptItem(session, attempt) {
  const line = [`${attempt.provider}/${attempt.model}`, attempt.status && `HTTP ${attempt.status}`, formatDuration(attempt.duration_s), attempt.size > 0 && formatBytes(attempt.size)];
  return el("li", {},
    el("p", { text: line.filter(Boolean).join(" · ") }),
    attempt.error && el("p", { class: "trace-error", text: attempt.error }),
    ...(attempt.request_id ? requestViews(session, attempt.request_id) : []));
}
