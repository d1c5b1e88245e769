// Where the numbers come from, how to get them again, and the data to take away.

function save(name, kind, text) {
  const link = el("a", { href: URL.createObjectURL(new Blob([text], { type: kind })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** One row a reading: run, method, learning rate, seed, step, then every quantity. */
function csv(data) {
  const quote = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    // A spreadsheet would obey a cell that begins like a formula.
    const tame = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(tame) ? `"${tame.replace(/"/g, '""')}"` : tame;
  };
  const names = [...new Set(data.runs.flatMap((run) => Object.keys(run.curves)))].filter((name) => name !== "step").sort();
  const lines = [["run", "label", "method", "rate", "seed", "outcome", "step", ...names].map(quote).join(",")];
  for (const run of data.runs) {
    const curves = names.map((name) => curve(run, name));
    (run.curves.step || []).forEach((step, place) => lines.push(
      [run.id, run.label, run.method, run.rate, run.seed, run.outcome, step, ...curves.map((each) => (each ? each.y[place] : null))].map(quote).join(",")));
  }
  return `${lines.join("\n")}\n`;
}

const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));

const made = {
  id: "made", title: "How this was made",
  says: "What all runs share, what each has of its own, and the versions they ran on.",
  draw(node) {
    const { data } = state;
    const some = (values) => values.slice(0, 6).map(text).join(", ") + (values.length > 6 ? ", …" : "");
    const seeds = [...new Set(data.runs.map((run) => run.seed).filter((seed) => seed !== null))];
    const seconds = data.runs.reduce((sum, run) => sum + (run.seconds || 0), 0);
    const readings = data.runs.reduce((sum, run) => sum + run.readings, 0);
    const kept = data.runs.reduce((sum, run) => sum + (run.curves.step || []).length, 0);
    const names = Object.keys(data.studies).filter((name) => data.studies[name]);
    const again = names.length ? names.map((name) => `surefoot study study.toml --out ${/^[\w-]+$/.test(name) ? name : "DIR"}`).join("\n")
      : 'import json, surefoot as sf\nsf.train(json.load(open("spec.json")), out="again")  # the spec.json in the folder of a run';
    node.append(
      el("div", { class: "controls own-data" },
        el("button", { type: "button", id: "csv", click: () => save("surefoot.csv", "text/csv", csv(data)) }, "Download CSV"),
        el("button", { type: "button", id: "json", click: () => save("surefoot.json", "application/json", JSON.stringify(original)) }, "Download JSON")),
      el("p", { class: "quiet" }, kept < readings
        ? `The page holds ${whole(kept)} of ${whole(readings)} readings: the ends and extremes of every quantity, and those that show its shape, to four digits. The journals beside the runs hold all.`
        : `The page holds all ${whole(readings)} readings, to four digits; the journals beside the runs hold every digit.`),
      el("div", { class: "grid two" },
        el("div", {}, el("h3", {}, "Machine and versions"), table(["fact", "value"], [
          ["report by surefoot", data.version], ["runs", whole(data.runs.length)], ["seeds", some(seeds)], ["time between first and last readings, summed", lasting(seconds)],
          ...Object.entries(data.facts).sort().map(([name, values]) => [name, some(values)])], [0, 1])),
        el("div", {}, el("h3", {}, "Shared by all runs"), table(["setting", "value"], Object.entries(data.shared).filter(([, value]) => value !== null).sort().map(([key, value]) => [key, text(value)]), [0, 1]))),
      el("h3", {}, "Of each run"),
      el("div", { class: "own" }, table(["Run", "folder", "settings of its own"], visible().slice(0, 100).map((run) => [named(run), run.id, Object.entries(run.spec).filter(([, value]) => value !== null).sort().map(([key, value]) => `${key} = ${text(value)}`).join(", ") || "–"]), [0, 1, 2])),
      el("h3", {}, "To make them again"), el("pre", {}, again),
      ...names.map((name) => el("details", {}, el("summary", {}, `study.toml of ${name}`), el("pre", {}, data.studies[name]))));
  },
};
