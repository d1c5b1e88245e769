// Accuracy against calibration error with intervals over the seeds, the Pareto front, and what a temperature recalibrates.

const SPOTS = [
  ["top center", -0.5, -1], ["bottom center", -0.5, 0], ["middle right", 0, -0.5], ["middle left", -1, -0.5],
  ["top right", 0, -1], ["top left", -1, -1], ["bottom right", 0, 0], ["bottom left", -1, 0],
];

/** Where beside its point each name stands, so that no two cover one another; null where there is no room. */
function seats(points, names, wide, high) {
  const taken = points.map(([x, y]) => [x - 6, y - 6, x + 6, y + 6]);
  const free = (box) => box[0] >= 0 && box[2] <= wide && box[1] >= 0 && box[3] <= high
    && taken.every((other) => box[2] <= other[0] || box[0] >= other[2] || box[3] <= other[1] || box[1] >= other[3]);
  return points.map(([x, y], place) => {
    const [width, height] = [6.6 * Math.min(60, names[place].length) + 4, 15];
    for (const [spot, across, down] of SPOTS) {
      const left = x + across * width + (across === 0 ? 8 : across === -1 ? -8 : 0);
      const top = y + down * height + (down === 0 ? 7 : down === -1 ? -7 : 0);
      const box = [left, top, left + width, top + height];
      if (free(box)) { taken.push(box); return spot; }
    }
    return null;
  });
}

/** A range with room around values. */
function roomy(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const more = 0.09 * (high - low) || 0.1 * Math.abs(high) || 0.01;
  return [low - more, high + more];
}

const compared = {
  id: "compared", title: "Methods compared",
  says: "Means over the seeds with 95 % bootstrap intervals, on the test set; the line joins settings that no other beats in both.",
  draw(node) {
    const shownMethods = state.data.compared.filter((entry) => !state.hidden.has(entry.method));
    if (!shownMethods.length) { node.append(nothing("No run has finished with calibration readings of a test set yet.")); return; }
    const colour = (entry) => lookOf(entry).colour;
    const value = (entry, name) => entry.measures[name] || { mean: null, low: null, high: null };
    const spread = (entries, name, ink) => whiskers(entries.map((entry) => value(entry, name)), ink);
    const grid = el("div", { class: "grid two" });
    node.append(el("div", { class: "controls" }, legend()), grid);
    const front = shownMethods.filter((entry) => entry.best).sort((a, b) => value(a, "test.accuracy").mean - value(b, "test.accuracy").mean);
    const first = panel("Accuracy against ECE", "up and left is better; 15 bins of equal width");
    grid.append(first.node);
    const margin = { l: 56, r: 24, t: 14, b: 44 };
    const ends = (name) => roomy(shownMethods.flatMap((entry) => ["mean", "low", "high"].map((end) => value(entry, name)[end]).filter((each) => typeof each === "number")));
    const [across, up] = [ends("test.ece"), ends("test.accuracy")];
    const [wide, high] = [first.room.clientWidth - margin.l - margin.r, 360 - margin.t - margin.b];
    const spots = seats(
      shownMethods.map((entry) => [wide * (value(entry, "test.ece").mean - across[0]) / (across[1] - across[0]), high * (up[1] - value(entry, "test.accuracy").mean) / (up[1] - up[0])]),
      shownMethods.map((entry) => entry.label), wide, high);
    plot(first.room, [
      { type: "scatter", mode: "lines", x: front.map((entry) => value(entry, "test.ece").mean), y: front.map((entry) => value(entry, "test.accuracy").mean), line: { color: style("--quiet"), width: 1, dash: "dash" }, hoverinfo: "skip" },
      ...shownMethods.map((entry, place) => ({
        type: "scatter", mode: spots[place] ? "markers+text" : "markers", x: [value(entry, "test.ece").mean], y: [value(entry, "test.accuracy").mean], name: safe(entry.label), text: [safe(entry.label)],
        textposition: spots[place] || "top center", textfont: { size: 11 }, cliponaxis: false, marker: { color: colour(entry), size: 9, symbol: entry.best ? "circle" : "circle-open", line: { width: 2, color: colour(entry) } },
        error_x: spread([entry], "test.ece", colour(entry)), error_y: spread([entry], "test.accuracy", colour(entry)), hovertemplate: "ECE %{x:.4f}<br>accuracy %{y:.4f}",
      })),
    ], { height: 360, xaxis: { title: "test ECE", range: across }, yaxis: { title: "test accuracy", range: up }, margin });
    const second = panel("Before and after temperature scaling", "test ECE; the temperature is fitted on validation");
    grid.append(second.node);
    const scaled = shownMethods.filter((entry) => entry.measures["test.tce"]).slice(0, 24).reverse();
    if (!scaled.length) second.room.replaceWith(nothing("No validation set was held out, so no temperature was fitted; set data.val."));
    else {
      const rows = scaled.map((_, place) => place); // two settings may have the same name
      const dots = (name, symbol) => ({ type: "scatter", mode: "markers", x: scaled.map((entry) => value(entry, name).mean), y: rows, marker: { color: scaled.map(colour), size: 10, symbol, line: { width: 2, color: scaled.map(colour) } }, error_x: spread(scaled, name, style("--quiet")) });
      plot(second.room, [
        ...scaled.map((entry, place) => ({ type: "scatter", mode: "lines", x: [value(entry, "test.ece").mean, value(entry, "test.tce").mean], y: [place, place], line: { color: colour(entry), width: 2 }, hoverinfo: "skip" })),
        { ...dots("test.ece", "circle"), name: "before" }, { ...dots("test.tce", "circle-open"), name: "after" },
      ], { height: Math.max(200, Math.min(360, 90 + 34 * scaled.length)), xaxis: { title: "test ECE (filled: before; open: after)", rangemode: "tozero" }, yaxis: { tickmode: "array", tickvals: rows, ticktext: scaled.map((entry) => safe(entry.label, innerWidth > 700 ? 28 : 16)), range: [-0.6, scaled.length - 0.4], automargin: true }, margin: { l: 70, r: 24, t: 10, b: 44 } });
    }
    const pm = (entry, name) => plusMinus(entry.measures[name]);
    node.append(table(["Setting", "runs", "accuracy", "ECE", "after temperature", "KCE", "NLL", "front"], shownMethods.slice(0, 100).map((entry) => [
      entry.label, `${entry.runs}${entry.left_out ? ` (${entry.left_out} left out)` : ""}`, pm(entry, "test.accuracy"), pm(entry, "test.ece"), pm(entry, "test.tce"), pm(entry, "test.kce"), pm(entry, "test.nll"), entry.best ? "●" : "",
    ])), el("p", { class: "quiet" }, "Mean ± standard deviation over the seeds (ddof = 1). Runs that diverged, failed or are damaged are left out, and counted as such. ● is not beaten in accuracy and ECE by any other."));
  },
};
