// Clusters of an index, each with the words that set it apart, the document in its middle, and its members.

import { api } from "./api.js";
import { byId, el, fill, shorten } from "./dom.js";
import { openDocument } from "./hits.js";
import { number, t } from "./language.js";
import { busy, note, showError } from "./notes.js";
import { currentIndex, state, tell } from "./state.js";

const MOST_MEMBERS = 20; // listed at once
const LIMIT = 5000; // documents; the service clusters an even part of more
let answer = null; // {index, clusters}
let running = null;

function request() {
  const method = byId("cluster-method").value;
  const k = byId("cluster-k").valueAsNumber;
  const threshold = byId("cluster-threshold").valueAsNumber;
  const body = { index: state.index, method, limit: LIMIT };
  if (takesK(method) && Number.isFinite(k)) body.k = k;
  if (takesThreshold(method) && Number.isFinite(threshold)) body.threshold = threshold;
  return body;
}

const takesK = (method) => method === "kmeans";
const takesThreshold = (method) => method === "communities" || method === "agglomerative";

async function run() {
  running?.abort();
  const own = new AbortController();
  running = own;
  fill(byId("clusters"));
  fill(byId("cluster-note"), busy(t("cluster_running")));
  try {
    const found = await api.cluster(request(), own.signal);
    answer = { index: state.index, clusters: found.clusters };
    drawClusters();
  } catch (error) {
    if (running === own) showError(byId("cluster-note"), error, run);
  }
}

/** Shows the clusters that were found, or what they are. */
export function drawClusters() {
  const index = currentIndex();
  byId("cluster-form").hidden = !index?.documents;
  fill(byId("clusters"));
  if (!index?.documents) {
    const key = index ? "empty_index" : "no_index";
    return fill(byId("cluster-note"), note(t(key), t(`${key}_text`)));
  }
  suggestCount(index);
  if (answer?.index !== index.name) return fill(byId("cluster-note"), note(t("cluster_start"), t("cluster_start_text")));
  const { clusters } = answer;
  if (!clusters.length) return fill(byId("cluster-note"), note(t("cluster_none"), t("cluster_none_text")));
  const members = clusters.reduce((sum, one) => sum + one.size, 0);
  const said = t("cluster_found", { n: number(clusters.length), m: number(members) });
  byId("live").textContent = said;
  fill(byId("cluster-note"), el("h2", { class: "cluster-head", text: said }));
  const largest = Math.max(...clusters.map((one) => one.size));
  return fill(byId("clusters"), clusters.map((one) => card(one, largest, index.name)));
}

/** A count that fits the index, once: 'automatic' (the box left empty) often means two halves for everyday texts. */
function suggestCount(index) {
  const box = byId("cluster-k");
  if (box.dataset.index === index.name) return;
  box.dataset.index = index.name;
  box.value = String(Math.max(2, Math.min(24, Math.round(Math.sqrt(index.documents / 4)))));
}

function card(cluster, largest, index) {
  const words = (cluster.keywords ?? []).map((word) => el("li", { text: typeof word === "string" ? word : (word.text ?? word.word) }));
  const members = el("div", { class: "members" });
  const details = el("details", {}, el("summary", { text: t("cluster_members") }), members);
  details.addEventListener("toggle", () => {
    if (details.open && !members.childElementCount) listMembers(members, cluster, index);
  });
  const middle = cluster.representative;
  const label = (cluster.keywords ?? []).slice(0, 3).map((word) => (typeof word === "string" ? word : (word.text ?? word.word))).join(", ");
  const toMap = () => tell("map", { label: label || `#${cluster.number}`, ids: cluster.members });
  return el(
    "article",
    { class: "cluster" },
    el("div", { class: "cluster-size" }, el("span", { class: "size-bar" }, el("i", { style: { width: `${(100 * cluster.size) / largest}%` } })), el("span", { text: t("cluster_size", { n: number(cluster.size) }) })),
    words.length ? el("ul", { class: "words" }, words) : null,
    middle?.text ? el("p", { class: "middle", text: shorten(middle.text, 180) }) : null,
    el("div", { class: "hit-actions" }, el("button", { type: "button", class: "quiet", text: t("on_map"), on: { click: toMap } })),
    details,
  );
}

/** Members come as ids; their texts are fetched when somebody looks. */
async function listMembers(place, cluster, index) {
  fill(place, t("loading"));
  try {
    const ids = cluster.members.slice(0, MOST_MEMBERS);
    const found = await Promise.all(ids.map((id) => api.document(index, id)));
    const rest = cluster.members.length - ids.length;
    fill(
      place,
      el("ul", {}, found.map((one) => el("li", {}, el("button", { type: "button", class: "plain", text: shorten(one.text, 120), on: { click: () => openDocument(index, one.id) } })))),
      rest > 0 ? el("p", { class: "hint", text: t("map_more", { n: number(rest) }) }) : null,
    );
  } catch (error) {
    showError(place, error, () => listMembers(place, cluster, index));
  }
}

/** Forgets what was found: documents came or went. */
export function forgetClusters() {
  answer = null;
}

export function setUpClusters() {
  byId("cluster-form").addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  byId("cluster-method").addEventListener("change", (event) => {
    byId("cluster-k-label").hidden = !takesK(event.target.value);
    byId("cluster-threshold-label").hidden = !takesThreshold(event.target.value);
  });
}
