// The theorems over training: what is bounded, and by what, with the printed and the tight constants.

const hasBounds = (run) => Object.keys(run.curves).some((name) => name.startsWith("train.bound."));

const certificates = {
  id: "certificates", title: "Certificates",
  says: "The bounds of Morosini et al. (2026) on the training set over the run. The line is the quantity, dashes the bound as published, dots the tighter one; the space between is slack.",
  draw(node) {
    if (!state.data.runs.some(hasBounds)) { node.append(nothing("The theorems were not read in these runs; turn them on with track.bounds = true.")); return; }
    const run = hasBounds(current()) ? current() : state.data.runs.find(hasBounds);
    const grid = el("div", { class: "grid three" });
    node.append(el("div", { class: "controls" }, runChoice("Run", hasBounds, run.key, (key) => choose(key))), grid);
    const rows = [];
    for (const each of state.data.bounds) {
      const lines = [];
      for (const [name, dash, says, width] of [[each.left, "solid", "value", 2], [each.printed, "dash", "as published", 1.4], [each.tight, "dot", "tighter", 1.8]]) {
        const found = curve(run, name);
        if (found) lines.push({ type: "scatter", mode: "lines", x: found.x, y: found.y, name: says, line: { color: says === "value" ? run.colour : style("--ink"), width, dash }, connectgaps: true });
      }
      const { node: figure, room } = panel(each.title, "log");
      grid.append(figure);
      if (lines.length < 2) { room.replaceWith(nothing("Its hypotheses never held in this run, so there is no bound to draw.")); continue; }
      plot(room, lines, { height: 280, xaxis: { title: "step" }, yaxis: { type: "log" } });
      // Slack as the run wrote it down: a difference of rounded numbers would not do.
      const last = (name) => digits(run.final[name]);
      const slack = (name) => {
        const found = run.final[name.replace(".bound.", ".slack.")];
        return Math.abs(found) < 1e-12 * Math.abs(run.final[name]) ? "0" : digits(found); // an equality, but for rounding
      };
      rows.push([each.title, last(each.left), last(each.printed), slack(each.printed), last(each.tight), slack(each.tight)]);
    }
    if (rows.length) node.append(table(["At the last reading", "value", "as published", "slack", "tighter", "slack"], rows));
    const last = run.curves.step[run.curves.step.length - 1];
    const [holds, violated] = ["holds", "violated"].map((word) => at(run, `train.theorems.${word}`, last));
    if (holds !== null) node.append(el("p", { class: "quiet" }, `${holds} statements hold at the last reading, ${violated || "none"} violated${run.regime ? `; the ${run.regime} regime` : ""}. surefoot certify lists every one with its hypotheses.`));
  },
};
