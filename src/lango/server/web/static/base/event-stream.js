/**
 * Hearing what happens: one stream of server-sent events over fetch for as long as somebody looks at the page, taken up
 * again after the last event that came. And sending: a message goes once, however often it has to be tried.
 */

import { ApiError, request } from "./api.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15_000;
const SILENT_MS = 60_000; // the server gives a sign of life more often than this
const HIDDEN_MS = 10_000; // a tab that nobody looks at leaves the few connections of a browser to others

/**
 * @typedef {object} Listening
 * @property {string | null} session  null: only what happens around it
 * @property {AbortSignal} signal
 * @property {(event: any) => void} tell
 * @property {(wait_s: number | null) => void} lost  the connection is away for so long; null: it is there again
 * @property {() => boolean} idle  nothing runs
 * @property {string | null} [last]  the id of the last event that was read; null: from the current turn on
 */

/** Listen until the signal says so, or the session is gone. @param {Listening} how */
export async function listen({ session, signal, tell, lost, idle, last = null }) {
  let waitMs = FIRST_WAIT_MS;
  while (!signal.aborted) {
    const attention = new Attention(signal, idle);
    try {
      await attention.paid();
      const query = session === null ? "" : `?session=${encodeURIComponent(session)}`;
      const headers = /** @type {Record<string, string>} */ (last === null ? {} : { "Last-Event-ID": last });
      const response = await request(`/v1/live${query}`, { headers, signal: attention.signal });
      lost(null);
      for await (const frame of frames(response, attention.signal)) {
        if (attention.signal.aborted) break;
        const event = JSON.parse(frame.data);
        const cut = event.type === "error" && event.fatal && frame.id === undefined;
        if (cut && event.error !== "SessionNotFound") break; // the stream ends here, the turn does not
        last = frame.id ?? last;
        waitMs = FIRST_WAIT_MS;
        tell(event);
        if (cut) return;
      }
    } catch (error) {
      if (!attention.signal.aborted && error instanceof ApiError && isFinal(error)) throw error;
    } finally {
      attention.ends();
    }
    if (signal.aborted) return;
    if (attention.signal.aborted) continue; // nobody looked
    lost(waitMs / 1000);
    await pause(waitMs * (0.75 + Math.random() / 2), signal);
    waitMs = Math.min(2 * waitMs, LONGEST_WAIT_MS);
  }
}

/**
 * Send what begins a turn, and return its `accepted` as soon as it is stored. The key makes it one message, however
 * often it is sent.
 * @param {{path: string, body: any, key?: string}} what @param {(wait_s: number | null) => void} lost
 */
export async function submit({ path, body, key }, lost) {
  const headers = /** @type {Record<string, string>} */ (key ? { "Idempotency-Key": key } : {});
  for (let waitMs = FIRST_WAIT_MS; ; waitMs = Math.min(2 * waitMs, LONGEST_WAIT_MS)) {
    const read = new AbortController();
    try {
      const response = await request(path, { method: "POST", body, headers, signal: read.signal });
      for await (const frame of frames(response, read.signal)) {
        const event = JSON.parse(frame.data);
        if (event.type === "accepted") return event;
        if (frame.id !== undefined) throw new ApiError(409, event.error ?? "TurnFailed", event.message ?? "the message was not taken");
      }
    } catch (error) {
      if (error instanceof ApiError && (isFinal(error) || error.status === 429)) throw error;
    } finally {
      read.abort(); // the rest comes with everything else
    }
    lost(waitMs / 1000);
    await pause(waitMs * (0.75 + Math.random() / 2));
  }
}

/** @param {any} event */
export function isLast(event) {
  return event.type === "done" || (event.type === "error" && event.fatal);
}

/** Whether it is of no use to try again. @param {ApiError} error */
function isFinal(error) {
  return error.status !== 0 && error.status !== 429 && error.status < 502;
}

/** Whether somebody looks at the page: where nobody does and nothing runs, its signal is given after a while. */
class Attention {
  #left = new AbortController();
  #timer = 0;
  #check = () => {
    clearTimeout(this.#timer);
    if (document.hidden) this.#timer = setTimeout(() => (this.idle() ? this.#left.abort() : this.#check()), HIDDEN_MS);
  };

  /** @param {AbortSignal} signal @param {() => boolean} idle */
  constructor(signal, idle) {
    this.outer = signal;
    this.idle = idle;
    this.signal = this.#left.signal;
    this.leave = () => this.#left.abort();
    signal.addEventListener("abort", this.leave);
    document.addEventListener("visibilitychange", this.#check);
  }

  /** Wait until somebody looks, or something runs. */
  async paid() {
    while (document.hidden && this.idle() && !this.outer.aborted) {
      await new Promise((done) => {
        document.addEventListener("visibilitychange", done, { once: true });
        this.outer.addEventListener("abort", done, { once: true });
      });
    }
    this.#check();
  }

  ends() {
    clearTimeout(this.#timer);
    document.removeEventListener("visibilitychange", this.#check);
    this.outer.removeEventListener("abort", this.leave);
  }
}

/**
 * Read server-sent events. A connection that stays silent is taken for lost.
 * @param {Response} response @param {AbortSignal} signal
 * @returns {AsyncGenerator<{id?: string, data: string}>}
 */
export async function* frames(response, signal) {
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const leave = () => reader.cancel().catch(() => {});
  signal.addEventListener("abort", leave);
  let rest = "";
  try {
    for (;;) {
      const timer = setTimeout(leave, SILENT_MS);
      const { value, done } = await reader.read().finally(() => clearTimeout(timer));
      if (done || signal.aborted) return;
      rest += value;
      for (let end; (end = rest.indexOf("\n\n")) >= 0; rest = rest.slice(end + 2)) {
        const fields = /** @type {Record<string, string>} */ ({});
        for (const line of rest.slice(0, end).split("\n")) {
          const [, name, words] = line.match(/^(\w+): ?(.*)$/) ?? [];
          if (name) fields[name] = words;
        }
        if (fields.data) yield { id: fields.id, data: fields.data };
      }
    }
  } finally {
    signal.removeEventListener("abort", leave);
    leave();
  }
}

/** Wait; less where the network comes back or the page is looked at again. @param {number} ms @param {AbortSignal} [signal] */
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
