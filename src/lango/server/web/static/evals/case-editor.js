/** Edit a test case: its name, messages, replies of a person, expected answers and checks, and the rest as JSON. */

import { api } from "../base/api.js";
import { openDialog } from "../base/dialogs.js";
import { el, toast } from "../base/dom.js";
import { callFields, loadToolSchemas } from "./call-fields.js";
import { replyFields } from "./reply-fields.js";

const TOOLS = { "": "As the set says", exact: "Exactly these calls", in_order: "These among others, in order", any_order: "These among others", any: "Not checked" };
const ANSWERS = { "": "As the set says", exact: "The same text", similar: "Similar words", judge: "A model judges", any: "Not checked" };

/** @param {string} set @param {string} id */
export function casePath(set, id) {
  return `/page/evals/case?set=${encodeURIComponent(set)}&case=${encodeURIComponent(id)}`;
}

/** Open a case for editing; true: it was changed. @param {string} set @param {string} id @returns {Promise<boolean>} */
export async function editCase(set, id) {
  const [before, schemas] = await Promise.all([api(casePath(set, id)), loadToolSchemas()]);
  let shown = before;
  for (;;) {
    const answer = await ask(shown, schemas);
    if (answer === null) return false;
    try {
      const { edited, problem } = answer;
      const found = typeof edited === "string" ? JSON.parse(edited) : edited;
      shown = found;
      if (problem) throw new Error(problem);
      await api(casePath(set, id), { method: "PUT", body: { case: found } });
      return true;
    } catch (error) {
      toast(`Not saved: ${error instanceof Error ? error.message : error}`, "error");
    }
  }
}

/** @param {any} shown @param {Map<string, any>} schemas of the tools @returns {Promise<any>} the edited case, or its JSON if that was edited, with what is wrong with it; or null */
async function ask(shown, schemas) {
  const name = el("input", { type: "text", maxlength: 200, autocomplete: "off", required: true, value: shown.eval_id ?? "" });
  const messages = (shown.conversation ?? []).map((/** @type {any} */ one) => ({ one, text: area(textOf(one.user_content), 2), answer: area(textOf(one.final_response), 3) }));
  const calls = messages.map((/** @type {any} */ { one }, /** @type {number} */ at) => callFields(one, at + 1, schemas));
  const replies = messages.map((/** @type {any} */ _, /** @type {number} */ at) => replyFields(shown.lango?.replies?.[at] ?? [], at + 1));
  const readReplies = () => replies.map((/** @type {any} */ one) => one.read());
  const repliesBefore = JSON.stringify(readReplies());
  const tools = choice(TOOLS, shown.lango?.tools ?? "");
  const answers = choice(ANSWERS, Array.isArray(shown.lango?.answers) ? "" : shown.lango?.answers?.match ?? "");
  const mayChooseAnswers = !Array.isArray(shown.lango?.answers) && (shown.lango?.answers?.match ?? "") in ANSWERS;
  const json = JSON.stringify(shown, null, 2);
  const whole = el("textarea", { rows: 14, class: "evals-json", "aria-label": "The whole case, as JSON", spellcheck: "false" });
  whole.value = json;
  return openDialog({
    title: `Edit ${shown.eval_id}`,
    body: [
      el("label", { class: "field" }, "Name", name),
      ...messages.flatMap(({ text, answer }, /** @type {number} */ at) => [
        el("label", { class: "field" }, `Message ${at + 1}`, text), calls[at].element, replies[at].element, el("label", { class: "field" }, `Expected answer ${at + 1}`, answer)]),
      el("datalist", { id: "evals-tools" }, ...[...schemas.keys()].map((name) => el("option", { value: name }))),
      el("label", { class: "field" }, "Tool calls", tools),
      mayChooseAnswers ? el("label", { class: "field" }, "Answers", answers) : el("p", { class: "note", text: "The checks of its answers are in the JSON." }),
      el("details", {}, el("summary", { text: "The whole case, as JSON" }), whole),
    ],
    yes: "Save", wide: true, className: "evals-editor",
    value: () => {
      if (whole.value !== json) return { edited: whole.value, problem: "" };
      const edited = structuredClone(shown);
      edited.eval_id = name.value.trim();
      messages.forEach(({ text, answer }, /** @type {number} */ at) => {
        const exchange = edited.conversation[at];
        calls[at].write(exchange);
        exchange.user_content = withText(exchange.user_content, "user", text.value);
        if (answer.value || exchange.final_response) exchange.final_response = withText(exchange.final_response, "model", answer.value);
      });
      const lango = { ...edited.lango, ...(tools.value && { tools: tools.value }) };
      if (!tools.value) delete lango.tools;
      if (mayChooseAnswers && answers.value) lango.answers = { ...(lango.answers ?? {}), match: answers.value };
      else if (mayChooseAnswers) delete lango.answers;
      if (JSON.stringify(readReplies()) !== repliesBefore) lango.replies = readReplies();
      delete edited.lango;
      const problem = [...calls, ...replies].map((/** @type {any} */ one) => one.problem()).find(Boolean) ?? "";
      return { edited: Object.keys(lango).length ? { ...edited, lango } : edited, problem };
    },
  });
}

/** @param {string} value @param {number} rows */
function area(value, rows) {
  const box = el("textarea", { rows });
  box.value = value;
  return box;
}

/** @param {Record<string, string>} options @param {string} value */
function choice(options, value) {
  const select = el("select", {}, ...Object.entries(options).map(([name, text]) => el("option", { value: name, text })));
  select.value = value;
  return select;
}

/** @param {any} content */
function textOf(content) {
  return (content?.parts ?? []).filter((/** @type {any} */ part) => part.text !== undefined).map((/** @type {any} */ part) => part.text).join("\n");
}

/** Replace the text of a message; its files stay. @param {any} content @param {string} role @param {string} text */
function withText(content, role, text) {
  if (textOf(content) === text) return content;
  const rest = (content?.parts ?? []).filter((/** @type {any} */ part) => part.text === undefined);
  return { role, ...content, parts: [{ text }, ...rest] };
}
