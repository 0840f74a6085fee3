/**
 * Keep what a person has typed into the form of a request that waits, while its conversation is drawn anew. A form of the
 * same request starts with it, wherever it is shown; it is forgotten when the request is answered or closed, and with the page.
 */

/** @typedef {{values: (string | boolean)[], json: string | null, focus: {control: number, start: number | null, end: number | null} | null}} Typed */

/** @type {Map<string, Typed>} */
const drafts = new Map();
const CONTROLS = "input, select, textarea:not(.raw-json)";

export class Draft {
  #key;

  /** @param {string} session @param {string} wait the id of what waits for an answer */
  constructor(session, wait) {
    this.#key = JSON.stringify([session, wait]);
  }

  /** Whether something was typed. */
  get exists() {
    return drafts.has(this.#key);
  }

  /** Fill a form with what was typed before, and remember what is typed into it. @param {HTMLElement} form */
  attach(form) {
    const typed = drafts.get(this.#key);
    const json = /** @type {HTMLTextAreaElement | null} */ (form.querySelector(".raw-json"));
    if (json && typed?.json) {
      json.value = typed.json;
      json.dispatchEvent(new Event("input")); // makes the rows of lists
    }
    const controlsNow = () => /** @type {any[]} */ ([...form.querySelectorAll(CONTROLS)]);
    const controls = controlsNow();
    typed?.values.forEach((value, index) => controls[index] && (controls[index][property(controls[index])] = value));
    const remember = (/** @type {Event} */ event) => {
      const { target } = /** @type {any} */ (event);
      const { selectionStart: start = null, selectionEnd: end = null } = target;
      const controls = controlsNow();
      drafts.set(this.#key, { json: json?.value ?? null, values: controls.map((control) => control[property(control)]), focus: { control: controls.indexOf(target), start, end } });
    };
    const leave = () => setTimeout(() => {
      const left = drafts.get(this.#key);
      if (left && form.isConnected && !form.contains(document.activeElement)) left.focus = null; // a form that is drawn anew was not left
    });
    form.addEventListener("input", remember);
    form.addEventListener("focusout", leave);
    if (typed?.focus && document.activeElement === document.body) focusOn(controls[typed.focus.control], typed.focus);
  }

  /** Forget what was typed: the request was answered or closed. */
  drop() {
    drafts.delete(this.#key);
  }
}

/** Forget what was typed for the requests of a session that do not wait any more. @param {string} session @param {Set<string>} waiting the calls that wait */
export function dropOtherDrafts(session, waiting) {
  for (const key of drafts.keys()) {
    const [of, call] = JSON.parse(key);
    if (of === session && !waiting.has(call)) drafts.delete(key);
  }
}

/** @param {any} control */
function property(control) {
  return control.type === "checkbox" ? "checked" : "value";
}

/** @param {any} control @param {{start: number | null, end: number | null}} selection */
function focusOn(control, { start, end }) {
  control?.focus({ preventScroll: true });
  if (start !== null) control?.setSelectionRange(start, end);
}
