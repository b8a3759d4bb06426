// Starts the page: asks what is served, shows the view that the address names, and binds language, colours and keys.

import { drawAdd, setUpAdd } from "./add.js";
import { api } from "./api.js";
import { drawClusters, forgetClusters, setUpClusters } from "./clusters.js";
import { drawComparison, setUpCompare } from "./compare.js";
import { byId, el, fill } from "./dom.js";
import { switchLanguage, t, translatePage } from "./language.js";
import { setUpKeys } from "./keys.js";
import { drawAll, forgetMap, setUpMap, showMap } from "./map.js";
import { busy, setUpKeyDialog, showError } from "./notes.js";
import { changed, drawControls, drawQuery, drawResults, isSearching, search, setUpSearch } from "./search.js";
import { address, currentIndex, keepAddress, on, readAddress, state } from "./state.js";
import { drawTheme, setUpTheme } from "./theme.js";

const VIEWS = { search: drawResults, map: showMap, clusters: drawClusters, compare: drawComparison, add: drawAdd };

/** Shows the view of the state, and no other. */
function showView() {
  for (const name of Object.keys(VIEWS)) byId(`view-${name}`).hidden = name !== state.view;
  byId("search-form").hidden = state.view !== "search" && state.view !== "map";
  for (const link of document.querySelectorAll(".tabs a")) {
    if (link.dataset.view === state.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${t(`tab_${state.view}`)} · ${state.info.title ?? "Munjang"}`;
}

/** The frame: everything that has words in it but stands in no view. */
function drawFrame() {
  translatePage();
  byId("language").textContent = t("to_language");
  byId("language").setAttribute("aria-label", t("to_language_label"));
  byId("language").lang = document.documentElement.lang === "ko" ? "en" : "ko";
  drawTheme();
  drawHeader();
  drawControls();
  showView();
}

function drawEverything() {
  drawFrame();
  VIEWS[state.view]();
}

function drawHeader() {
  byId("index-choice").hidden = state.indexes.length < 2;
  fill(byId("index"), state.indexes.map((one) => el("option", { value: one.name, text: one.name })));
  if (state.index) byId("index").value = state.index;
  const model = currentIndex()?.model ?? state.info.model_id;
  byId("foot-model").textContent = model ? t("made_by", { model: String(model).split("/").pop() }) : "";
}

/** Follows the address: at the start, after Back, after a click on a tab. */
function follow() {
  const before = `${state.query} ${state.like} ${state.mode} ${state.rerank} ${JSON.stringify(state.filter)} ${state.index}`;
  const wanted = readAddress();
  const after = `${state.query} ${state.like} ${state.mode} ${state.rerank} ${JSON.stringify(state.filter)} ${state.index}`;
  drawHeader();
  drawQuery();
  drawControls();
  showView();
  if (before !== after || (wanted && !state.results && !isSearching())) search();
  if (state.view !== "search" || !isSearching()) VIEWS[state.view]();
}

async function readIndexes() {
  state.indexes = await api.indexes();
  if (!currentIndex()) state.index = state.indexes[0]?.name ?? null;
}

async function start() {
  fill(byId("search-note"), busy(t("loading")));
  try {
    [state.info] = await Promise.all([api.info(), readIndexes()]);
  } catch (error) {
    if (error.kind === "down") setTimeout(start, 1000); // its models are still being loaded
    else showError(byId("search-note"), error, start);
    return;
  }
  const wanted = readAddress();
  if (wanted) drawQuery();
  drawEverything();
  if (wanted) search();
  else if (state.view === "search" && matchMedia("(hover: hover)").matches) byId("query").focus();
}

function setUpEvents() {
  addEventListener("popstate", follow);
  for (const link of document.querySelectorAll(".tabs a")) {
    link.addEventListener("click", () => link.setAttribute("href", address(link.dataset.view))); // with the search of now
  }
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // the part after # belongs to the views
    byId("content").focus();
  });
  byId("language").addEventListener("click", () => {
    switchLanguage();
    drawEverything();
  });
  byId("index").addEventListener("change", (event) => {
    Object.assign(state, { index: event.target.value, filter: {}, like: null, results: null, marked: null });
    drawEverything();
    changed();
  });
  on("filter", () => changed());
  on("results", () => {
    showView();
    if (state.view === "map") drawAll();
  });
  on("theme", () => VIEWS[state.view]());
  on("map", (marked) => {
    Object.assign(state, { marked, view: "map" });
    keepAddress();
    showView();
    showMap();
  });
  on("documents", async () => {
    forgetMap();
    forgetClusters();
    await readIndexes();
    drawHeader();
    drawControls();
    drawAdd();
  });
}

setUpTheme();
setUpKeyDialog();
setUpKeys();
setUpSearch();
setUpMap();
setUpClusters();
setUpCompare();
setUpAdd();
setUpEvents();
readAddress();
drawFrame();
start();
