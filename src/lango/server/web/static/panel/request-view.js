/** Show a request to a model as people read it: what was sent, what is new in it, and what came back. Its raw JSON is loaded on a click. */

import { api, describeError, sessionPath } from "../base/api.js";
import { copyButton, el } from "../base/dom.js";

/**
 * @typedef {{id: string, name: string, value: any}} Call
 * @typedef {{role: string, text: string, thoughts: string, calls: Call[], results: Call[], files: string[]}} Message
 * @typedef {{name: string, description: string, parameters: any}} Tool
 * @typedef {{system: string, messages: Message[], tools: Tool[], options: Record<string, any>}} Sent
 * @typedef {{system: string, added_messages: number[], removed_messages: Message[], added_tools: string[], removed_tools: string[],
 *   changed_tools: string[], options: {name: string, before: any, after: any}[]}} Changes
 * @typedef {{text: string, thoughts: string, calls: {id: string, name: string, arguments: any}[], finish: string, usage: Record<string, number>}} Answer
 * @typedef {{id: string, turn: number, sent: Sent, answer: Answer | null, error: string, previous_id: string | null, changes: Changes | null}} Request
 */

const SHOWN_LENGTH = 20_000;

/** Create a disclosure that loads its content when it is opened. @param {string} label @param {() => Promise<Node[]>} load */
export function opener(label, load) {
  const box = el("details", { class: "trace-json" }, el("summary", { text: label }));
  box.addEventListener("toggle", async () => {
    if (!box.open || box.children.length > 1) return;
    try {
      box.append(...(await load()));
    } catch (error) {
      box.append(el("p", { class: "note", text: describeError(error) }));
    }
  });
  return box;
}

/** @param {string} label @param {any} value @returns {Node[]} */
export function jsonBlock(label, value) {
  const text = JSON.stringify(value, null, 2);
  const shown = el("pre", { tabindex: "0", "aria-label": label, text: text.slice(0, SHOWN_LENGTH) });
  const more = el("button", { type: "button", class: "quiet", click: () => { shown.textContent = text; more.remove(); } }, `Show all ${text.length.toLocaleString()} characters`);
  return [el("div", { class: "trace-copy" }, copyButton(`Copy: ${label}`, () => text)), shown, ...(text.length > SHOWN_LENGTH ? [more] : [])];
}

/** Show a value with its name: text as it is, else JSON. @param {string} name @param {any} value @returns {Node[]} */
export function valueBlock(name, value) {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  return [el("p", { class: "trace-value-name", text: name }), el("pre", { class: "trace-value", tabindex: "0", "aria-label": name, text: text.slice(0, SHOWN_LENGTH) })];
}

/** @param {string} session @param {string} id */
export function requestViews(session, id) {
  const path = sessionPath(session, `/trace/requests/${id}`);
  const raw = () => api(`${path}/raw`);
  return [
    opener("What was sent, what came back", async () => draw(await api(path))),
    opener("Request as JSON", async () => jsonBlock("Request as JSON", (await raw()).request)),
    opener("Response as JSON, token by token", async () => jsonBlock("Response as JSON, token by token", (await raw()).response)),
  ];
}

/** @param {Request} request @returns {Node[]} */
function draw({ sent, answer, error, changes }) {
  const news = new Set(changes?.added_messages ?? sent.messages.keys());
  const known = sent.messages.filter((_, place) => !news.has(place));
  const shown = sent.messages.flatMap((message, place) => (news.has(place) ? [messageItem(message, changes !== null)] : []));
  return [
    changes && el("p", { class: "request-changes", text: `Since the request before: ${describeChanges(changes)}.` }),
    el("p", { class: "request-head", text: "Sent" }),
    sent.system && fold(`System, ${sent.system.length.toLocaleString()} characters`, el("pre", { class: "trace-value", tabindex: "0", "aria-label": "System", text: sent.system })),
    changes?.system && el("pre", { class: "trace-value request-diff", tabindex: "0", "aria-label": "Changes of the system text" }, ...diffLines(changes.system)),
    known.length > 0 && fold(`${known.length} ${known.length === 1 ? "message" : "messages"} as before`, el("ol", { class: "request-messages" }, ...known.map((one) => messageItem(one, false)))),
    shown.length > 0 && el("ol", { class: "request-messages", "aria-label": changes ? "New messages" : "Messages" }, ...shown),
    changes && changes.removed_messages.length > 0 && fold(`${changes.removed_messages.length} left out`, el("ol", { class: "request-messages" }, ...changes.removed_messages.map((one) => messageItem(one, false)))),
    sent.tools.length > 0 && fold(`${sent.tools.length} ${sent.tools.length === 1 ? "tool" : "tools"}: ${sent.tools.map((tool) => tool.name).join(", ")}`,
      ...sent.tools.flatMap((tool) => [el("p", {}, el("code", { text: tool.name }), ` ${tool.description}`), ...(tool.parameters ? valueBlock("Parameters", tool.parameters) : [])])),
    el("dl", { "aria-label": "Options" }, ...Object.entries(sent.options).map(([name, value]) => el("div", {}, el("dt", { text: name }), el("dd", { text: typeof value === "string" ? value : JSON.stringify(value) })))),
    el("p", { class: "request-head", text: "Came back" }),
    error && el("p", { class: "trace-error", text: error }),
    ...(answer ? answerParts(answer) : [el("p", { class: "note", text: "Nothing." })]),
  ].filter((node) => node instanceof Node);
}

/** @param {Answer} answer */
function answerParts({ text, thoughts, calls, finish, usage }) {
  const counts = Object.entries(usage).flatMap(([name, count]) => (typeof count === "number" ? [`${name.replaceAll("_", " ")} ${count.toLocaleString()}`] : []));
  return [
    thoughts && fold("Thoughts", el("pre", { class: "trace-value", tabindex: "0", "aria-label": "Thoughts", text: thoughts })),
    text && el("pre", { class: "trace-value", tabindex: "0", "aria-label": "Answer", text }),
    ...calls.flatMap((call) => valueBlock(`Calls ${call.name}`, call.arguments)),
    el("p", { class: "trace-facts", text: [finish, ...counts].filter(Boolean).join(" · ") }),
  ];
}

/** @param {Message} message @param {boolean} isNew */
function messageItem({ role, text, thoughts, calls, results, files }, isNew) {
  return el("li", { class: isNew ? "new" : "" },
    el("p", { class: "request-role" }, el("strong", { text: role }), isNew && el("span", { class: "trace-facts", text: " new" }), files.length > 0 && el("span", { class: "trace-facts", text: ` with ${files.join(", ")}` })),
    thoughts && fold("Thoughts", el("pre", { class: "trace-value", tabindex: "0", "aria-label": "Thoughts", text: thoughts })),
    text && el("pre", { class: "trace-value", tabindex: "0", "aria-label": `Text of ${role}`, text: text.slice(0, SHOWN_LENGTH) }),
    ...calls.flatMap((call) => valueBlock(`Calls ${call.name}`, call.value)),
    ...results.flatMap((call) => valueBlock(`Result of ${call.name || call.id}`, call.value)));
}

/** @param {string} label @param {...Node} content */
function fold(label, ...content) {
  return el("details", { class: "trace-json" }, el("summary", { text: label }), ...content);
}

/** @param {string} diff */
function diffLines(diff) {
  const kinds = /** @type {Record<string, string>} */ ({ "+": "ins", "-": "del" });
  return diff.split("\n").map((line) => el(kinds[line[0]] ?? "span", { text: `${line}\n` }));
}

/** @param {Changes} changes */
function describeChanges({ system, added_messages, removed_messages, added_tools, removed_tools, changed_tools, options }) {
  const brief = (/** @type {any} */ value) => (value === null ? "not set" : JSON.stringify(value).slice(0, 60));
  return [
    added_messages.length && `${added_messages.length} new ${added_messages.length === 1 ? "message" : "messages"}`,
    removed_messages.length && `${removed_messages.length} left out`,
    system && "the system text changed",
    added_tools.length && `new tools: ${added_tools.join(", ")}`,
    removed_tools.length && `no longer there: ${removed_tools.join(", ")}`,
    changed_tools.length && `changed tools: ${changed_tools.join(", ")}`,
    ...options.map((one) => `${one.name} ${brief(one.before)} → ${brief(one.after)}`),
  ].filter(Boolean).join("; ") || "nothing changed";
}
