/** Show an artifact where it was saved: what it holds, its versions side by side, and a button that saves it as a file. */

import { el, formatBytes, icon, iconButton } from "../base/dom.js";
import { describeError } from "../base/api.js";
import { loadVersions, save } from "./artifact-files.js";
import { preview } from "./preview.js";

/** @typedef {import("./artifact-files.js").Artifact} Artifact */

/** Make the card of a version; it is loaded when it comes into view. @param {string | null} session @param {string} name @param {number} version */
export function artifactCard(session, name, version) {
  const card = el("div", { class: "artifact", role: "group", "aria-label": `Artifact ${name}, version ${version}` },
    el("p", { class: "artifact-head" }, icon("file"), el("strong", { text: name }), el("span", { class: "note", text: `version ${version}` })));
  const seen = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    seen.disconnect();
    fill(card, session, name, version).catch((error) => card.append(el("p", { class: "note", text: describeError(error) })));
  });
  seen.observe(card);
  return card;
}

/** @param {HTMLElement} card @param {string | null} session @param {string} name @param {number} version */
async function fill(card, session, name, version) {
  const versions = await loadVersions(session, name);
  const shown = versions.find((one) => one.version === version);
  if (!shown) {
    card.append(el("p", { class: "note", text: "It was deleted." }));
    return;
  }
  const others = versions.filter((one) => one !== shown);
  const body = el("div", { class: "side-by-side" }, await preview(session, shown));
  const choose = others.length ? compareWith(session, shown, others, body) : null;
  card.querySelector(".artifact-head")?.append(el("span", { class: "note", text: formatBytes(shown.bytes) }), choose ?? "", iconButton("down", `Save version ${version} of ${name}`, () => save(session, shown)));
  card.append(body);
}

/** Choose another version to be shown beside one. @param {string | null} session @param {Artifact} shown @param {Artifact[]} others @param {HTMLElement} body */
export function compareWith(session, shown, others, body) {
  const own = body.firstElementChild;
  const choose = el("select", { class: "side-by-side-choice", "aria-label": `Compare version ${shown.version} of ${shown.name} with`, input: async () => {
    const other = others[Number(choose.value)];
    body.replaceChildren(...[own].filter((element) => element !== null));
    if (choose.value === "" || !other) return;
    const beside = await preview(session, other).catch((error) => el("p", { class: "note", text: describeError(error) }));
    const column = (/** @type {Artifact} */ { version }, /** @type {Element | null} */ content) => el("div", {}, el("p", { class: "note", text: `Version ${version}` }), content);
    body.replaceChildren(...(other.version < shown.version ? [column(other, beside), column(shown, own)] : [column(shown, own), column(other, beside)]));
  } }, el("option", { value: "" }, "Compare"), ...others.map((one, index) => el("option", { value: String(index) }, `with version ${one.version}`)));
  return choose;
}
