/** Say that the model is for a demonstration only, and offer to download a better one or to name one of a provider. */

import { api, describeError } from "./base/api.js";
import { el, withErrorToast } from "./base/dom.js";

const POLL_MS = 1000;
const EXAMPLES = ["gemini/gemini-3.5-flash", "openai/gpt-5-mini", "anthropic/claude-sonnet-4-5", "ollama/qwen3"];

/** Show the notice. @param {() => void} modelChanged called when another model answers */
export function demonstrationNotice(modelChanged) {
  const box = el("div", { class: "demonstration" });
  void fill(box, modelChanged).catch(() => {});
  return box;
}

/** @param {HTMLElement} box @param {() => void} modelChanged */
async function fill(box, modelChanged) {
  const found = await api("/page/demonstration");
  box.append(
    found.named_model
      ? el("p", {}, "The model ", el("code", { text: found.named_model }), " was named on this page, and answers until the server stops. To keep it, set ",
        el("code", { text: `LANGO_AGENT__MODEL=${found.named_model}` }), " and its key where the server starts.")
      : el("p", {}, el("strong", { text: "This is a demonstration model." }), " It runs on this machine, makes small talk and gets facts wrong."),
    ...(found.can_download ? [downloader(found, modelChanged)] : []),
    ...(found.can_name ? [nameForm(found.named_model ? "Use another model" : "Use a model of yours", modelChanged)] : []));
}

/** Create a form for a provider's model and its key. @param {string} title @param {() => void} modelChanged */
function nameForm(title, modelChanged) {
  const model = el("input", { type: "text", required: true, maxlength: 200, placeholder: EXAMPLES[0], list: "model-names", autocomplete: "off", autocapitalize: "off", spellcheck: "false" });
  const key = el("input", { type: "password", maxlength: 1000, autocomplete: "off" });
  const button = el("button", { type: "submit", class: "primary" }, "Use this model");
  const problem = el("p", { class: "bad", role: "alert" });
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    button.disabled = true;
    problem.textContent = "";
    button.textContent = "Asking the model …";
    try {
      await api("/page/demonstration/model", { method: "POST", body: { model: model.value, key: key.value } });
      modelChanged();
    } catch (error) {
      problem.textContent = describeError(error);
    }
    button.disabled = false;
    button.textContent = "Use this model";
  };
  return el("details", { class: "name-model" }, el("summary", { text: title }),
    el("form", { submit },
      el("label", { class: "field" }, "Model, as provider/name", model),
      el("datalist", { id: "model-names" }, ...EXAMPLES.map((value) => el("option", { value }))),
      el("label", { class: "field" }, "Key of the provider", key),
      el("p", { class: "note", text: "Ollama needs no key. A key is kept in the memory of the running server only, and stored nowhere. The model answers everyone who uses this server." }),
      problem, button));
}

/** @param {Record<string, any>} found @param {() => void} modelChanged */
function downloader(found, modelChanged) {
  const size = `${(found.size_bytes / 1e9).toFixed(1)} GB`;
  const button = el("button", { type: "button" }, `Download a model that calls tools (${size})`);
  const place = el("div", { class: "download", role: "status" }, button);
  const start = () => withErrorToast(async () => {
    show(await api("/page/demonstration/download", { method: "POST" }));
  });
  button.addEventListener("click", start);

  /** @param {Record<string, any>} status */
  function show({ download, demonstration }) {
    if (download.running) {
      const percent = Math.floor(100 * download.done_bytes / Math.max(1, download.total_bytes));
      place.replaceChildren(el("progress", { max: "100", value: String(percent), "aria-label": "Download" }), ` ${percent} % of ${size}`);
      setTimeout(poll, POLL_MS);
    } else if (download.error) {
      place.replaceChildren(el("p", { class: "bad", text: `The download failed: ${download.error}` }), button);
    } else if (!demonstration) {
      modelChanged();
    }
  }

  async function poll() {
    if (place.isConnected) show(await api("/page/demonstration").catch(() => ({ download: { running: true, done_bytes: 0, total_bytes: 1 } })));
  }

  if (found.download.running || found.download.error) show(found);
  return place;
}
