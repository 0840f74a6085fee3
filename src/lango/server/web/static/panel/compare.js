/** Compare runs side by side, each a turn of a conversation: a fork with its original, or any others. Runs under way are followed. */

import { api, sessionHash, sessionPath } from "../base/api.js";
import { openDialog } from "../base/dialogs.js";
import { el, formatCost, formatDuration, loadStylesheet } from "../base/dom.js";

/** @typedef {import("./trace-view.js").Step} Step */
/** @typedef {import("./trace-view.js").Turn} Turn */
/** @typedef {{title: string, session: string, turn: number}} Place a turn to be compared */
/** @typedef {{message: string, models: string, prompt: string, tools: string, answer: string, state: string, cost: string, tokens: string, took: string, status: string}} Run */

const MAX_EVENTS = 40;
const MAX_WORDS = 1500;
const FOLLOW_MS = 700;
const ROWS = /** @type {[string, keyof Run][]} */ ([
  ["Message", "message"], ["Model", "models"], ["Prompt", "prompt"], ["Tools", "tools"], ["Answer", "answer"], ["State", "state"],
  ["Cost", "cost"], ["Tokens", "tokens"], ["Took", "took"], ["Status", "status"],
]);

/** @param {string} fork @param {{id: string, seq: number}} origin the session that it was made from, and its last shared message */
export async function compareWithOrigin(fork, origin) {
  const [first] = (await api(sessionPath(fork, "/trace?limit=100"))).turns;
  const isInside = first && first.first_seq <= origin.seq; // it runs a turn on from the middle
  const found = await findTurn(origin.id, (turn) => (isInside ? turn.first_seq === first.first_seq : (turn.first_seq ?? 0) > origin.seq));
  const missing = [!found && "The original", !first && "This fork"].filter(Boolean);
  if (!missing.length) return compareRuns([{ title: "The original", session: origin.id, turn: found?.turn ?? 0 }, { title: "This fork", session: fork, turn: first.turn }]);
  const text = `${missing.join(" and ")} ${missing.length === 1 ? "has" : "have"} no message after the place of the fork. Send one, then compare.`;
  await openDialog({ title: "Compare runs", body: [el("p", { text })], yes: "Close", no: null });
}

/** Show turns as columns. @param {Place[]} places */
export async function compareRuns(places) {
  await loadStylesheet("/page/trace.css");
  const host = el("div", {}, table(places, await Promise.all(places.map(readRun))));
  const dialog = openDialog({ title: "Compare runs", body: [host], yes: "Close", no: null, wide: true, className: "compare-dialog" });
  void follow(host, places);
  await dialog;
}

/** Draw the table again until all runs have ended, or it is closed. @param {HTMLElement} host @param {Place[]} places */
async function follow(host, places) {
  while (host.querySelector("[data-running]")) {
    await new Promise((after) => setTimeout(after, FOLLOW_MS));
    if (!host.isConnected) return;
    const runs = await Promise.all(places.map(readRun)).catch(() => null);
    const top = host.firstElementChild?.scrollTop ?? 0;
    if (runs) host.replaceChildren(table(places, runs));
    if (host.firstElementChild) host.firstElementChild.scrollTop = top;
  }
}

/** Let the user choose another run to compare one with. @param {Place} place */
export async function chooseAndCompare(place) {
  const { sessions } = await api("/v1/sessions?limit=100");
  const session = el("select", {}, ...sessions.map((/** @type {any} */ one) => el("option", { value: one.id, text: one.title || one.id, selected: one.id === place.session })));
  const turn = el("select", {});
  const loadTurns = async () => {
    const { turns } = await api(sessionPath(session.value, "/trace?limit=100"));
    const others = turns.filter((/** @type {Turn} */ one) => session.value !== place.session || one.turn !== place.turn);
    turn.replaceChildren(...others.toReversed().map((/** @type {Turn} */ one) => el("option", { value: one.turn, text: `Turn ${one.turn}, ${one.status}` })));
  };
  session.addEventListener("change", loadTurns);
  await loadTurns();
  const chosen = await openDialog({
    title: `Compare turn ${place.turn} with another run`, yes: "Compare",
    body: [el("label", { class: "field" }, "Conversation", session), el("label", { class: "field" }, "Turn", turn)],
    value: () => ({ session: session.value, turn: Number(turn.value), title: session.selectedOptions[0]?.textContent ?? "" }),
  });
  if (chosen?.turn) await compareRuns([place, { ...chosen, title: `${chosen.title}, turn ${chosen.turn}` }]);
}

/** @param {Place} place @returns {Promise<Run>} */
async function readRun({ session, turn: number }) {
  const [turn] = /** @type {Turn[]} */ ((await api(sessionPath(session, `/trace?turn=${number}`))).turns);
  const steps = [...walk(turn.steps)];
  const calls = steps.filter((step) => step.kind === "model_call");
  const event = (/** @type {number} */ seq) => api(sessionPath(session, `/trace/events/${seq}`));
  const numbers = calls.map((step) => step.seq).filter((seq) => seq !== null).slice(-MAX_EVENTS);
  const [message, prompt, state, ...answers] = await Promise.all([
    turn.first_seq === null ? null : event(turn.first_seq), readPrompt(session, calls),
    turn.last_seq === null ? null : api(sessionPath(session, `/state?at=${turn.last_seq}`)), ...numbers.map(event)]);
  const made = answers.flatMap((one) => one.tool_calls);
  const values = Object.entries(state?.session ?? {}).map(([name, value]) => `${name}: ${JSON.stringify(value)}`);
  return {
    prompt, message: message?.content ?? "",
    models: [...new Set(calls.map((step) => step.model || step.name))].join(", "),
    tools: steps.filter((step) => step.kind === "tool").map((step) => {
      const call = made.find((one) => one.id === step.call_id);
      return `${step.name}(${call ? JSON.stringify(call.input ?? {}) : ""})${step.status === "done" ? "" : ` ${step.status}`}`;
    }).join("\n") || "none",
    answer: answers.map((one) => one.content).filter(Boolean).join("\n\n") || steps.findLast((step) => (step.node?.output ?? null) !== null)?.node?.output?.toString() || turn.error || turn.status,
    state: values.sort().join("\n") || "none",
    cost: turn.usage.cost_usd === null ? "not known" : formatCost(turn.usage.cost_usd),
    tokens: `${turn.usage.input_tokens.toLocaleString()} in (${turn.usage.cached_tokens.toLocaleString()} cached), ${turn.usage.output_tokens.toLocaleString()} out`,
    took: formatDuration(turn.duration_s), status: turn.status,
  };
}

/** Find the first turn that fits. @param {string} session @param {(turn: Turn) => boolean} fits @returns {Promise<Turn | undefined>} */
async function findTurn(session, fits) {
  /** @type {Turn | undefined} */ let found;
  for (let before = ""; ;) {
    const page = await api(sessionPath(session, `/trace?limit=50${before}`));
    found = page.turns.find(fits) ?? found;
    if (page.before === null || !page.turns.some(fits)) return found;
    before = `&before=${page.before}`;
  }
}

/** Read the instructions of the newest request, if it was kept. @param {string} session @param {Step[]} calls */
async function readPrompt(session, calls) {
  const id = calls.flatMap((call) => call.attempts).findLast((attempt) => attempt.request_id)?.request_id;
  if (!id) return calls.some((call) => call.attempts.length) ? "not kept: set requests = true in [trace]" : "not known";
  const { sent } = await api(sessionPath(session, `/trace/requests/${id}`));
  return sent.system || "none";
}

/** @param {Step[]} steps @returns {Generator<Step>} */
export function* walk(steps) {
  for (const step of steps) {
    yield step;
    yield* walk(step.steps);
  }
}

/** @param {Place[]} places @param {Run[]} runs */
function table(places, runs) {
  const found = el("table", {},
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, el("span", { class: "visually-hidden", text: "What" })),
      ...runs.map((run, side) => el("th", { scope: "col", "data-running": ["running", "queued"].includes(run.status) }, el("a", { href: sessionHash(places[side].session), text: places[side].title }))))),
    el("tbody", {}, ...ROWS.map(([name, field]) => {
      const differs = runs.some((run) => run[field] !== runs[0][field]);
      return el("tr", { class: differs ? "differs" : "" }, el("th", { scope: "row" }, name, differs && el("span", { class: "visually-hidden", text: " (differs)" })),
        ...runs.map((run, side) => el("td", {}, ...(side ? markNew(runs[0][field], run[field]) : [run[field]]))));
    })));
  found.style.setProperty("--runs", String(runs.length));
  return el("div", { class: "compare", tabindex: "0", role: "region", "aria-label": "The runs" }, found);
}

/** Mark the words of a text that another one has not at that place. @param {string} before @param {string} after @returns {(Node | string)[]} */
function markNew(before, after) {
  const [old, words] = [before.split(/(\s+)/), after.split(/(\s+)/)];
  if (before === after || old.length > MAX_WORDS || words.length > MAX_WORDS) return [after];
  const lengths = Array.from({ length: old.length + 1 }, () => new Uint16Array(words.length + 1)); // of what both have from there on
  for (let row = old.length - 1; row >= 0; row--) {
    for (let column = words.length - 1; column >= 0; column--) {
      lengths[row][column] = old[row] === words[column] ? lengths[row + 1][column + 1] + 1 : Math.max(lengths[row + 1][column], lengths[row][column + 1]);
    }
  }
  /** @type {(Node | string)[]} */ const marked = [];
  let fresh = "";
  const endMark = () => {
    if (fresh) marked.push(el("ins", { text: fresh }));
    fresh = "";
  };
  for (let row = 0, column = 0; column < words.length;) {
    if (row < old.length && old[row] === words[column]) {
      endMark();
      marked.push(words[column++]);
      row++;
    } else if (row < old.length && lengths[row + 1][column] >= lengths[row][column + 1]) row++;
    else fresh += words[column++];
  }
  endMark();
  return marked;
}
