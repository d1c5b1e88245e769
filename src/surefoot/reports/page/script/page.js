// The page: sections drawn when they come into view, the theme, and, where it is live, new data as it arrives.

const SECTIONS = [overview, trajectories, portrait, machine, tail, certificates, confidence, compared, shift, made];
const bodies = new Map();
const stale = new Set();
let original = null;

/** Draw a section now; a fault in one never hides the others. */
function redraw(id) {
  const section = SECTIONS.find((each) => each.id === id);
  const body = bodies.get(id);
  stale.delete(id);
  body.style.minHeight = `${body.offsetHeight}px`; // or the page would jump while it is empty
  for (const room of body.querySelectorAll(".plot")) Plotly.purge(room);
  body.replaceChildren();
  try {
    section.draw(body);
  } catch (error) {
    body.replaceChildren(nothing("This section could not be drawn from these runs."));
    console.error(error);
  }
  body.style.minHeight = "";
}

const near = (body) => { const box = body.getBoundingClientRect(); return box.bottom > -300 && box.top < innerHeight + 300; };

/** Everything but the overview is out of date; what is in view is drawn at once. */
function later(all = false) {
  for (const { id } of SECTIONS) if (all || id !== "overview") stale.add(id);
  requestAnimationFrame(drawNear);
}

let waiting = null;
/** The same once the reader stops typing. */
function soon() {
  clearTimeout(waiting);
  waiting = setTimeout(() => later(), 120);
}

/** One section at a time, so that the first is there at once. */
function drawNear() {
  const next = SECTIONS.find(({ id }) => stale.has(id) && near(bodies.get(id)));
  if (!next) return;
  redraw(next.id);
  setTimeout(drawNear);
}

/** Look closely at a run. */
function choose(key) {
  state.run = key;
  state.frame = Math.max(0, current().frames.length - 1);
  later();
}

/** Draw all that lies above a section, and then go there: what is drawn later would push it away. */
function go(id) {
  for (const section of SECTIONS.slice(0, SECTIONS.findIndex((each) => each.id === id) + 1)) if (stale.has(section.id)) redraw(section.id);
  requestAnimationFrame(() => document.getElementById(id).scrollIntoView());
}

function frameOfPage() {
  const main = document.getElementById("main");
  main.replaceChildren();
  const nav = document.getElementById("nav");
  nav.replaceChildren();
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting && stale.has(entry.target.id)) redraw(entry.target.id);
  }, { rootMargin: "300px" });
  SECTIONS.forEach((section, place) => {
    const body = el("div", { class: "body" });
    bodies.set(section.id, body);
    const node = el("section", { id: section.id }, el("h2", {}, el("span", { class: "ordinal" }, String(place + 1)), section.title), el("p", { class: "says" }, section.says), body);
    main.append(node);
    nav.append(el("a", { href: `#${section.id}`, click: () => go(section.id) }, section.title));
    watch.observe(node);
  });
}

/** Draw the page from data; called again, it keeps what the reader has chosen. */
function draw(data) {
  original = data;
  state.data = {
    ...data,
    runs: data.runs.map((run, place) => ({ ...run, place, colour: toned(run.colour), key: run.path, search: described(run) })),
  };
  const runs = state.data.runs;
  state.several = new Set(runs.map((run) => run.study)).size > 1;
  if (!runs.some((run) => run.key === state.run)) {
    const first = runs.find((run) => hasHistograms(run)) || runs.find((run) => run.frames.length) || runs[0];
    state.run = first ? first.key : null;
    state.frame = first ? Math.floor(first.frames.length / 2) : 0; // the ends are on the other sections
  }
  document.getElementById("title").textContent = data.title;
  document.getElementById("version").textContent = data.version;
  const bad = runs.filter((run) => BAD.includes(run.outcome)).length;
  const open = runs.filter((run) => run.outcome === "unfinished").length;
  document.getElementById("counts").textContent = `${whole(runs.length)} run${runs.length === 1 ? "" : "s"}${open ? `, ${open} unfinished` : ""}${bad ? `, ${bad} went wrong` : ""}`;
  if (!bodies.size) frameOfPage();
  const typing = document.activeElement && document.activeElement.id === "filter";
  later(true);
  if (typing) requestAnimationFrame(() => document.getElementById("filter")?.focus());
}

function themed(name) {
  document.documentElement.dataset.theme = name;
  try { localStorage.setItem("surefoot-theme", name); } catch { /* a page from disk may have no storage */ }
  if (original) draw(original);
}

function dark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

let screen = null;
/** Paper is white: all of the page, drawn in the light theme. */
function forPaper() {
  screen = { theme: document.documentElement.dataset.theme, dark: dark() };
  if (screen.dark) {
    document.documentElement.dataset.theme = "light";
    draw(original);
  }
  for (const { id } of SECTIONS) if (stale.has(id)) redraw(id);
  allJobs();
}

function fromPaper() {
  if (!screen?.dark) return;
  if (screen.theme) document.documentElement.dataset.theme = screen.theme; else delete document.documentElement.dataset.theme;
  screen = null;
  draw(original);
}

function begin() {
  let kept = null;
  try { kept = localStorage.getItem("surefoot-theme"); } catch { /* as above */ }
  if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;
  document.getElementById("theme").addEventListener("click", () => themed(dark() ? "light" : "dark"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (original) draw(original); });
  addEventListener("beforeprint", forPaper);
  addEventListener("afterprint", fromPaper);
  state.live = document.documentElement.dataset.live === "yes";
  draw(JSON.parse(document.getElementById("data").textContent));
  if (SECTIONS.some((section) => `#${section.id}` === location.hash)) go(location.hash.slice(1));
  if (state.live) listen();
}

window.surefoot = { draw };
begin();
