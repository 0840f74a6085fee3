/** Describe each kind of wait: what its card shows, its fields, and which answers its buttons give. */

import { api, capitalize, sessionPath } from "../base/api.js";
import { askPatterns, askText, showMenu } from "../base/dialogs.js";
import { el, formatTime } from "../base/dom.js";
import { schemaOf } from "../base/schemas.js";
import { formFor } from "./value-form.js";

/**
 * @typedef {import("./wait-card.js").Wait} Wait
 * @typedef {import("./wait-card.js").Answer} Answer
 * @typedef {Answer | string | null | void} Read an answer, why there is none, or nothing
 * @typedef {{text: string, shape: import("../base/dom.js").Shape, primary?: boolean, opensMenu?: boolean, read: () => Read | Promise<Read>}} Button
 * @typedef {{body: (Node | null | false)[], buttons: Button[], isSecret?: boolean}} Form
 */

const SHORT_CHARACTERS = 80;
const RETURNING = ["oauth2", "openIdConnect"];
const MISSING = "A value is missing.";
/** @type {Button} */ const CANCEL = { text: "Cancel", shape: "cross", read: () => ({ type: "cancel" }) };

/** Name the form of a wait. @param {Wait} wait */
export function labelOf(wait) {
  if (wait.kind === "approval") return `May ${wait.tool} run?`;
  if (wait.kind === "timer" || wait.kind === "event") return `${wait.tool} waits`;
  return wait.kind.endsWith("result") ? `${wait.tool} waits for its result` : wait.message || (wait.kind === "credential" ? "Credential" : "Input");
}

/** Say for screen readers what waits. @param {Wait} wait */
export function announcementOf(wait) {
  switch (wait.kind) {
    case "approval": return `The tool ${wait.tool} waits for your approval.`;
    case "credential": return `${wait.message || "A tool needs access to an account of yours"}: the agent waits for it.`;
    case "input": return `The workflow waits for your input: ${wait.message}`;
    case "tool_question": return `The tool waits for your input: ${wait.message}`;
    default: return "";
  }
}

/** Show what waits, above its form. @param {Wait} wait @returns {(Node | null | false)[]} */
export function describeWait(wait) {
  const payload = wait.payload ?? null;
  switch (wait.kind) {
    case "approval": return [];
    case "credential": {
      const scopes = wait.scopes?.length ? ` (${wait.scopes.join(", ")})` : "";
      return [message(`${capitalize(wait.message || "a tool needs access to one of your accounts")}${scopes}`)];
    }
    case "tool_question": return [message(wait.message || "The tool needs your input."), asker(payload)];
    case "input": return [message(wait.message || "The workflow needs your input."), payload !== null && el("pre", { tabindex: "0", "aria-label": "Details" }, JSON.stringify(payload, null, 2))];
    case "timer": return [message(`${wait.reason ? `${capitalize(wait.reason)}: continues` : "Continues"} ${whenOf(wait)}`)];
    case "event": {
      const until = wait.expires_at ? `, until ${whenOf(wait)}` : "";
      return [message(`${wait.reason ? `${capitalize(wait.reason)}: waits` : "Waits"} for the event ${wait.event}${until}`)];
    }
    default: return [el("summary", {}, `Give the result of ${wait.tool}`)];
  }
}

/** Make the form of a wait. @param {Wait} wait @param {() => void} skip closes the wait without an answer @returns {Form} */
export function formOf(wait, skip) {
  switch (wait.kind) {
    case "approval": return approvalForm(wait);
    case "credential": return credentialForm(wait, skip);
    case "input": case "tool_question": return valueForm(wait, skip);
    case "timer": return { body: [], buttons: [{ text: "Wake now", shape: "check", primary: true, read: () => ({ type: "wake" }) }, CANCEL] };
    case "event": return eventForm(wait);
    default: return resultForm(wait);
  }
}

/** Say when a wait ends by itself, and in how long. @param {Wait} wait */
function whenOf(wait) {
  const left_s = Math.max(0, (new Date(wait.expires_at ?? 0).getTime() - Date.now()) / 1000);
  const [size, unit] = [[86400, "days"], [3600, "hours"], [60, "minutes"]].find(([least]) => left_s >= 2 * Number(least)) ?? [1, "seconds"];
  return `${formatTime(wait.expires_at ?? 0)} (in ${Math.round(left_s / Number(size))} ${unit})`;
}

/** Show what an event must have, and give it by hand. @param {Wait} wait @returns {Form} */
function eventForm(wait) {
  const area = el("textarea", { rows: "3", "aria-label": `Data of ${wait.event}`, placeholder: "Text or JSON" });
  const read = () => area.value.trim() ? { type: "result", result: parseResult(area.value) } : MISSING;
  const fits = Object.keys(wait.match ?? {}).length > 0 && el("pre", { tabindex: "0", "aria-label": "What it must have" }, JSON.stringify(wait.match, null, 2));
  return { body: [fits, area], buttons: [{ text: "Give the event", shape: "check", primary: true, read }, CANCEL] };
}

/** Show exact arguments and what changes in a file; approve once or always, or refuse. @param {Wait} wait @returns {Form} */
function approvalForm(wait) {
  const input = wait.arguments ?? {};
  const exactly = Object.fromEntries(Object.entries(input).map(([key, value]) => [key, { equals: value }]));
  const payload = wait.payload ?? null;
  const edited = payload === null ? null : formFor(schemaOf(payload), "Payload", payload);
  const approve = (/** @type {any} */ grant) => {
    const given = edited?.value();
    return edited?.problem() || { type: "approve", ...(grant && { grant }), ...(edited && JSON.stringify(given) !== JSON.stringify(payload) && { payload: given }) };
  };
  const refuse = (/** @type {string | null} */ reason) => reason === null ? null : { type: "refuse", reason };
  const always = (/** @type {Element} */ button) => new Promise((/** @type {(read: Read) => void} */ resolve) => showMenu(button, [
    { label: `Always for ${wait.tool} in this conversation`, shape: "check", onClick: () => resolve(approve({})) },
    { label: "Always with exactly these arguments", shape: "copy", onClick: () => resolve(approve({ arguments: exactly })) },
    { label: "Always with arguments like these …", shape: "edit", onClick: async () => {
      const patterns = await askPatterns(wait.tool ?? "", input);
      resolve(patterns && approve({ arguments: patterns }));
    } },
  ]));
  const changes = el("div", { class: "changes" });
  void loadDiff(wait).then((diff) => diff && changes.replaceChildren(...diffBlock(diff)));
  return {
    body: [
      el("p", {}, "May ", el("strong", { text: wait.tool }), " run with exactly these arguments?"),
      wait.hint ? el("p", { class: "approval-hint", text: wait.hint }) : null,
      changes, ...argumentBlocks(input),
      edited && el("fieldset", {}, el("legend", { text: "The tool asks for this, which you may change" }), edited.element),
    ],
    buttons: [
      { text: "Approve", shape: "check", primary: true, read: () => approve(null) },
      { text: "Always", shape: "again", opensMenu: true, read: () => always(/** @type {Element} */ (document.activeElement)) },
      { text: "Refuse", shape: "cross", read: () => refuse("") },
      { text: "No, because …", shape: "edit", read: async () => refuse(await askText(`Why may ${wait.tool} not run?`, "The model reads it", "", { yes: "Refuse", length: 4000 }) || null) },
    ],
  };
}

/** Show long texts as they are, and other arguments as JSON. @param {Record<string, any>} input */
function argumentBlocks(input) {
  const isLong = (/** @type {any} */ value) => typeof value === "string" && (value.includes("\n") || value.length > SHORT_CHARACTERS);
  const rest = Object.fromEntries(Object.entries(input).filter(([, value]) => !isLong(value)));
  const texts = Object.entries(input).filter(([, value]) => isLong(value));
  return [
    (Object.keys(rest).length > 0 || !texts.length) && el("pre", { tabindex: "0", "aria-label": "Arguments" }, JSON.stringify(rest, null, 2)),
    ...texts.map(([name, value]) => el("div", {}, el("p", { class: "tool-label", text: name }), el("pre", { tabindex: "0", "aria-label": `Argument ${name}` }, value))),
  ];
}

/** Return what the call would change in a file; an event of a turn does not say. @param {Wait} wait @returns {Promise<string>} */
async function loadDiff({ session_id, id, diff, agent }) {
  if (diff !== undefined) return diff;
  const { waits } = await api(sessionPath(session_id, `/waits${agent ? `?agent=${encodeURIComponent(agent)}` : ""}`)).catch(() => ({ waits: [] }));
  return waits.find((/** @type {Wait} */ wait) => wait.id === id)?.diff ?? "";
}

/** @param {string} diff */
function diffBlock(diff) {
  const kinds = /** @type {Record<string, string>} */ ({ "+": "added", "-": "removed", "@": "place" });
  const lines = diff.split("\n").map((line, at) => el("span", { class: at < 2 ? "place" : kinds[line.charAt(0)] ?? null, text: `${line}\n` }));
  return [el("p", { class: "tool-label", text: "What changes in the file" }), el("pre", { tabindex: "0", class: "diff", "aria-label": "Changes" }, ...lines)];
}

/** Ask for a value that fits the schema. @param {Wait} wait @param {() => void} skip @returns {Form} */
function valueForm(wait, skip) {
  const isQuestion = wait.kind === "tool_question";
  const agrees = isQuestion && !wait.schema; // nothing to fill in: the user does what the message says
  const field = agrees ? { element: null, value: () => ({}), problem: () => "" } : formFor(wait.schema, wait.message ?? "", askedPayload(wait));
  return {
    body: [field.element],
    buttons: [
      { text: agrees ? "Done" : "Answer", shape: "check", primary: true, read: () => field.problem() || { type: "value", value: field.value() } },
      isQuestion ? { text: "Decline", shape: "cross", read: () => ({ type: "decline" }) } : { text: "Skip", shape: "cross", read: skip },
    ],
  };
}

/** Return what a node that asks for confirmation begins with: its payload may be changed. @param {Wait} wait */
function askedPayload({ schema, payload }) {
  return schema?.properties?.confirmed && payload?.confirmation_payload !== undefined ? { payload: payload.confirmation_payload } : undefined;
}

/** Say which MCP server asks, with the address that it wants to be opened. @param {any} payload */
function asker(payload) {
  const address = /^https?:\/\//i.test(payload?.url ?? "") ? payload.url : "";
  return el("p", { class: "note" }, payload?.server ? `Asked by the MCP server ${payload.server}. ` : "",
    address ? el("a", { href: address, target: "_blank", rel: "noopener noreferrer", text: address }) : payload?.url ?? "");
}

/** Show the address where the user allows the access, or fields for a key or a password, which are sent once and not kept. @param {Wait} wait @param {() => void} skip @returns {Form} */
function credentialForm(wait, skip) {
  const given = (/** @type {any} */ value) => ({ type: "credential", value });
  /** @type {Button} */ const skipButton = { text: "Skip", shape: "cross", read: skip };
  const address = wait.auth_url ?? "";
  if (/^https?:\/\//.test(address) && URL.canParse(address)) {
    const link = el("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, `Allow the access at ${new URL(address).host}`);
    // an OAuth server sends the browser back; for a scheme of the agent's own, only the user knows
    /** @type {Button[]} */ const done = RETURNING.includes(wait.scheme_type ?? "") ? [] : [{ text: "I have allowed it", shape: "check", primary: true, read: () => given("allowed") }];
    return { body: [el("p", {}, link)], buttons: [...done, skipButton], isSecret: true };
  }
  const secret = el("input", { type: "password", autocomplete: "new-password", spellcheck: "false" }); // browsers neither fill nor keep it
  const name = wait.scheme === "basic" ? el("input", { type: "text", autocomplete: "off", spellcheck: "false", autocapitalize: "none" }) : null;
  const read = () => name ? name.value && secret.value && given({ username: name.value, password: secret.value }) : secret.value.trim() && given(secret.value.trim());
  const fields = name ? [["Name", name], ["Password", secret]] : [[wait.scheme_type === "http" ? "Token" : "Key", secret]];
  return {
    body: [el("div", { class: "wait-fields" }, ...fields.map(([label, input]) => el("label", {}, el("span", { text: label }), input)))],
    buttons: [{ text: "Give", shape: "check", primary: true, read: () => read() || MISSING }, skipButton],
    isSecret: true,
  };
}

/** Ask for a result of a tool that runs elsewhere. @param {Wait} wait @returns {Form} */
function resultForm(wait) {
  const area = el("textarea", { rows: "3", "aria-label": `Result of ${wait.tool}`, placeholder: "Text or JSON" });
  const read = (/** @type {boolean} */ will_continue) => () => area.value.trim() ? { type: "result", result: parseResult(area.value), will_continue } : MISSING;
  return {
    body: [el("pre", { tabindex: "0", "aria-label": "Arguments" }, JSON.stringify(wait.arguments ?? {}, null, 2)), area],
    buttons: [
      { text: "Final result", shape: "check", primary: true, read: read(false) },
      { text: "Update", shape: "again", read: read(true) },
    ],
  };
}

/** Return the result that a text stands for: an object, or the text under a name. @param {string} text */
function parseResult(text) {
  try {
    const value = JSON.parse(text);
    if (value && typeof value === "object" && !Array.isArray(value)) return value;
  } catch {
    // it is a text
  }
  return { result: text.trim() };
}

/** @param {string} text */
function message(text) {
  return el("p", { class: "wait-message", text });
}
