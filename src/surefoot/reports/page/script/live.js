// The live page: new data and the progress of runs, as the server tells them, while somebody looks.

const live = { source: null, told: null, lost: false, paused: false, pressed: false, waiting: false, fetching: false };

/** When a run will end, or, where that is unknown or past, when it was last heard of. */
function remaining(run, now) {
  if (run.ends !== null && run.ends > now) return `${lasting(run.ends - now)} left`;
  return run.seen === null ? "" : `last reading ${lasting(Math.max(0, now - run.seen))} ago`;
}

function underWay(run, now) {
  const known = state.data.runs.find((each) => each.path === run.run);
  const bar = run.steps ? el("progress", { value: String(run.step), max: String(run.steps) }) : el("span");
  const steps = run.steps ? `${whole(run.step)} of ${whole(run.steps)} steps` : `${whole(run.step)} steps`;
  return el("li", {}, el("span", { class: "name" }, known ? named(known) : run.run), bar, el("span", { class: "quiet" }, steps), el("span", { class: "quiet" }, remaining(run, now)));
}

/** Bring the strip under the title up to date. */
function strip() {
  const { unfinished, ended, runs } = live.told || { unfinished: null, ended: null, runs: [] };
  const waiting = state.data.runs.filter((run) => run.outcome === "waiting").length;
  const rest = waiting ? `, ${whole(waiting)} waiting` : "";
  const count = live.told ? `${whole(unfinished)} under way, ${whole(ended)} ended${rest}` : "listening";
  const says = live.lost ? "no connection; if surefoot serve has ended, start it again" : live.paused ? `paused · ${count}` : count;
  live.says.textContent = says;
  live.pause.textContent = live.paused ? "Go on" : "Pause";
  live.room.className = live.lost ? "lost" : live.paused ? "paused" : "";
  live.progress.hidden = live.lost || !runs.length;
  live.list.replaceChildren(...runs.map((run) => underWay(run, Date.now() / 1000)));
}

function stripOfPage() {
  live.says = el("span", { role: "status", id: "live-says" });
  live.pause = el("button", { type: "button", class: "plain", id: "pause", click: () => { live.paused = !live.paused; strip(); refresh(); } });
  live.list = el("ul");
  live.progress = el("details", { open: true }, el("summary", {}, "Progress"), live.list);
  live.room = el("div", { id: "live" }, el("div", { class: "line" }, el("b", {}, "Live"), live.says, live.pause), live.progress);
  document.querySelector("header").after(live.room);
}

/** Fetch and draw what is new; not while the reader has hold of something. */
async function refresh() {
  if (!live.waiting || live.fetching || live.paused || live.pressed) return;
  live.waiting = false;
  live.fetching = true;
  try {
    const answer = await fetch(`data.json${location.search}`);
    if (answer.ok) {
      draw(await answer.json());
      strip();
    }
  } catch { /* the connection is lost; the events tell */ }
  live.fetching = false;
  refresh();
}

function connect() {
  live.source?.close();
  if (document.hidden) return; // a browser has few connections to one place, and nobody looks
  const source = live.source = new EventSource(`events${location.search}`); // the query carries the token
  source.addEventListener("open", () => { live.lost = false; strip(); });
  source.addEventListener("changed", (event) => {
    live.waiting = JSON.parse(event.data).tag !== original.tag;
    refresh();
  });
  source.addEventListener("progress", (event) => { live.told = JSON.parse(event.data); strip(); });
  source.addEventListener("error", () => {
    live.lost = true;
    strip();
    // The browser tries again by itself, unless it was refused: then all seats were taken.
    if (source.readyState === EventSource.CLOSED) setTimeout(() => { if (live.source === source) connect(); }, 10000);
  });
}

function listen() {
  stripOfPage();
  document.addEventListener("visibilitychange", connect);
  addEventListener("pointerdown", () => { live.pressed = true; });
  for (const kind of ["pointerup", "pointercancel"]) addEventListener(kind, () => { live.pressed = false; refresh(); });
  setInterval(() => { if (live.told?.runs.length && !document.hidden) strip(); }, 5000);
  strip();
  connect();
}
