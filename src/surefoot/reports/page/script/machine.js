// The time machine: one slider moves the reliability diagram, both histograms and the place on the trajectories.

const HISTOGRAMS = "Histograms were not kept in these runs; turn them on with track.histograms = true.";
const hasFrames = (run) => run.frames.length > 0;
const hasHistograms = (run) => run.frames.some((each) => each["train.reliability"] || each["test.reliability"]);
const dials = [];

/** Run, set and slider; every section that has them shows the same choice. */
function timeControls(can, moved) {
  const run = current();
  const last = Math.max(run.frames.length - 1, 0);
  const said = el("output", { class: "step" });
  const slider = el("input", { type: "range", min: 0, max: last, step: 1, value: state.frame, "aria-label": "Step" });
  const say = () => { const found = frame(); said.textContent = found ? `step ${whole(found.step)}` : ""; slider.value = String(state.frame); };
  slider.addEventListener("input", () => { state.frame = Number(slider.value); turn(); });
  say();
  dials.push({ slider, turn: () => { say(); moved(); } });
  const play = el("button", { type: "button", class: "play", click: () => playing(play) }, "Play");
  return el("div", { class: "controls" },
    runChoice("Run", can, run.key, (key) => choose(key)),
    switcher("Set", [["train", "train"], ["test", "test"]], state.part, (key) => { state.part = key; later(); }),
    el("div", { class: "control wide" }, el("span", {}, "Time"), el("div", { class: "slide" }, play, slider, said)));
}

let asked = false;
/** After the slider moved: all that depends on it, once a frame of the screen. */
function turn() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    for (let place = dials.length - 1; place >= 0; place -= 1) {
      if (dials[place].slider.isConnected) dials[place].turn(); else dials.splice(place, 1);
    }
    moveCursors();
  });
}

function playing(button) {
  if (button.dataset.timer) { clearInterval(Number(button.dataset.timer)); delete button.dataset.timer; button.textContent = "Play"; return; }
  if (state.frame >= current().frames.length - 1) state.frame = -1;
  button.textContent = "Pause";
  button.dataset.timer = String(setInterval(() => {
    if (!button.isConnected || state.frame >= current().frames.length - 1) {
      clearInterval(Number(button.dataset.timer)); delete button.dataset.timer; button.textContent = "Play"; return;
    }
    state.frame += 1;
    turn();
  }, 160));
}

/** Accuracy in each bin over the diagonal, the gap to confidence in another colour. */
function reliabilityTraces(found, colour) {
  const { count, confidence, accuracy } = found;
  const { x, width } = bars(count, 0, 1);
  const some = x.map((_, place) => place).filter((place) => count[place] > 0 && accuracy[place] !== null);
  const pick = (values) => some.map((place) => values[place]);
  const gap = style("--gap");
  return [
    { type: "bar", x: pick(x), y: pick(accuracy), width, marker: { color: colour }, customdata: some.map((place) => [count[place], confidence[place]]), hovertemplate: "accuracy %{y:.3f}<br>mean confidence %{customdata[1]:.3f}<br>%{customdata[0]} examples<extra></extra>" },
    { type: "bar", x: pick(x), y: some.map((place) => confidence[place] - accuracy[place]), base: pick(accuracy), width, marker: { color: gap, pattern: { shape: "/", fgcolor: style("--gapline"), size: 5, solidity: 0.2 } }, hoverinfo: "skip" },
    { type: "scatter", mode: "lines", x: [0, 1], y: [0, 1], line: { color: style("--quiet"), width: 1, dash: "dash" }, hoverinfo: "skip" },
  ];
}

function drawReliability(room, found, colour, height = 280) {
  return plot(room, reliabilityTraces(found, colour), { height, barmode: "overlay", xaxis: { title: "confidence", range: [0, 1] }, yaxis: { title: "accuracy", range: [0, 1.02] } });
}

/** Counts as shares of all examples. */
function shares(counts) {
  const total = counts.reduce((sum, count) => sum + count, 0) || 1;
  return counts.map((count) => count / total);
}

/** Means of a reliability table: confidence and accuracy over all examples. */
function means(found) {
  let [n, sure, right] = [0, 0, 0];
  found.count.forEach((count, place) => {
    if (count > 0) { n += count; sure += count * found.confidence[place]; right += count * found.accuracy[place]; }
  });
  return n ? { n, confidence: sure / n, accuracy: right / n } : null;
}

/** Mean confidence as a line, accuracy as dots. */
function meanLines(mean) {
  if (!mean) return [];
  return [["confidence", "solid"], ["accuracy", "dot"]].map(([name, dash]) => ({ ...cursor(mean[name]), line: { color: style("--ink"), width: 2, dash } }));
}

function eceOf(found) {
  const total = found.count.reduce((sum, count) => sum + count, 0);
  return total ? found.count.reduce((sum, count, place) => sum + (count > 0 ? count * Math.abs(found.confidence[place] - found.accuracy[place]) : 0), 0) / total : null;
}

const machine = {
  id: "machine", title: "Time machine",
  says: "Move through a run: when did it become overconfident?",
  draw(node) {
    if (!state.data.runs.some(hasHistograms)) { node.append(nothing(HISTOGRAMS)); return; }
    if (!hasHistograms(current())) state.run = state.data.runs.find(hasHistograms).key;
    const facts = el("div", { class: "facts" });
    const grid = el("div", { class: "grid two" });
    const rooms = {};
    for (const [key, title, unit] of [
      ["reliability", "Reliability", "15 bins of equal width; hatched: the gap"], ["margin", "Margins", "true logit less that of the runner-up class, 30 bins"],
      ["confidence", "Confidence", "30 bins of equal width"], ["place", "Place on the trajectories", "ECE left, sharpness right"],
    ]) {
      const made = panel(title, unit);
      rooms[key] = made.room;
      made.room.dataset.panel = key;
      grid.append(made.node);
    }
    const run = current();
    if (!run.frames.some((each) => each[`${state.part}.reliability`])) state.part = state.part === "test" ? "train" : "test";
    const part = state.part;
    const spans = run.frames.map((each) => each[`${part}.margin_histogram`]).filter(Boolean);
    const low = Math.min(...spans.map((each) => each.low));
    const high = Math.max(...spans.map((each) => each.high));
    function move() {
      const found = frame();
      if (!found || !found[`${part}.reliability`]) return;
      const margins = found[`${part}.margin_histogram`];
      const confidence = found[`${part}.confidence_histogram`];
      const reliability = found[`${part}.reliability`];
      const mean = means(reliability);
      drawReliability(rooms.reliability, reliability, run.colour);
      const inside = bars(margins.counts, margins.low, margins.high);
      plot(rooms.margin, [{ type: "bar", ...inside, y: shares(margins.counts), marker: { color: inside.x.map((x) => (x < 0 ? style("--bad") : run.colour)) }, hovertemplate: "margin %{x:.2f}: %{y:.1%}<extra></extra>" }],
        { height: 280, xaxis: { title: "true margin, logits (below 0: wrong)", range: [low, high] }, yaxis: { title: "share of examples", tickformat: ".0%", rangemode: "tozero" } });
      const sure = bars(confidence, 0, 1);
      const lines = meanLines(mean);
      plot(rooms.confidence, [{ type: "bar", ...sure, y: shares(confidence), marker: { color: run.colour }, hovertemplate: "confidence %{x:.2f}: %{y:.1%}<extra></extra>" }],
        { height: 280, xaxis: { title: "confidence (line: its mean; dotted: accuracy)", range: [0, 1] }, yaxis: { title: "share of examples", tickformat: ".0%", range: [0, 1] }, shapes: lines });
      placed(rooms.place, run, found.step);
      facts.replaceChildren(...[
        ["ECE", shown(eceOf(reliability), 3)], ["accuracy", mean ? shown(mean.accuracy, 3) : "–"], ["mean confidence", mean ? shown(mean.confidence, 3) : "–"],
        ["mean margin", shown(at(run, `${part}.margin`, found.step), 2)], ["sharpness", shown(at(run, "sharpness", found.step), 2)], ["examples", mean ? whole(mean.n) : "–"],
      ].map(([name, value]) => el("div", {}, el("b", {}, value), el("span", {}, name))));
    }
    node.append(timeControls(hasHistograms, move), facts, grid);
    move();
  },
};

/** The run's own ECE and sharpness, with the line where the slider stands. */
function placed(room, run, step) {
  const lines = [];
  for (const [name, dash, y, colour] of [["train.ece", "solid", "y", run.colour], ["test.ece", "dot", "y", run.colour], ["sharpness", "solid", "y2", style("--quiet")]]) {
    const found = curve(run, name);
    if (found) lines.push({ type: "scatter", mode: "lines", x: found.x, y: found.y, yaxis: y, line: { color: colour, width: 1.5, dash }, name: name.replace(".ece", " ECE"), connectgaps: true });
  }
  plot(room, lines, {
    height: 280, xaxis: { title: "step" }, yaxis: { title: "ECE (test dotted)", rangemode: "tozero" }, margin: { l: 60, r: 60, t: 10, b: 42 },
    yaxis2: { title: "sharpness (grey)", overlaying: "y", side: "right", tickmode: "auto", rangemode: "tozero", showgrid: false }, shapes: [cursor(step)],
  });
}
