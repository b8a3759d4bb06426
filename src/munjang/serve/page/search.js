// Query, mode, reranking and filters -> /search -> hits; and 'more like this', which starts from a document instead.

import { api, moreLikePath } from "./api.js";
import { byId, el, fill, shorten } from "./dom.js";
import { drawFilters } from "./filters.js";
import { hitCard, sentenceOf } from "./hits.js";
import { milliseconds, number, t } from "./language.js";
import { busy, note, showError } from "./notes.js";
import { copy, curlOf, pythonOf } from "./snippets.js";
import { canRerank, currentIndex, keepAddress, state, tell } from "./state.js";
import { timeBar } from "./timing.js";

const PAGE = 10;
const MOST = 100;
let running = null; // AbortController of the search under way
let asked = null; // {path, body} of the last search

export const isSearching = () => running !== null;

const query = () => byId("query");

/** The body of the request for what the controls say. */
function request() {
  const filter = Object.keys(state.filter).length ? { filter: state.filter } : {};
  const rerank = state.rerank && canRerank();
  if (state.like !== null) {
    const body = { id: state.like, k: state.k, rerank, ...filter };
    return { path: moreLikePath(state.index), body };
  }
  const body = { index: state.index, query: state.query, k: state.k, mode: state.mode, rerank, ...filter };
  return { path: "/search", body };
}

/** Searches for what the state says. quiet: what is shown stays until the answer comes. */
export async function search({ quiet = false } = {}) {
  running?.abort();
  if (!currentIndex() || (!state.query.trim() && state.like === null)) {
    running = null;
    state.results = null;
    drawResults();
    tell("results");
    return;
  }
  const own = new AbortController();
  running = own;
  asked = request();
  if (quiet && state.results) byId("hits").setAttribute("aria-busy", "true");
  else showBusy();
  try {
    const { path, body } = asked;
    const answer = path === "/search" ? await api.search(body, own.signal) : await api.moreLike(state.index, body, own.signal);
    if (running !== own) return;
    running = null;
    state.results = answer;
    drawResults();
    say(answer);
    tell("results");
  } catch (error) {
    if (running !== own) return;
    running = null;
    state.results = null;
    clearResults();
    showError(byId("search-note"), error, () => search());
    tell("results");
  } finally {
    byId("hits").removeAttribute("aria-busy");
  }
}

function say(answer) {
  const count = answer.hits.length;
  const ms = milliseconds(answer.timings?.total ?? 0);
  const found = count === 0 ? t("found_none") : t(count === 1 ? "found_one" : "found", { n: number(count), ms });
  byId("live").textContent = answer.answered === false ? `${found}. ${t("no_answer")}.` : found;
}

function clearResults() {
  for (const id of ["search-note", "results-head", "hits", "results-foot"]) fill(byId(id));
}

function showBusy() {
  clearResults();
  fill(byId("search-note"), busy(t("searching")));
  byId("live").textContent = t("searching");
}

/** Shows the last answer, or what to do where there is none. */
export function drawResults() {
  clearResults();
  const answer = state.results;
  if (!answer) return fill(byId("search-note"), emptyNote());
  fill(byId("search-note"), likeNote(), ...remarks(answer));
  fill(byId("results-head"), resultsHead(answer));
  const onMap = (hit) => tell("map", { label: shorten(hit.passage.text, 60), ids: [hit.id] });
  fill(byId("hits"), answer.hits.map((hit, at) => hitCard(hit, at + 1, { onLike: (one) => moreLike(one.id), onMap })));
  const isMore = answer.hits.length >= state.k && state.k < MOST;
  const more = () => {
    state.k = Math.min(MOST, state.k + PAGE);
    search({ quiet: true });
  };
  fill(byId("results-foot"), isMore ? el("button", { type: "button", class: "more", text: t("more"), on: { click: more } }) : null);
}

function likeNote() {
  if (state.like === null) return null;
  const end = el("button", { type: "button", class: "quiet", text: t("like_end"), on: { click: () => startSearch(state.query) } });
  return el("div", { class: "like" }, el("p", { text: t("like_of", { text: likeText || state.like }) }), end);
}

function remarks(answer) {
  const found = [];
  if (!answer.hits.length) found.push(note(t("found_none"), t("found_none_text")));
  else if (answer.answered === false && state.like === null) found.push(note(t("no_answer"), t("no_answer_text"), { tone: "warn" }));
  if (answer.truncated > 0) found.push(note(t("truncated"), t("truncated_text"), { tone: "warn" }));
  return found;
}

function resultsHead(answer) {
  const count = answer.hits.length;
  if (!count) return timeBar(answer);
  const ms = milliseconds(answer.timings?.total ?? 0);
  const copier = (text, make) => el("button", { type: "button", class: "quiet", text, on: { click: () => copy(make(asked.path, asked.body)) } });
  return [
    el(
      "div",
      { class: "head-line" },
      el("h2", { text: t(count === 1 ? "found_one" : "found", { n: number(count), ms }) }),
      el("div", { class: "copies" }, copier(t("copy_curl"), curlOf), copier(t("copy_python"), pythonOf)),
    ),
    timeBar(answer),
  ];
}

/** Nothing was asked yet: three questions to try, or how to get an index. */
function emptyNote() {
  const index = currentIndex();
  if (!index) return note(t("no_index"), t("no_index_text"));
  const toAdd = el("a", { class: "button main", href: "#add", text: t("tab_add") });
  if (!index.documents) return note(t("empty_index"), t("empty_index_text"), { buttons: [toAdd] });
  const list = el("ul", { class: "examples" });
  const show = (texts) => fill(list, texts.map((text) => el("li", {}, el("button", { type: "button", class: "example", text, on: { click: () => startSearch(text) } }))));
  examples(index).then(show, () => {}); // without suggestions the box is still there
  const text = t("empty_text", { documents: number(index.documents) });
  return el("div", { class: "empty" }, el("h1", { text: t("empty_title") }), el("p", { text }), list);
}

const ownTexts = new Map(); // index -> sentences of its documents

/** Three things to ask: what the service suggests, else sentences of the index's own documents. */
async function examples(index) {
  const given = state.info.examples ?? [];
  if (given.length) return given.slice(0, 3);
  if (!ownTexts.has(index.name)) {
    const body = { index: index.name, query: t("query_label"), k: 12, mode: "semantic", rerank: false };
    const { hits } = await api.search(body);
    const sentences = hits.map((hit) => sentenceOf(hit).trim()).filter(Boolean);
    ownTexts.set(index.name, [...new Set(sentences)].slice(0, 3).map((text) => shorten(text, 80)));
  }
  return ownTexts.get(index.name);
}

/** A new search for a text, with the controls as they are. */
export function startSearch(text) {
  Object.assign(state, { query: text, like: null, k: PAGE, marked: null });
  query().value = text;
  keepAddress();
  return search();
}

let likeText = "";

export function moreLike(id) {
  const hit = state.results?.hits.find((one) => one.id === id);
  likeText = hit ? shorten(hit.passage.text, 90) : "";
  Object.assign(state, { like: id, k: PAGE, marked: null });
  if (state.view === "search") window.scrollTo({ top: 0 });
  keepAddress();
  return search();
}

/** The question of the address, in the box; never while somebody types. */
export function drawQuery() {
  query().value = state.query;
}

/** Controls as the state and the index say. */
export function drawControls() {
  const index = currentIndex();
  const noWords = index !== null && index.keyword === false;
  if (noWords && state.mode !== "semantic") state.mode = "semantic";
  for (const radio of document.querySelectorAll('input[name="mode"]')) {
    radio.checked = radio.value === state.mode;
    radio.disabled = noWords && radio.value !== "semantic";
    radio.closest("label").title = radio.disabled ? t("no_keyword") : "";
  }
  const rerank = byId("rerank");
  rerank.disabled = !canRerank();
  rerank.checked = state.rerank && canRerank();
  rerank.closest("label").title = canRerank() ? "" : t("no_reranker");
  drawFilters();
}

export function setUpSearch() {
  byId("search-form").addEventListener("submit", (event) => {
    event.preventDefault();
    startSearch(query().value);
  });
  byId("modes").addEventListener("change", (event) => changed({ mode: event.target.value }));
  byId("rerank").addEventListener("change", (event) => changed({ rerank: event.target.checked }));
}

/** Another mode or filter: the same question again, without a flash. */
export function changed(more = {}) {
  Object.assign(state, more, { k: PAGE });
  keepAddress();
  return search({ quiet: true });
}
