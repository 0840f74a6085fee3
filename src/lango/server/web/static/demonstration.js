/** Say that the model is for a demonstration only, and offer to download a better one. */

import { api } from "./base/api.js";
import { el, withErrorToast } from "./base/dom.js";

const POLL_MS = 1000;

/** Show the notice. @param {() => void} modelChanged called when the better model is here */
export function demonstrationNotice(modelChanged) {
  const box = el("div", { class: "demonstration" });
  void fill(box, modelChanged).catch(() => {});
  return box;
}

/** @param {HTMLElement} box @param {() => void} modelChanged */
async function fill(box, modelChanged) {
  const found = await api("/page/demonstration");
  box.append(
    el("p", {}, el("strong", { text: "This is a demonstration model." }), " It runs on this machine, makes small talk and gets facts wrong."),
    ...(found.can_download ? [downloader(found, modelChanged)] : []),
    el("p", { class: "note" }, "For real work, start the server with a model of yours: ",
      el("code", { text: "GOOGLE_API_KEY=… LANGO_AGENT__MODEL=gemini/gemini-3.5-flash" }), ", or one of Ollama: ",
      el("code", { text: "LANGO_AGENT__MODEL=ollama/qwen3" }), "."));
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
