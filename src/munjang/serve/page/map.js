// The map of an index: every passage a point, the query and its hits lit, a lasso or a group listed beside it.

import { api } from "./api.js";
import { byId, el, fill, shorten } from "./dom.js";
import { openDocument } from "./hits.js";
import { number, t } from "./language.js";
import { busy, note, showError } from "./notes.js";
import { bareLayout, colour, CONFIG, groupColour, hideBubble, plain, plotly, showBubble } from "./plot.js";
import { currentIndex, state } from "./state.js";

const MOST_DRAWN = 6000; // points of an SVG that a browser still moves smoothly
const MOST_LISTED = 60;
const MOST_NAMED = 12; // groups with their words on the map
const METHODS = { umap: "UMAP", tsne: "t-SNE", pca: "PCA" };

let data = null; // the answer of /map, with `index`
let drawn = []; // numbers of the points that are drawn
let listed = null; // {title, numbers}: what the side shows; null: the groups
let place = null; // {x, y} of the query
let running = null;
let tool = "lasso";

const stateOf = (index) => index.generation ?? index.documents; // changes when documents come or go

/** Shows the map of the chosen index; fetched once, until the index or its documents change. */
export async function showMap() {
  const index = currentIndex();
  if (!index?.documents) {
    byId("map-layout").hidden = true;
    const title = index ? "empty_index" : "no_index";
    return fill(byId("map-note"), note(t(title), t(`${title}_text`)));
  }
  if (data?.index === index.name && data.state === stateOf(index)) return drawAll();
  running?.abort();
  const own = new AbortController();
  running = own;
  if (byId("map-plot").dataset.index !== index.name) {
    byId("map-layout").hidden = true;
    fill(byId("map-note"), busy(t("loading")));
  }
  try {
    const [found] = await Promise.all([api.map(index.name, { signal: own.signal, tellProgress: showBuilding }), plotly()]);
    data = { ...found, index: index.name, state: stateOf(index) };
    listed = null;
    await drawAll();
    if (data.stale) setTimeout(refresh, 3000, index.name);
  } catch (error) {
    if (running === own) showError(byId("map-note"), error, showMap);
  }
}

/** An old map was given out while a new one is made: asks again, for as long as somebody looks. */
function refresh(name) {
  if (state.view !== "map" || data?.index !== name || !data.stale) return;
  forgetMap();
  showMap();
}

function showBuilding(progress) {
  const bar = el("progress", progress === null ? {} : { max: "1", value: progress });
  bar.setAttribute("aria-label", t("map_building"));
  fill(byId("map-note"), note(t("map_building"), t("map_building_text"), { buttons: [bar] }));
}

/** Forgets the map: documents came or went. */
export function forgetMap() {
  data = null;
}

/** Draws everything anew: another language, theme, search or mark. */
export async function drawAll() {
  if (!data) return;
  fill(byId("map-note"));
  byId("map-layout").hidden = false;
  await findPlace();
  if (state.marked) listed = { title: state.marked.label, numbers: numbersOf(state.marked.ids) };
  await drawPlot();
  drawSide();
}

const labelOf = (at) => data.clusters?.[at] ?? -1;
const nameOf = (label) => (label < 0 ? t("map_rest") : (data.names?.[label] ?? `#${label}`));

/** The points of documents, in the order of the documents: the best hit first. */
function numbersOf(ids) {
  const found = new Map(ids.map((id) => [id, []]));
  for (const [at, id] of data.ids.entries()) found.get(id)?.push(at);
  return [...found.values()].flat();
}

async function findPlace() {
  place = null;
  if (!state.results || state.like !== null || !state.query.trim()) return;
  try {
    const found = await api.place(data.index, state.query);
    place = Number.isFinite(found?.x) && Number.isFinite(found?.y) ? found : null;
  } catch {
    place = null; // the hits are lit all the same
  }
}

/** An even sample where there are too many, with every lit point in it. */
function choose(lit) {
  const count = data.points.length;
  if (count <= MOST_DRAWN) return data.points.map((_, at) => at);
  const step = count / MOST_DRAWN;
  const chosen = new Set(Array.from({ length: MOST_DRAWN }, (_, at) => Math.floor(at * step)));
  for (const at of lit) chosen.add(at);
  return [...chosen].sort((a, b) => a - b);
}

/** The hits where there was a search, else what was marked. */
function litNumbers() {
  return numbersOf(state.marked ? state.marked.ids : (state.results?.hits ?? []).map((hit) => hit.id));
}

async function drawPlot() {
  const Plotly = await plotly();
  const lit = litNumbers();
  drawn = choose(lit);
  const traces = [points(drawn, { size: 7, opacity: lit.length ? 0.35 : 0.8 })];
  if (lit.length) traces.push(points(lit, { size: 13, line: { color: colour("ink"), width: 2 } }));
  if (place) traces.push(queryMark());
  const axis = { visible: false, fixedrange: false };
  const layout = bareLayout({
    dragmode: tool,
    hovermode: "closest",
    xaxis: axis,
    yaxis: { ...axis, scaleanchor: "x" },
    annotations: groupNames(),
    newselection: { line: { color: colour("accent"), width: 2, dash: "solid" } },
    uirevision: `${data.index} ${data.built_at}`, // what was zoomed stays zoomed
  });
  const plot = byId("map-plot");
  await Plotly.react(plot, traces, layout, CONFIG);
  if (!plot.dataset.ready) listen(plot);
  Object.assign(plot.dataset, { ready: "1", index: data.index });
  drawCaption(plot);
}

function points(numbers, marker) {
  return {
    type: "scatter",
    mode: "markers",
    x: numbers.map((at) => data.points[at][0]),
    y: numbers.map((at) => data.points[at][1]),
    customdata: numbers,
    marker: { color: numbers.map((at) => groupColour(labelOf(at))), ...marker },
    unselected: { marker: { opacity: 0.15 } },
    hoverinfo: "none", // the page has a tooltip of its own, which wraps
  };
}

function queryMark() {
  const marker = { symbol: "star", size: 22, color: colour("warm"), line: { color: colour("surface"), width: 2 } };
  return { type: "scatter", mode: "markers", x: [place.x], y: [place.y], marker, hoverinfo: "none", customdata: [-1] };
}

/** Groups by size: [label, numbers]. */
function groups() {
  const found = new Map();
  for (let at = 0; at < data.ids.length; at += 1) {
    const label = labelOf(at);
    if (!found.has(label)) found.set(label, []);
    found.get(label).push(at);
  }
  return [...found].sort(([a, left], [b, right]) => (a < 0) - (b < 0) || right.length - left.length);
}

function groupNames() {
  const narrow = byId("map-plot").clientWidth < 560;
  return groups()
    .filter(([label]) => label >= 0)
    .slice(0, narrow ? 5 : MOST_NAMED)
    .map(([label, numbers]) => {
      const middle = (axis) => numbers.map((at) => data.points[at][axis]).sort((a, b) => a - b)[numbers.length >> 1];
      return {
        x: middle(0), y: middle(1), text: plain(shorten(nameOf(label), narrow ? 16 : 26)), showarrow: false, captureevents: false, yshift: 16,
        font: { size: narrow ? 11 : 13, color: colour("ink") }, bgcolor: colour("label"), borderpad: 2,
      };
    });
}

function listen(plot) {
  plot.on("plotly_selected", (event) => {
    const numbers = [...new Set((event?.points ?? []).map((point) => point.customdata))].filter((at) => at >= 0);
    if (!event) return;
    listed = numbers.length ? { title: t("map_selected", { n: number(numbers.length) }), numbers } : null;
    drawSide();
  });
  plot.on("plotly_deselect", () => {
    listed = null;
    drawSide();
  });
  plot.on("plotly_hover", ({ event, points: [point] }) => {
    const at = point.customdata;
    if (at < 0) showBubble(event, [state.query]);
    else showBubble(event, [nameOf(labelOf(at)), shorten(data.texts[at] ?? String(data.ids[at]), 220)]);
  });
  plot.on("plotly_unhover", hideBubble);
  plot.on("plotly_click", ({ points: [point] }) => {
    hideBubble();
    if (point.customdata >= 0) openDocument(data.index, data.ids[point.customdata]);
  });
}

function drawCaption(plot) {
  const count = data.points.length;
  const method = METHODS[data.method] ?? data.method ?? "";
  const sampled = drawn.length < count ? ` ${t("map_sampled", { shown: number(drawn.length), n: number(count) })}` : "";
  byId("map-caption").textContent = t("map_caption", { n: number(count), method }) + sampled;
  const named = groups().filter(([label]) => label >= 0).length;
  plot.setAttribute("aria-label", t("map_label", { n: number(count), c: number(named) }));
}

/** The side: what was lassoed or chosen, else hits, and always the groups as buttons, which need no mouse. */
function drawSide() {
  const lit = litNumbers();
  const shown = listed ?? (lit.length ? { title: t("map_hits"), numbers: lit } : null);
  fill(byId("map-side"), shown ? listOf(shown) : el("p", { class: "hint", text: t("map_hint") }), groupList());
}

function listOf({ title, numbers }) {
  const clear = el("button", { type: "button", class: "quiet", text: t("map_clear"), on: { click: clearList }, hidden: !listed });
  const rest = numbers.length - MOST_LISTED;
  return el(
    "div",
    { class: "map-list" },
    el("div", { class: "head-line" }, el("h2", { text: shorten(title, 60) }), clear),
    el("ul", {}, numbers.slice(0, MOST_LISTED).map(listItem)),
    rest > 0 ? el("p", { class: "hint", text: t("map_more", { n: number(rest) }) }) : null,
  );
}

function listItem(at) {
  const open = () => openDocument(data.index, data.ids[at]);
  return el(
    "li",
    {},
    el("i", { class: "dot", style: { background: groupColour(labelOf(at)) } }),
    el("button", { type: "button", class: "plain", text: shorten(data.texts[at] ?? String(data.ids[at]), 110), on: { click: open } }),
  );
}

async function clearList() {
  listed = null;
  state.marked = null;
  const Plotly = await plotly();
  await Plotly.relayout(byId("map-plot"), { selections: [] });
  await Plotly.restyle(byId("map-plot"), { selectedpoints: [null] });
  await drawPlot();
  drawSide();
  byId("map-side").focus({ preventScroll: true });
}

function groupList() {
  const rows = groups().map(([label, numbers]) =>
    el(
      "li",
      {},
      el("i", { class: "dot", style: { background: groupColour(label) } }),
      el("button", { type: "button", class: "plain", on: { click: () => chooseGroup(label, numbers) } }, nameOf(label), el("span", { class: "count", text: number(numbers.length) })),
    ),
  );
  return el("div", { class: "map-groups" }, el("h2", { text: t("map_groups") }), el("ul", {}, rows));
}

async function chooseGroup(label, numbers) {
  listed = { title: nameOf(label), numbers };
  const chosen = new Set(numbers);
  const Plotly = await plotly();
  const which = drawn.flatMap((at, position) => (chosen.has(at) ? [position] : []));
  await Plotly.restyle(byId("map-plot"), { selectedpoints: [which] }, [0]);
  drawSide();
  byId("map-side").focus({ preventScroll: true });
}

export function setUpMap() {
  const use = async (name) => {
    tool = name;
    byId("map-lasso").setAttribute("aria-pressed", String(name === "lasso"));
    byId("map-pan").setAttribute("aria-pressed", String(name === "pan"));
    if (data) (await plotly()).relayout(byId("map-plot"), { dragmode: name });
  };
  byId("map-lasso").addEventListener("click", () => use("lasso"));
  byId("map-pan").addEventListener("click", () => use("pan"));
  byId("map-reset").addEventListener("click", async () => {
    if (data) (await plotly()).relayout(byId("map-plot"), { "xaxis.autorange": true, "yaxis.autorange": true });
  });
}
