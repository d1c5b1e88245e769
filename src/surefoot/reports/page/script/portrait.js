// Calibration error against sharpness, and how closely they go together.

const portrait = {
  id: "portrait", title: "Phase portrait",
  says: "ECE against Gauss–Newton sharpness along each run: a dot where it starts, a cross where it ends.",
  draw(node) {
    const runs = visible().filter((run) => curve(run, "sharpness") && curve(run, "train.ece"));
    if (!runs.length) {
      node.append(nothing("No run has both calibration and curvature readings; turn on track.calibration and track.curvature."));
      return;
    }
    const grid = el("div", { class: "grid two" });
    node.append(el("div", { class: "controls" },
      switcher("Sharpness", [["linear", "linear"], ["log", "log"]], state.sharp, (key) => { state.sharp = key; redraw("portrait"); }), legend()), grid);
    for (const part of ["train", "test"]) {
      const lines = [];
      for (const run of runs.slice(0, LINES)) {
        const [sharp, ece] = [curve(run, "sharpness"), curve(run, `${part}.ece`)];
        if (!ece) continue;
        const both = sharp.x.map((step, place) => [sharp.y[place], ece.y[place], step]).filter((row) => row[0] !== null && row[1] !== null);
        if (!both.length) continue;
        const [first, last] = [both[0], both[both.length - 1]];
        const name = safe(named(run));
        const shared = { type: "scatter", name, customdata: both.map((row) => row[2]) };
        lines.push({ ...shared, mode: "lines", x: both.map((row) => row[0]), y: both.map((row) => row[1]), line: { color: run.colour, width: 1.4, dash: run.dash }, hovertemplate: "step %{customdata}<br>sharpness %{x:.3g}<br>ECE %{y:.3f}" });
        const ends = { type: "scatter", mode: "markers", name, hoverinfo: "name" };
        lines.push({ ...ends, x: [first[0]], y: [first[1]], marker: { color: run.colour, size: 8 } });
        lines.push({ ...ends, x: [last[0]], y: [last[1]], marker: { color: run.colour, size: 9, symbol: "x" } });
      }
      const { node: figure, room } = panel(part === "train" ? "Training set" : "Test set", "ECE, 15 bins of equal width");
      grid.append(figure);
      plot(room, lines, { height: 340, xaxis: { title: "Gauss–Newton sharpness (largest eigenvalue)", type: state.sharp, rangemode: "tozero" }, yaxis: { title: "ECE", rangemode: "tozero" } });
    }
    if (runs.length > LINES) node.append(el("p", { class: "quiet" }, `The first ${LINES} of ${runs.length} runs are drawn; the filter above chooses.`));
    const r = (run, name) => shown(run.correlations[name], 2);
    node.append(el("h3", {}, "Correlation with sharpness over the run"), table(
      ["Run", "train ECE", "train KCE", "test ECE", "test KCE", "ρ train ECE", "lead"],
      runs.slice(0, 60).map((run) => [named(run), r(run, "train.ece"), r(run, "train.kce"), r(run, "test.ece"), r(run, "test.kce"), r(run, "spearman"), shown(run.correlations.lead, 0)])),
    el("p", { class: "quiet" }, "Pearson's r of a calibration error with Gauss–Newton sharpness (a row of Table 1 of Morosini et al. 2026); ρ is Spearman's; lead is by how many readings sharpness goes before train ECE. All readings count, not only those drawn."));
  },
};
