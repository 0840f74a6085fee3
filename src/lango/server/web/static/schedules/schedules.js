/** Show the schedules of the user: their next times and what became of their slots; add, change, pause, run and delete them. */

import { addressOf, api, describeError } from "../base/api.js";
import { confirm, openPageDialog, redraw } from "../base/dialogs.js";
import { byId, el, formatTime, icon, iconButton, loadStylesheet, withErrorToast } from "../base/dom.js";
import { state } from "../base/state.js";

/**
 * @typedef {{name: string, message: string, cron?: string, every_s?: number, times?: string[], timezone: string, start_at?: string | null, end_at?: string | null, jitter_s: number, missed: string, max_missed: number, overlap: string, session: string, session_id: string}} Spec
 * @typedef {{id: string, spec: Spec, state: string, next_times: string[]}} Schedule
 * @typedef {{slot_at: string, last_slot_at: string | null, slots: number, outcome: string, reason: string, manual: boolean, session_id: string | null}} Run
 */

const POLL_MS = 2_000;
const CHOICES = /** @type {Record<string, [string, string][]>} */ ({
  missed: [["one", "Run the newest one"], ["skip", "Run none"], ["all", "Run up to ten"]],
  overlap: [["queue", "Wait for its end"], ["skip", "Skip the new run"], ["cancel", "Stop it"]],
  session: [["one", "One for all runs"], ["each", "A new one each"], ["day", "One a day"]],
});
const KINDS = /** @type {[keyof Spec, string][]} */ ([["cron", "Cron expression"], ["every_s", "Interval in seconds"], ["times", "Times, one a line"]]);
const HINTS = /** @type {Record<string, string>} */ ({ cron: "30 7 * * 1-5, or @daily", every_s: "900", times: "2026-12-24T18:00" });

let dialog = /** @type {any} */ (null);
let timer = 0;
/** the schedule whose slots are shown */ let opened = "";
/** the form is open: nothing is drawn over it */ let isEditing = false;

async function open() {
  if (dialog) return;
  await loadStylesheet("/page/schedules/schedules.css");
  dialog = openPageDialog("schedules", "Schedules", "Close the schedules", () => {
    clearTimeout(timer);
    dialog = null;
    isEditing = false;
  });
  await refresh();
}

async function refresh() {
  clearTimeout(timer);
  if (!dialog || isEditing) return;
  const page = await withErrorToast(() => api("/v1/schedules"));
  const isThere = page?.schedules.some((/** @type {Schedule} */ one) => one.id === opened);
  const runs = isThere ? await api(`/v1/schedules/${opened}`).catch(() => null) : null;
  if (!dialog || isEditing || !page) return;
  draw(page.schedules, runs?.runs ?? []);
  timer = window.setTimeout(refresh, POLL_MS);
}

/** @param {Schedule[]} schedules @param {Run[]} runs */
function draw(schedules, runs) {
  redraw(dialog,
    el("p", { class: "note", text: "Each sends a message to the agent at its times, whether or not this page is open." }),
    el("div", {}, el("button", { type: "button", class: "primary", "aria-label": "Add a schedule", click: () => edit(null) }, "Add a schedule")),
    schedules.length ? el("ul", {}, ...schedules.map((one) => item(one, runs))) : el("p", { text: "No schedules yet." }));
}

/** @param {Spec} spec */
function describe({ cron, every_s, times, timezone }) {
  const when = cron || (every_s ? `every ${every_s.toLocaleString()} s` : `${times?.length} time${times?.length === 1 ? "" : "s"}`);
  return `${when} · ${timezone}`;
}

/** @param {Schedule} one @param {Run[]} runs */
function item(one, runs) {
  const { id, spec } = one;
  const isPaused = one.state === "paused";
  const next = one.next_times[0] ? `next ${formatTime(one.next_times[0])}` : "no more times";
  const change = (/** @type {string} */ what) => act(() => api(`/v1/schedules/${id}/${what}`, { method: "POST" }));
  return el("li", { class: "schedules-item" },
    el("div", { class: "schedules-line" },
      el("span", { class: "schedules-name" }, el("strong", { text: spec.name }), el("span", { class: "note", text: `${describe(spec)} · ${isPaused ? "paused" : next}` })),
      el("span", { class: "schedules-actions" },
        el("button", { type: "button", class: "quiet small", "aria-label": `Run ${spec.name} now`, click: () => { opened = id; void change("run"); } }, "Run now"),
        el("button", { type: "button", class: "quiet small", "aria-label": `${isPaused ? "Resume" : "Pause"} ${spec.name}`, click: () => change(isPaused ? "resume" : "pause") }, isPaused ? "Resume" : "Pause"),
        iconButton("edit", `Change ${spec.name}`, () => edit(one)),
        iconButton("trash", `Delete ${spec.name}`, () => remove(one)))),
    el("p", { class: "schedules-message", text: spec.message }),
    el("details", { open: opened === id, toggle: (/** @type {any} */ event) => toggle(id, event.target.open) },
      el("summary", { text: "Times and runs" }), opened === id && details(one, runs)));
}

/** @param {string} id @param {boolean} isOpen */
function toggle(id, isOpen) {
  if (isOpen === (opened === id)) return;
  opened = isOpen ? id : "";
  void refresh();
}

/** @param {Schedule} one @param {Run[]} runs */
function details(one, runs) {
  const rows = runs.map((run) => el("tr", {},
    el("td", { text: run.last_slot_at ? `${formatTime(run.slot_at)} to ${formatTime(run.last_slot_at)} (${run.slots.toLocaleString()})` : `${formatTime(run.slot_at)}${run.manual ? " (run now)" : ""}` }),
    el("td", { text: run.outcome }),
    el("td", {}, run.session_id && run.outcome !== "deleted" ? el("a", { href: addressOf(state.about.name, run.session_id), click: () => dialog.close(), text: run.reason || "conversation" }) : run.reason)));
  return el("div", { class: "schedules-details" },
    el("p", { text: one.next_times.length ? `Next: ${one.next_times.map(formatTime).join("; ")}.` : "There are no more times." }),
    runs.length ? el("div", { class: "numbers", role: "region", "aria-label": `Runs of ${one.spec.name}`, tabindex: "0" },
      el("table", {}, el("thead", {}, el("tr", {}, ...["Slot", "Outcome", "Details"].map((text) => el("th", { scope: "col", text })))), el("tbody", {}, ...rows)))
      : el("p", { class: "note", text: "No slot has passed yet." }));
}

/** Show the form of a schedule; null: of a new one. @param {Schedule | null} one */
function edit(one) {
  isEditing = true;
  clearTimeout(timer);
  const spec = /** @type {any} */ (one?.spec ?? { timezone: Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC", missed: "one", overlap: "queue", session: "one" });
  const kind = KINDS.find(([name]) => (name === "times" ? spec.times?.length : spec[name]))?.[0] ?? "cron";
  const form = el("form", { class: "schedules-form", novalidate: true });
  const field = (/** @type {string} */ label, /** @type {any} */ input) => el("label", { class: "field" }, label, input);
  const input = (/** @type {string} */ name, /** @type {any} */ value, attributes = {}) => el("input", { name, value: value ?? "", autocomplete: "off", ...attributes });
  const area = (/** @type {string} */ name, /** @type {string} */ value, attributes = {}) => {
    const box = el("textarea", { name, rows: 3, ...attributes });
    box.value = value;
    return box;
  };
  const choice = (/** @type {string} */ name, /** @type {[string, string][]} */ options, /** @type {string} */ value) => {
    const box = el("select", { name }, ...options.map(([key, text]) => el("option", { value: key, text })));
    box.value = value;
    return box;
  };
  const kindBox = choice("kind", /** @type {any} */ (KINDS), kind);
  const when = area("when", kind === "times" ? (spec.times ?? []).join("\n") : String(spec[kind] || ""), { rows: 2, placeholder: HINTS[kind] });
  kindBox.addEventListener("change", () => void (when.placeholder = HINTS[kindBox.value]));
  const problem = el("p", { class: "schedules-problem", role: "alert" });
  form.append(
    field("Name", input("name", spec.name, { maxlength: 200 })),
    field("Message; {date}, {time} and {weekday} are filled in", area("message", spec.message ?? "", { maxlength: 20_000 })),
    el("div", { class: "schedules-row" }, field("Runs at", kindBox), field("Times", when)),
    el("div", { class: "schedules-row" }, field("Time zone", input("timezone", spec.timezone)),
      field("Start", input("start_at", spec.start_at, { placeholder: "now" })), field("End", input("end_at", spec.end_at, { placeholder: "never" })),
      field("Jitter in seconds", input("jitter_s", spec.jitter_s || "", { inputmode: "numeric", placeholder: "0" }))),
    el("div", { class: "schedules-row" }, field("Missed times", choice("missed", CHOICES.missed, spec.missed)),
      field("If the last run goes on", choice("overlap", CHOICES.overlap, spec.overlap)), field("Conversation", choice("session", CHOICES.session, spec.session))),
    problem,
    el("div", { class: "dialog-end" }, el("button", { type: "button", click: leave }, "Cancel"), el("button", { type: "submit", class: "primary" }, one ? "Save" : "Add")));
  form.addEventListener("submit", async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      await api(one ? `/v1/schedules/${one.id}` : "/v1/schedules", { method: one ? "PATCH" : "POST", body: bodyOf(new FormData(form)) });
      await leave();
    } catch (error) {
      problem.textContent = describeError(error);
    }
  });
  dialog.querySelector(".schedules-body").replaceChildren(el("h3", { text: one ? `Change ${spec.name}` : "New schedule" }), form);
  form.querySelector("input").focus();
}

/** @param {FormData} data */
function bodyOf(data) {
  const text = (/** @type {string} */ name) => String(data.get(name) ?? "").trim();
  const body = /** @type {Record<string, any>} */ ({});
  for (const name of ["name", "message", "timezone", "missed", "overlap", "session"]) if (text(name)) body[name] = text(name);
  for (const name of ["start_at", "end_at"]) body[name] = text(name);
  if (text("jitter_s")) body.jitter_s = Number(text("jitter_s"));
  const when = text("when");
  const kind = text("kind");
  body[kind] = kind === "every_s" ? Number(when) : kind === "times" ? when.split(/\s+/).filter(Boolean) : when;
  return body;
}

async function leave() {
  isEditing = false;
  await refresh();
}

/** @param {() => Promise<any>} action */
async function act(action) {
  await withErrorToast(action);
  await refresh();
}

/** @param {Schedule} one */
async function remove({ id, spec }) {
  if (await confirm("Delete the schedule?", `“${spec.name}” and its history are deleted. Its conversations stay.`, "Delete")) {
    await act(() => api(`/v1/schedules/${id}`, { method: "DELETE" }));
  }
}

export function setUpSchedules() {
  byId("schedules").prepend(icon("again"));
  byId("schedules").addEventListener("click", open);
}
