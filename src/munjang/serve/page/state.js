// What the views share, and the address of the page: #view?name=value. Whoever changes something tells it by an event.

export const state = {
  info: {}, // what /info says
  indexes: [], // what /indexes says
  index: null, // the name of the chosen one
  view: "search",
  query: "",
  like: null, // id of the document that 'more like this' started from
  mode: "hybrid",
  rerank: true,
  k: 10,
  filter: {}, // {field: condition}, as the service takes it
  results: null, // the last answer of /search or /more-like
  marked: null, // {label, ids}: documents that the map is to light, besides hits
};

const bus = new EventTarget();

export const on = (event, run) => bus.addEventListener(event, (given) => run(given.detail));
export const tell = (event, detail) => bus.dispatchEvent(new CustomEvent(event, { detail }));

export const currentIndex = () => state.indexes.find((one) => one.name === state.index) ?? null;
export const canRerank = () => !Array.isArray(state.info.rerankers) || state.info.rerankers.length > 0;

const VIEWS = ["search", "map", "clusters", "compare", "add"];
const MODES = ["semantic", "keyword", "hybrid"];

/** The address that leads back to what is shown. */
export function address(view = state.view) {
  const parts = new URLSearchParams();
  if (view === "search" || view === "map") {
    if (state.like !== null) parts.set("like", state.like);
    if (state.query) parts.set("q", state.query); // beside `like`: the search that 'back' leads to
    if (state.mode !== "hybrid") parts.set("mode", state.mode);
    if (!state.rerank) parts.set("rerank", "0");
    if (Object.keys(state.filter).length) parts.set("filter", JSON.stringify(state.filter));
  }
  if (state.index && state.indexes.length > 1) parts.set("index", state.index);
  const text = parts.toString();
  return `#${view}${text ? `?${text}` : ""}`;
}

/** Writes the address: a new entry of the history, so that Back leads to the search before. */
export function keepAddress() {
  if (address() !== location.hash) history.pushState(null, "", address());
}

/** Reads the address into the state; says whether it asks for a search. */
export function readAddress() {
  const [view, text] = location.hash.replace(/^#/, "").split(/\?(.*)/s);
  state.view = VIEWS.includes(view) ? view : "search";
  if (state.view !== "search" && state.view !== "map") return false;
  const parts = new URLSearchParams(text ?? "");
  state.query = parts.get("q") ?? "";
  state.like = parts.get("like");
  state.mode = MODES.includes(parts.get("mode")) ? parts.get("mode") : "hybrid";
  state.rerank = parts.get("rerank") !== "0";
  state.filter = readFilter(parts.get("filter"));
  const index = parts.get("index");
  if (index && state.indexes.some((one) => one.name === index)) state.index = index;
  return Boolean(state.query || state.like !== null);
}

function readFilter(text) {
  try {
    const found = JSON.parse(text ?? "{}");
    return found && typeof found === "object" && !Array.isArray(found) ? found : {};
  } catch {
    return {}; // an address that somebody cut short
  }
}
