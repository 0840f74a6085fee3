// A front end whose user edits and regenerates, by AG-UI's own client: each step keeps the first messages,
// edits the last of them or says more, and runs the agent.
import { HttpAgent } from "@ag-ui/client";

const { url, thread, steps } = JSON.parse(process.argv.at(-1));
const agent = new HttpAgent({ url: `${url}/agui`, threadId: thread });

for (const { keep, say, edit } of steps) {
  if (keep !== undefined) agent.setMessages(agent.messages.slice(0, keep));
  if (edit) agent.setMessages([...agent.messages.slice(0, -1), { ...agent.messages.at(-1), content: edit }]);
  if (say) agent.addMessage({ id: crypto.randomUUID(), role: "user", content: say });
  await agent.runAgent();
}
console.log(JSON.stringify(agent.messages.map((one) => [one.role, one.content])));
