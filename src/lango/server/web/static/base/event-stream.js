/**
 * Follow the server's event stream and submit turns, reconnecting when the connection is lost. The stream stays open
 * while the page is visible and resumes after the last event that arrived. A message is stored once, however often it is sent.
 */

import { ApiError, request } from "./api.js";

const FIRST_WAIT_MS = 500;
const MAX_WAIT_MS = 15_000;
const SILENT_MS = 60_000; // the server sends a keep-alive more often than this
const HIDDEN_MS = 10_000; // a browser has few connections per host: a hidden tab leaves them to others

/**
 * @typedef {object} LiveOptions
 * @property {string | null} session  null: only changes of the session list
 * @property {AbortSignal} signal
 * @property {(event: any) => void} onEvent
 * @property {(wait_s: number | null) => void} onLost  the next attempt follows after so many seconds; null: connected again
 * @property {() => boolean} isIdle  no turn is running
 * @property {string | null} [lastEventId]  null: start with the current turn
 */

/** Pass on live events until the signal aborts or the session is deleted. @param {LiveOptions} options */
export async function followLive({ session, signal, onEvent, onLost, isIdle, lastEventId = null }) {
  let waitMs = FIRST_WAIT_MS;
  while (!signal.aborted) {
    const visibility = new PageVisibility(signal, isIdle);
    try {
      await visibility.waitUntilVisible();
      const query = session === null ? "" : `?session=${encodeURIComponent(session)}`;
      const headers = /** @type {Record<string, string>} */ (lastEventId === null ? {} : { "Last-Event-ID": lastEventId });
      const response = await request(`/v1/live${query}`, { headers, signal: visibility.signal });
      onLost(null);
      for await (const frame of readFrames(response, visibility.signal)) {
        if (visibility.signal.aborted) break;
        const event = JSON.parse(frame.data);
        const cut = event.type === "turn_error" && event.fatal && frame.id === undefined;
        if (cut && event.error !== "SessionNotFound") break; // the stream ends here, the turn does not
        lastEventId = frame.id ?? lastEventId;
        waitMs = FIRST_WAIT_MS;
        onEvent(event);
        if (cut) return;
      }
    } catch (error) {
      if (!visibility.signal.aborted && error instanceof ApiError && isPermanent(error)) throw error;
    } finally {
      visibility.dispose();
    }
    if (signal.aborted) return;
    if (visibility.signal.aborted) continue; // the page was hidden
    onLost(waitMs / 1000);
    await pause(waitMs * (0.75 + Math.random() / 2), signal);
    waitMs = Math.min(2 * waitMs, MAX_WAIT_MS);
  }
}

/**
 * Send the input of a turn and return its `accepted` event as soon as the server has stored it.
 * @param {{path: string, body: any, key?: string}} input @param {(wait_s: number | null) => void} onLost
 */
export async function submitTurn({ path, body, key }, onLost) {
  const headers = /** @type {Record<string, string>} */ (key ? { "Idempotency-Key": key } : {});
  for (let waitMs = FIRST_WAIT_MS; ; waitMs = Math.min(2 * waitMs, MAX_WAIT_MS)) {
    const read = new AbortController();
    try {
      const response = await request(path, { method: "POST", body, headers, signal: read.signal });
      for await (const frame of readFrames(response, read.signal)) {
        const event = JSON.parse(frame.data);
        if (event.type === "accepted") return event;
        if (frame.id !== undefined) throw new ApiError(409, event.error ?? "TurnFailed", event.message ?? "the server did not accept the message");
      }
    } catch (error) {
      if (error instanceof ApiError && (isPermanent(error) || error.status === 429)) throw error;
    } finally {
      read.abort(); // the live stream carries the rest
    }
    onLost(waitMs / 1000);
    await pause(waitMs * (0.75 + Math.random() / 2));
  }
}

/** @param {any} event */
export function isFinalEvent(event) {
  return event.type === "done" || (event.type === "turn_error" && event.fatal);
}

/** Return whether another attempt would fail the same way. @param {ApiError} error */
function isPermanent(error) {
  return error.status !== 0 && error.status !== 429 && error.status < 502;
}

/** Abort a connection when the page has been hidden for a while and no turn is running. */
class PageVisibility {
  #controller = new AbortController();
  #timer = 0;
  #check = () => {
    clearTimeout(this.#timer);
    if (document.hidden) this.#timer = setTimeout(() => (this.isIdle() ? this.abort() : this.#check()), HIDDEN_MS);
  };

  /** @param {AbortSignal} signal @param {() => boolean} isIdle */
  constructor(signal, isIdle) {
    this.outer = signal;
    this.isIdle = isIdle;
    this.signal = this.#controller.signal;
    this.abort = () => this.#controller.abort();
    signal.addEventListener("abort", this.abort);
    document.addEventListener("visibilitychange", this.#check);
  }

  /** Wait until the page is visible or a turn runs. */
  async waitUntilVisible() {
    while (document.hidden && this.isIdle() && !this.outer.aborted) {
      await new Promise((done) => {
        document.addEventListener("visibilitychange", done, { once: true });
        this.outer.addEventListener("abort", done, { once: true });
      });
    }
    this.#check();
  }

  dispose() {
    clearTimeout(this.#timer);
    document.removeEventListener("visibilitychange", this.#check);
    this.outer.removeEventListener("abort", this.abort);
  }
}

/**
 * Read server-sent events. A connection that stays silent counts as lost.
 * @param {Response} response @param {AbortSignal} signal
 * @returns {AsyncGenerator<{id?: string, data: string}>}
 */
async function* readFrames(response, signal) {
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const cancel = () => reader.cancel().catch(() => {});
  signal.addEventListener("abort", cancel);
  let rest = "";
  try {
    for (;;) {
      const timer = setTimeout(cancel, SILENT_MS);
      const { value, done } = await reader.read().finally(() => clearTimeout(timer));
      if (done || signal.aborted) return;
      rest += value;
      for (let end; (end = rest.indexOf("\n\n")) >= 0; rest = rest.slice(end + 2)) {
        const fields = /** @type {Record<string, string>} */ ({});
        for (const line of rest.slice(0, end).split("\n")) {
          const [, name, content] = line.match(/^(\w+): ?(.*)$/) ?? [];
          if (name) fields[name] = content;
        }
        if (fields.data) yield { id: fields.id, data: fields.data };
      }
    }
  } finally {
    signal.removeEventListener("abort", cancel);
    cancel();
  }
}

/** Wait, but not after the network is back. @param {number} ms @param {AbortSignal} [signal] */
function pause(ms, signal) {
  return /** @type {Promise<void>} */ (new Promise((done) => {
    const timer = setTimeout(end, ms);
    function end() {
      clearTimeout(timer);
      removeEventListener("online", end);
      signal?.removeEventListener("abort", end);
      done();
    }
    addEventListener("online", end);
    signal?.addEventListener("abort", end);
  }));
}
