// Files dropped on the page -> the index, one after the other, with progress, and a report or an error for each.

import { api } from "./api.js";
import { byId, el, fill } from "./dom.js";
import { number, t } from "./language.js";
import { note, showError } from "./notes.js";
import { currentIndex, state, tell } from "./state.js";

const TAKEN = /\.(((csv|tsv|jsonl|ndjson|json|txt)(\.(gz|xz|bz2))?)|parquet|md|markdown|rst)$/i;
let beginQueue;
let queue = new Promise((resolve) => (beginQueue = resolve)); // an index has one writer; files may come before it is known

/** What the files go into. */
export function drawAdd() {
  const index = currentIndex();
  byId("drop").hidden = !index;
  if (!index) return fill(byId("add-index"), note(t("no_index"), t("no_index_text")));
  beginQueue();
  const counts = t("add_now", { documents: number(index.documents), passages: number(index.passages) });
  const readOnly = state.info.may_write === false ? note(t("error_forbidden"), t("error_forbidden_text"), { tone: "warn" }) : null;
  return fill(byId("add-index"), el("h2", { text: t("add_to", { index: index.name }) }), el("p", { class: "hint", text: counts }), readOnly);
}

function addFiles(files) {
  for (const file of files) {
    const row = uploadRow(file);
    byId("uploads").prepend(row.node);
    if (!TAKEN.test(file.name)) row.fail(t("upload_kind"));
    else queue = queue.then(() => upload(file, row));
  }
}

/** A file's line: name, bar, words. */
function uploadRow(file) {
  const stopper = new AbortController();
  const bar = el("progress", { max: "1", value: 0, "aria-label": file.name });
  const text = el("p", { class: "hint", role: "status", text: t("upload_wait") });
  const stop = el("button", { type: "button", class: "quiet", text: t("upload_stop"), on: { click: () => stopper.abort() } });
  const error = el("div");
  const node = el("li", { class: "upload", data: { state: "working" } }, el("div", { class: "head-line" }, el("b", { text: file.name }), stop), bar, text, error);
  const end = (how) => {
    stop.remove();
    bar.hidden = true;
    node.dataset.state = how;
  };
  return {
    node,
    signal: stopper.signal,
    say(words, share = null) {
      text.textContent = words;
      if (share === null) bar.removeAttribute("value");
      else bar.value = share;
    },
    done(words) {
      end("done");
      text.textContent = words;
    },
    fail(words) {
      end("failed");
      text.textContent = words;
    },
    error(what, again) {
      end("failed");
      text.textContent = "";
      showError(error, what, again);
    },
  };
}

async function upload(file, row) {
  const index = state.index;
  if (row.signal.aborted) return row.fail(t("upload_stopped"));
  row.say(t("upload_send"));
  try {
    const report = await api.upload(index, file, { signal: row.signal, tellLine: (line) => tellLine(row, line) });
    row.done(reportText(report));
    tell("documents");
  } catch (error) {
    if (error.name === "AbortError") return row.fail(t("upload_stopped"));
    row.error(error, () => {
      row.node.remove();
      addFiles([file]);
    });
  }
  return null;
}

function tellLine(row, line) {
  if (line.of) row.say(t("upload_encode", { n: number(line.encoded ?? 0), m: number(line.of) }), (line.encoded ?? 0) / line.of);
  else if (line.read !== undefined) row.say(t("upload_read", { n: number(line.read) }));
}

function reportText(report) {
  const { added = 0, replaced = 0, unchanged = 0, seconds = 0, empty = 0 } = report;
  const done = t("upload_done", { added: number(added), replaced: number(replaced), unchanged: number(unchanged), s: number(seconds, 2) });
  return empty ? `${done}; ${t("upload_empty", { n: number(empty) })}` : done;
}

export function setUpAdd() {
  byId("files").addEventListener("change", (event) => {
    addFiles([...event.target.files]);
    event.target.value = "";
  });
  const veil = byId("drop-veil");
  const hasFiles = (event) => Boolean(currentIndex()) && [...(event.dataTransfer?.types ?? [])].includes("Files");
  addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    veil.firstElementChild.textContent = t("drop_here", { index: state.index });
    veil.hidden = false;
  });
  addEventListener("dragleave", (event) => {
    if (event.relatedTarget === null) veil.hidden = true;
  });
  addEventListener("drop", (event) => {
    veil.hidden = true;
    if (!hasFiles(event)) return;
    event.preventDefault();
    location.hash = "#add";
    addFiles([...event.dataTransfer.files]);
  });
}
