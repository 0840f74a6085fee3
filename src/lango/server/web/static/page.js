/** The page: what is where, which session the address names, the keyboard, light and dark. */

import * as acts from "./conversation/actions.js";
import { api, whenKeyIsNeeded, hasKey } from "./base/api.js";
import { draft, putBack, setUpComposer } from "./conversation/composer.js";
import { Conversation } from "./conversation/conversation.js";
import { askKey, isOpen, showHelp } from "./base/dialogs.js";
import { blink, byId, copy, el, icon } from "./base/dom.js";
import { isPanelOpen, openPanel, setUpPanel } from "./panel/panel.js";
import { known, refresh, setUpSessions, titleOf } from "./session-list.js";
import { on, state } from "./base/state.js";
import { readCardsWith } from "./panel/timeline-view.js";
import { Said } from "./conversation/user-message.js";

const EXAMPLES = [
  "Explain what makes a good commit message, with an example.",
  "What time is it, and which tools can you use?",
  "Write a table of three European rivers with their length.",
];
const NEW = "New conversation";

const scroller = byId("main");
let stuck = true; // to the newest message, until the user scrolls up

const talk = new Conversation({
  welcome,
  bottom(force = false) {
    if (force) stuck = true;
    if (stuck) scroller.scrollTop = scroller.scrollHeight;
  },
  away: () => void (stuck = false),
  retry: () => void acts.retry(talk),
  edit: (said) => acts.edit(talk, said),
  rewind: (said) => void acts.rewind(talk, said, draft),
  takeBack: (one) => void acts.takeBack(talk, one, putBack),
  async fork(answer) {
    await talk.settled;
    if (state.session && answer.lastSeq !== null) await acts.fork(state.session, answer.lastSeq);
  },
});

function welcome() {
  return el("div", { class: "welcome" },
    el("img", { src: "/page/icon.svg", alt: "", width: 48, height: 48 }),
    el("h2", { text: "What can I do for you?" }),
    el("p", { class: "note", text: "Ask something, or begin with one of these." }),
    el("ul", { class: "examples" }, ...EXAMPLES.map((words) =>
      el("li", {}, el("button", { type: "button", click: () => draft(words) }, words)))));
}

// -- the address --------------------------------------------------------------------------------------------------------

function route() {
  if (location.hash && !location.hash.startsWith("#/")) return; // a place in the page
  const [, id, seq] = location.hash.match(/^#\/s\/([^/]+)(?:\/(\d+))?$/) ?? [];
  let name = null;
  try {
    name = id === undefined ? null : decodeURIComponent(id);
  } catch {
    // an address that somebody broke
  }
  drawer(false);
  void talk.open(name, Number(seq) || null);
}

function begin() {
  history.pushState(null, "", "#/");
  route();
  byId("text").focus();
}

/** @param {string} words */
function title(words) {
  state.title = words;
  byId("title").textContent = words;
  document.title = words === NEW ? "Lango" : `${words} · Lango`;
}

on("session", (id) => {
  const session = id && known(id);
  title(session ? titleOf(session) : NEW);
  byId("session-menu").hidden = byId("panel-open").hidden = id === null;
  if (id === null && isPanelOpen()) openPanel(false);
});
on("title", ({ id, title: words }) => id === state.session && title(words));

// -- scrolling ----------------------------------------------------------------------------------------------------------

function setUpScrolling() {
  byId("down").append(icon("down"));
  byId("down").addEventListener("click", () => {
    stuck = true;
    scroller.scrollTop = scroller.scrollHeight;
  });
  scroller.addEventListener("scroll", async () => {
    const rest = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight;
    stuck = rest < 60;
    byId("down").hidden = rest < 300;
    if (scroller.scrollTop > 200 || talk.before === null) return;
    const height = scroller.scrollHeight;
    if (await talk.older().catch(() => false)) scroller.scrollTop += scroller.scrollHeight - height;
  });
  new ResizeObserver(() => stuck && (scroller.scrollTop = scroller.scrollHeight)).observe(byId("log"));
}

// -- light and dark, the drawer -----------------------------------------------------------------------------------------

const THEMES = ["auto", "light", "dark"];

/** @param {string} name */
function theme(name) {
  document.documentElement.dataset.theme = name;
  byId("theme").replaceChildren(icon("theme"), { auto: "Auto", light: "Light", dark: "Dark" }[name] ?? "");
  byId("theme").setAttribute("aria-label", `Theme: ${name}. Change it`);
}

function setUpTheme() {
  const stored = localStorage.getItem("lango-theme") ?? "auto";
  theme(THEMES.includes(stored) ? stored : "auto");
  byId("theme").addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme ?? "auto") + 1) % THEMES.length];
    localStorage.setItem("lango-theme", next);
    theme(next);
  });
}

const narrow = matchMedia("(max-width: 50rem)");

/** @param {boolean} is */
function drawer(is) {
  const was = document.body.classList.contains("with-drawer");
  document.body.classList.toggle("with-drawer", is);
  byId("shade").hidden = !is;
  byId("side").inert = narrow.matches && !is;
  byId("side-open").setAttribute("aria-expanded", String(is));
  if (is) byId("side-close").focus();
  else if (was) byId("side-open").focus();
}

function setUpDrawer() {
  byId("side-open").append(icon("menu"));
  byId("side-close").append(icon("close"));
  byId("panel-open").append(icon("panel"));
  byId("panel-close").append(icon("close"));
  byId("side-open").addEventListener("click", () => drawer(true));
  byId("side-close").addEventListener("click", () => drawer(false));
  byId("shade").addEventListener("click", () => drawer(false));
  narrow.addEventListener("change", () => drawer(false));
}

// -- the keyboard -------------------------------------------------------------------------------------------------------

/** What was said last is changed: taken back where it still waits, else sent again in a fork. */
function editLast() {
  const { newest } = talk.waiting;
  if (newest) return void acts.takeBack(talk, newest, putBack);
  const said = talk.log.items.findLast((one) => one instanceof Said);
  if (said instanceof Said) acts.edit(talk, said);
}

/** @param {KeyboardEvent} event */
function pressed(event) {
  if (isOpen() || event.isComposing) return;
  const writing = event.target instanceof HTMLElement && event.target.matches("input, textarea");
  if (event.key === "Escape") {
    if (document.body.classList.contains("with-drawer")) drawer(false);
    else void acts.stop();
    return;
  }
  const plain = !writing && !event.ctrlKey && !event.metaKey && !event.altKey;
  const alt = event.altKey && !event.ctrlKey && !event.metaKey;
  const act = (alt && { KeyN: begin, KeyK: goSearch, KeyD: () => openPanel(!isPanelOpen()), KeyL: goList }[event.code])
    || (plain && /** @type {Record<string, () => void>} */ ({ "/": goSearch, "?": help })[event.key]);
  if (!act) return;
  event.preventDefault();
  act();
}

function goSearch() {
  if (narrow.matches) drawer(true);
  byId("search").focus();
}

function goList() {
  if (narrow.matches) drawer(true);
  (byId("list").querySelector("a[aria-current], a") ?? byId("list")).focus();
}

function help() {
  void showHelp(state.about);
}

// -- begin --------------------------------------------------------------------------------------------------------------

function setUp() {
  whenKeyIsNeeded(() => askKey(hasKey()));
  setUpTheme();
  setUpDrawer();
  setUpScrolling();
  setUpPanel();
  setUpSessions(begin);
  setUpComposer({ send: (text, files) => acts.send(talk, text, files), stop: () => void acts.stop(), editLast });
  readCardsWith(() => [...talk.log.tools.values()]);
  byId("help").prepend(icon("help"));
  byId("help").addEventListener("click", help);
  byId("log").addEventListener("click", async (/** @type {any} */ event) => {
    const button = event.target.closest("[data-copy]");
    if (button && (await copy(button.closest(".code").querySelector("pre").textContent))) blink(button);
  });
  addEventListener("keydown", pressed);
  addEventListener("hashchange", route);
  byId("session-menu").hidden = byId("panel-open").hidden = true;
  drawer(false);
  route();
  void refresh();
  api("/page/about").then((about) => {
    state.about = about;
    byId("model").textContent = about.model;
  }).catch(() => {});
}

setUp();
