// Plotly, in the page's colours, quiet, and drawn where it is looked at.

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A colour of the palette with less weight. */
function faint(colour, alpha) {
  const part = (place) => parseInt(colour.slice(place, place + 2), 16);
  return `rgba(${part(1)},${part(3)},${part(5)},${alpha})`;
}

/** A colour of the palette as it is seen best on this page: lighter on a dark one. */
function toned(colour) {
  if (!dark()) return colour;
  const part = (place) => { const value = parseInt(colour.slice(place, place + 2), 16); return Math.round(value + 0.28 * (255 - value)).toString(16).padStart(2, "0"); };
  return `#${part(1)}${part(3)}${part(5)}`;
}

function axis(own) {
  const line = style("--line");
  return {
    gridcolor: style("--grid"), linecolor: line, zeroline: false, ticks: "outside", ticklen: 4, tickcolor: line,
    automargin: false, exponentformat: "e", ...own,
    title: { text: safe(own.title || ""), font: { size: 12 }, standoff: 8 },
  };
}

/** Draw traces into a node, again and again; ``own`` holds axes, shapes and the height. */
function plot(node, traces, own) {
  const { xaxis = {}, yaxis = {}, yaxis2, ...rest } = own;
  const layout = {
    height: 260, margin: { l: 60, r: 14, t: 10, b: 42 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: style("--font"), size: 12, color: style("--ink") }, showlegend: false, hovermode: "closest",
    hoverlabel: { font: { family: style("--font"), size: 12 }, namelength: -1 }, dragmode: "zoom", bargap: 0,
    ...rest, xaxis: axis(xaxis), yaxis: axis(yaxis),
  };
  if (yaxis2) layout.yaxis2 = axis(yaxis2);
  return Plotly.react(node, traces, layout, {
    displaylogo: false, responsive: true, displayModeBar: "hover",
    modeBarButtonsToRemove: ["select2d", "lasso2d", "zoomIn2d", "zoomOut2d", "autoScale2d"],
  });
}

const queue = [];

/** Do a job for a room soon, one at a time, so that the page answers in between; never for a room that is gone. */
function soonest(room, job) {
  queue.push([room, job]);
  if (queue.length === 1) setTimeout(oneJob);
}

function oneJob() {
  if (!queue.length) return;
  const [room, job] = queue.shift();
  try {
    if (room.isConnected) job();
  } catch (error) {
    room.replaceWith(nothing("This panel could not be drawn from these runs."));
    console.error(error);
  } finally {
    if (queue.length) setTimeout(oneJob);
  }
}

/** Do all of them now, for paper. */
function allJobs() {
  while (queue.length) { const [room, job] = queue.shift(); if (room.isConnected) job(); }
}

/** A panel: a heading, what its axis means, and room for a plot. */
function panel(title, unit) {
  const room = el("div", { class: "plot" });
  const node = el("figure", { class: "panel" }, el("figcaption", {}, el("b", {}, title), " ", el("span", { class: "quiet" }, unit || "")), room);
  return { node, room };
}

/** A vertical line at a step. */
function cursor(step) {
  return {
    type: "line", xref: "x", yref: "paper", x0: step, x1: step, y0: 0, y1: 1, line: { color: style("--ink"), width: 1, dash: "dot" },
  };
}

/** Intervals over the seeds as plotly's error bars; none where there is one run. */
function whiskers(summaries, colour) {
  return {
    type: "data", symmetric: false, thickness: 1, width: 3, color: colour, visible: summaries.some((each) => each.n > 1),
    array: summaries.map((each) => Math.max(0, (each.high ?? each.mean) - each.mean)),
    arrayminus: summaries.map((each) => Math.max(0, each.mean - (each.low ?? each.mean))),
  };
}

/** Bars of equal width between two numbers. */
function bars(counts, low, high) {
  const width = (high - low) / counts.length;
  return { x: counts.map((_, place) => low + (place + 0.5) * width), width };
}
