// Figure 1 of Tan et al. (2026) for any two runs: their confidence at the end, and their accuracy.

const confidence = {
  id: "confidence", title: "Confidence",
  says: "Two runs side by side at their last kept reading: confidences above, reliability below. The line is mean confidence, dots accuracy; a large distance means overconfidence.",
  draw(node) {
    const able = state.data.runs.filter(hasHistograms);
    if (!able.length) { node.append(nothing(HISTOGRAMS)); return; }
    // The best and the worst calibrated, until the reader says otherwise.
    const ece = (run) => run.final["test.ece"] ?? Infinity;
    const ranked = able.filter((run) => !BAD.includes(run.outcome)).sort((a, b) => ece(a) - ece(b));
    const ends = ranked.length ? ranked : able;
    if (!able.some((run) => run.key === state.left)) state.left = ends[0].key;
    if (!able.some((run) => run.key === state.right)) state.right = ends[ends.length - 1].key;
    const grid = el("div", { class: "grid two" });
    node.append(el("div", { class: "controls" },
      runChoice("Left", hasHistograms, state.left, (key) => { state.left = key; redraw("confidence"); }),
      runChoice("Right", hasHistograms, state.right, (key) => { state.right = key; redraw("confidence"); }),
      switcher("Set", [["train", "train"], ["test", "test"]], state.confidencePart, (key) => { state.confidencePart = key; redraw("confidence"); })), grid);
    const rooms = [];
    const chosen = [state.left, state.right].map((key) => able.find((run) => run.key === key));
    const kept = chosen.map((run) => [...run.frames].reverse().find((each) => each[`${state.confidencePart}.reliability`]));
    if (!kept[0] || !kept[1]) { grid.append(nothing(HISTOGRAMS)); return; }
    const top = Math.max(...kept.flatMap((found) => shares(found[`${state.confidencePart}.confidence_histogram`])));
    chosen.forEach((run, place) => {
      const found = kept[place];
      const part = state.confidencePart;
      const mean = means(found[`${part}.reliability`]);
      const histogram = found[`${part}.confidence_histogram`];
      const { node: figure, room } = panel(named(run), `${part} set, step ${whole(found.step)}`);
      const below = el("div", { class: "plot" });
      figure.append(below, el("p", { class: "quiet" }, mean ? `Mean confidence ${shown(mean.confidence, 3)}, accuracy ${shown(mean.accuracy, 3)}, ECE ${shown(eceOf(found[`${part}.reliability`]), 3)}; n = ${whole(mean.n)}.` : ""));
      rooms.push(figure);
      grid.append(figure);
      plot(room, [{ type: "bar", ...bars(histogram, 0, 1), y: shares(histogram), marker: { color: run.colour }, hovertemplate: "confidence %{x:.2f}: %{y:.1%}<extra></extra>" }], {
        height: 220, xaxis: { range: [0, 1], title: "confidence, 30 bins" }, yaxis: { title: "share of examples", tickformat: ".0%", range: [0, 1.05 * top] },
        shapes: meanLines(mean),
      });
      drawReliability(below, found[`${part}.reliability`], run.colour, 260);
    });
  },
};
