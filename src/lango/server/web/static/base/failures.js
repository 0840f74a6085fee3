/** Show where the user's own code raised an error. The server shows it to operators only. */

import { ApiError, api, sessionPath } from "./api.js";
import { copyButton, el } from "./dom.js";

/** @typedef {{turn: number, step: string, what: string, error: string, file: string, line: number, function: string, folded: string, traceback: string}} Failure */

let mayRead = true;

/** Return the newest errors in a session, the oldest first; none for a user who may not read them. @param {string} session @returns {Promise<Failure[]>} */
export async function loadFailures(session) {
  if (!mayRead) return [];
  try {
    return (await api(sessionPath(session, "/trace/failures"))).failures;
  } catch (error) {
    if (error instanceof ApiError && error.status === 403) mayRead = false;
    return [];
  }
}

/** Return the place of an error in a few characters. @param {Failure} failure */
export function shortPlace({ file, line }) {
  return file && `${file.split(/[/\\]/).at(-1)}:${line}`;
}

/** @param {Failure} failure */
export function failureBlock(failure) {
  const { file, line, folded, traceback } = failure;
  return el("div", { class: "failure" },
    file && el("p", { class: "failure-place" }, el("code", { text: file }), `, line ${line}, in `, el("code", { text: failure.function })),
    el("pre", { tabindex: "0", "aria-label": "Traceback", text: folded }),
    traceback !== folded && el("details", {}, el("summary", { text: "With the frames of libraries" }), el("pre", { tabindex: "0", "aria-label": "Whole traceback", text: traceback })),
    copyButton("Copy the traceback", () => traceback));
}

/** Create a place for the newest error that fits, which is loaded now. @param {string} session @param {(failure: Failure) => boolean} fits */
export function failureSlot(session, fits) {
  const slot = el("div");
  void loadFailures(session).then((found) => slot.replaceChildren(...found.filter(fits).slice(-1).map(failureBlock)));
  return slot;
}
