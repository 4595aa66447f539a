// @ts-check
// Plots over time: uPlot with this console's colours, words for those who do not see it, and one size
// that follows its place. The library comes with the first plot.

import { made } from "./dom.js";
import { moment, number } from "./words.js";

const HIGH = 150;
const NARROW = 260;

/**
 * A plot of one or more series over time. `times`: seconds since the epoch, ascending; `series`: [{name, values, colour, stepped, filled}],
 * `colour` a property of the style sheet; `says` a sentence that tells the same; `unit` stands behind a value, `axis` at the scale.
 * `stacked`: the series come from the top of the stack down, each on the sum of those after it.
 * @param {{title: string, says: string, times: number[], series: {name: string, values: (number|null)[], colour: string, stepped?: boolean, filled?: boolean, dashed?: boolean}[], unit?: string, axis?: string, high?: number, stacked?: boolean}} about
 */
export function plot({ title, says, times, series, unit = "", axis = "", high = HIGH, stacked = false }) {
  const place = made("div", { class: "plot-place", role: "img", "aria-label": `${title}. ${says}` });
  const figure = made("figure", { class: "plot" }, made("figcaption", {}, made("span", { class: "strong" }, title), " ", made("span", { class: "quiet" }, says)), place);
  const box = { plot: null, gone: false };
  const drawn = stacked ? series.map((_, i) => times.map((_at, n) => series.slice(i).reduce((sum, s) => sum + (s.values[n] ?? 0), 0))) : series.map((s) => s.values);
  const draw = async () => {
    const UPlot = /** @type {any} */ ((await import("./uplot.js")).default);
    if (!place.isConnected || !place.clientWidth) return;
    box.plot?.destroy();
    box.plot = new UPlot(options(UPlot, { series, unit, axis, wide: place.clientWidth, high, stacked }), [times, ...drawn], place);
  };
  const sizes = new ResizeObserver(() => {
    if (box.plot && place.clientWidth) box.plot.setSize({ width: place.clientWidth, height: high });
    else if (place.isConnected) draw();
  });
  sizes.observe(place);
  const repaint = () => {
    if (place.isConnected) draw();
    else document.removeEventListener("theme", repaint);
  };
  document.addEventListener("theme", repaint);
  return figure;
}

function options(UPlot, { series, unit, axis: scale, wide, high, stacked }) {
  const ink = getComputedStyle(document.documentElement);
  const of = (name) => ink.getPropertyValue(name).trim();
  const axis = { stroke: of("--quiet"), grid: { stroke: of("--line"), width: 1 }, ticks: { show: false }, font: `11px ${ink.fontFamily}` };
  const stepped = UPlot.paths.stepped({ align: 1 });
  return {
    width: wide, height: high, legend: { show: wide > NARROW, live: true }, cursor: { y: false, drag: { x: false, y: false } }, tzDate: (at) => UPlot.tzDate(new Date(at * 1000), "UTC"),
    scales: { x: { time: true }, y: { range: (_plot, _least, most) => [0, Math.max(1, Math.ceil((most ?? 1) * 1.1))] } },
    axes: [{ ...axis, space: 70, size: 26, values: (_plot, ticks) => moments(ticks) }, { ...axis, ...(scale ? { label: scale, labelSize: 16, labelGap: 0, labelFont: axis.font } : {}), size: 44, space: 28, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000], values: (_plot, ticks) => ticks.map((n) => number(n)) }],
    series: [{ label: "UTC", value: (_plot, at) => (at === null ? "—" : moment(at)) }, ...series.map((s) => ({
      label: s.name, stroke: of(s.colour), width: 2, dash: s.dashed ? [6, 4] : undefined, fill: !s.filled ? undefined : stacked ? `color-mix(in srgb, ${of(s.colour)} 55%, ${of("--card")})` : `color-mix(in srgb, ${of(s.colour)} 18%, transparent)`,
      paths: s.stepped ? stepped : undefined, points: { show: false }, value: (_plot, n, _i, step) => { const own = stacked ? s.values[step ?? -1] : n; return own === null || own === undefined ? "—" : `${number(Math.round(own * 100) / 100)}${unit}`; },
    }))],
  };
}

const hour = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", timeZone: "UTC" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });

// Times of day, and the day where it is another one than that of the tick before.
function moments(ticks) {
  let last = "";
  return ticks.map((at) => {
    const of = day.format(new Date(at * 1000));
    const other = of !== last;
    last = of;
    return at % 86400 === 0 || (other && ticks.length > 1 && ticks[1] - ticks[0] >= 86400) ? of : hour.format(new Date(at * 1000));
  });
}
