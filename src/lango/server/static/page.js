// Whatever a model, a tool or a user said is shown as text, never as markup: `textContent` and nothing else.
"use strict";

const log = document.getElementById("log");
const form = document.getElementById("form");
const text = document.getElementById("text");
const stop = document.getElementById("stop");
const send = document.getElementById("send");
const sessions = document.getElementById("sessions");

let session = location.hash.slice(1) || fresh();
let answer = null; // the paragraph that the answer grows in
let tools = new Map(); // calls that were begun, by their id
let following = 0; // who follows is who was asked last

function fresh() {
  return crypto.randomUUID().replaceAll("-", "").slice(0, 12);
}

function path(rest) {
  return `/v1/sessions/${encodeURIComponent(session)}${rest}`;
}

function show(kind, words, where = log) {
  const shown = document.createElement(kind === "note" ? "p" : "div");
  shown.className = kind === "note" || kind === "error" ? `note ${kind}` : `said ${kind}`;
  shown.textContent = words;
  where.append(shown);
  log.scrollTop = log.scrollHeight;
  return shown;
}

function showTool(id, name, input) {
  const box = document.createElement("details");
  const title = document.createElement("summary");
  title.textContent = `${name} …`;
  const body = document.createElement("pre");
  body.textContent = JSON.stringify(input, null, 2);
  box.append(title, body);
  log.append(box);
  tools.set(id, { title, body, name });
  answer = null;
}

function endTool(id, name, ok, result) {
  if (!tools.has(id)) showTool(id, name, {});
  const { title, body } = tools.get(id);
  title.textContent = `${name} ${ok ? "done" : "failed"}`;
  body.textContent += `\n→ ${JSON.stringify(result, null, 2)}`;
}

function ask(event) {
  const box = document.createElement("div");
  box.className = "said";
  show("note", `May ${event.name} run with exactly these arguments?`, box);
  const shown = document.createElement("pre");
  shown.textContent = JSON.stringify(event.arguments, null, 2);
  box.append(shown);
  for (const [label, approved] of [["Approve", true], ["Refuse", false]]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.onclick = () => {
      box.querySelectorAll("button").forEach((one) => one.remove());
      show("note", approved ? "approved" : "refused", box);
      follow(path(`/approvals/${encodeURIComponent(event.call_id)}`), { approved });
    };
    box.append(button, " ");
  }
  log.append(box);
}

function tell(event) {
  switch (event.type) {
    case "text_delta":
      answer ??= show("assistant", "");
      answer.textContent += event.text;
      log.scrollTop = log.scrollHeight;
      break;
    case "tool_start": showTool(event.call_id, event.name, event.arguments); break;
    case "tool_end": endTool(event.call_id, event.name, event.ok, event.result); break;
    case "approval": ask(event); break;
    case "error": if (event.fatal) show("error", event.message); break;
    case "done": {
      const used = event.usage;
      show("note", `${used.input_tokens} tokens in, ${used.output_tokens} out`
        + (used.cost_usd == null ? "" : `, $${used.cost_usd.toFixed(4)}`));
    }
  }
}

// Follow a stream to its end; a connection that breaks is taken up again after the last event that came.
async function follow(url, body) {
  const me = ++following;
  busy(true);
  answer = null;
  let last = null;
  let again = false;
  let over = false;
  while (!over && me === following) {
    try {
      const headers = last === null ? {} : { "Last-Event-ID": last };
      const request = again || body === undefined
        ? { headers }
        : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
      const response = await fetch(again ? path("/stream") : url, request);
      if (response.status === 204) break;
      if (!response.ok) {
        const told = await response.json().catch(() => null);
        show("error", told?.error?.message ?? `the server answered ${response.status}`);
        break;
      }
      for await (const frame of frames(response)) {
        if (me !== following) return;
        last = frame.id;
        const event = JSON.parse(frame.data);
        tell(event);
        over = event.type === "done" || (event.type === "error" && event.fatal);
      }
      if (last === null) break;
    } catch {
      if (last === null && !again && body !== undefined) {
        show("error", "the server cannot be reached");
        break;
      }
      await new Promise((done) => setTimeout(done, 1000));
    }
    again = true;
  }
  if (me === following) busy(false);
  list();
}

async function* frames(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    for (let end; (end = rest.indexOf("\n\n")) >= 0; rest = rest.slice(end + 2)) {
      const fields = {};
      for (const line of rest.slice(0, end).split("\n")) {
        const [, name, words] = line.match(/^(\w+): ?(.*)$/) ?? [];
        if (name) fields[name] = words;
      }
      if (fields.data) yield fields;
    }
  }
}

function busy(is) {
  stop.hidden = !is;
  send.disabled = is;
}

async function list() {
  const response = await fetch("/v1/sessions?limit=50");
  if (!response.ok) return;
  const found = (await response.json()).sessions.map((one) => one.id);
  if (!found.includes(session)) found.unshift(session);
  sessions.replaceChildren(...found.map((id) => new Option(id, id, false, id === session)));
}

async function open(id) {
  session = id;
  location.hash = id;
  following += 1;
  tools = new Map();
  log.replaceChildren();
  list();
  const response = await fetch(path("/messages?limit=50"));
  if (!response.ok) return busy(false);
  const { messages } = await response.json();
  // what the newest turn said is told by its stream, from its beginning
  const newest = messages.map((one) => one.role).lastIndexOf("user");
  for (const one of messages.slice(0, newest + 1)) {
    if (one.role === "tool") one.tool_calls.forEach((call) => endTool(call.id, call.name, !call.output?.error, call.output));
    else {
      if (one.content) show(one.role, one.content);
      one.tool_calls.forEach((call) => showTool(call.id, call.name, call.input));
    }
  }
  if (messages.length) follow(path("/stream"));
}

form.onsubmit = (event) => {
  event.preventDefault();
  const words = text.value.trim();
  if (!words || send.disabled) return;
  text.value = "";
  show("user", words);
  location.hash = session;
  follow(path("/messages"), { text: words });
};
text.onkeydown = (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    form.requestSubmit();
  }
};
stop.onclick = () => fetch(path("/cancel"), { method: "POST" });
sessions.onchange = () => open(sessions.value);
document.getElementById("new").onclick = () => open(fresh());

fetch("/page/about").then((response) => response.json()).then((about) => {
  document.getElementById("model").textContent = about.model;
});
open(session);
