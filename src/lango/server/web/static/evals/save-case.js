/** Save a conversation as a test case of the agent, under a readable name. */

import { api } from "../base/api.js";
import { openDialog } from "../base/dialogs.js";
import { el, toast } from "../base/dom.js";

/** @param {string} session @param {string} title @param {() => void} download */
export async function saveCase(session, title, download) {
  const { sets } = await api("/page/evals");
  const name = el("input", { type: "text", maxlength: 200, autocomplete: "off", value: slug(title) });
  const set = el("input", { type: "text", maxlength: 60, autocomplete: "off", required: true, value: sets[0]?.name ?? "cases", list: "eval-sets" });
  const chosen = await openDialog({
    title: "Save as test case",
    body: [
      el("p", { class: "note", text: "Messages, tool calls, answers, approvals and inputs become what a run expects, and what it replies." }),
      el("label", { class: "field" }, "Name of the case", name),
      el("label", { class: "field" }, "Set", set),
      el("datalist", { id: "eval-sets" }, ...sets.map((/** @type {{name: string}} */ one) => el("option", { value: one.name }))),
      el("p", {}, el("button", { type: "button", class: "quiet", click: (/** @type {any} */ event) => { event.target.closest("dialog").close("no"); download(); } }, "Download the file instead")),
    ],
    yes: "Save",
    value: () => ({ session, name: name.value.trim(), set: set.value.trim() }),
  });
  if (!chosen) return;
  const { id } = await api("/page/evals/case", { method: "POST", body: chosen });
  toast(`Saved as ${id} in ${chosen.set}.`);
}

/** @param {string} text */
function slug(text) {
  return (text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []).slice(0, 6).join("-").slice(0, 50);
}
