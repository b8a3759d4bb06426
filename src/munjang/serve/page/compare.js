// Two texts -> one number; two lists -> a heat map of all pairs, and the pairs that are most alike.

import { api } from "./api.js";
import { byId, el, fill, shorten } from "./dom.js";
import { language, number, t } from "./language.js";
import { busy, note, showError } from "./notes.js";
import { bareLayout, colour, CONFIG, hideBubble, plain, plotly, showBubble } from "./plot.js";

const MOST_NUMBERS = 12; // rows and columns up to which every cell has its number
const MOST_NAMES = 40; // beyond, names would lie upon each other
const EXAMPLES = {
  texts: [
    ["비가 올 것 같으니 우산을 챙기세요.", "Take an umbrella, it looks like rain."],
    ["Take an umbrella, it looks like rain.", "비가 올 것 같으니 우산을 챙기세요."],
  ],
  lists: [
    ["비가 많이 온다\n김치찌개를 끓였다\n버스가 늦게 왔다", "It is pouring outside\nI cooked a kimchi stew\nThe bus was late\nStocks fell today"],
    ["It is pouring outside\nI cooked a stew\nThe bus was late", "비가 많이 온다\n김치찌개를 끓였다\n버스가 늦게 왔다\n주가가 떨어졌다"],
  ],
};

let result = null; // {a, b, same, scores, ends}: ends are the similarities of unrelated and of equal texts
let running = null;

const kind = () => document.querySelector('input[name="compare"]:checked').value;
const lines = (id) => byId(id).value.split("\n").map((line) => line.trim()).filter(Boolean);

function read() {
  if (kind() === "texts") return { a: [byId("compare-a").value.trim()].filter(Boolean), b: [byId("compare-b").value.trim()].filter(Boolean) };
  return { a: lines("compare-a"), b: lines("compare-b") };
}

async function run() {
  running?.abort();
  const { a, b } = read();
  const asked = kind();
  const missing = asked === "texts" ? !a.length || !b.length : !a.length;
  fill(byId("compare-result"));
  if (missing) return fill(byId("compare-note"), note(t(asked === "texts" ? "compare_need" : "compare_need_lists"), "", { tone: "warn" }));
  const own = new AbortController();
  running = own;
  fill(byId("compare-note"), busy(t("compare_running")));
  try {
    const { scores, unrelated, same } = await api.similarity(b.length ? { a, b } : { a }, own.signal);
    result = { a, b: b.length ? b : a, same: !b.length, scores, ends: [unrelated, same] };
    await drawComparison();
  } catch (error) {
    if (running === own) showError(byId("compare-note"), error, run);
  }
  return null;
}

/** Shows the last comparison, or what can be done here. */
export async function drawComparison() {
  byId("compare-hint").textContent = t(kind() === "lists" ? "compare_hint_lists" : "compare_hint_texts");
  if (!result) return fill(byId("compare-note"), note(t("compare_start"), t("compare_start_text")));
  fill(byId("compare-note"));
  const { a, b, scores } = result;
  if (a.length === 1 && b.length === 1) return fill(byId("compare-result"), oneNumber(scores[0][0]));
  try {
    await drawHeat();
  } catch (error) {
    showError(byId("compare-note"), error, drawComparison); // the pairs below need no picture
  }
  return null;
}

function oneNumber(score) {
  byId("live").textContent = `${number(score, 3)} ${t("compare_score")}`;
  const [low, high] = result.ends;
  const share = Math.max(0, Math.min(1, (score - low) / (high - low)));
  return el(
    "div",
    { class: "one-number" },
    el("p", { class: "big", text: score.toFixed(3) }),
    el("p", { class: "hint", text: t("compare_score") }),
    el("div", { class: "meter" }, el("i", { style: { width: `${share * 100}%` } })),
    el("p", { class: "hint", text: t("compare_scale", { low: number(low, 2), high: number(high, 2) }) }),
  );
}

async function drawHeat() {
  const { a, b, scores } = result;
  const label = t("compare_label", { a: number(a.length), b: number(b.length) });
  const plot = el("div", { class: "plot heat", role: "img", "aria-label": label });
  plot.style.height = `${Math.min(900, 130 + Math.max(2, a.length) * (a.length > 20 ? 18 : 44))}px`;
  byId("live").textContent = label;
  fill(byId("compare-result"), plot, scale(), nearest());
  const Plotly = await plotly();
  const narrow = plot.clientWidth < 560;
  const few = a.length <= MOST_NUMBERS && b.length <= (narrow ? 5 : MOST_NUMBERS);
  const trace = {
    type: "heatmap", z: scores, zmin: result.ends[0], zmax: result.ends[1], showscale: false, hoverinfo: "none", xgap: 2, ygap: 2, zsmooth: false,
    colorscale: [[0, colour("heat-0")], [0.5, colour("heat-1")], [1, colour("heat-2")]],
    ...(few ? { text: scores.map((row) => row.map((one) => one.toFixed(2))), texttemplate: "%{text}" } : {}),
  };
  const names = (texts, limit) => ({
    tickmode: "array", tickvals: texts.map((_, at) => at), ticktext: texts.length > MOST_NAMES ? texts.map(() => "") : texts.map((one) => plain(shorten(one, limit))),
    automargin: true, ticks: "", ticklabeloverflow: "allow", showgrid: false, zeroline: false, fixedrange: true, tickfont: { size: narrow ? 11 : 12 },
  });
  const slanted = b.length > 4 || narrow;
  const layout = bareLayout({
    margin: { l: 8, r: slanted ? 56 : 8, t: 8, b: 8 },
    xaxis: { ...names(b, narrow ? 10 : 24), side: "top", tickangle: slanted ? -35 : 0 },
    yaxis: { ...names(a, narrow ? 12 : 34), autorange: "reversed" },
  });
  await Plotly.newPlot(plot, [trace], layout, { ...CONFIG, scrollZoom: false });
  plot.on("plotly_hover", ({ event, points: [point] }) => {
    const [row, column] = point.pointIndex ?? point.pointNumber;
    showBubble(event, [number(scores[row][column], 3), shorten(a[row], 140), shorten(b[column], 140)]);
  });
  plot.on("plotly_unhover", hideBubble);
}

const scale = () => el("div", { class: "heat-scale", "aria-hidden": "true" }, el("span", { text: number(result.ends[0], 2) }), el("i"), el("span", { text: number(result.ends[1], 2) }), el("span", { text: t("compare_score") }));

/** The pairs that are most alike, as words: what the picture says, for those who do not see it. */
function nearest() {
  const { a, b, same, scores } = result;
  const pairs = [];
  for (const [row, values] of scores.entries()) {
    for (const [column, score] of values.entries()) if (!same || column > row) pairs.push([score, row, column]);
  }
  pairs.sort((left, right) => right[0] - left[0]);
  return el(
    "div",
    { class: "nearest" },
    el("h2", { text: t("compare_nearest") }),
    el("ol", {}, pairs.slice(0, 5).map(([score, row, column]) => el("li", {}, el("b", { text: score.toFixed(3) }), el("span", { text: shorten(a[row], 120) }), el("span", { class: "hint", text: shorten(b[column], 120) })))),
  );
}

export function setUpCompare() {
  byId("compare-form").addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  byId("compare-kind").addEventListener("change", () => {
    result = null;
    fill(byId("compare-result"));
    drawComparison();
  });
  byId("compare-example").addEventListener("click", () => {
    const [a, b] = EXAMPLES[kind()][language() === "ko" ? 0 : 1];
    byId("compare-a").value = a;
    byId("compare-b").value = b;
    run();
  });
}
