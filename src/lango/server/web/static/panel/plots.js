/** Plot values over turns or days: stacked bars, lines, and a line for a limit. */

import { el } from "../base/dom.js";
import uPlot from "../vendor/uplot.js";

/**
 * @typedef {{label: string, values: (number | null)[], color: string, kind?: "bars" | "line" | "bound"}} Series
 * `color` names a colour of the page; a "bound" is a limit with the same value for all turns.
 */

const BOUND_SHOWN_AT = 0.25; // share of the bound: with smaller values, showing its line would flatten the bars

/** @param {number} number */
export function formatShort(number) {
  if (Math.abs(number) < 1000) return String(Math.round(number * 100) / 100);
  return number < 1e6 ? `${+(number / 1000).toFixed(1)}k` : `${+(number / 1e6).toFixed(1)}M`;
}

/** A plot that follows the width of its element and the colours of the page. */
export class Plot {
  /**
   * @param {string} name the description for screen readers
   * @param {number[]} turns @param {Series[]} series @param {(number: number) => string} format @param {string[]} [labels] of the turns; else their numbers
   */
  constructor(name, turns, series, format, labels) {
    this.labels = labels;
    this.turns = turns;
    this.series = series;
    this.format = format;
    this.element = el("div", { class: "plot", role: "img", "aria-label": name });
    /** @type {any} */ this.plot = null;
    this.resizeObserver = new ResizeObserver(() => this.#fit());
    this.resizeObserver.observe(this.element);
  }

  draw() {
    this.plot?.destroy();
    const width = this.element.clientWidth;
    this.plot = width ? new uPlot(this.#options(width), this.#data(), this.element) : null;
  }

  destroy() {
    this.resizeObserver.disconnect();
    this.plot?.destroy();
    this.plot = null;
  }

  #fit() {
    const width = this.element.clientWidth;
    if (!width) return;
    if (!this.plot) this.draw();
    else if (this.plot.width !== width) this.plot.setSize({ width, height: this.plot.height });
  }

  /** All bars start at zero, so the highest sum is drawn first and the others cover its lower part. */
  #data() {
    const bars = this.series.filter((series) => series.kind === "bars");
    const sums = bars.map((_, index) => this.turns.map((_, turn) => {
      const parts = bars.slice(0, index + 1).map((bar) => bar.values[turn]);
      return bars[index].values[turn] === null ? null : parts.reduce((/** @type {number} */ sum, value) => sum + (value ?? 0), 0);
    }));
    const lines = this.series.filter((series) => series.kind !== "bars").map((series) => series.values);
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
    const bars = this.series.filter((series) => series.kind === "bars").reverse();
    const lines = this.series.filter((series) => series.kind !== "bars");
    const points = this.turns.length < 2 ? { show: true, size: 6 } : { show: false };
    return {
      width, height: 150, legend: { show: false }, cursor: { show: false }, padding: [8, this.labels ? 22 : 8, 0, 0],
      scales: { x: { time: false, range: () => [this.turns[0] - 0.6, this.turns[this.turns.length - 1] + 0.6] }, y: { range: () => [0, this.#top()] } },
      axes: [
        { ...axis, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000], ...(this.labels && { values: (/** @type {any} */ _, /** @type {number[]} */ marks) => marks.map((mark) => this.labels?.[mark - 1] ?? "") }) },
        { ...axis, size: (/** @type {any} */ _, /** @type {string[] | null} */ shown) => Math.max(46, 12 + 7 * Math.max(0, ...(shown ?? []).map((text) => text.length))), values: (/** @type {any} */ _, /** @type {number[]} */ marks) => marks.map((mark) => this.format(mark)) },
      ],
      series: [
        {},
        ...bars.map((series) => ({
          label: series.label, fill: color(series.color), stroke: color(series.color), width: 0, points: { show: false },
          paths: uPlot.paths.bars?.({ size: [0.72, 28], radius: 0 }),
        })),
        ...lines.map((series) => ({
          label: series.label, stroke: color(series.color), width: series.kind === "bound" ? 1 : 2, spanGaps: true,
          dash: series.kind === "bound" ? [6, 4] : undefined, points: series.kind === "bound" ? { show: false } : points,
        })),
      ],
    };
  }

  #top() {
    const [, ...values] = this.#data();
    const bounds = this.series.filter((series) => series.kind === "bound").map((series) => series.values[0] ?? 0);
    const count = this.series.filter((series) => series.kind !== "bound").length;
    const highest = Math.max(0, ...values.slice(0, count).flat().map((value) => value ?? 0));
    const bound = Math.max(0, ...bounds);
    return (bound && highest >= bound * BOUND_SHOWN_AT ? Math.max(highest, bound) : highest || 1) * 1.08;
  }
}

/** @param {Series[]} series */
export function legend(series) {
  return el("ul", { class: "legend" }, ...series.map((entry) => el("li", { class: entry.kind ?? "line" },
    el("span", { class: `swatch of-${entry.color}`, "aria-hidden": "true" }), entry.label)));
}
