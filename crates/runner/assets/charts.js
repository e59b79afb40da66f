"use strict";
/* Curves with a common cursor and zoom, drawn by uPlot. */
const data = JSON.parse(document.getElementById("data").textContent);
const tint = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const TINTS = ["blue", "vermilion", "green", "pink", "orange", "sky", "gray"];
const make = (tag, into, text) => {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (into) into.append(element);
  return element;
};
const short = (value) => {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  return size === 0 || (size >= 1e-3 && size < 1e6) ? String(Number(value.toPrecision(4))) : Number(value.toPrecision(3)).toExponential();
};
/* Ticks of a logarithmic axis: powers of ten, then with 2 and 5, then all digits; of a narrow one, round steps. */
const logTicks = (low, high) => {
  let ticks = [];
  for (const digits of [[1], [1, 2, 5], [1, 2, 3, 4, 5, 6, 7, 8, 9]]) {
    ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
      for (const digit of digits) ticks.push(Number(digit + "e" + power));
    }
    ticks = ticks.filter((tick) => tick >= low && tick <= high);
    if (ticks.length > 2) break;
  }
  if (ticks.length < 3 || high / low < 4) {
    const step = (high - low) / 4, power = 10 ** Math.floor(Math.log10(step));
    const round = [1, 2, 5, 10].map((digit) => digit * power).reverse().find((width) => width <= step * 1.0001) || power;
    ticks = [];
    for (let k = Math.ceil(low / round); k * round <= high; k++) ticks.push(Number((k * round).toPrecision(12)));
  }
  while (ticks.length > 9) ticks = ticks.filter((_, position) => position % 2 === 0);
  return ticks;
};
let logarithmic = true;
const plots = [];
const plot = (id, label, columns, bands, height, scale) => {
  const place = document.getElementById(id);
  if (!place || !columns[0].values.length) return;
  const values = columns.slice(1).flatMap((column) => column.values.filter((value) => value !== null));
  if (!values.length) { place.closest("figure").hidden = true; return; }
  const log = scale && logarithmic && values.every((value) => value > 0);
  const axis = { stroke: tint("quiet"), grid: { stroke: tint("grid"), width: 1 }, ticks: { stroke: tint("grid"), width: 1 }, font: "12px system-ui, sans-serif", labelFont: "13px system-ui, sans-serif" };
  const up = { ...axis, label, size: 68, values: (_, ticks) => ticks.map(short) };
  if (log) Object.assign(up, { splits: (_, __, low, high) => logTicks(low, high), filter: (_, ticks) => ticks });
  const range = log
    ? (_, low, high) => (low > 0 ? [low / 1.25, high * 1.25] : [1e-3, 1])
    : (_, low, high) => { const margin = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1; return [low === 0 ? 0 : low - margin, high + margin]; };
  const options = {
    width: place.clientWidth || 640,
    height,
    cursor: { sync: { key: "run", setSeries: false, scales: ["x", null] } },
    scales: { x: { time: false }, y: log ? { distr: 3, range } : { range } },
    axes: [{ ...axis, values: (_, ticks) => ticks.map((tick) => tick.toLocaleString("en")) }, up],
    series: columns.map((column, position) => position === 0 ? { label: "step" } : {
      label: column.label,
      stroke: column.faint ? tint(column.tint) + "66" : tint(column.tint),
      width: column.width || 1.5,
      dash: column.dash,
      spanGaps: true,
      points: { show: column.points || column.values.filter((value) => value !== null).length === 1, size: 6, fill: tint(column.tint) },
      value: (_, value) => short(value),
    }),
    bands: bands.map(([from, to, hue]) => ({ series: [from, to], fill: tint(hue) + "2e" })),
    legend: { live: true },
  };
  const chart = new uPlot(options, columns.map((column) => column.values), place);
  plots.push([chart, place, height]);
};
const curves = () => {
  plots.splice(0).forEach(([chart]) => chart.destroy());
  if (data.runs.length === 1) {
    const run = data.runs[0], step = { values: run.step };
    const median = run.median.some((value) => value !== null);
    const losses = [step, { label: "train", tint: "blue", values: run.train, faint: median, width: median ? 1 : 1.5 }];
    if (median) losses.push({ label: "its running median", tint: "blue", values: run.median, width: 2 });
    losses.push({ label: "valid", tint: "vermilion", values: run.valid, points: true, width: 2 });
    if (run.test !== null) losses.push({ label: "test", tint: "ink", values: run.step.map(() => run.test), dash: [6, 5], width: 1 });
    plot("loss", data.loss, losses.filter((column) => !column.label || column.values.some((value) => value !== null)), [], 380, true);
    plot("lr", "learning rate", [step, { label: "learning rate", tint: "gray", values: run.lr, width: 2 }], [], 170, false);
    plot("norm", "gradient norm", [step, { label: "gradient norm", tint: "green", values: run.gradient_norm }], [], 230, true);
    return;
  }
  const steps = [...new Set(data.runs.flatMap((run) => run.step.filter((_, position) => run.valid[position] !== null)))].sort((a, b) => a - b);
  const at = (xs, ys) => { const found = new Map(xs.map((x, position) => [x, ys[position]])); return steps.map((step) => found.get(step) ?? null); };
  const columns = [{ values: steps }], bands = [];
  /* Of runs that differ in their seed alone: each pale, their mean, and a band of one standard deviation. */
  data.groups.forEach((group, position) => {
    const hue = TINTS[position % TINTS.length], several = group.band !== null;
    group.runs.forEach((index) => columns.push({
      label: data.runs[index].name, tint: hue, values: at(data.runs[index].step, data.runs[index].valid), width: several ? 1 : 2, faint: several, points: !several,
    }));
    if (!several) return;
    columns.push({ label: group.name + " mean + deviation", tint: hue, values: at(group.band.step, group.band.high), width: 0.5 });
    columns.push({ label: group.name + " mean − deviation", tint: hue, values: at(group.band.step, group.band.low), width: 0.5 });
    bands.push([columns.length - 2, columns.length - 1, hue]);
    columns.push({ label: group.name + " mean", tint: hue, values: at(group.band.step, group.band.mean), width: 2.5, points: true });
  });
  plot("loss", data.loss, columns, bands, 420, true);
};
