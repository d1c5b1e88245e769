// What the reader has chosen; the sections draw from it.

const state = {
  data: null, words: "", hidden: new Set(), sort: { key: "place", down: false }, page: 0,
  parts: "both", scale: "auto", steps: "linear", sharp: "linear", run: null, part: "test", frame: 0, left: null, right: null, confidencePart: "test", shifted: "ece",
};

const BAD = ["diverged", "damaged", "failed"];

/** A column of a run as [steps, values]; one number stands for a column that never changes. */
function curve(run, name) {
  const values = run.curves[name];
  if (values === undefined || values === null) return null;
  const steps = run.curves.step;
  return { x: steps, y: Array.isArray(values) ? values : steps.map(() => values) };
}

/** The value of a column at the reading nearest to a step. */
function at(run, name, step) {
  const found = curve(run, name);
  if (!found || !found.x.length) return null;
  let best = null;
  let gap = Infinity;
  found.x.forEach((x, place) => {
    if (found.y[place] !== null && Math.abs(x - step) < gap) { gap = Math.abs(x - step); best = found.y[place]; }
  });
  return best;
}

function described(run) {
  return [run.label, run.method, run.id, run.outcome, run.study || "", `seed ${run.seed}`, `η=${rate(run.rate)}`].join(" ").toLowerCase();
}

/** Runs that the filter and the legend let through. */
function visible() {
  const words = state.words.toLowerCase().split(/\s+/).filter(Boolean);
  return state.data.runs.filter((run) => !state.hidden.has(run.method) && words.every((word) => run.search.includes(word)));
}

/** The run that is looked at closely. */
function current() {
  return state.data.runs.find((run) => run.key === state.run) || state.data.runs[0];
}

/** The frame of the current run, and how many there are. */
function frame() {
  const frames = current().frames;
  state.frame = Math.min(Math.max(state.frame, 0), Math.max(frames.length - 1, 0));
  return frames[state.frame] || null;
}

function named(run) {
  const seed = run.label.includes("seed") || run.seed === null ? "" : `, seed ${run.seed}`;
  return `${run.study && state.several ? `${run.study}: ` : ""}${run.label}${seed}`;
}

/** What a run shares with those that differ from it in the seed. */
function settingOf(run) {
  const axes = Object.entries(run.axes).filter(([axis]) => axis !== "seed").map(([, value]) => value);
  return axes.join(" ") || `${run.method}, η ${rate(run.rate)}`;
}

/** The look of a setting is that of its runs: colour and dash. */
function lookOf(entry) {
  return state.data.runs.find((run) => run.method === entry.method && run.rate === entry.rate) || { colour: "#0072b2", dash: "solid" };
}

/** A choice of a run among those that ``can`` be shown. */
function runChoice(label, can, value, change) {
  return choice(label, state.data.runs.filter(can).map((run) => [run.key, named(run)]), value, change);
}

const methods = () => [...new Map(state.data.runs.map((run) => [run.method, run])).values()];

const median = (values) => {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
};
