/** Edit what a person replied while a message of a test case ran: approvals, refusals, values, results of tools. */

import { el, iconButton } from "../base/dom.js";
import { schemaOf } from "../base/schemas.js";
import { formFor } from "../conversation/value-form.js";

/** @typedef {{to?: string, question?: string, schema?: any, answer: {type: string, [member: string]: any}}} Reply */
/** @typedef {{element: HTMLElement | null, value: () => any, problem: () => string}} Field */

const KINDS = { approve: "Approve", refuse: "Refuse", value: "Give a value", result: "Give a result" };
const LONGEST_TEXT = 4000; // of a reason

/** Make the fields of the replies to what one message of a case waits for. @param {Reply[]} given @param {number} number */
export function replyFields(given, number) {
  /** @type {{element: HTMLElement, read: () => Reply, problem: () => string}[]} */ let rows = [];
  const list = el("ul", { class: "value-list", "aria-label": `Replies to message ${number}` });
  const add = (/** @type {Reply} */ reply) => {
    const row = replyRow(`message ${number}, reply ${rows.length + 1}`, reply, () => {
      row.element.remove();
      rows = rows.filter((other) => other !== row);
    });
    rows.push(row);
    list.append(row.element);
  };
  for (const reply of given) add(reply);
  return {
    element: el("fieldset", { class: "evals-calls" }, el("legend", { text: `What a person replies to message ${number}` }), list,
      el("button", { type: "button", class: "quiet", click: () => add({ to: "", answer: { type: "approve" } }) }, "Add a reply")),
    problem: () => rows.map((row) => row.problem()).find(Boolean) ?? "",
    read: () => rows.map((row) => row.read()),
  };
}

/** @param {string} label @param {Reply} reply @param {() => void} remove */
function replyRow(label, reply, remove) {
  const kind = el("select", { "aria-label": `Kind of ${label}` }, ...Object.entries(KINDS).map(([value, text]) => el("option", { value, text })));
  kind.value = reply.answer.type;
  const tool = el("input", { type: "text", maxlength: 200, autocomplete: "off", list: "evals-tools", placeholder: "Tool", "aria-label": `Tool of ${label}`, value: reply.to ?? "" });
  const place = el("div");
  const { to: _, answer: __, ...asked } = reply;
  const isSame = () => kind.value === reply.answer.type;
  const make = () => {
    tool.hidden = kind.value === "value"; // a workflow asks for it
    const made = answerField(kind.value, label, isSame() ? reply : { answer: { type: kind.value } });
    place.replaceChildren(...[made.element].filter((element) => element !== null));
    return made;
  };
  let field = make();
  kind.addEventListener("change", () => { field = make(); });
  return {
    element: el("li", {}, el("div", { class: "evals-call" }, kind, tool, iconButton("trash", `Remove ${label}`, remove)), place),
    read: () => {
      const answer = { ...(isSame() && reply.answer), type: kind.value, ...field.value() }; // what has no field stays
      return tool.hidden ? { ...(isSame() && asked), answer } : { to: tool.value.trim(), answer };
    },
    problem: () => field.problem() ? `${label}: ${field.problem()}` : !tool.hidden && !tool.value.trim() ? `${label}: name the tool` : "",
  };
}

/** Make the field of an answer, whose value is its members. @param {string} kind @param {string} label @param {Reply} reply @returns {Field} */
function answerField(kind, label, { question, schema, answer }) {
  const member = { refuse: "reason", value: "value", result: "result" }[kind] ?? "payload";
  const value = answer[member];
  if (kind === "approve" && (value ?? null) === null) return { element: null, value: () => ({}), problem: () => "" };
  const text = { type: "string", ...((kind === "refuse" || value?.includes?.("\n")) && { maxLength: LONGEST_TEXT }) }; // a long text has several lines
  const name = { refuse: "Reason", value: question || "Value", result: "Result" }[kind] ?? "Payload";
  const form = (/** @type {any} */ wanted) => formFor(wanted, `${name} of ${label}`, value);
  const likeValue = () => form(value === undefined && kind === "result" ? schemaOf({ result: "" }) : value === undefined || typeof value === "string" ? text : schemaOf(value));
  const asked = schema && form(schema);
  // a value that the form of the schema cannot show stays as it is
  const field = asked && (value === undefined || JSON.stringify(asked.value()) === JSON.stringify(value)) ? asked : likeValue();
  return {
    element: el("div", { class: "field" }, name, field.element),
    value: () => ({ [member]: field.value() ?? null }),
    problem: field.problem,
  };
}
