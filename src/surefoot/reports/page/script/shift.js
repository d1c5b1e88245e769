// Distribution shift: measures against severity and by kind of corruption, and how well out-of-distribution data are told.

const MEASURES = { ece: "ECE", accuracy: "accuracy", nll: "NLL, nats" };
const SYMBOLS = { solid: "circle", dash: "square", dashdot: "diamond", longdash: "triangle-up" };

/** A setting from clean to severity 5; ``dash`` is that of readings after a temperature. */
function severityTrace(entry, readings, dash) {
  const rows = readings.severities.filter((row) => row[state.shifted] && row[state.shifted].mean !== null);
  if (rows.length < 2) return null;
  const { colour, dash: own } = lookOf(entry);
  const summaries = rows.map((row) => row[state.shifted]);
  return {
    type: "scatter", mode: "lines+markers", x: rows.map((row) => row.severity), y: summaries.map((each) => each.mean), name: safe(`${entry.label}${dash ? ", temperature" : ""}`),
    line: { color: colour, width: 1.8, dash: dash || own }, marker: { color: colour, size: 7, symbol: `${SYMBOLS[own]}${dash ? "-open" : ""}` }, error_y: whiskers(summaries, faint(colour, 0.6)),
    customdata: rows.map((row) => row.severity), hovertemplate: "severity %{customdata}: %{y:.4f}",
  };
}

function drawSeverities(room, entries, height) {
  const traces = entries.flatMap((entry) => [
    severityTrace(entry, entry.plain), state.shifted === "accuracy" ? null : severityTrace(entry, entry.temperature, "dot"),
  ]).filter(Boolean);
  if (!traces.length) { room.replaceWith(nothing("These results are of an older version and hold no means by severity; surefoot shift RUN reads them.")); return; }
  // A little beside one another, so that no interval covers another.
  const step = Math.min(0.08, 0.4 / traces.length);
  traces.forEach((trace, place) => { trace.x = trace.x.map((x) => x + (place - (traces.length - 1) / 2) * step); });
  plot(room, traces, { height, xaxis: { title: "severity (0: clean)", tickmode: "array", tickvals: [0, 1, 2, 3, 4, 5], range: [-0.4, 5.4] }, yaxis: { title: MEASURES[state.shifted], rangemode: state.shifted === "accuracy" ? "normal" : "tozero" } });
}

function drawKinds(room, entries, kinds, height) {
  const rows = [...kinds].reverse(); // the first stands on top
  const traces = entries.map((entry) => {
    const known = rows.map((_, place) => place).filter((place) => typeof entry.kinds[rows[place]]?.[state.shifted] === "number");
    const { colour, dash } = lookOf(entry);
    return { type: "scatter", mode: "markers", x: known.map((place) => entry.kinds[rows[place]][state.shifted]), y: known, name: safe(entry.label), marker: { color: colour, size: 8, symbol: SYMBOLS[dash] }, hovertemplate: "%{x:.4f}" };
  });
  plot(room, traces, {
    height, xaxis: { title: `${MEASURES[state.shifted]}, mean over severities`, rangemode: state.shifted === "accuracy" ? "normal" : "tozero" },
    yaxis: { tickmode: "array", tickvals: rows.map((_, place) => place), ticktext: rows.map((kind) => safe(kind.replace(/_/g, " "), 20)), range: [-0.6, rows.length - 0.4], automargin: true }, margin: { l: 60, r: 14, t: 10, b: 42 },
  });
}

const shift = {
  id: "shift", title: "Shift",
  says: "Distribution shift: corrupted and out-of-distribution images. Means over the seeds with 95 % bootstrap intervals; dotted with the temperature that was fitted on clean data.",
  draw(node) {
    const { settings, kinds, sets } = state.data.shift;
    if (!settings.length) { node.append(nothing("No finished run was read on corrupted or out-of-distribution images; add a table [shift] to the spec, with corruptions and ood.")); return; }
    const entries = settings.filter((entry) => !state.hidden.has(entry.method));
    const few = entries.slice(0, LINES);
    node.append(el("div", { class: "controls" },
      switcher("Measure", [["ece", "ECE"], ["accuracy", "accuracy"], ["nll", "NLL"]], state.shifted, (key) => { state.shifted = key; redraw("shift"); }), legend()));
    if (!entries.length) { node.append(nothing("All settings that were read under shift are hidden.")); return; }
    if (!kinds.length) node.append(nothing("Out-of-distribution sets alone were read; for corrupted images set shift.corruptions."));
    else {
      const height = Math.max(300, Math.min(560, 70 + 22 * kinds.length));
      const first = panel("By severity", "mean over kinds of corruption; open, dotted: after temperature");
      const second = panel("By kind", "as it is; the worst ECE on top");
      node.append(el("div", { class: "grid two" }, first.node, second.node));
      drawSeverities(first.room, few, height);
      drawKinds(second.room, few, kinds, height);
    }
    const heads = ["Setting", "runs", "accuracy", "ECE", "after temperature", "NLL", "AUROC corrupted", ...sets.map((name) => `AUROC ${name}`)];
    node.append(table(heads, entries.slice(0, 100).map((entry) => [
      entry.label, `${entry.runs}${entry.left_out ? ` (${entry.left_out} left out)` : ""}`, plusMinus(entry.plain.mean.accuracy), plusMinus(entry.plain.mean.ece), plusMinus(entry.temperature.mean.ece), plusMinus(entry.plain.mean.nll), plusMinus(entry.auroc), ...sets.map((name) => plusMinus(entry.foreign[name])),
    ])), el("p", { class: "quiet" }, [
      "Accuracy, ECE and NLL are means over kinds and severities; mean ± standard deviation over the seeds (ddof = 1). AUROC says how well the largest probability tells clean images from corrupted or out-of-distribution ones; 0.5 is chance.",
      entries.some((entry) => entry.temperature.mean.ece) || !kinds.length ? "" : "No validation set was held out, so no temperature was fitted; set data.val.",
      entries.length > few.length ? `The charts show the first ${few.length} of ${entries.length} settings.` : "",
    ].filter(Boolean).join(" ")));
  },
};
