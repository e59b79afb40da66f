/* Systems of particles in space, seen from a direction that the reader turns: orthographic, on a canvas. */
const systems = () => {
  const place = document.getElementById("systems");
  if (!place || !data.systems || !data.systems.length) return () => {};
  const all = [...data.systems].sort((a, b) => b.error - a.error);
  const controls = make("p", place);
  controls.className = "controls";
  const choice = make("select", controls);
  choice.setAttribute("aria-label", "test sample");
  all.forEach((system, position) => { make("option", choice, system.title).value = position; });
  const label = make("label", controls, "time ");
  const time = make("input", label);
  Object.assign(time, { type: "range", min: 0, max: 1, step: 0.01, value: 1 });
  const canvas = make("canvas", place);
  canvas.className = "turns";
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "True and predicted motion of the particles; the arrow keys turn it");
  const key = make("div", place);
  key.className = "key";
  ["○ input position", "● true position at that time", "─ true path", "× prediction of its end", "orange: charge +1", "blue: charge −1"].forEach((text) => make("span", key, text));
  let yaw = 0.7, pitch = 0.45;
  const draw = () => {
    const system = all[Number(choice.value)], ratio = window.devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const points = system.particles.flatMap((particle) => [...particle.path, particle.predicted]);
    const low = [0, 1, 2].map((axis) => Math.min(...points.map((point) => point[axis])));
    const high = [0, 1, 2].map((axis) => Math.max(...points.map((point) => point[axis])));
    const middle = low.map((value, axis) => (value + high[axis]) / 2);
    const half = Math.max(...low.map((value, axis) => (high[axis] - value) / 2), 1e-9) * 1.05;
    const scale = Math.min(width, height) / (half * 3.5);
    const [cy, sy, cp, sp] = [Math.cos(yaw), Math.sin(yaw), Math.cos(pitch), Math.sin(pitch)];
    /* Right, up, and towards the reader. */
    const see = (point) => {
      const [x, y, z] = point.map((value, axis) => (value - middle[axis]) * scale);
      const across = cy * x - sy * y, away = sy * x + cy * y;
      return [width / 2 + across, height / 2 - (cp * z - sp * away), -(cp * away + sp * z)];
    };
    const line = (path, style, thick, dash) => {
      pen.beginPath();
      path.forEach((point, position) => { const [x, y] = see(point); position ? pen.lineTo(x, y) : pen.moveTo(x, y); });
      pen.strokeStyle = style;
      pen.lineWidth = thick;
      pen.setLineDash(dash || []);
      pen.stroke();
      pen.setLineDash([]);
    };
    const corner = (bits) => middle.map((value, axis) => value + (bits >> axis & 1 ? half : -half));
    for (let bits = 0; bits < 8; bits++) {
      for (let axis = 0; axis < 3; axis++) {
        if (!(bits >> axis & 1)) line([corner(bits), corner(bits | 1 << axis)], tint("gray") + "70", 1);
      }
    }
    pen.font = "13px system-ui, sans-serif";
    pen.fillStyle = tint("quiet");
    pen.textAlign = "center";
    ["x", "y", "z"].forEach((name, axis) => {
      const [x, y] = see(corner(0).map((value, other) => (other === axis ? value + 2.16 * half : value)));
      pen.fillText(name, x, y + 4);
    });
    pen.textAlign = "left";
    pen.fillText("edge " + short(2 * half) + ", MSE " + short(system.error), 12, height - 12);
    const marks = [];
    system.particles.forEach((particle) => {
      const style = tint(particle.charge < 0 ? "blue" : "vermilion"), path = particle.path;
      line(path, style, 2);
      line([path[0], particle.predicted], style, 1, [4, 4]);
      const place = Number(time.value) * (path.length - 1), before = Math.min(Math.floor(place), path.length - 2 < 0 ? 0 : path.length - 2);
      const next = path[Math.min(before + 1, path.length - 1)];
      const now = path[before].map((value, axis) => value + (next[axis] - value) * (place - before));
      marks.push([see(path[0]), style, "start"], [see(now), style, "now"], [see(particle.predicted), style, "end"]);
    });
    marks.sort((a, b) => a[0][2] - b[0][2]).forEach(([[x, y, depth], style, kind]) => {
      const size = 5.5 * (1 + depth / (half * scale * 6));
      pen.beginPath();
      if (kind === "end") {
        pen.moveTo(x - size, y - size); pen.lineTo(x + size, y + size); pen.moveTo(x - size, y + size); pen.lineTo(x + size, y - size);
        pen.strokeStyle = tint("ink"); pen.lineWidth = 2; pen.stroke();
        return;
      }
      pen.arc(x, y, size, 0, 2 * Math.PI);
      pen.fillStyle = kind === "start" ? tint("panel") : style;
      pen.fill();
      pen.strokeStyle = style; pen.lineWidth = 1.5; pen.stroke();
    });
  };
  const turn = (right, up) => { yaw += right; pitch = Math.max(-1.5, Math.min(1.5, pitch + up)); draw(); };
  canvas.addEventListener("pointerdown", (event) => canvas.setPointerCapture(event.pointerId));
  canvas.addEventListener("pointermove", (event) => { if (event.buttons) turn(event.movementX * 0.01, event.movementY * 0.01); });
  canvas.addEventListener("keydown", (event) => {
    const turns = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] }[event.key];
    if (turns) { event.preventDefault(); turn(...turns); }
  });
  choice.addEventListener("change", draw);
  time.addEventListener("input", draw);
  return draw;
};
