/** Call one tool by hand: a form for its arguments, and what it did. Nothing of it is stored. */

import { api, describeError } from "../base/api.js";
import { confirm } from "../base/dialogs.js";
import { el, formatDuration } from "../base/dom.js";
import { failureBlock } from "../base/failures.js";
import { formFor } from "../conversation/value-form.js";
import { jsonBlock } from "./request-view.js";

/** @typedef {import("./agent-layout.js").Tool} Tool */

/** @param {string} app @param {string} agent @param {Tool} tool */
export function toolForm(app, agent, tool) {
  const hasArguments = Object.keys(tool.schema?.properties ?? {}).length > 0;
  const field = hasArguments ? formFor(tool.schema, `Arguments of ${tool.name}`) : null;
  const state = el("textarea", { rows: 2, placeholder: "{}", "aria-label": "State that the tool finds, as JSON", spellcheck: "false" });
  const problem = el("p", { class: "bad", role: "alert" });
  const place = el("div", { class: "tool-result", role: "status" });
  const button = el("button", { type: "submit", class: "primary" }, tool.decision === "ask" ? "Approve and call" : "Call it");

  const call = async (approved = false) => {
    const values = { arguments: field?.value() ?? {}, state: state.value.trim() ? JSON.parse(state.value) : {} };
    const text = `${tool.name} needs an approval. It runs with ${JSON.stringify(values.arguments)}.`;
    if (tool.decision === "ask" && !(await confirm(`Call ${tool.name}?`, text, "Approve and call"))) return;
    const body = { agent, tool: tool.name, ...values, approved: approved || tool.decision === "ask" };
    const result = await api(`/v1/agents/${encodeURIComponent(app)}/tool-calls`, { method: "POST", body });
    place.replaceChildren(...resultOf(result, () => void run(true)));
  };
  const run = async (approved = false) => {
    problem.textContent = field?.problem() ?? "";
    if (problem.textContent) return;
    button.disabled = true;
    try {
      await call(approved);
    } catch (error) {
      place.replaceChildren();
      problem.textContent = error instanceof SyntaxError ? "The state is not JSON." : describeError(error);
    }
    button.disabled = false;
  };
  return el("form", { class: "tool-form", novalidate: true, "aria-label": `Call ${tool.name} by hand`, submit: (/** @type {Event} */ event) => { event.preventDefault(); void run(); } },
    el("p", { class: "note", text: "The tool really runs, with the rights of the server. No conversation changes, and nothing is stored." }),
    field?.element, el("details", {}, el("summary", { text: "State" }), state), problem, button, place);
}

/** @param {any} found @param {() => void} approve @returns {(Node | string)[]} */
function resultOf(found, approve) {
  const { ok, asks, duration_s, result, state, artifacts, files, failure } = found;
  const facts = [ok ? "done" : asks ? `asks for ${asks === "approval" ? "an approval" : "a credential"}` : "failed", formatDuration(duration_s), files && `${files} files`, artifacts.length && `saved ${artifacts.join(", ")}`];
  return [
    el("p", { class: ok ? "" : "bad", text: facts.filter(Boolean).join(" · ") }),
    ...jsonBlock("Result", result),
    ...(Object.keys(state).length ? [el("p", { class: "note", text: "It changed the state:" }), ...jsonBlock("State changes", state)] : []),
    ...(failure ? [failureBlock(failure)] : []),
    ...(asks === "approval" ? [el("button", { type: "button", click: approve }, "Approve and call again")] : []),
  ];
}
