/** Following a turn: server-sent events over fetch, taken up again after the last one that came. */

import { ApiError, request, sessionPath } from "./api.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15_000;
const SILENT_MS = 60_000; // the server gives a sign of life more often than this

/**
 * @typedef {object} Following
 * @property {string} session
 * @property {AbortSignal} signal
 * @property {(event: any) => void} tell
 * @property {(wait_s: number | null) => void} lost  the connection is away for so long; null: it is there again
 * @property {{path: string, body: any, key?: string}} [first]  what begins the turn; without it, the stream that there is
 * @property {string | null} [last]  the id of the last event that was read
 */

/**
 * Follow a turn to its end and return its last event, or null where there was nothing to tell.
 * @param {Following} how
 */
export async function follow({ session, signal, tell, lost, first, last = null }) {
  let waitMs = FIRST_WAIT_MS;
  let ended = null;
  while (!signal.aborted) {
    try {
      const response = await open(session, signal, last === null ? first : undefined, last);
      if (response.status === 204) return ended;
      lost(null);
      for await (const frame of frames(response, signal)) {
        if (signal.aborted) return null;
        const event = JSON.parse(frame.data);
        const cut = event.type === "error" && event.fatal && frame.id === undefined;
        if (cut && event.error !== "SessionNotFound") break; // the stream ends here, the turn does not
        last = frame.id ?? last;
        waitMs = FIRST_WAIT_MS;
        ended = isLast(event) ? event : null;
        tell(event);
      }
      if (ended) return ended;
    } catch (error) {
      if (signal.aborted) return null;
      if (error instanceof ApiError && error.status !== 0 && error.status < 502) throw error;
    }
    lost(waitMs / 1000);
    await pause(waitMs * (0.75 + Math.random() / 2), signal);
    waitMs = Math.min(2 * waitMs, LONGEST_WAIT_MS);
  }
  return null;
}

/** @param {any} event */
export function isLast(event) {
  return event.type === "done" || (event.type === "error" && event.fatal);
}

/** @param {string} session @param {AbortSignal} signal @param {Following["first"]} first @param {string | null} last */
function open(session, signal, first, last) {
  if (!first) {
    const headers = /** @type {Record<string, string>} */ (last === null ? {} : { "Last-Event-ID": last });
    return request(sessionPath(session, "/stream"), { headers, signal });
  }
  // the key makes it one message, however often it is sent
  const headers = /** @type {Record<string, string>} */ (first.key ? { "Idempotency-Key": first.key } : {});
  return request(first.path, { method: "POST", body: first.body, headers, signal });
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

/** Wait; less where the network comes back or the page is looked at again. @param {number} ms @param {AbortSignal} signal */
function pause(ms, signal) {
  return /** @type {Promise<void>} */ (new Promise((done) => {
    const timer = setTimeout(end, ms);
    function end() {
      clearTimeout(timer);
      removeEventListener("online", end);
      signal.removeEventListener("abort", end);
      done();
    }
    addEventListener("online", end);
    signal.addEventListener("abort", end);
  }));
}
