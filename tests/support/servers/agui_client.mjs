// A front end with a tool of its own, by AG-UI's own client: it runs what the agent calls, and begins a run with the result.
import { HttpAgent } from "@ag-ui/client";

const { url, thread, says } = JSON.parse(process.argv.at(-1));
const agent = new HttpAgent({ url: `${url}/agui`, threadId: thread });
const tools = [
  {
    name: "pick",
    description: "Let the user pick.",
    parameters: { type: "object", properties: { text: { type: "string" } }, required: ["text"] },
  },
];
const runs = [];

async function run() {
  const types = [];
  await agent.runAgent({ tools }, { onEvent: ({ event }) => void types.push(event.type) });
  runs.push(types);
}

for (const text of says) {
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content: text });
  await run();
  for (let round = 0; round < 5; round += 1) {
    const answered = new Set(agent.messages.filter((one) => one.role === "tool").map((one) => one.toolCallId));
    const calls = agent.messages.flatMap((one) => one.toolCalls ?? []).filter((one) => !answered.has(one.id));
    if (calls.length === 0) break;
    for (const call of calls) {
      const picked = { picked: JSON.parse(call.function.arguments).text };
      agent.addMessage({ id: crypto.randomUUID(), role: "tool", toolCallId: call.id, content: JSON.stringify(picked) });
    }
    await run();
  }
}
console.log(JSON.stringify({ runs, messages: agent.messages }));
