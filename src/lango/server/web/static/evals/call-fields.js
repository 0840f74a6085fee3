/** Edit the tool calls that a test case expects: the tool, and its arguments as fields. */

import { api } from "../base/api.js";
import { el, iconButton } from "../base/dom.js";
import { schemaOf } from "../base/schemas.js";
import { state } from "../base/state.js";
import { formFor } from "../conversation/value-form.js";

/** @typedef {{name: string, args?: Record<string, any>}} Call */
/** @typedef {{element: HTMLElement, problem: () => string, write: (exchange: any) => void}} CallFields */

const REQUEST = "adk_request_";

/** Return the schemas of the agent's tools, by their names. @returns {Promise<Map<string, any>>} */
export async function loadToolSchemas() {
  const card = await api(`/v1/agents/${encodeURIComponent(state.about.name)}`).catch(() => null);
  const schemas = new Map();
  const walk = (/** @type {any} */ node) => {
    for (const tool of node?.tools ?? []) {
      for (const one of tool.is_toolset ? tool.tools : [tool]) if (one.schema) schemas.set(one.name, one.schema);
      walk(tool.runs);
    }
    for (const child of node?.children ?? []) walk(child);
  };
  walk(card);
  return schemas;
}

/** Make the fields of the calls that one message of a case leads to. @param {any} exchange @param {number} number @param {Map<string, any>} schemas @returns {CallFields} */
export function callFields(exchange, number, schemas) {
  const before = callsOf(exchange).map(({ call }) => ({ name: call.name, args: call.args ?? {} }));
  /** @type {{element: HTMLElement, read: () => Call, problem: () => string}[]} */ let rows = [];
  const list = el("ul", { class: "value-list", "aria-label": `Tool calls of message ${number}` });
  const add = (/** @type {Call} */ { name, args = {} }) => {
    const row = callRow(`message ${number}, call ${rows.length + 1}`, name, args, schemas, () => {
      row.element.remove();
      rows = rows.filter((other) => other !== row);
    });
    rows.push(row);
    list.append(row.element);
  };
  for (const call of before) add(call);
  const read = () => rows.map((row) => row.read());
  return {
    element: el("fieldset", { class: "evals-calls" }, el("legend", { text: `Expected tool calls of message ${number}` }), list,
      el("button", { type: "button", class: "quiet", click: () => add({ name: schemas.keys().next().value ?? "" }) }, "Add a tool call")),
    problem: () => rows.map((row) => row.problem()).find(Boolean) ?? "",
    write: (edited) => {
      if (JSON.stringify(read()) !== JSON.stringify(before)) setCalls(edited, read());
    },
  };
}

/** @param {string} label @param {string} name @param {Record<string, any>} args @param {Map<string, any>} schemas @param {() => void} remove */
function callRow(label, name, args, schemas, remove) {
  const tool = el("input", { type: "text", required: true, maxlength: 200, autocomplete: "off", list: "evals-tools", "aria-label": `Tool of ${label}`, value: name });
  const place = el("div");
  const make = (/** @type {any} */ given) => {
    const schema = schemas.get(tool.value) ?? schemaOf(given);
    // arguments that the schema does not know stay
    const known = Object.keys(given).every((key) => key in (schema.properties ?? {}));
    const field = formFor(known ? schema : schemaOf(given), `Arguments of ${label}`, given);
    place.replaceChildren(...[field.element].filter((element) => element !== null));
    return field;
  };
  let field = make(args);
  tool.addEventListener("change", () => { field = make(schemas.has(tool.value) ? {} : args); });
  return {
    element: el("li", {}, el("div", { class: "evals-call" }, tool, iconButton("trash", `Remove ${label}`, remove)), place),
    read: () => ({ name: tool.value.trim(), args: field.value() ?? {} }),
    problem: () => (field.problem() ? `${label}: ${field.problem()}` : ""),
  };
}

/** The calls of tools in a message of a case, in either form that ADK stores them, each with how to remove it. @param {any} exchange @returns {{call: Call, remove: () => void}[]} */
function callsOf(exchange) {
  const data = exchange.intermediate_data ?? {};
  const without = (/** @type {any[]} */ items, /** @type {any} */ item) => () => { items.splice(items.indexOf(item), 1); };
  if (data.tool_uses) return data.tool_uses.map((/** @type {any} */ call) => ({ call, remove: without(data.tool_uses, call) }));
  return (data.invocation_events ?? []).flatMap((/** @type {any} */ event) => {
    const parts = event.content?.parts ?? [];
    const calls = parts.filter((/** @type {any} */ part) => part.function_call && !part.function_call.name?.startsWith(REQUEST));
    return calls.map((/** @type {any} */ part) => ({ call: part.function_call, remove: without(parts, part) }));
  });
}

/** Let a message expect these calls; what else happened stays. @param {any} exchange @param {Call[]} wanted */
function setCalls(exchange, wanted) {
  const known = callsOf(exchange);
  known.forEach(({ call, remove }, at) => {
    if (at < wanted.length) Object.assign(call, wanted[at]);
    else remove();
  });
  const added = wanted.slice(known.length);
  const data = (exchange.intermediate_data ??= { tool_uses: [] });
  if (data.invocation_events) data.invocation_events.push(...added.map((call) => ({ author: state.about.name, content: { role: "model", parts: [{ function_call: call }] } })));
  else (data.tool_uses ??= []).push(...added);
}
