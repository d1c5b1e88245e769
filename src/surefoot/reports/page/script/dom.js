// Elements, numbers and words. Text enters the page as text only: never as markup.

/** An element with attributes (functions become listeners) and children; strings become text. */
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** A number as people read it: so many digits, scientific where that would show nothing. */
function shown(value, digits = 3) {
  if (typeof value !== "number" || !Number.isFinite(value)) return "–";
  const odd = value !== 0 && (Math.abs(value) < 0.5 * 10 ** -digits || Math.abs(value) >= 1e6);
  return (odd ? value.toExponential(1) : value.toFixed(digits)).replace(/-/g, "−");
}

/** Mean ± standard deviation over the seeds, where there are several. */
function plusMinus(found, digits = 3) {
  if (!found) return "–";
  return found.std === null ? shown(found.mean, digits) : `${shown(found.mean, digits)} ± ${shown(found.std, digits)}`;
}

/** Three digits that count, however large or small. */
function digits(value) {
  if (typeof value !== "number" || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  const odd = size !== 0 && (size < 1e-3 || size >= 1e5);
  return (odd ? value.toExponential(1) : size >= 100 ? whole(value) : String(Number(value.toPrecision(3)))).replace(/-/g, "−");
}

/** An integer with thin spaces between thousands. */
function whole(value) {
  return typeof value === "number" && Number.isFinite(value)
    ? String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, "\u2009") : "–";
}

/** A learning rate, short. */
function rate(value) {
  return typeof value === "number" ? String(Number(value.toPrecision(3))) : "–";
}

/** Seconds as a person says them. */
function lasting(seconds) {
  if (typeof seconds !== "number" || !Number.isFinite(seconds)) return "–";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${(seconds / 3600).toFixed(1)} h` : `${(seconds / 86400).toFixed(1)} d`;
}

/** Text for plotly, which reads some markup: what could be markup is written out, what would fill the chart is cut. */
function safe(text, most = 60) {
  const letters = [...String(text)];
  return (letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : letters.join("")).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

/** A choice of one of [value, text] pairs. */
function choice(label, pairs, value, change) {
  const select = el("select", { "aria-label": label, change: () => change(select.value) });
  for (const [key, text] of pairs) {
    const option = el("option", { value: key }, text);
    option.selected = String(key) === String(value);
    select.append(option);
  }
  return el("label", { class: "control" }, el("span", {}, label), select);
}

/** Buttons of which one is pressed. */
function switcher(label, pairs, value, change) {
  const group = el("div", { class: "switch", role: "group", "aria-label": label });
  for (const [key, text] of pairs) {
    group.append(el("button", {
      type: "button", "aria-pressed": String(key === value), click: () => {
        for (const each of group.children) each.setAttribute("aria-pressed", "false");
        group.querySelector(`[data-key="${key}"]`).setAttribute("aria-pressed", "true");
        change(key);
      }, "data-key": key,
    }, text));
  }
  return el("div", { class: "control" }, el("span", {}, label), group);
}

/** A table of texts and elements; the columns named in ``left`` are not right-aligned. */
function table(headings, rows, left = [0]) {
  const side = (place) => (left.includes(place) ? {} : { class: "number" });
  return el("div", { class: "scroll" }, el("table", {},
    el("thead", {}, el("tr", {}, ...headings.map((text, place) => el("th", side(place), text)))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((cell, place) => el("td", side(place), cell)))))));
}

/** The sentence of a section that has nothing to show: what to turn on. */
function nothing(text) {
  return el("p", { class: "nothing" }, text);
}
