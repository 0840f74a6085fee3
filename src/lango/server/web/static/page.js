/** Set up the page: address, scrolling, theme, drawer, keyboard. */

import * as actions from "./conversation/actions.js";
import { actingAs, api, ApiError, chosenAgent, hasKey, openAgent, sessionPath, setKeyPrompt } from "./base/api.js";
import { setDraft, restoreDraft, setUpComposer } from "./conversation/composer.js";
import { Conversation } from "./conversation/conversation.js";
import { askKey, isDialogOpen, showHelp } from "./base/dialogs.js";
import { byId, el, icon } from "./base/dom.js";
import { demonstrationNotice } from "./demonstration.js";
import { setUpEvals } from "./evals/evals.js";
import { setUpInbox } from "./inbox.js";
import { setUpOverview } from "./overview/overview.js";
import { isPanelOpen, openPanel, setUpPanel, showAgent } from "./panel/panel.js";
import { setUpSchedules } from "./schedules/schedules.js";
import { findSession, readTitle, refresh, setUpSessionList, titleOf } from "./session-list.js";
import { setUpSessionOptions } from "./session-options.js";
import { on, state } from "./base/state.js";

const EXAMPLE = "What can you do for me?";
const TOOL_EXAMPLE = "Which tools can you use, and for what?";
const SMALL_TALK = ["Hello! Who are you?", "What is the capital of France?", "Tell me a very short story about a fox."];
const NEW_TITLE = "New conversation";

const scroller = byId("main");
let followsNewest = true; // until the user scrolls up

const conversation = new Conversation({
  welcome,
  scrollToBottom,
  stopFollowing: () => void (followsNewest = false),
  retry: () => void actions.retry(conversation),
  edit: (message) => actions.edit(conversation, message),
  rewind: (message) => void actions.rewind(conversation, message, setDraft),
  withdraw: (message) => void actions.withdrawQueued(conversation, message, restoreDraft),
  async fork(answer) {
    await conversation.synced;
    if (state.session && answer.lastSeq !== null) await actions.fork(state.session, answer.lastSeq);
  },
});

/** @typedef {{name: string, root: string, description: string, suggestions: string[], model: string, models: string[], may_set_instruction: boolean, demonstration: boolean, named_model: string, has_tools: boolean}} Agent */

function welcome() {
  return el("div", { class: "welcome" },
    el("img", { src: "/page/icon.svg", alt: "", width: 48, height: 48 }),
    el("h2", { text: state.about.description ? state.about.root : "What can I do for you?" }),
    state.about.description && el("p", { text: state.about.description }),
    el("p", { class: "note", text: "Ask a question, or start with one of these." }),
    el("ul", { class: "examples" }, ...examples().map((text) =>
      el("li", {}, el("button", { type: "button", click: () => setDraft(text) }, text)))),
    el("button", { type: "button", class: "quiet", click: showAgent }, icon("panel"), "How this agent is built"),
    (state.about.demonstration || state.about.named_model) && demonstrationNotice(() => void showAbout()));
}

/** Return what the agent's author suggests, or else what any agent can answer. */
function examples() {
  if (state.about.suggestions?.length) return state.about.suggestions;
  if (state.about.demonstration) return SMALL_TALK;
  return state.about.has_tools ? [EXAMPLE, TOOL_EXAMPLE] : [EXAMPLE];
}

/** Name the agent and its model, and show what follows from them. */
async function showAbout() {
  const about = await api("/page/about");
  /** @type {Agent[]} */ const agents = about.agents;
  if (agents.length > 1 && chosenAgent === null && state.session) {
    const { agent } = await api(sessionPath(state.session)); // the address is that of a conversation alone
    return openAgent(agent, location.hash);
  }
  const current = agents.find((agent) => agent.name === chosenAgent) ?? agents[0];
  state.about = { ...about, ...current };
  const shown = [agents.length > 1 ? "" : current.name, current.models.length ? "" : current.model];
  if (actingAs) shown.push("a run of a test case");
  byId("evals").hidden = !about.is_operator || actingAs !== null;
  byId("model").textContent = shown.filter(Boolean).join(" · ");
  document.querySelector(".welcome")?.replaceWith(welcome());
}

// -- the address --------------------------------------------------------------------------------------------------------

function route() {
  if (location.hash && !location.hash.startsWith("#/")) return; // a link within the page
  const [, id, seq] = location.hash.match(/^#\/s\/([^/]+)(?:\/(\d+))?$/) ?? [];
  let session = null;
  try {
    session = id === undefined ? null : decodeURIComponent(id);
  } catch {
    // a malformed address opens a new conversation
  }
  openDrawer(false);
  void conversation.open(session, Number(seq) || null);
}

function startNewConversation() {
  history.pushState(null, "", "#/");
  route();
  byId("text").focus();
}

/** @param {string} text */
function setTitle(text) {
  state.title = text;
  byId("title").textContent = text;
  document.title = text === NEW_TITLE ? "Lango" : `${text} · Lango`;
}

on("session", (id) => {
  const session = id && findSession(id);
  setTitle(session ? titleOf(session) : NEW_TITLE);
  if (id) void readTitle(id);
  byId("session-menu").hidden = id === null;
  if (id === null) state.initial = {};
  if (id === null && isPanelOpen()) openPanel(false);
});
on("title", ({ id, title: text }) => id === state.session && setTitle(text));

// -- scrolling ----------------------------------------------------------------------------------------------------------

/** Scroll down if the newest message is being followed, or by force. */
function scrollToBottom(force = false) {
  if (force) followsNewest = true;
  if (followsNewest) scroller.scrollTop = scroller.scrollHeight;
}

function setUpScrolling() {
  byId("down").append(icon("down"));
  byId("down").addEventListener("click", () => scrollToBottom(true));
  scroller.addEventListener("scroll", async () => {
    const rest = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight;
    followsNewest = rest < 60;
    byId("down").hidden = rest < 300;
    if (scroller.scrollTop > 200 || conversation.olderCursor === null) return;
    const height = scroller.scrollHeight;
    if (await conversation.loadOlder().catch(() => false)) scroller.scrollTop += scroller.scrollHeight - height;
  });
  const sizes = new ResizeObserver(() => scrollToBottom());
  sizes.observe(byId("log"));
  sizes.observe(scroller); // a notice takes space from it
}

// -- theme and drawer ---------------------------------------------------------------------------------------------------

const THEMES = ["auto", "light", "dark"];

/** @param {string} name */
function setTheme(name) {
  document.documentElement.dataset.theme = name;
  byId("theme").replaceChildren(icon("theme"), { auto: "Auto", light: "Light", dark: "Dark" }[name] ?? "");
  byId("theme").setAttribute("aria-label", `Theme: ${name}. Change it`);
}

function setUpTheme() {
  const stored = localStorage.getItem("lango-theme") ?? "auto";
  setTheme(THEMES.includes(stored) ? stored : "auto");
  byId("theme").addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme ?? "auto") + 1) % THEMES.length];
    localStorage.setItem("lango-theme", next);
    setTheme(next);
  });
}

const narrow = matchMedia("(max-width: 50rem)");

/** @param {boolean} open */
function openDrawer(open) {
  const wasOpen = document.body.classList.contains("with-drawer");
  document.body.classList.toggle("with-drawer", open);
  byId("backdrop").hidden = !open;
  byId("side").inert = narrow.matches && !open;
  byId("side-open").setAttribute("aria-expanded", String(open));
  if (open) byId("side-close").focus();
  else if (wasOpen) byId("side-open").focus();
}

function setUpDrawer() {
  byId("side-open").append(icon("menu"));
  byId("side-close").append(icon("close"));
  byId("panel-open").append(icon("panel"));
  byId("panel-close").append(icon("close"));
  byId("side-open").addEventListener("click", () => openDrawer(true));
  byId("side-close").addEventListener("click", () => openDrawer(false));
  byId("backdrop").addEventListener("click", () => openDrawer(false));
  narrow.addEventListener("change", () => openDrawer(false));
}

// -- the keyboard -------------------------------------------------------------------------------------------------------

/** Withdraw the newest queued message, else edit the newest sent one. */
function editLast() {
  const { newest } = conversation.queue;
  if (newest) return void actions.withdrawQueued(conversation, newest, restoreDraft);
  const message = conversation.transcript.lastUserMessage();
  if (message) actions.edit(conversation, message);
}

/** @param {KeyboardEvent} event */
function onKeydown(event) {
  const isTyping = event.target instanceof HTMLElement && event.target.matches("input, textarea");
  if (isTyping && !event.altKey && event.key !== "Escape") return; // first: a search of the page takes as long as it is
  if (isDialogOpen() || event.isComposing) return;
  if (event.key === "Escape") {
    if (document.body.classList.contains("with-drawer")) openDrawer(false);
    else void actions.stop();
    return;
  }
  const noModifier = !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey;
  const alt = event.altKey && !event.ctrlKey && !event.metaKey;
  const action = (alt && { KeyN: startNewConversation, KeyK: focusSearch, KeyD: () => openPanel(!isPanelOpen()), KeyL: focusList }[event.code])
    || (noModifier && /** @type {Record<string, () => void>} */ ({ "/": focusSearch, "?": openHelp })[event.key]);
  if (!action) return;
  event.preventDefault();
  action();
}

function focusSearch() {
  if (narrow.matches) openDrawer(true);
  byId("search").focus();
}

function focusList() {
  if (narrow.matches) openDrawer(true);
  (byId("list").querySelector("a[aria-current], a") ?? byId("list")).focus();
}

async function openHelp() {
  void showHelp(state.about, await api("/v1/replicas").catch(() => ({ replicas: [] })));
}

// -- set-up -------------------------------------------------------------------------------------------------------------

/** Let the user choose among several agents, and what the configuration allows for a conversation. */
function setUpChoices() {
  const { agents, broken, ...current } = state.about;
  if (agents === undefined) return; // the page of another agent is being opened
  setUpSessionOptions(/** @type {Agent} */ (current));
  const picker = byId("agent");
  picker.hidden = agents.length + broken.length < 2;
  picker.replaceChildren(
    ...agents.map((/** @type {Agent} */ { name }) => el("option", { value: name, text: name, selected: name === current.name })),
    ...broken.map((/** @type {{name: string, error: string}} */ { name, error }) => el("option", { disabled: true, title: error, text: `${name} (cannot run: ${error})` })));
  picker.addEventListener("change", () => openAgent(picker.value));
}

function setUp() {
  setKeyPrompt(() => askKey(hasKey()));
  setUpTheme();
  setUpDrawer();
  setUpScrolling();
  setUpPanel();
  setUpSessionList(startNewConversation);
  setUpInbox();
  setUpEvals();
  setUpOverview();
  setUpSchedules();
  setUpComposer({ send: (text, files, whenBusy) => actions.send(conversation, text, files, whenBusy), stop: () => void actions.stop(), editLast });
  byId("help").prepend(icon("help"));
  byId("help").addEventListener("click", openHelp);
  addEventListener("keydown", onKeydown);
  addEventListener("hashchange", route);
  byId("session-menu").hidden = true;
  openDrawer(false);
  const shown = showAbout();
  state.ready = shown.catch(() => {});
  route();
  void refresh();
  shown.then(setUpChoices).catch((error) => {
    if (chosenAgent !== null && error instanceof ApiError && error.status === 404) location.replace(location.pathname); // there is no such agent
  });
}

setUp();
