// The examples that carry the margin moment Q = mean exp(−m) at the chosen step.

const hasTail = (run) => run.frames.some((each) => each["train.tail"] || each["test.tail"]);

const tail = {
  id: "tail", title: "The tail",
  says: "Which examples did it: those that carry most of the margin moment Q = mean exp(−margin) at the chosen step.",
  draw(node) {
    if (!state.data.runs.some(hasTail)) { node.append(nothing("Margins were not read in these runs; turn them on with track.margins = true.")); return; }
    if (!hasTail(current())) state.run = state.data.runs.find(hasTail).key;
    const cards = el("div", { class: "cards" });
    const says = el("p", { class: "quiet" });
    function show() {
      const found = frame();
      const heavy = found ? found[`${state.part}.tail`] : null;
      if (!heavy) { cards.replaceChildren(); says.textContent = "No tail was kept at this step."; return; }
      const sum = heavy.shares.reduce((total, share) => total + share, 0);
      says.textContent = `These ${heavy.rows.length} of the ${state.part === "train" ? "training" : "test"} set's examples carry ${(100 * sum).toFixed(0)} % of Q; rows are numbered as the run sees them.`;
      cards.replaceChildren(...heavy.rows.map((row, place) => {
        const picture = state.data.pictures[(heavy.pictures || [])[place]];
        const told = heavy.labels && heavy.predicted ? [
          el("div", {}, "is ", el("b", {}, String(heavy.labels[place])), ", said ", el("b", { class: heavy.labels[place] === heavy.predicted[place] ? null : "bad" }, String(heavy.predicted[place]))),
          el("div", { class: "quiet" }, `at ${shown(heavy.confidence[place], 2)}`),
        ] : [];
        return el("div", { class: "card" },
          picture ? el("img", { src: picture, alt: `example ${row}` }) : el("div", { class: "blank" }, `row ${row}`),
          el("div", { class: "meter", title: "share of Q" }, el("i", { style: `width:${(100 * Math.min(1, Math.max(0, Number(heavy.shares[place]) || 0))).toFixed(1)}%` })),
          el("div", {}, el("b", {}, heavy.shares[place] < 0.0005 ? "< 0.1 %" : `${(100 * heavy.shares[place]).toFixed(1)} %`), ` m ${shown(heavy.margins[place], 1)}`), ...told);
      }));
    }
    node.append(timeControls(hasTail, show), says, cards);
    show();
  },
};
