/** Drawing numbers over turns: bars that stand on each other, lines, and a line that is not to be passed. */

import { el } from "../base/dom.js";
import uPlot from "../vendor/uplot.js";

/**
 * @typedef {{label: string, values: (number | null)[], color: string, kind?: "bars" | "line" | "bound"}} Series
 * `color` is one of the page's colours, by its name; a "bound" is one number for all turns.
 */

const BOUND_SHOWN_AT = 0.25; // of the bound: far below it, its line would only press the bars flat

/** @param {number} number */
export function short(number) {
  if (Math.abs(number) < 1000) return String(Math.round(number * 100) / 100);
  return number < 1e6 ? `${+(number / 1000).toFixed(1)}k` : `${+(number / 1e6).toFixed(1)}M`;
}

/** A plot that follows the width of its place and the colours of the page. */
export class Plot {
  /**
   * @param {string} name what is drawn, for those who cannot see it
   * @param {number[]} turns @param {Series[]} series @param {(number: number) => string} format
   */
  constructor(name, turns, series, format) {
    this.turns = turns;
    this.series = series;
    this.format = format;
    this.element = el("div", { class: "plot", role: "img", "aria-label": name });
    /** @type {any} */ this.drawn = null;
    this.watch = new ResizeObserver(() => this.#fit());
    this.watch.observe(this.element);
  }

  draw() {
    this.drawn?.destroy();
    const width = this.element.clientWidth;
    this.drawn = width ? new uPlot(this.#options(width), this.#data(), this.element) : null;
  }

  destroy() {
    this.watch.disconnect();
    this.drawn?.destroy();
    this.drawn = null;
  }

  #fit() {
    const width = this.element.clientWidth;
    if (!width) return;
    if (!this.drawn) this.draw();
    else if (this.drawn.width !== width) this.drawn.setSize({ width, height: this.drawn.height });
  }

  /** Bars are drawn from the ground up, so the highest sum comes first and the others cover its lower part. */
  #data() {
    const bars = this.series.filter((one) => one.kind === "bars");
    const sums = bars.map((_, at) => this.turns.map((_, turn) => {
      const parts = bars.slice(0, at + 1).map((one) => one.values[turn]);
      return bars[at].values[turn] === null ? null : parts.reduce((/** @type {number} */ sum, one) => sum + (one ?? 0), 0);
    }));
    const lines = this.series.filter((one) => one.kind !== "bars").map((one) => one.values);
    return [this.turns, ...sums.reverse(), ...lines];
  }

  /** @param {number} width */
  #options(width) {
    const style = getComputedStyle(this.element);
    const color = (/** @type {string} */ name) => style.getPropertyValue(`--${name}`).trim();
    const axis = {
      stroke: color("soft"), font: "11px system-ui, sans-serif", size: 30, gap: 4,
      grid: { stroke: color("line"), width: 1 }, ticks: { stroke: color("line"), width: 1, size: 4 },
    };
    const bars = this.series.filter((one) => one.kind === "bars").reverse();
    const lines = this.series.filter((one) => one.kind !== "bars");
    const points = this.turns.length < 2 ? { show: true, size: 6 } : { show: false };
    return {
      width, height: 150, legend: { show: false }, cursor: { show: false }, padding: [8, 8, 0, 0],
      scales: { x: { time: false, range: () => [this.turns[0] - 0.6, this.turns[this.turns.length - 1] + 0.6] }, y: { range: () => [0, this.#top()] } },
      axes: [
        { ...axis, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] },
        { ...axis, size: 46, values: (/** @type {any} */ _, /** @type {number[]} */ marks) => marks.map((mark) => this.format(mark)) },
      ],
      series: [
        {},
        ...bars.map((one) => ({
          label: one.label, fill: color(one.color), stroke: color(one.color), width: 0, points: { show: false },
          paths: uPlot.paths.bars?.({ size: [0.72, 28], radius: 0 }),
        })),
        ...lines.map((one) => ({
          label: one.label, stroke: color(one.color), width: one.kind === "bound" ? 1 : 2, spanGaps: true,
          dash: one.kind === "bound" ? [6, 4] : undefined, points: one.kind === "bound" ? { show: false } : points,
        })),
      ],
    };
  }

  #top() {
    const [, ...all] = this.#data();
    const bounds = this.series.filter((one) => one.kind === "bound").map((one) => one.values[0] ?? 0);
    const rows = this.series.filter((one) => one.kind !== "bound").length;
    const most = Math.max(0, ...all.slice(0, rows).flat().map((one) => one ?? 0));
    const bound = Math.max(0, ...bounds);
    return (bound && most >= bound * BOUND_SHOWN_AT ? Math.max(most, bound) : most || 1) * 1.08;
  }
}

/** Say which colour is what. @param {Series[]} series */
export function legend(series) {
  return el("ul", { class: "legend" }, ...series.map((one) => el("li", { class: one.kind ?? "line" },
    el("span", { class: `swatch of-${one.color}`, "aria-hidden": "true" }), one.label)));
}
