// A front end that keeps a state, by AG-UI's own client: each step is a message, and may change the state before.
import { HttpAgent } from "@ag-ui/client";

const { url, thread, initialState, steps } = JSON.parse(process.argv.at(-1));
const agent = new HttpAgent({ url: `${url}/agui`, threadId: thread, ...(initialState ? { initialState } : {}) });
const after = [];

for (const { say, set, resume } of steps) {
  if (set) agent.setState({ ...agent.state, ...set });
  if (say) agent.addMessage({ id: crypto.randomUUID(), role: "user", content: say });
  const events = [];
  let error = null;
  const report = { onEvent: ({ event }) => void events.push(event), onRunErrorEvent: ({ event }) => void (error = event.message) };
  try {
    await agent.runAgent(resume ? { resume } : {}, report);
  } catch (failure) {
    error = String(failure.message ?? failure);
  }
  const shown = events.filter((one) => one.type.startsWith("STATE_"));
  after.push({ state: agent.state, types: events.map((one) => one.type), shown, error });
}
console.log(JSON.stringify(after));
