/** Asking the server: JSON in, JSON or a clear error out. The key of a server that needs one is kept for this tab only. */

const KEY = "lango-key";

/** An answer that is no success, or no answer at all (status 0). */
export class ApiError extends Error {
  /** @param {number} status @param {string} type @param {string} message */
  constructor(status, type, message) {
    super(message);
    this.status = status;
    this.type = type;
  }
}

/** Set by the page: asks the user for a key and resolves to it, or to null. @type {() => Promise<string | null>} */
let askForKey = async () => null;
let asking = /** @type {Promise<string | null> | null} */ (null);

/** @param {() => Promise<string | null>} ask */
export function whenKeyIsNeeded(ask) {
  askForKey = ask;
}

export function hasKey() {
  return sessionStorage.getItem(KEY) !== null;
}

export function forgetKey() {
  sessionStorage.removeItem(KEY);
}

/** @param {string} id */
export function sessionPath(id, rest = "") {
  return `/v1/sessions/${encodeURIComponent(id)}${rest}`;
}

/**
 * Send a request and return the response when it is a success. A 401 asks for a key, and is tried again with it.
 * @param {string} path
 * @param {{method?: string, body?: any, raw?: BodyInit, type?: string, headers?: Record<string, string>, signal?: AbortSignal}} [options]
 * @returns {Promise<Response>}
 */
export async function request(path, options = {}) {
  for (;;) {
    const used = sessionStorage.getItem(KEY);
    const response = await send(path, options, used);
    if (response.ok) return response;
    if (response.status === 401) {
      if (sessionStorage.getItem(KEY) !== used) continue; // it was given meanwhile
      asking ??= askForKey().finally(() => (asking = null));
      const key = await asking;
      if (key) {
        sessionStorage.setItem(KEY, key);
        continue;
      }
    }
    throw await asError(response);
  }
}

/** @param {string} path @param {any} options @param {string | null} key */
async function send(path, { method = "GET", body, raw, type, headers = {}, signal }, key) {
  const sent = /** @type {Record<string, string>} */ ({ ...headers });
  if (key) sent.Authorization = `Bearer ${key}`;
  if (body !== undefined) sent["Content-Type"] = "application/json";
  if (type) sent["Content-Type"] = type;
  try {
    return await fetch(path, {
      method, signal, headers: sent, body: raw ?? (body === undefined ? undefined : JSON.stringify(body)), cache: "no-store",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "Unreachable", "The server cannot be reached. Is it still running?");
  }
}

/** @param {Response} response */
async function asError(response) {
  const told = await response.json().catch(() => null);
  const message = told?.error?.message ?? `the server answered ${response.status}`;
  return new ApiError(response.status, told?.error?.type ?? "Refused", message);
}

/**
 * Ask for JSON; nothing (204) is null.
 * @param {string} path @param {Parameters<typeof request>[1]} [options] @returns {Promise<any>}
 */
export async function api(path, options) {
  const response = await request(path, options);
  return response.status === 204 ? null : response.json();
}

/** Say an error so that a person knows what to do. @param {unknown} error */
export function explain(error) {
  if (!(error instanceof ApiError)) return String(error instanceof Error ? error.message : error);
  switch (error.status) {
    case 0: return error.message;
    case 401: return "This server needs an API key. Reload the page and enter one; `lango keys add` makes it.";
    case 404: return `${upper(error.message)}. It may have been deleted elsewhere.`;
    case 413: return `That is too much at once: ${error.message}. Send fewer or smaller files.`;
    case 429: return `${upper(error.message)}. Wait a while, then try again.`;
    default: return upper(error.message);
  }
}

/** @param {string} words */
function upper(words) {
  return words.charAt(0).toUpperCase() + words.slice(1);
}
