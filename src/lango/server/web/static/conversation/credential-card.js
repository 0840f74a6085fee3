/** Show a tool's request for a credential: the address where the user allows the access, or a form for a key or a password. */

import { capitalize } from "../base/api.js";
import { el, icon, formatTime } from "../base/dom.js";

/**
 * @typedef {{call_id: string, auth_url: string, message: string, scopes: string[], kind: string, scheme: string, expires_at?: string | null}} CredentialRequest
 * @typedef {{element: HTMLElement, value: () => any, clear: () => void}} SecretField
 */

const RETURNING = ["oauth2", "openIdConnect"];

export class CredentialCard {
  #form = /** @type {HTMLElement | null} */ (null);
  #problem = el("p", { class: "input-problem", role: "alert" });

  /** @param {string} id @param {{message?: string, scopes?: string[]}} request */
  constructor(id, request) {
    this.id = id;
    this.status = "closed";
    const scopes = request.scopes?.length ? ` (${request.scopes.join(", ")})` : "";
    const what = capitalize(request.message || "a tool needs access to an account of yours");
    this.element = el("div", { class: "input-card credential-card", "data-call": id, "data-status": this.status }, el("p", { class: "input-message", text: `${what}${scopes}` }));
  }

  /**
   * Show how an open request is answered. What is typed is sent once, and not kept.
   * @param {CredentialRequest} request @param {(value: any) => Promise<string>} onAnswer returns why the value was refused; empty: it was accepted
   * @param {() => void} onSkip
   */
  open(request, onAnswer, onSkip) {
    if (this.#form) return; // it is open, and a value may be typed already
    this.#setStatus("waiting");
    const skip = el("button", { type: "button", click: onSkip }, icon("cross"), "Skip");
    const until = request.expires_at ? el("p", { class: "note", text: `The request expires at ${formatTime(request.expires_at)}.` }) : null;
    this.#problem.textContent = "";
    this.#form = isAddress(request.auth_url) ? this.#link(request, onAnswer, until, skip) : this.#fields(request, onAnswer, until, skip);
    this.element.append(this.#form);
  }

  /** @param {CredentialRequest} request @param {(value: any) => Promise<string>} onAnswer @param {Node | null} until @param {Node} skip */
  #link(request, onAnswer, until, skip) {
    const link = el("a", { href: request.auth_url, target: "_blank", rel: "noopener noreferrer" }, `Allow the access at ${new URL(request.auth_url).host}`);
    const allowed = async () => {
      this.#disable(true);
      this.#problem.textContent = await onAnswer("allowed");
      this.#disable(false);
      if (!this.#problem.textContent) this.close("answered", "Given.");
    };
    // an OAuth server sends the browser back; for a scheme of the agent's own, only the user knows
    const done = RETURNING.includes(request.kind) ? null : el("button", { type: "button", class: "primary", click: allowed }, icon("check"), "I have allowed it");
    return el("div", { class: "input-form" }, el("p", {}, link), this.#problem, until, el("div", { class: "approval-buttons" }, done, skip));
  }

  /** @param {CredentialRequest} request @param {(value: any) => Promise<string>} onAnswer @param {Node | null} until @param {Node} skip */
  #fields(request, onAnswer, until, skip) {
    const field = secretField(request);
    const submit = async (/** @type {Event} */ event) => {
      event.preventDefault();
      const value = field.value();
      if (value === null) return void (this.#problem.textContent = "A value is missing.");
      this.#disable(true);
      const problem = await onAnswer(value);
      field.clear();
      this.#problem.textContent = problem;
      this.#disable(false);
      if (!problem) this.close("answered", "Given.");
    };
    return el("form", { class: "input-form", submit, novalidate: true, autocomplete: "off", "aria-label": request.message || "Credential" },
      field.element, this.#problem, until,
      el("div", { class: "approval-buttons" }, el("button", { type: "submit", class: "primary" }, icon("check"), "Give"), skip));
  }

  /** Show a stored result: that the credential was given, or why there is none. @param {any} output */
  showResult(output) {
    if (output?.error) this.close("closed", capitalize(String(output.error)));
    else this.close("answered", "Given.");
  }

  /** Remove the form or link. @param {string} status @param {string} [note] */
  close(status, note = "") {
    this.#form?.remove();
    this.#form = null;
    this.#setStatus(status);
    this.element.querySelector(".credential-end")?.remove();
    if (note) this.element.append(el("p", { class: "note credential-end", text: note }));
  }

  /** @param {string} status */
  #setStatus(status) {
    this.status = status;
    this.element.dataset.status = status;
  }

  /** @param {boolean} disabled */
  #disable(disabled) {
    for (const control of this.#form?.querySelectorAll("input, button") ?? []) /** @type {any} */ (control).disabled = disabled;
  }
}

/** @param {string} address */
function isAddress(address) {
  return /^https?:\/\//.test(address ?? "") && URL.canParse(address);
}

/** @param {CredentialRequest} request @returns {SecretField} */
function secretField(request) {
  if (request.scheme === "basic") {
    const name = el("input", { type: "text", autocomplete: "off", spellcheck: "false", autocapitalize: "none" });
    const password = secretInput();
    return {
      element: labelled(["Name", name], ["Password", password]),
      value: () => (name.value && password.value ? { username: name.value, password: password.value } : null),
      clear: () => void (password.value = ""),
    };
  }
  const secret = secretInput();
  return { element: labelled([request.kind === "http" ? "Token" : "Key", secret]), value: () => secret.value.trim() || null, clear: () => void (secret.value = "") };
}

/** An input that shows dots, and that browsers neither fill nor keep. */
function secretInput() {
  return el("input", { type: "password", autocomplete: "new-password", spellcheck: "false" });
}

/** @param {...[string, HTMLElement]} fields */
function labelled(...fields) {
  return el("div", { class: "input-fields" }, ...fields.map(([name, input]) => el("label", {}, el("span", { text: name }), input)));
}
