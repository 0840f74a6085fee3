/** Call the HTTP API and turn failures into errors. The API key, where the server needs one, is kept for this tab only. */

import { state } from "./state.js";

const STORAGE_KEY = "lango-key";

/** A response that is not a success, or no response at all (status 0). */
export class ApiError extends Error {
  /** @param {number} status @param {string} type @param {string} message */
  constructor(status, type, message) {
    super(message);
    this.status = status;
    this.type = type;
  }
}

/** @type {() => Promise<string | null>} */
let askForKey = async () => null;
let keyPrompt = /** @type {Promise<string | null> | null} */ (null);

/** Set the function that asks the user for a key; null cancels. @param {() => Promise<string | null>} ask */
export function setKeyPrompt(ask) {
  askForKey = ask;
}

export function hasKey() {
  return sessionStorage.getItem(STORAGE_KEY) !== null;
}

/** The agent that the page's address names; null: the server's first one. */
export const chosenAgent = new URLSearchParams(location.search).get("agent");

/** The user of a test case whose conversation the page shows to the developer of the agent; null: the caller's own. */
export const actingAs = new URLSearchParams(location.search).get("as");

/** Name the chosen agent and user in the address of a request. @param {string} path */
function withAgent(path) {
  const isNamed = path.includes("agent="); // another agent's conversation, in the inbox
  const named = [["agent", isNamed ? null : chosenAgent], ["as", actingAs]].filter(([, value]) => value !== null);
  return named.reduce((all, [name, value]) => `${all}${all.includes("?") ? "&" : "?"}${name}=${encodeURIComponent(String(value))}`, path);
}

/** Show another agent: its conversations, and a new conversation with it. @param {string} name */
export function openAgent(name, hash = "#/") {
  location.assign(`?agent=${encodeURIComponent(name)}${hash}`);
}

/** @param {string} id */
export function sessionPath(id, rest = "") {
  return `/v1/sessions/${encodeURIComponent(id)}${rest}`;
}

/** The address of a conversation that may be another agent's. @param {string} agent @param {string} id @param {number | null} [seq] */
export function addressOf(agent, id, seq = null) {
  const isOther = agent !== state.about.name && state.about.agents?.length > 1;
  return `${isOther ? `?agent=${encodeURIComponent(agent)}` : ""}${sessionHash(id, seq)}`;
}

/** The part of the page's address that shows a session, scrolled to a message. @param {string} id @param {number | null} [seq] */
export function sessionHash(id, seq = null) {
  return `#/s/${encodeURIComponent(id)}${seq ? `/${seq}` : ""}`;
}

/**
 * Send a request and return the response when it is a success. A 401 asks the user for a key and tries again with it.
 * @param {string} path
 * @param {{method?: string, body?: any, raw?: BodyInit, type?: string, headers?: Record<string, string>, signal?: AbortSignal}} [options]
 * @returns {Promise<Response>}
 */
export async function request(path, options = {}) {
  for (;;) {
    const used = sessionStorage.getItem(STORAGE_KEY);
    const response = await send(path, options, used);
    if (response.ok) return response;
    if (response.status === 401) {
      if (sessionStorage.getItem(STORAGE_KEY) !== used) continue; // another request has asked meanwhile
      keyPrompt ??= askForKey().finally(() => (keyPrompt = null));
      const key = await keyPrompt;
      if (key) {
        sessionStorage.setItem(STORAGE_KEY, key);
        continue;
      }
    }
    throw await toApiError(response);
  }
}

/** @param {string} path @param {any} options @param {string | null} key */
async function send(path, { method = "GET", body, raw, type, headers = {}, signal }, key) {
  const sent = /** @type {Record<string, string>} */ ({ ...headers });
  if (key) sent.Authorization = `Bearer ${key}`;
  if (body !== undefined) sent["Content-Type"] = "application/json";
  if (type) sent["Content-Type"] = type;
  try {
    return await fetch(withAgent(path), {
      method, signal, headers: sent, body: raw ?? (body === undefined ? undefined : JSON.stringify(body)), cache: "no-store",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "Unreachable", "The server cannot be reached. Is it still running?");
  }
}

/** @param {Response} response */
async function toApiError(response) {
  const body = await response.json().catch(() => null);
  const message = body?.error?.message ?? `the server answered ${response.status}`;
  return new ApiError(response.status, body?.error?.type ?? "Refused", message);
}

/**
 * Send a request and return the JSON of its response; null for 204.
 * @param {string} path @param {Parameters<typeof request>[1]} [options] @returns {Promise<any>}
 */
export async function api(path, options) {
  const response = await request(path, options);
  return response.status === 204 ? null : response.json();
}

/** Describe an error so that the user knows what to do. @param {unknown} error */
export function describeError(error) {
  if (!(error instanceof ApiError)) return String(error instanceof Error ? error.message : error);
  switch (error.status) {
    case 0: return error.message;
    case 401: return "This server needs an API key. Reload the page and enter one; `lango keys add --user NAME` creates it.";
    case 404: return `${capitalize(error.message)}. It may have been deleted in another tab or by another client.`;
    case 413: return `This is too large: ${error.message}. Send fewer or smaller files.`;
    case 429: return `${capitalize(error.message)}. Wait a while, then try again.`;
    default: return capitalize(error.message);
  }
}

/** @param {string} text */
export function capitalize(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
