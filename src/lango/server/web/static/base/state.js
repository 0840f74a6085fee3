/**
 * Hold the page's state and emit changes to it.
 *
 * `state.session` is the id of the session that is shown, or null for a new session that is not stored yet; `state.initial` has the
 * values that the state of a new session begins with; `state.ready` resolves when `state.about` is known.
 * Events: "session" (another session is shown; detail: its id or null), "turn" (a turn started or ended;
 * detail: {id, running, status}), "title" (detail: {id, title}), "messages" (a session's messages were loaded; detail: its id),
 * "sessions" (the list of sessions changed; detail: a new one, if it is known), "inbox" (something started or stopped waiting for the user), "trace" (the
 * trace of a message is wanted; detail: its number), "step" (a step of the trace is wanted; detail: {turn, step}) and "reveal" (a step of the trace is to be shown in the conversation;
 * detail: {call_id, seq}).
 */

/** @type {{session: string | null, title: string, running: boolean, about: Record<string, any>, initial: Record<string, any>, ready: Promise<any>}} */
export const state = { session: null, title: "", running: false, about: {}, initial: {}, ready: Promise.resolve() };

const bus = new EventTarget();

/** @param {"session" | "turn" | "title" | "messages" | "sessions" | "inbox" | "trace" | "step" | "reveal"} name @param {any} detail */
export function emit(name, detail) {
  bus.dispatchEvent(new CustomEvent(name, { detail }));
}

/** @param {string} name @param {(detail: any) => void} listener */
export function on(name, listener) {
  bus.addEventListener(name, (event) => listener(/** @type {CustomEvent} */ (event).detail));
}
