/**
 * Place the agents and nodes of an app in a picture: agents above those that they transfer to, the steps of a sequence and
 * of a workflow from top to bottom, branches beside each other where there is room.
 */

/**
 * @typedef {{name: string, kind: string, schema: any, description: string, decision: string, is_toolset: boolean, tools: Tool[], problem: string, runs: Agent | null}} Tool
 * @typedef {{name: string, kind: string, of_class: string, description: string, instruction: string, instruction_from: string, model: string,
 *   tools: Tool[], children: Agent[], edges: [string, string, string][]}} Agent
 * @typedef {{node: Agent, x: number, y: number, width: number, height: number}} Box a node, or the frame around its steps
 * @typedef {{points: [number, number][], label: string, isBack: boolean}} Line
 * @typedef {{width: number, height: number, boxes: Box[], frames: Box[], lines: Line[], port: [number, number], exit: [number, number]}} Picture
 *   `port` is where lines end at its top, `exit` where they leave at its bottom
 */

const CHARACTER = 7.4;
const GAP = 16;
const BETWEEN = 30;
const INDENT = 22;
const PADDING = 12;
const TITLE = 26;
const HEAD = 42;
const TOOL = 22;
const START = "__START__";
export const MAX_TOOLS = 6;
/** kinds whose steps stand in a frame */ const FRAMED = new Set(["sequence", "parallel", "loop", "workflow"]);

/** The tools that a box shows, each on a line. @param {Agent} node */
export function shownTools(node) {
  return node.tools.slice(0, MAX_TOOLS);
}

/** @param {Agent} node @param {number} room the width that branches may take beside each other @returns {Picture} */
export function layOut(node, room) {
  return FRAMED.has(node.kind) && node.children.length ? frame(node, room) : withBranches(node, room);
}

/** @param {Agent} node @returns {Picture} */
function box(node) {
  const longest = Math.max(node.name.length + 2, 16, ...shownTools(node).map((tool) => tool.name.length + 9));
  const width = Math.min(250, Math.round(longest * CHARACTER + 2 * PADDING));
  const rows = Math.min(node.tools.length, MAX_TOOLS + 1);
  const height = HEAD + (rows ? rows * TOOL + 6 : 0);
  return { width, height, boxes: [{ node, x: 0, y: 0, width, height }], frames: [], lines: [], port: [width / 2, 0], exit: [width / 2, height] };
}

/** An agent with those that it transfers to, and the agents that its tools run. @param {Agent} node @param {number} room @returns {Picture} */
function withBranches(node, room) {
  const top = box(node);
  const inTools = node.tools.flatMap((tool) => (tool.runs ? [tool.runs] : []));
  const below = [...node.children, ...inTools].map((child) => layOut(child, room - INDENT));
  if (!below.length) return top;
  const width = sum(below.map((one) => one.width)) + GAP * (below.length - 1);
  return width <= room ? beneath(top, below) : indented(top, below);
}

/** @param {Picture} top @param {Picture[]} below @returns {Picture} */
function beneath(top, below) {
  const row = inRow(below, top.height + BETWEEN);
  const width = Math.max(top.width, row.width);
  const lead = (width - top.width) / 2;
  const parts = [moved(top, lead, 0), moved(row, (width - row.width) / 2, 0)];
  const from = parts[0].exit;
  const shift = (width - row.width) / 2;
  const lines = row.ports.map(([x, y]) => line([from, [x + shift, y]]));
  return { ...joined(parts, width, row.height), lines: [...joined(parts, 0, 0).lines, ...lines], port: parts[0].port, exit: parts[0].exit };
}

/** @param {Picture} top @param {Picture[]} below @returns {Picture} */
function indented(top, below) {
  const parts = [top];
  const lines = [];
  let y = top.height + GAP;
  for (const one of below) {
    const part = moved(one, INDENT, y);
    const middle = y + Math.min(20, one.height / 2);
    lines.push(line([[INDENT / 2, top.height], [INDENT / 2, middle], [INDENT, middle]]));
    parts.push(part);
    y += one.height + GAP;
  }
  const width = Math.max(top.width, ...below.map((one) => one.width + INDENT));
  const all = joined(parts, width, y - GAP);
  return { ...all, lines: [...all.lines, ...lines], port: top.port, exit: [INDENT / 2, y - GAP] };
}

/** The steps of a sequence, a loop or a workflow, or parallel branches, in a frame. @param {Agent} node @param {number} room @returns {Picture} */
function frame(node, room) {
  const side = node.kind === "loop" || node.kind === "workflow" ? PADDING + 18 : PADDING;
  const inner = steps(node, room - PADDING - side);
  const width = Math.max(inner.width + PADDING + side, node.name.length * CHARACTER + 110);
  const height = inner.height + TITLE + 2 * PADDING;
  const placed = moved(inner, (width - inner.width - PADDING - side) / 2 + PADDING, TITLE + PADDING);
  return { ...placed, width, height, frames: [{ node, x: 0, y: 0, width, height }, ...placed.frames], port: [width / 2, 0], exit: [width / 2, height] };
}

/** @param {Agent} node @param {number} room @returns {Picture} */
function steps(node, room) {
  const below = new Map(node.children.map((child) => [child.name, layOut(child, room)]));
  if (node.kind === "workflow") return graph(node, below, room);
  const names = node.children.map((child) => child.name);
  if (node.kind === "parallel") return ranked(names.length ? fitting(names, below, room) : [], below, []);
  const edges = /** @type {[string, string, string][]} */ (names.slice(1).map((name, at) => [names[at], name, ""]));
  if (node.kind === "loop" && names.length) edges.push([names[names.length - 1], names[0], "again"]);
  return ranked(names.map((name) => [name]), below, edges);
}

/** Place the nodes of a workflow in ranks: each below all that lead to it, but for edges that lead back. @param {Agent} node @param {Map<string, Picture>} below @param {number} room */
function graph(node, below, room) {
  const rank = /** @type {Map<string, number>} */ (new Map());
  const path = new Set();
  const visit = (/** @type {string} */ name, /** @type {number} */ depth) => {
    if (path.has(name) || (rank.get(name) ?? -1) >= depth) return;
    rank.set(name, depth);
    path.add(name);
    for (const [from, to] of node.edges) if (from === name) visit(to, depth + 1);
    path.delete(name);
  };
  visit(START, 0);
  for (const { name } of node.children) if (!rank.has(name)) visit(name, 1);
  const ranks = /** @type {string[][]} */ ([]);
  for (const { name } of node.children) (ranks[(rank.get(name) ?? 1) - 1] ??= []).push(name);
  return ranked(ranks.filter(Boolean).flatMap((names) => fitting(names, below, room)), below, node.edges.filter(([from]) => from !== START));
}

/** Break a rank into rows that fit. @param {string[]} names @param {Map<string, Picture>} below @param {number} room @returns {string[][]} */
function fitting(names, below, room) {
  const rows = /** @type {string[][]} */ ([[]]);
  let width = 0;
  for (const name of names) {
    const own = below.get(name)?.width ?? 0;
    if (width && width + GAP + own > room) {
      rows.push([]);
      width = 0;
    }
    rows[rows.length - 1].push(name);
    width += own + (width ? GAP : 0);
  }
  return rows;
}

/** @param {string[][]} ranks @param {Map<string, Picture>} below @param {[string, string, string][]} edges @returns {Picture} */
function ranked(ranks, below, edges) {
  const rows = ranks.map((names) => inRow(names.map((name) => /** @type {Picture} */ (below.get(name))), 0));
  const width = Math.max(0, ...rows.map((row) => row.width));
  const ports = /** @type {Map<string, {port: [number, number], exit: [number, number], rank: number}>} */ (new Map());
  const parts = [];
  let y = 0;
  for (const [rank, row] of rows.entries()) {
    const x = (width - row.width) / 2;
    ranks[rank].forEach((name, at) => ports.set(name, { port: [row.ports[at][0] + x, y], exit: [row.exits[at][0] + x, y + row.exits[at][1]], rank }));
    parts.push(moved(row, x, y));
    y += row.height + BETWEEN;
  }
  const height = Math.max(0, y - BETWEEN);
  const all = joined(parts, width, height);
  const lines = [];
  let lane = 0;
  for (const [from, to, label] of edges) {
    const [start, end] = [ports.get(from), ports.get(to)];
    if (!start || !end) continue;
    if (end.rank === start.rank + 1) lines.push(line([start.exit, end.port], label));
    else {
      const right = width + 8 + 4 * (lane++ % 3); // past what stands between them
      lines.push({ ...line([start.exit, [start.exit[0], start.exit[1] + 8], [right, start.exit[1] + 8], [right, end.port[1] - 10], [end.port[0], end.port[1] - 10], end.port], label), isBack: end.rank <= start.rank });
    }
  }
  return { ...all, lines: [...all.lines, ...lines] };
}

/** @param {Picture[]} parts @param {number} y */
function inRow(parts, y) {
  let x = 0;
  const placed = parts.map((part) => {
    const at = moved(part, x, y);
    x += part.width + GAP;
    return at;
  });
  const height = y + Math.max(0, ...parts.map((part) => part.height));
  return { ...joined(placed, Math.max(0, x - GAP), height), ports: placed.map((part) => part.port), exits: placed.map((part) => part.exit) };
}

/** @param {[number, number][]} points @param {string} label @returns {Line} */
function line(points, label = "") {
  return { points, label, isBack: false };
}

/** @template {Picture} P @param {P} picture @param {number} x @param {number} y @returns {P} */
function moved(picture, x, y) {
  const point = (/** @type {[number, number]} */ [px, py]) => /** @type {[number, number]} */ ([px + x, py + y]);
  const move = (/** @type {Box} */ one) => ({ ...one, x: one.x + x, y: one.y + y });
  return {
    ...picture, boxes: picture.boxes.map(move), frames: picture.frames.map(move), lines: picture.lines.map((one) => ({ ...one, points: one.points.map(point) })),
    port: point(picture.port), exit: point(picture.exit),
  };
}

/** @param {Picture[]} parts @param {number} width @param {number} height @returns {Picture} */
function joined(parts, width, height) {
  return {
    width, height, boxes: parts.flatMap((part) => part.boxes), frames: parts.flatMap((part) => part.frames), lines: parts.flatMap((part) => part.lines),
    port: [width / 2, 0], exit: [width / 2, height],
  };
}

/** @param {number[]} numbers */
function sum(numbers) {
  return numbers.reduce((all, one) => all + one, 0);
}
