/** Run a turn on from one of its steps with another prompt, model, result or state, as a fork; or several at once, as columns. */

import { api, sessionHash, sessionPath } from "../base/api.js";
import { openDialog } from "../base/dialogs.js";
import { el, loadStylesheet, toast } from "../base/dom.js";
import { emit, state } from "../base/state.js";
import { compareRuns, walk } from "./compare.js";

/** @typedef {import("./trace-view.js").Step} Step */
/** @typedef {import("./trace-view.js").Turn} Turn */
/** @typedef {{box: HTMLElement, read: () => {system: string, model: string}}} Variant */

const MAX_VARIANTS = 6;

/**
 * @param {string} session @param {Turn} turn
 * @param {Step | null} step a model call or a tool with a result; null: the whole turn
 * @param {number | null} [before] the message that is made again
 */
export async function openPlayground(session, turn, step, before = (step?.kind === "tool" ? step.result_seq : step?.seq) ?? null) {
  await loadStylesheet("/page/trace.css");
  const call = step?.kind === "model_call" ? step : [...walk(turn.steps)].find((one) => one.kind === "model_call" && (!step || one.agent === step.agent));
  const [message, result, system] = await Promise.all([
    before === null && turn.first_seq !== null ? api(sessionPath(session, `/trace/events/${turn.first_seq}`)) : null,
    step?.kind === "tool" && step.result_seq !== null ? api(sessionPath(session, `/trace/events/${step.result_seq}`)) : null,
    call ? readSystem(session, call) : "",
  ]);
  const output = result?.tool_calls.find((/** @type {any} */ one) => one.id === step?.call_id)?.output;
  const messageBox = message?.role === "user" && field("Message", el("textarea", { rows: 3, required: true }), message.content);
  const resultBox = output !== undefined && jsonField(`Result of ${step?.name}`, output);
  const stateBox = jsonField("State to change, as JSON", {});
  const variants = /** @type {Variant[]} */ ([]);
  const host = el("div", { class: "variants" });
  const add = (/** @type {string} */ text) => {
    const made = variant(variants.length + 1, call ?? null, text);
    variants.push(made);
    host.append(made.box);
    more.hidden = variants.length >= MAX_VARIANTS;
  };
  const more = el("button", { type: "button", class: "quiet", click: () => add(variants.at(-1)?.read().system || system) }, "Another prompt or model beside it");
  if (call) add(system);
  const forks = await openDialog({
    title: step ? `Run on from ${step.kind === "tool" ? `the result of ${step.name}` : "this model call"}` : "Run this turn again",
    body: [
      el("p", { class: "note", text: "What comes before is not done again. The run is a fork: this conversation stays as it is." }),
      ...[messageBox, resultBox].map((box) => box && box.label).filter((box) => box),
      host, call ? more : "", stateBox.label],
    yes: "Run", wide: true, className: "playground",
    value: () => start(session, turn, before, call?.agent ?? "", system, {
      message: messageBox && messageBox.input.value !== message.content ? messageBox.input.value : undefined,
      results: resultBox && step ? { [step.call_id]: JSON.parse(resultBox.input.value) } : {},
      state: JSON.parse(stateBox.input.value), variants: variants.map((one) => one.read()),
    }),
  });
  if (!forks) return;
  if (forks.length > 1) return compareRuns([{ title: "The original", session, turn: turn.turn }, ...forks]);
  location.hash = sessionHash(forks[0].session);
  toast("A fork runs on from there. “Compare with the original” is in its menu.");
}

/** Start the runs; return their forks. @param {string} session @param {Turn} turn @param {number | null} before @param {string} agent @param {string} system @param {any} chosen */
async function start(session, turn, before, agent, system, { variants, ...changes }) {
  const forks = [];
  for (const { model, ...one } of variants.length ? variants : [{ system, model: "" }]) {
    const own = { ...(one.system !== system && one.system ? { system: one.system } : {}), ...(model ? { model } : {}) };
    const agents = Object.keys(own).length ? { [agent]: own } : {};
    const body = { turn: turn.turn, ...(changes.message === undefined ? { before } : {}), ...changes, agents };
    const fork = await api(sessionPath(session, "/run-on"), { method: "POST", body });
    emit("sessions", fork);
    forks.push({ title: [model, own.system ? "another prompt" : "", `run ${forks.length + 1}`].filter(Boolean).join(", "), session: fork.id, turn: 1 });
  }
  return forks;
}

/** Read the system text that a model call sent, or an empty text if its request is not kept. @param {string} session @param {Step} call */
async function readSystem(session, call) {
  const id = call.attempts.findLast((attempt) => attempt.request_id)?.request_id;
  if (!id) return "";
  return /** @type {string} */ ((await api(sessionPath(session, `/trace/requests/${id}`))).sent.system);
}

/** @param {number} number @param {Step | null} call @param {string} system @returns {Variant} */
function variant(number, call, system) {
  const model = el("input", { type: "text", maxlength: 200, autocomplete: "off", list: "playground-models", placeholder: `its own (${call?.model || call?.name})` });
  const names = /** @type {string[]} */ (state.about.models ?? []);
  const text = field(`System text of ${call?.agent}`, el("textarea", { rows: 5, maxlength: 200_000, placeholder: "its own" }), system);
  const box = el("fieldset", {}, el("legend", { text: `Run ${number}` }),
    number === 1 && el("datalist", { id: "playground-models" }, ...names.map((name) => el("option", { value: name }))),
    el("label", { class: "field" }, "Model, as provider/name", model), text.label);
  return { box, read: () => ({ system: text.input.value, model: model.value.trim() }) };
}

/** @param {string} name @param {any} input @param {string} value */
function field(name, input, value) {
  input.value = value;
  return { input, label: el("label", { class: "field" }, name, input) };
}

/** A field that takes a JSON object only. @param {string} name @param {any} value */
function jsonField(name, value) {
  const input = el("textarea", { rows: Math.min(12, JSON.stringify(value, null, 2).split("\n").length + 1), class: "json" });
  input.addEventListener("input", () => {
    let problem = "Enter a JSON object.";
    try {
      const found = JSON.parse(input.value);
      if (found !== null && typeof found === "object" && !Array.isArray(found)) problem = "";
    } catch {
      // not JSON yet
    }
    input.setCustomValidity(problem);
  });
  return field(name, input, JSON.stringify(value, null, 2));
}
