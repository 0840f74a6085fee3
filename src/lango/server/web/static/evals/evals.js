/** Show the test cases of the agent: run them with progress, see their history, edit and delete them. */

import { api } from "../base/api.js";
import { confirm, openPageDialog, redraw } from "../base/dialogs.js";
import { byId, el, formatDuration, formatTime, icon, iconButton, loadStylesheet, withErrorToast } from "../base/dom.js";
import { state } from "../base/state.js";
import { casePath, editCase } from "./case-editor.js";
import { resultDetails } from "./result-details.js";

/**
 * @typedef {{at: string, passed: boolean, model?: string, why?: string, duration_s?: number, tokens?: number, cost_usd?: number | null, user_id?: string, session_id?: string}} PastResult
 * @typedef {{id: string, messages: number, first: string, replies: number, history: PastResult[], regression: boolean}} Case
 * @typedef {{name: string, error: string, cases: Case[]}} CaseSet
 * @typedef {{file: string, id: string, passed: boolean, why: string, session: string, user: string, criteria: any[], messages: any[]}} Result
 * @typedef {{folder: string, sets: CaseSet[], run: {running: boolean, total: number, error: string, results: Result[]} | null}} Evals
 */

const POLL_MS = 700;

let dialog = /** @type {any} */ (null);
let timer = 0;
/** the cases whose details are open, by set and id */ const opened = new Set();

async function open() {
  if (dialog) return;
  await loadStylesheet("/page/evals/evals.css");
  dialog = openPageDialog("evals", "Test cases", "Close the test cases", () => {
    clearTimeout(timer);
    dialog = null;
  });
  await refresh();
}

async function refresh() {
  clearTimeout(timer);
  const found = await withErrorToast(() => api("/page/evals"));
  if (!dialog || !found) return;
  draw(found);
  if (found.run?.running) timer = window.setTimeout(refresh, POLL_MS);
}

/** @param {Evals} evals */
function draw(evals) {
  const isRunning = Boolean(evals.run?.running);
  redraw(dialog,
    el("p", { class: "note", text: `Files in ${evals.folder}. A run is a conversation of its own; tools really run.` }),
    toolbar(evals),
    ...evals.sets.map((set) => setSection(set, evals, isRunning)),
    ...(evals.sets.length ? [] : [el("p", { text: "No cases yet. Open a conversation that went well, and choose “Save as test case” in its menu." })]));
}

/** @param {Evals} evals */
function toolbar({ run, sets }) {
  const bar = el("div", { class: "evals-bar" });
  if (run?.running) {
    bar.append(el("progress", { max: run.total, value: run.results.length, "aria-label": "Cases that are done" }),
      el("span", { role: "status", text: `${run.results.length} of ${run.total} done` }),
      el("button", { type: "button", click: () => act(() => api("/page/evals/runs", { method: "DELETE" })) }, "Stop"));
    return bar;
  }
  const cases = sets.flatMap((set) => set.cases);
  if (cases.length) bar.append(el("button", { type: "button", class: "primary", click: () => start({}) }, "Run all"));
  const tried = cases.filter((one) => one.history.length);
  const passed = tried.filter((one) => one.history.at(-1)?.passed).length;
  const worse = cases.filter((one) => one.regression).length;
  const rest = run?.error ? ` The last run did not end: ${run.error}.` : "";
  if (tried.length) bar.append(el("span", { role: "status", text: `${passed} of ${tried.length} passed.${worse ? ` ${worse} passed in the run before.` : ""}${rest}` }));
  return bar;
}

/** @param {CaseSet} set @param {Evals} evals @param {boolean} isRunning */
function setSection(set, evals, isRunning) {
  return el("section", { "aria-label": `Set ${set.name}` },
    el("div", { class: "evals-set" }, el("h3", { text: set.name }),
      set.cases.length > 0 && el("button", { type: "button", class: "quiet", disabled: isRunning, click: () => start({ set: set.name }), "aria-label": `Run the set ${set.name}` }, "Run")),
    set.error && el("p", { class: "evals-why", text: set.error }),
    el("ul", {}, ...set.cases.map((one) => caseItem(set, one, evals, isRunning))));
}

/** @param {CaseSet} set @param {Case} one @param {Evals} evals @param {boolean} isRunning */
function caseItem(set, one, { run }, isRunning) {
  const newest = one.history.at(-1);
  const isOfSet = (/** @type {Result} */ result) => result.id === one.id && result.file.endsWith(`${set.name}.evalset.json`);
  const result = run?.results.find(isOfSet);
  const passed = result ? result.passed : newest?.passed;
  const why = (result ? result.why : newest?.why) ?? "";
  const label = passed === undefined ? "not run" : passed ? "passed" : !run?.running && one.regression ? "failed, passed before" : "failed";
  const key = `${set.name}/${one.id}`;
  const session = result ? { id: result.session, user: result.user } : { id: newest?.session_id, user: newest?.user_id };
  const details = result && el("details", { open: opened.has(key), toggle: (/** @type {any} */ event) => void (event.target.open ? opened.add(key) : opened.delete(key)) },
    el("summary", { text: "Expected and actual" }), resultDetails(result));
  return el("li", { class: "evals-case", "data-result": passed === undefined ? "none" : passed ? "passed" : "failed" },
    el("div", { class: "evals-line" },
      el("span", { class: "evals-name" }, el("strong", { text: one.id }),
        el("span", { class: "note", text: [one.first, `${one.messages} message${one.messages === 1 ? "" : "s"}`, one.replies && `${one.replies} recorded repl${one.replies === 1 ? "y" : "ies"}`].filter(Boolean).join(" · ") })),
      el("span", { class: "evals-label", text: label }), dots(one),
      el("span", { class: "evals-actions" },
        iconButton("again", `Run ${one.id}`, () => start({ set: set.name, case: one.id }), { disabled: isRunning }),
        iconButton("edit", `Edit ${one.id}`, async () => (await withErrorToast(() => editCase(set.name, one.id))) && refresh(), { disabled: isRunning }),
        iconButton("trash", `Delete ${one.id}`, () => remove(set.name, one.id), { disabled: isRunning }))),
    passed === false && el("p", { class: "evals-why", text: why }),
    passed === false && session.id && session.user && el("a", { class: "evals-trace", target: "_blank", href: `?agent=${encodeURIComponent(state.about.name)}&as=${encodeURIComponent(session.user)}#/s/${encodeURIComponent(session.id)}` }, icon("trace"), "Open the conversation and its trace"),
    details);
}

/** The results so far, the newest last. @param {Case} one */
function dots({ id, history }) {
  const texts = history.map((past) => [`${past.passed ? "passed" : "failed"} ${formatTime(past.at)}`, past.model, past.duration_s && formatDuration(past.duration_s), past.tokens && `${past.tokens.toLocaleString()} tokens`].filter(Boolean).join(", "));
  return el("span", { class: "evals-dots", role: "img", "aria-label": history.length ? `History of ${id}, the newest last: ${history.map((past) => (past.passed ? "passed" : "failed")).join(", ")}` : `${id} has not been run` },
    ...history.map((past, at) => el("span", { "data-passed": String(past.passed), title: texts[at] })));
}

/** @param {() => Promise<any>} action */
async function act(action) {
  await withErrorToast(action);
  await refresh();
}

/** @param {{set?: string, case?: string}} body */
const start = (body) => act(() => api("/page/evals/runs", { method: "POST", body }));

/** @param {string} set @param {string} id */
async function remove(set, id) {
  if (await confirm("Delete the case?", `“${id}” will be deleted from its file.`, "Delete")) {
    await act(() => api(casePath(set, id), { method: "DELETE" }));
  }
}

export function setUpEvals() {
  byId("evals").prepend(icon("check"));
  byId("evals").addEventListener("click", open);
}
