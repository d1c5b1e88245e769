// The quantities over the steps: methods by colour, learning rates by shade, test dotted.

const LINES = 40; // more curves than this are medians over their seeds
const drawnPanels = [];

/** Values of several runs at the steps of the first, by straight lines between readings. */
function between(found, steps) {
  const { x, y } = found;
  let place = 0;
  return steps.map((step) => {
    while (place < x.length - 2 && x[place + 1] < step) place += 1;
    if (step < x[0] || step > x[x.length - 1] || y[place] === null) return null;
    const after = Math.min(place + 1, x.length - 1);
    if (y[after] === null || x[after] === x[place]) return y[place];
    return y[place] + ((step - x[place]) / (x[after] - x[place])) * (y[after] - y[place]);
  });
}

/** Curves to draw: each run, or each setting (all that its runs share but the seed) by its median and range. */
function bundles(runs) {
  const whole = runs.filter((run) => run.curves.step && run.curves.step.length > 1);
  if (whole.length <= LINES) return { groups: whole.map((run) => [run]), left: 0, wrong: 0 };
  const groups = new Map();
  const sound = whole.filter((run) => !BAD.includes(run.outcome));
  for (const run of sound.length ? sound : whole) {
    groups.set(run.setting, [...(groups.get(run.setting) || []), run]);
  }
  const found = [...groups.values()];
  return { groups: found.slice(0, LINES), left: Math.max(0, found.length - LINES), wrong: sound.length ? whole.length - sound.length : 0 };
}

function traces(group, name, dash) {
  const run = group[0];
  const label = group.length === 1 ? named(run) : `${settingOf(run)}, median of ${group.length}`;
  const line = { color: run.colour, width: 1.6, dash: dash || run.dash };
  const curves = group.map((each) => curve(each, name)).filter(Boolean);
  if (!curves.length) return [];
  const base = { type: "scatter", mode: "lines", line, name: safe(label), hoverlabel: { bordercolor: run.colour }, connectgaps: true };
  if (curves.length === 1) return [{ ...base, x: curves[0].x, y: curves[0].y }];
  const steps = curves.reduce((one, other) => (other.x[other.x.length - 1] > one.x[one.x.length - 1] ? other : one)).x;
  const rows = curves.map((each) => between(each, steps));
  const over = (how) => steps.map((_, place) => {
    const values = rows.map((row) => row[place]).filter((value) => value !== null);
    return values.length ? how(values) : null;
  });
  const middle = { ...base, x: steps, y: over(median) };
  if (state.parts === "both") return [middle]; // bands of two sets would cover one another
  const edge = { ...base, line: { width: 0 }, hoverinfo: "skip" };
  return [
    { ...edge, x: steps, y: over((values) => Math.min(...values)) },
    { ...edge, x: steps, y: over((values) => Math.max(...values)), fill: "tonexty", fillcolor: faint(run.colour, 0.15) },
    middle,
  ];
}

/** Colour keys of the methods; a press hides or shows one. */
function legend() {
  return el("div", { class: "legend" }, ...methods().map((run) => el("button", {
    type: "button", "aria-pressed": String(!state.hidden.has(run.method)), click: (event) => {
      const gone = state.hidden.delete(run.method);
      if (!gone) state.hidden.add(run.method);
      event.currentTarget.setAttribute("aria-pressed", String(gone));
      later(true);
    },
  }, el("i", { class: `dot ${run.dash}`, style: `background:${run.colour}` }), run.method)));
}

function shades() {
  const rates = new Set(state.data.runs.map((run) => `${run.method} ${run.rate}`)).size;
  return rates > methods().length ? " Within a method, a larger learning rate is darker." : "";
}

const trajectories = {
  id: "trajectories", title: "Trajectories",
  says: "Accuracy, confidence, sharpness and distance from the edge, over the steps. Training set solid, test set dotted.",
  draw(node) {
    const { groups, left, wrong } = bundles(visible());
    drawnPanels.length = 0;
    node.append(el("div", { class: "controls" },
      switcher("Set", [["both", "both"], ["train", "train"], ["test", "test"]], state.parts, (key) => { state.parts = key; redraw("trajectories"); }),
      switcher("Scale", [["auto", "as suits"], ["linear", "linear"], ["log", "log"]], state.scale, (key) => { state.scale = key; redraw("trajectories"); }),
      switcher("Steps", [["linear", "linear"], ["log", "log"]], state.steps, (key) => { state.steps = key; redraw("trajectories"); }),
      legend()));
    const many = groups.some((group) => group.length > 1) ? " Lines are medians over runs that differ in the seed; with one set chosen, bands are their range." : "";
    const rest = left ? ` ${left} more settings are not drawn; the filter above chooses.` : "";
    const lost = wrong ? ` ${wrong} that went wrong ${wrong === 1 ? "is" : "are"} left out; the filter above shows them.` : "";
    if (many || rest || lost || shades()) node.append(el("p", { class: "quiet" }, (many + rest + lost + shades()).trim()));
    if (!groups.length) { node.append(nothing("No run with readings is chosen; clear the filter above, or wait for the first readings.")); return; }
    const grid = el("div", { class: "grid three" });
    node.append(grid);
    for (const each of state.data.panels) {
      const { node: figure, room } = panel(each.title, each.unit);
      grid.append(figure);
      soonest(room, () => drawPanel(room, each, groups));
    }
  },
};

/** One quantity of all groups on the chosen sets; on the other one if it was read only there. */
function drawPanel(room, each, groups) {
  const of = (part) => groups.flatMap((group) => traces(group, each[part], part === "test" ? "dot" : null));
  const [chosen, other] = { both: [["train", "test"], []], train: [["train"], ["test"]], test: [["test"], ["train"]] }[state.parts];
  let lines = chosen.flatMap(of);
  if (!lines.length) lines = other.flatMap(of);
  if (!lines.length) {
    room.replaceWith(nothing(`Not read in these runs; turn it on with ${setting(each.name)}.`));
    return;
  }
  if (each.name === "batch_sharpness") {
    const seen = new Set();
    for (const [run] of groups) {
      const found = curve(run, "threshold");
      const key = `${run.method} ${run.rate}`;
      if (!found || seen.has(key)) continue;
      seen.add(key);
      lines.push({ type: "scatter", mode: "lines", x: found.x, y: found.y, line: { color: run.colour, width: 1, dash: "dash" }, name: safe(`2/η of ${run.method}`), opacity: 0.7 });
    }
  }
  const positive = lines.every((line) => line.y.every((value) => value === null || value > 0));
  const log = positive && (state.scale === "log" || (state.scale === "auto" && each.log));
  plot(room, lines, { height: 240, xaxis: { title: "step", type: state.steps }, yaxis: { type: log ? "log" : "linear" }, shapes: cursors() });
  if (state.scale === "log" && !log) room.parentNode.querySelector("figcaption .quiet").textContent = `${each.unit}; linear: not all above 0`;
  drawnPanels.push(room);
}

/** What turns a panel's readings on. */
function setting(name) {
  const groups = { sharpness: "curvature", batch_sharpness: "batch_sharpness", margin: "margins", log_q: "margins" };
  return name === "test.tce" ? "a validation set: data.val = 500, say" : `track.${groups[name] || "calibration"} = true`;
}

function cursorStep() {
  const found = frame();
  return found ? found.step : current().step;
}

/** The line where the slider stands; a logarithmic axis has no place for step 0. */
function cursors() {
  const step = cursorStep();
  return state.steps === "log" && !(step > 0) ? [] : [cursor(step)];
}

/** Move the line on every panel that is drawn. */
function moveCursors() {
  for (const room of drawnPanels) if (room.isConnected) Plotly.relayout(room, { shapes: cursors() });
}
