/** Let the user choose the model and the instruction of a conversation, where the server allows it. */

import { api, sessionPath } from "./base/api.js";
import { askLongText } from "./base/dialogs.js";
import { byId, el, withErrorToast } from "./base/dom.js";
import { on, state } from "./base/state.js";

/** @typedef {{model?: string | null, instruction?: string | null}} Options */

/** What was chosen for a conversation that is not stored yet. @type {Options} */ let pending = {};
/** @type {Options} */ let current = {};

/** @param {Options} options */
function show(options) {
  current = options;
  byId("model-choice").value = options.model ?? "";
  byId("instruction").setAttribute("aria-pressed", String(Boolean(options.instruction)));
}

/** @param {Options} change */
async function change(change) {
  if (state.session === null) {
    pending = { ...pending, ...change };
    return show(pending);
  }
  const path = sessionPath(state.session, "/options");
  show((await withErrorToast(() => api(path, { method: "PATCH", body: change }))) ?? current);
}

/** Store what was chosen before the conversation was. @param {string} id */
export async function storePendingOptions(id) {
  if (Object.keys(pending).length) await api(sessionPath(id, "/options"), { method: "PATCH", body: pending });
  pending = {};
}

async function editInstruction() {
  const own = await readOwnInstruction();
  const text = await askLongText("Instruction of this conversation",
    `It replaces the agent's own instruction${own ? ", and begins with its text" : ""}. Empty: the agent's own.`, current.instruction ?? own);
  if (text !== null) await change({ instruction: text === own ? null : text || null });
}

/** Return the agent's instruction: its developer may read it, if it is a text and not code. @returns {Promise<string>} */
async function readOwnInstruction() {
  const card = await api(`/v1/agents/${encodeURIComponent(state.about.name)}`).catch(() => null);
  return (card?.instruction ?? "").trim();
}

/** @param {{model: string, models: string[], may_set_instruction: boolean}} agent */
export function setUpSessionOptions({ model, models, may_set_instruction: withInstruction }) {
  const choice = byId("model-choice");
  choice.hidden = !models.length;
  choice.replaceChildren(el("option", { value: "", text: model }), ...models.map((name) => el("option", { value: name, text: name })));
  choice.addEventListener("change", () => change({ model: choice.value || null }));
  byId("instruction").hidden = !withInstruction;
  byId("instruction").addEventListener("click", () => void editInstruction());
  if (!models.length && !withInstruction) return;
  const read = async (/** @type {string | null} */ id) => {
    if (id === null) return show((pending = {}));
    const options = await api(sessionPath(id, "/options")).catch(() => null);
    if (options && id === state.session) show(options);
  };
  on("session", read);
  void read(state.session);
}
