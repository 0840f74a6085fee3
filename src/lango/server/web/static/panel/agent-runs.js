/** Find in the traces of turns which agents, nodes and tools ran: how often, how long, and whether they run or wait now. */

/** @typedef {import("./trace-view.js").Step} Step @typedef {import("./trace-view.js").Turn} Turn */
/** @typedef {{turn: number, step: string, status: string, duration_s: number | null}} Run */

/** The key of an agent or node. @param {string} name */
export const nodeKey = (name) => `node ${name}`;
/** The key of a tool. @param {string} agent @param {string} tool */
export const toolKey = (agent, tool) => `tool ${agent} ${tool}`;

/** Return the runs of each agent, node and tool, the oldest first. @param {Turn[]} turns @returns {Map<string, Run[]>} */
export function findRuns(turns) {
  const runs = /** @type {Map<string, Run[]>} */ (new Map());
  const add = (/** @type {string} */ key, /** @type {Turn} */ { turn }, /** @type {Step} */ step) => {
    const own = runs.get(key) ?? [];
    runs.set(key, own);
    own.push({ turn, step: step.id, status: step.status, duration_s: step.duration_s });
  };
  const walk = (/** @type {Turn} */ turn, /** @type {Step[]} */ steps, /** @type {string} */ agent) => {
    for (const step of steps) {
      if (step.kind === "agent" || step.kind === "node") add(nodeKey(step.name), turn, step);
      else if (step.kind === "tool") add(toolKey(agent, step.name), turn, step);
      walk(turn, step.steps, step.kind === "agent" ? step.name : agent);
    }
  };
  for (const turn of turns) walk(turn, turn.steps, "");
  return runs;
}

/** Return the state that several runs make together. @param {Run[]} runs */
export function statusOf(runs) {
  for (const status of ["running", "waiting", "failed"]) if (runs.some((run) => run.status === status)) return status;
  return runs.at(-1)?.status ?? "";
}

/** Return how long runs took together, or null if that is not known. @param {Run[]} runs */
export function durationOf(runs) {
  const known = runs.filter((run) => run.duration_s !== null);
  return known.length ? known.reduce((all, run) => all + (run.duration_s ?? 0), 0) : null;
}
