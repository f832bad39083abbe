"use strict";
// The data of the run: see `Data` in mod.rs.
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const size = data.size;
const FAILED = -1;
const MOST_LINKS = 200;
const state = { traffic: 0, order: "rank", view: { x: 0, y: 0, span: size }, at: null,
  links: { key: "ratio", down: true }, ranks: { key: "rank", down: false } };

// Numbers of 32 bits, little-endian, out of Base64.
function numbers(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  const view = new DataView(bytes.buffer);
  const all = new Float32Array(raw.length / 4);
  for (let i = 0; i < all.length; i++) all[i] = view.getFloat32(4 * i, true);
  return all;
}

const isMeasured = (value) => value > 0;
const bad = new Set(data.bad.map(([one, other]) => Math.min(one, other) * size + Math.max(one, other)));
const isBad = (from, to) => bad.has(Math.min(from, to) * size + Math.max(from, to));

// All that is computed once for each kind of traffic.
const ready = new Map();
function prepared(place) {
  if (ready.has(place)) return ready.get(place);
  const kind = data.traffic[place];
  const values = numbers(kind.values);
  kind.values = null;
  const sorted = values.filter(isMeasured).sort();
  const middle = sorted.length ? sorted[sorted.length >> 1] : 1;
  const median = kind.median ?? middle;
  // How many times worse than the median: above 1 is worse.
  const ratio = (value) => kind.more ? median / value : value / median;
  const spread = sorted.length ? Math.max(ratio(sorted[0]), ratio(sorted[sorted.length - 1]), 1.2) : 2;
  const bound = kind.bound ? ratio(kind.bound) : spread;
  // Colours are full where a link is far worse than the bound.
  const full = Math.log(Math.min(spread, Math.max(bound * 1.5, 1.5)));
  const lost = new Map();
  for (const [from, to, traffic, count] of data.lost) {
    if (traffic === place) lost.set(from * size + to, count);
  }
  const ranks = [];
  for (let rank = 0; rank < size; rank++) {
    const line = [];
    let badLinks = 0;
    for (let other = 0; other < size; other++) {
      const value = values[rank * size + other];
      if (isMeasured(value)) line.push(value);
      if (bad.size && other !== rank && isBad(rank, other)) badLinks++;
    }
    line.sort((one, other) => one - other);
    const worst = kind.more ? line[0] : line[line.length - 1];
    ranks.push({ rank, median: line.length ? line[line.length >> 1] : NaN, worst: worst ?? NaN, bad: badLinks });
  }
  const made = { kind, values, sorted, median, ratio, full, lost, ranks };
  ready.set(place, made);
  return made;
}

// Better than the median is blue, worse is red.
const BLUE = [38, 110, 190], RED = [200, 40, 30];
let neutral = [225, 228, 232];
function colour(of, value) {
  if (value === FAILED) return [0, 0, 0, 255];
  if (!isMeasured(value)) return [0, 0, 0, 0];
  const log = Math.log(of.ratio(value)) / of.full;
  const part = Math.min(Math.abs(log), 1);
  const end = log > 0 ? RED : BLUE;
  return [0, 1, 2].map((i) => Math.round(neutral[i] + (end[i] - neutral[i]) * part)).concat(255);
}

function ordered(of) {
  const ranks = Array.from({ length: size }, (_, rank) => rank);
  if (state.order === "host") {
    const host = (rank) => data.ranks[rank].host;
    ranks.sort((one, other) => host(one).localeCompare(host(other), "en", { numeric: true }) || one - other);
  } else if (state.order === "worst") {
    const key = (rank) => {
      const median = of.ranks[rank].median;
      return Number.isNaN(median) ? Infinity : of.ratio(median);
    };
    ranks.sort((one, other) => key(other) - key(one) || one - other);
  }
  return ranks;
}

// The order of ranks, and a picture of the part that is looked at. The picture is made again when any of
// these change.
let places = [], picture = null;
function draw() {
  places = ordered(prepared(state.traffic));
  picture = null;
  show();
}

// Draws the part that is looked at. Where several cells share a pixel, the worst of them is seen.
function pictured(pixels) {
  const { x, y, span } = state.view;
  const wide = Math.min(span, Math.max(1, pixels));
  const key = [x, y, span, wide].join();
  if (picture && picture.key === key) return picture.canvas;
  const of = prepared(state.traffic);
  const worst = (value) => value === FAILED ? Infinity : isMeasured(value) ? of.ratio(value) : -Infinity;
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = wide;
  const context = canvas.getContext("2d");
  const image = context.createImageData(wide, wide);
  const edges = Array.from({ length: wide + 1 }, (_, at) => Math.floor(at * span / wide));
  for (let line = 0; line < wide; line++) {
    for (let column = 0; column < wide; column++) {
      let value = NaN, most = -Infinity;
      for (let i = edges[line]; i < edges[line + 1]; i++) {
        const from = places[y + i] * size;
        for (let j = edges[column]; j < edges[column + 1]; j++) {
          const other = of.values[from + places[x + j]], bad = worst(other);
          if (bad > most) [most, value] = [bad, other];
        }
      }
      image.data.set(colour(of, value), 4 * (line * wide + column));
    }
  }
  context.putImageData(image, 0, 0);
  picture = { key, canvas };
  return canvas;
}

function prepare(canvas) {
  const scale = window.devicePixelRatio || 1;
  const box = canvas.getBoundingClientRect();
  canvas.width = Math.max(1, Math.round(box.width * scale));
  canvas.height = Math.max(1, Math.round(box.height * scale));
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, box.width, box.height);
  return { context, width: box.width, height: box.height };
}

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// The picture with the numbers of ranks at its edges.
const LEFT = 44, TOP = 22;
function show() {
  const { context, width, height } = prepare(byId("heat"));
  const { x, y, span } = state.view;
  const wide = width - LEFT, high = height - TOP;
  context.imageSmoothingEnabled = false;
  context.drawImage(pictured(Math.floor(wide * (window.devicePixelRatio || 1))), LEFT, TOP, wide, high);
  context.fillStyle = style("--soft");
  context.font = "11px system-ui, sans-serif";
  const step = Math.max(1, Math.ceil(span / Math.max(1, Math.floor(wide / 34))));
  for (let i = 0; i < span; i += step) {
    const at = (i + 0.5) / span;
    context.textAlign = "center";
    context.fillText(places[x + i], LEFT + at * wide, TOP - 7);
    context.textAlign = "right";
    context.fillText(places[y + i], LEFT - 6, TOP + at * high + 4);
  }
  if (state.at) {
    const cell = wide / span;
    context.strokeStyle = style("--ink");
    context.lineWidth = 1.5;
    context.strokeRect(LEFT + (state.at.x - x) * cell, TOP + (state.at.y - y) * cell, Math.max(cell, 3), Math.max(cell, 3));
  }
}

const short = (value) => value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);

function scale(of) {
  const { context, width } = prepare(byId("scale"));
  const wide = width - LEFT;
  for (let i = 0; i < wide; i++) {
    const log = (2 * i / wide - 1) * of.full;
    const value = of.kind.more ? of.median / Math.exp(log) : of.median * Math.exp(log);
    const [r, g, b] = colour(of, value);
    context.fillStyle = `rgb(${r},${g},${b})`;
    context.fillRect(LEFT + i, 0, 1.5, 12);
  }
  context.fillStyle = style("--soft");
  context.font = "11px system-ui, sans-serif";
  const ends = [[-1, "left", LEFT], [0, "center", LEFT + wide / 2], [1, "right", LEFT + wide]];
  for (const [at, align, x] of ends) {
    const times = Math.exp(at * of.full);
    const value = of.kind.more ? of.median / times : of.median * times;
    context.textAlign = align;
    const word = at < 0 ? "better: " : at > 0 ? "worse: " : "median: ";
    context.fillText(`${word}${short(value)} ${of.kind.unit}`, x, 28);
  }
}

function histogram(of) {
  const { context, width, height } = prepare(byId("histogram"));
  if (!of.sorted.length) return;
  const low = Math.log(of.sorted[0]), high = Math.max(Math.log(of.sorted[of.sorted.length - 1]), low + 1e-6);
  const bins = new Array(Math.max(10, Math.min(120, Math.floor(width / 7)))).fill(0);
  for (const value of of.sorted) {
    bins[Math.min(bins.length - 1, Math.floor((Math.log(value) - low) / (high - low) * bins.length))]++;
  }
  const most = Math.max(...bins), area = height - 22, bar = width / bins.length;
  context.fillStyle = style("--direct");
  bins.forEach((count, i) => {
    // A single link is seen beside a million.
    const tall = count ? Math.max(2, Math.sqrt(count / most) * (area - 14)) : 0;
    context.fillRect(i * bar + 0.5, area - tall, Math.max(1, bar - 1), tall);
  });
  context.font = "11px system-ui, sans-serif";
  if (of.kind.bound) {
    const x = (Math.log(of.kind.bound) - low) / (high - low) * width;
    if (x >= 0 && x <= width) {
      context.strokeStyle = context.fillStyle = style("--verbs");
      context.beginPath();
      context.moveTo(x, 0);
      context.lineTo(x, area);
      context.stroke();
      context.textAlign = x > width / 2 ? "right" : "left";
      context.fillText(`bound ${short(of.kind.bound)}`, x + (x > width / 2 ? -5 : 5), 11);
    }
  }
  context.fillStyle = style("--soft");
  for (let i = 0; i <= 4; i++) {
    const value = Math.exp(low + (high - low) * i / 4);
    context.textAlign = i === 0 ? "left" : i === 4 ? "right" : "center";
    context.fillText(i === 4 ? `${short(value)} ${of.kind.unit}` : short(value), width * i / 4, height - 6);
  }
}

function row(cells) {
  const line = document.createElement("tr");
  for (const [text, name] of cells) {
    const cell = document.createElement("td");
    cell.textContent = text;
    if (name) cell.className = name;
    line.append(cell);
  }
  return line;
}

function mark(table, sort) {
  for (const head of byId(table).querySelectorAll("th")) {
    head.removeAttribute("aria-sort");
    if (head.dataset.key === sort.key) head.setAttribute("aria-sort", sort.down ? "descending" : "ascending");
  }
}

// The first links in the chosen order. A million are not sorted whole: the last value that is shown is
// found first.
function links(of) {
  const { key, down } = state.links;
  const hosts = (cell) => `${data.ranks[Math.floor(cell / size)].host} ${data.ranks[cell % size].host}`;
  const keys = {
    from: (cell) => Math.floor(cell / size), to: (cell) => cell % size, value: (cell) => of.values[cell],
    ratio: (cell) => of.values[cell] === FAILED ? Infinity : of.ratio(of.values[cell]),
    lost: (cell) => of.lost.get(cell) ?? 0,
    hosts: (cell) => cell,
  };
  const number = keys[key], sign = down ? -1 : 1;
  const cells = [];
  for (let cell = 0; cell < of.values.length; cell++) {
    if (!Number.isNaN(of.values[cell])) cells.push(cell);
  }
  let shown = cells;
  if (key !== "hosts" && cells.length > MOST_LINKS) {
    const all = Float64Array.from(cells, (cell) => sign * number(cell)).sort();
    const last = all[MOST_LINKS - 1];
    shown = cells.filter((cell) => sign * number(cell) <= last);
  }
  if (key === "hosts") {
    shown = cells.slice(0, 4 * MOST_LINKS);
    shown.sort((one, other) => sign * hosts(one).localeCompare(hosts(other), "en", { numeric: true }));
  } else {
    shown.sort((one, other) => {
      const [a, b] = [number(one), number(other)];
      return a === b ? one - other : sign * (a < b ? -1 : 1);
    });
  }
  shown = shown.slice(0, MOST_LINKS);
  byId("shown").textContent = `${shown.length} of ${cells.length} directions; choose the order by the heads of the columns.`;
  byId("unit").textContent = of.kind.unit;
  byId("links").tBodies[0].replaceChildren(...shown.map((cell) => {
    const from = Math.floor(cell / size), to = cell % size, value = of.values[cell];
    const name = isBad(from, to) ? "bad" : "";
    const failed = value === FAILED;
    return row([[from, name], [to, name], [`${data.ranks[from].host} → ${data.ranks[to].host}`, "name"],
      [failed ? "not measured" : short(value), name], [failed ? "" : of.ratio(value).toFixed(2), ""],
      [of.lost.get(cell) ?? "", ""]]);
  }));
  mark("links", state.links);
}

function ranks(of) {
  const { key, down } = state.ranks, sign = down ? -1 : 1;
  const all = of.ranks.map((rank) => ({ ...rank, ...data.ranks[rank.rank] }));
  all.sort((one, other) => {
    const [a, b] = [one[key], other[key]];
    if (typeof a === "string") return sign * a.localeCompare(b, "en", { numeric: true }) || one.rank - other.rank;
    if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
    return sign * (a - b) || one.rank - other.rank;
  });
  const figure = (value) => Number.isNaN(value) ? "" : short(value);
  byId("ranks").tBodies[0].replaceChildren(...all.map((rank) => row([[rank.rank, ""], [rank.host, "name"],
    [rank.port, "name"], [figure(rank.median), ""], [figure(rank.worst), ""],
    [rank.bad || "", rank.bad ? "bad" : ""], [rank.state, "name"]])));
  mark("ranks", state.ranks);
}

function tell() {
  const told = byId("told");
  if (!state.at) return void (told.textContent = "");
  const of = prepared(state.traffic);
  const from = places[state.at.y], to = places[state.at.x], value = of.values[from * size + to];
  const name = (rank) => `rank ${rank} (${data.ranks[rank].host}, ${data.ranks[rank].port})`;
  const lost = of.lost.get(from * size + to);
  const what = value === FAILED ? "not measured" : isMeasured(value)
    ? `${short(value)} ${of.kind.unit}, ${of.ratio(value).toFixed(2)} times the median${of.kind.more ? " (above 1 is less)" : ""}`
    : "no link";
  told.textContent = `${name(from)} → ${name(to)}: ${what}${lost ? `; packets were missing ${lost} times` : ""}${isBad(from, to) ? "; bad" : ""}`;
}

function cell(event) {
  const box = byId("heat").getBoundingClientRect();
  const { x, y, span } = state.view;
  const at = (place, start, length, first) => first + Math.floor((place - start) / length * span);
  const found = { x: at(event.clientX - box.left, LEFT, box.width - LEFT, x), y: at(event.clientY - box.top, TOP, box.height - TOP, y) };
  const inside = (value, first) => value >= first && value < first + span;
  return inside(found.x, x) && inside(found.y, y) ? found : null;
}

function look(span, middle) {
  const wide = Math.max(Math.min(8, size), Math.min(size, Math.round(span)));
  const first = (value) => Math.max(0, Math.min(size - wide, Math.round(value - wide / 2)));
  state.view = { x: first(middle.x), y: first(middle.y), span: wide };
  show();
}

const centre = () => state.at ?? { x: state.view.x + state.view.span / 2, y: state.view.y + state.view.span / 2 };

function all() {
  const of = prepared(state.traffic);
  draw();
  scale(of);
  histogram(of);
  links(of);
  ranks(of);
  tell();
}

data.traffic.forEach((kind, place) => byId("traffic").add(new Option(`${kind.name} (${kind.unit})`, place)));
byId("traffic").onchange = (event) => { state.traffic = Number(event.target.value); all(); };
byId("order").onchange = (event) => { state.order = event.target.value; draw(); tell(); };
byId("closer").onclick = () => look(state.view.span / 2, centre());
byId("wider").onclick = () => look(state.view.span * 2, centre());
byId("whole").onclick = () => look(size, centre());
byId("heat").onmousemove = (event) => { state.at = cell(event) ?? state.at; show(); tell(); };
byId("heat").onclick = (event) => {
  state.at = cell(event) ?? state.at;
  if (state.at) look(state.view.span / 4, state.at);
  tell();
};
byId("heat").onkeydown = (event) => {
  const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const move = moves[event.key];
  if (!move) return;
  event.preventDefault();
  const at = state.at ?? { x: state.view.x, y: state.view.y };
  const inside = (value) => Math.max(0, Math.min(size - 1, value));
  state.at = { x: inside(at.x + move[0]), y: inside(at.y + move[1]) };
  const { x, y, span } = state.view;
  const outside = state.at.x < x || state.at.y < y || state.at.x >= x + span || state.at.y >= y + span;
  if (outside) look(span, state.at); else show();
  tell();
};
for (const [table, sort, redraw] of [["links", state.links, links], ["ranks", state.ranks, ranks]]) {
  for (const head of byId(table).querySelectorAll("th")) {
    head.onclick = () => {
      sort.down = sort.key === head.dataset.key ? !sort.down : !["rank", "from", "to", "host", "hosts"].includes(head.dataset.key);
      sort.key = head.dataset.key;
      redraw(prepared(state.traffic));
    };
  }
}
const dark = window.matchMedia("(prefers-color-scheme: dark)");
function tint() { neutral = dark.matches ? [52, 60, 70] : [225, 228, 232]; }
dark.onchange = () => { tint(); all(); };
tint();
let resized = 0;
window.onresize = () => { clearTimeout(resized); resized = setTimeout(() => { const of = prepared(state.traffic); show(); scale(of); histogram(of); }, 100); };
if (data.traffic.length && size) all();
