// Every run as a row: sorted, filtered, a page at a time.

const ROWS = 25;
const COLUMNS = [
  ["label", "Run", (run) => named(run), (run) => named(run)],
  ["method", "Method", (run) => run.method, (run) => run.method],
  ["rate", "η", (run) => run.rate, (run) => rate(run.rate)],
  ["seed", "Seed", (run) => run.seed, (run) => (run.seed === null ? "–" : String(run.seed))],
  ["outcome", "Outcome", (run) => run.outcome, null],
  ["step", "Steps", (run) => run.step, (run) => whole(run.step)],
  ...[["test.accuracy", "Accuracy", 3], ["test.ece", "ECE", 3], ["test.kce", "KCE", 3], ["test.nll", "NLL", 3], ["sharpness", "Sharpness", 3]]
    .map(([key, title, digits]) => [key, title, (run) => run.final[key], (run) => shown(run.final[key], digits)]),
  ["r", "r", (run) => run.correlations["train.ece"], (run) => shown(run.correlations["train.ece"], 2)],
];

function progress(run) {
  if (run.outcome !== "unfinished" || !run.steps) return "";
  return ` ${Math.floor((100 * run.step) / run.steps)} %`; // when it will end is said by the live page's strip
}

function outcome(run) {
  const kind = BAD.includes(run.outcome) ? "bad" : run.outcome === "finished" ? "good" : "open";
  return el("span", { class: `badge ${kind}`, title: run.note || run.outcome }, run.outcome + progress(run));
}

function sorted(runs) {
  const column = COLUMNS.find((each) => each[0] === state.sort.key) || [null, null, (run) => run.place];
  const sign = state.sort.down ? -1 : 1;
  const lacking = (value) => value === null || value === undefined;
  return [...runs].sort((a, b) => {
    const [x, y] = [column[2](a), column[2](b)];
    if (lacking(x) || lacking(y)) return lacking(x) - lacking(y); // what was not read comes last either way
    return sign * (typeof x === "string" ? x.localeCompare(String(y), "en", { numeric: true }) : x - y) || a.place - b.place;
  });
}

const overview = {
  id: "overview", title: "Overview",
  says: "Every run and its last reading on the test set. Choose a row to look at that run below.",
  draw(node) {
    const input = el("input", { type: "search", id: "filter", placeholder: "method, label, outcome, seed 1 …", value: state.words, "aria-label": "Filter runs" });
    input.addEventListener("input", () => { state.words = input.value; state.page = 0; rows(); soon(); });
    const body = el("tbody");
    const foot = el("div", { class: "pager" });
    const notes = el("div", { class: "notes" });
    const counts = {};
    for (const run of state.data.runs) counts[run.outcome] = (counts[run.outcome] || 0) + 1;
    const chips = Object.entries(counts).map(([kind, count]) => el("button", {
      type: "button", class: "chip", click: () => { input.value = input.value === kind ? "" : kind; input.dispatchEvent(new Event("input")); },
    }, `${count} ${kind}`));
    const heads = COLUMNS.map(([key, title], place) => el("th", { class: place > 1 && key !== "outcome" ? "number" : null, scope: "col" }, el("button", {
      type: "button", title: key === "r" ? "correlation of train ECE with sharpness over the run" : null, click: () => {
        state.sort = { key, down: state.sort.key === key ? !state.sort.down : place > 5 };
        state.page = 0;
        rows();
      },
    }, title)));
    function rows() {
      const found = sorted(visible());
      const pages = Math.max(1, Math.ceil(found.length / ROWS));
      state.page = Math.min(state.page, pages - 1);
      heads.forEach((head, place) => head.setAttribute("aria-sort",
        COLUMNS[place][0] !== state.sort.key ? "none" : state.sort.down ? "descending" : "ascending"));
      const part = found.slice(state.page * ROWS, (state.page + 1) * ROWS);
      body.replaceChildren(...part.map((run) => el("tr", {
        class: run.key === state.run ? "chosen" : null, tabindex: "0", "data-run": run.id,
        click: () => { choose(run.key); rows(); }, keydown: (event) => { if (event.key === "Enter") { choose(run.key); rows(); } },
      }, ...COLUMNS.map(([key, , , text], place) => {
        if (key === "outcome") return el("td", {}, outcome(run));
        if (key === "method") return el("td", {}, el("i", { class: `dot ${run.dash}`, style: `background:${run.colour}` }), run.method);
        return el("td", { class: place > 1 ? "number" : null }, text(run));
      }))));
      foot.replaceChildren(
        el("span", { class: "quiet", id: "shown" }, `${whole(found.length)} of ${whole(state.data.runs.length)} runs`),
        ...(pages > 1 ? [
          el("button", { type: "button", disabled: state.page === 0, click: () => { state.page -= 1; rows(); } }, "Earlier"),
          el("span", { class: "quiet" }, `${state.page + 1} / ${pages}`),
          el("button", { type: "button", disabled: state.page === pages - 1, click: () => { state.page += 1; rows(); } }, "Later"),
        ] : []));
      const told = found.filter((run) => run.note).slice(0, 8);
      notes.replaceChildren(...told.map((run) => el("p", {}, el("b", {}, named(run)), `: ${run.note}`)));
    }
    rows();
    node.append(
      el("div", { class: "controls" }, el("label", { class: "control wide" }, el("span", {}, "Filter"), input), el("div", { class: "chips" }, ...chips)),
      el("div", { class: "scroll" }, el("table", { class: "runs" }, el("thead", {}, el("tr", {}, ...heads)), body)), foot, notes);
  },
};
