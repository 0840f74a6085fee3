/** List the artifacts of this conversation and of the user: show, compare, save, upload and delete them. */

import { compareWith } from "../artifacts/artifact-card.js";
import { address, isHere, loadVersions, save } from "../artifacts/artifact-files.js";
import { preview } from "../artifacts/preview.js";
import { api } from "../base/api.js";
import { confirm } from "../base/dialogs.js";
import { el, formatBytes, formatTime, icon, iconButton, loadStylesheet, toast, withErrorToast } from "../base/dom.js";

/** @typedef {import("../artifacts/artifact-files.js").Artifact} Artifact */

const NONE = "No artifacts yet. Files that the agent saves appear here, with all their versions.";

let newestRequest = 0;
let isForUser = false;

/** @param {HTMLElement} host @param {string | null} session */
export async function show(host, session) {
  const number = ++newestRequest;
  const [listed] = await Promise.all([api(address(session)), loadStylesheet("/page/panel.css")]);
  if (number !== newestRequest) return;
  const items = listed.artifacts.map((/** @type {Artifact} */ artifact) => artifactItem(host, session, artifact));
  host.replaceChildren(
    items.length ? el("ul", { class: "memory", "aria-label": "Artifacts" }, ...items) : el("p", { class: "note", text: NONE }), uploadForm(host, session));
}

/** @param {HTMLElement} host @param {string | null} session @param {Artifact} artifact */
function artifactItem(host, session, artifact) {
  const versions = el("ul", { class: "versions", "aria-label": `Versions of ${artifact.name}`, hidden: true });
  const all = async () => {
    const found = (await withErrorToast(() => loadVersions(session, artifact.name))) ?? [];
    versions.replaceChildren(...found.map((version) => el("li", {}, line(session, version, found))));
    versions.hidden = false;
  };
  const head = el("div", { class: "fact" }, el("div", {}, el("p", {}, el("strong", { text: artifact.name }))),
    iconButton("trash", `Delete ${artifact.name}`, () => remove(host, session, artifact)));
  return el("li", {}, head, line(session, artifact),
    artifact.version > 0 ? el("button", { type: "button", class: "quiet", click: all, text: "All versions" }) : "", versions);
}

/** @param {string | null} session @param {Artifact} artifact @param {Artifact[] | null} versions all of them, if they are known */
function line(session, artifact, versions = null) {
  const { name, version } = artifact;
  const owner = artifact.belongs_to === "user" ? "in all your conversations" : "";
  const details = [`version ${version}`, artifact.mime_type, artifact.uri ?? formatBytes(artifact.bytes), formatTime(artifact.created_at), owner];
  const place = el("div");
  const show = async () => {
    if (place.hasChildNodes()) return place.replaceChildren();
    await withErrorToast(async () => {
      const others = (versions ?? (await loadVersions(session, name))).filter((one) => one.version !== version);
      const body = el("div", { class: "side-by-side" }, await preview(session, artifact));
      place.replaceChildren(...(others.length ? [compareWith(session, artifact, others, body)] : []), body);
    });
  };
  return el("div", {},
    el("div", { class: "fact" }, el("div", {}, el("p", { class: "details", text: details.filter(Boolean).join(" · ") })),
      ...(isHere(artifact) ? [iconButton("file", `Show version ${version} of ${name}`, show), iconButton("down", `Save version ${version} of ${name}`, () => save(session, artifact))] : [])),
    place);
}

/** @param {HTMLElement} host @param {string | null} session @param {Artifact} artifact */
async function remove(host, session, artifact) {
  const what = artifact.version > 0 ? "All its versions are deleted" : "It is deleted";
  const everywhere = artifact.belongs_to === "user" ? ", in all your conversations" : "";
  if (!(await confirm(`Delete ${artifact.name}?`, `${what}${everywhere}. This cannot be undone.`, "Delete"))) return;
  await withErrorToast(async () => {
    await api(address(session, `/${encodeURIComponent(artifact.name)}`), { method: "DELETE" });
    toast(`Deleted: ${artifact.name}`);
  });
  await show(host, session);
}

/** @param {HTMLElement} host @param {string | null} session */
function uploadForm(host, session) {
  const input = el("input", { type: "file", multiple: true, class: "visually-hidden", tabindex: "-1", "aria-label": "Files to upload", change: () => upload(host, session, [...input.files]) });
  const choose = el("button", { type: "button", class: "quiet", click: () => input.click() }, icon("load"), "Upload files");
  const owner = el("label", {}, el("input", {
    type: "checkbox", checked: isForUser, change: (/** @type {any} */ event) => { isForUser = event.target.checked; },
  }), " For all your conversations");
  return el("div", { class: "upload" }, input, choose, session === null ? "" : owner);
}

/** @param {HTMLElement} host @param {string | null} session @param {File[]} files */
async function upload(host, session, files) {
  for (const file of files) {
    await withErrorToast(async () => {
      const name = `${isForUser && session !== null ? "user:" : ""}${file.name}`;
      const saved = await api(address(session, `/${encodeURIComponent(name)}`), { method: "PUT", raw: file, type: file.type || "application/octet-stream" });
      toast(`Uploaded: ${saved.name}, version ${saved.version}`);
    });
  }
  await show(host, session);
}
