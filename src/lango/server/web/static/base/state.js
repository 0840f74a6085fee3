/**
 * What the page is at, and who hears of changes.
 *
 * `state.session` is the id of the session that is shown, or null while it is a new one that is not stored yet.
 * `changes` tells "session" (another one is shown; detail: its id or null), "turn" (the running turn began or ended;
 * detail: {id, running, status}), "title" (detail: {id, title}), "messages" (those of a session were read; detail: its id)
 * and "sessions" (the list is not what it was).
 */

/** @type {{session: string | null, title: string, running: boolean, about: Record<string, any>}} */
export const state = { session: null, title: "", running: false, about: {} };

export const changes = new EventTarget();

/** @param {"session" | "turn" | "title" | "messages" | "sessions"} what @param {any} detail */
export function tell(what, detail) {
  changes.dispatchEvent(new CustomEvent(what, { detail }));
}

/** @param {string} what @param {(detail: any) => void} then */
export function on(what, then) {
  changes.addEventListener(what, (event) => then(/** @type {CustomEvent} */ (event).detail));
}
