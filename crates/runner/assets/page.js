/* The map of gradient norms, numbers to take along, and redrawing. */
const RAMP = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
const ramp = (share) => {
  const place = Math.max(0, Math.min(1, share)) * (RAMP.length - 1), left = Math.min(Math.floor(place), RAMP.length - 2);
  return "rgb(" + RAMP[left].map((value, channel) => Math.round(value + (RAMP[left + 1][channel] - value) * (place - left))).join(",") + ")";
};
const gradients = () => {
  const place = document.getElementById("gradients"), map = data.gradients;
  if (!place || !map || !map.names.length) return () => {};
  const values = map.powers.flat().filter((value) => value !== null);
  const low = Math.min(...values), high = Math.max(...values);
  const key = make("div", place);
  key.className = "key";
  make("span", key, (10 ** low).toExponential(0));
  const bar = make("span", key);
  bar.className = "ramp";
  bar.style.background = "linear-gradient(to right," + [0, 0.25, 0.5, 0.75, 1].map(ramp).join(",") + ")";
  make("span", key, (10 ** high).toExponential(0));
  const told = make("span", key, "");
  const canvas = make("canvas", place), HEIGHT = 15;
  let gutter = 0, cell = 1;
  const draw = () => {
    const ratio = window.devicePixelRatio || 1, width = place.clientWidth;
    if (!width) return;
    const height = HEIGHT * map.names.length + 22;
    gutter = Math.min(260, width * 0.42);
    cell = (width - gutter) / map.steps.length;
    canvas.style.height = height + "px";
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = "11px system-ui, sans-serif";
    map.names.forEach((name, row) => {
      pen.fillStyle = tint("ink");
      pen.textAlign = "right";
      let text = name;
      while (text.length > 4 && pen.measureText(text).width > gutter - 10) text = "…" + text.slice(2);
      pen.fillText(text, gutter - 6, row * HEIGHT + 11);
      map.powers[row].forEach((power, column) => {
        pen.fillStyle = power === null ? tint("grid") : ramp(high > low ? (power - low) / (high - low) : 0.5);
        const left = Math.floor(gutter + column * cell), right = Math.floor(gutter + (column + 1) * cell);
        pen.fillRect(left, row * HEIGHT, right - left, HEIGHT - 1);
      });
    });
    pen.fillStyle = tint("quiet");
    pen.textAlign = "left";
    pen.fillText("step " + map.steps[0], gutter, height - 6);
    pen.textAlign = "right";
    pen.fillText(String(map.steps[map.steps.length - 1]), width, height - 6);
  };
  canvas.addEventListener("pointermove", (event) => {
    const column = Math.floor((event.offsetX - gutter) / cell), row = Math.floor(event.offsetY / HEIGHT);
    const power = (map.powers[row] || [])[column];
    told.textContent = power === undefined ? "" : map.names[row] + ", step " + map.steps[column] + ": " + (power === null ? "0" : (10 ** power).toExponential(1));
  });
  place.closest("details").addEventListener("toggle", draw);
  return draw;
};
const numbers = () => {
  const place = document.getElementById("numbers");
  if (!place) return;
  const run = data.runs[0], keys = ["step", "train", "valid", "lr", "gradient_norm", "seconds"];
  const lines = run.step.map((_, row) => keys.map((key) => run[key][row] ?? "").join(","));
  const link = make("a", place, "Curves as CSV");
  link.download = run.name + ".csv";
  link.href = "data:text/csv;charset=utf-8," + encodeURIComponent([keys.join(","), ...lines].join("\n") + "\n");
  make("span", place, run.of ? " (" + run.step.length + " of " + run.of + " records)" : " (" + run.step.length + " records)");
};
const start = () => {
  const controls = document.getElementById("controls");
  if (controls) {
    const label = make("label", controls), box = make("input", label);
    box.type = "checkbox";
    box.checked = true;
    label.append(" logarithmic");
    make("small", controls, "drag across a chart to zoom, double-click for the whole run");
    box.addEventListener("change", () => { logarithmic = box.checked; curves(); });
  }
  const drawn = [systems(), gradients()];
  const draw = () => drawn.forEach((each) => each());
  numbers();
  curves();
  draw();
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { curves(); draw(); });
  let width = 0;
  new ResizeObserver(() => {
    if (width === document.body.clientWidth) return;
    width = document.body.clientWidth;
    plots.forEach(([chart, place, height]) => chart.setSize({ width: place.clientWidth, height }));
    draw();
  }).observe(document.body);
};
start();
