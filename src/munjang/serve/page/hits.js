// One hit as a card: what was found, why it stands where it stands, and what can be done with it.

import { api } from "./api.js";
import { byId, el, fill, shorten, unitOffsets } from "./dom.js";
import { number, t } from "./language.js";
import { showError } from "./notes.js";
import { state } from "./state.js";

const TITLE_FIELDS = ["title", "제목", "name"];
const CONTEXT = 420; // characters of a long passage on either side of the sentence

export function hitCard(hit, place, { onLike, onMap }) {
  const title = titleOf(hit);
  return el(
    "li",
    {},
    el(
      "article",
      { class: "hit", tabindex: "-1", data: { id: hit.id }, "aria-label": `${place}. ${title ?? shorten(hit.passage.text, 80)}` },
      el("div", { class: "hit-place" }, el("span", { class: "place", text: String(place) }), movedMark(hit)),
      el(
        "div",
        { class: "hit-body" },
        title ? el("h3", { text: title }) : null,
        passageText(hit),
        metadataLine(hit),
        el(
          "div",
          { class: "hit-actions" },
          action(t("more_like"), () => onLike(hit), "like"),
          action(t("whole"), () => openDocument(state.results?.index ?? state.index, hit.id, hit), "open"),
          action(t("on_map"), () => onMap(hit), "map"),
        ),
      ),
      el("div", { class: "stages" }, hit.stages.map(stageBar)),
    ),
  );
}

const action = (text, run, name) => el("button", { type: "button", class: "quiet", text, on: { click: run }, data: { action: name } });

function titleOf(hit) {
  const found = TITLE_FIELDS.map((name) => hit.metadata?.[name]).find((value) => typeof value === "string" && value.trim());
  return found ? shorten(found, 120) : null;
}

/** The passage, the matching sentence marked; far from the sentence a long passage is left out. */
export function passageText(hit) {
  const { text } = hit;
  const sentence = hit.sentence ?? { start: hit.passage.start, end: hit.passage.start };
  const [first, last, from, to] = unitOffsets(text, hit.passage.start, hit.passage.end, sentence.start, sentence.end);
  const start = Math.max(first, Math.min(from, last));
  const end = Math.min(last, Math.max(to, start));
  const before = text.slice(first, start);
  const after = text.slice(end, last);
  return el(
    "p",
    { class: "passage" },
    first > 0 || before.length > CONTEXT ? "… " : null,
    before.length > CONTEXT ? whole(before.slice(-CONTEXT)) : before,
    end > start ? el("mark", { text: text.slice(start, end) }) : null,
    after.length > CONTEXT ? whole(after.slice(0, CONTEXT)) : after,
    last < text.length || after.length > CONTEXT ? " …" : null,
  );
}

/** The sentence of a hit that matches, as a text. */
export function sentenceOf(hit) {
  const { start, end } = hit.sentence ?? hit.passage;
  return hit.text.slice(...unitOffsets(hit.text, start, end));
}

const whole = (part) => part.replace(/^[\udc00-\udfff]|[\ud800-\udbff]$/g, ""); // no half of a character at the cut

function metadataLine(hit) {
  const shown = Object.entries(hit.metadata ?? {}).filter(([name, value]) => !TITLE_FIELDS.includes(name) && value !== null);
  if (!shown.length) return null;
  const parts = shown.slice(0, 6).map(([name, value]) => {
    const text = Array.isArray(value) ? value.join(", ") : typeof value === "object" ? JSON.stringify(value) : String(value);
    return el("span", { title: `${name}: ${text}` }, el("span", { class: "field", text: `${name} ` }), shorten(text, 60));
  });
  return el("p", { class: "metadata" }, parts);
}

/** How far the cross-encoder moved a hit: ▲3, ▼2 or a dash. */
function movedMark(hit) {
  if (!hit.stages.some((stage) => stage.name === "rerank")) return null;
  const way = hit.moved > 0 ? "up" : hit.moved < 0 ? "down" : "none";
  const label = t(`moved_${way}`, { n: number(Math.abs(hit.moved)) });
  const sign = { up: "▲", down: "▼", none: "–" }[way];
  return el(
    "span",
    { class: `moved ${way}`, title: label },
    el("span", { "aria-hidden": "true", text: hit.moved ? `${sign}${Math.abs(hit.moved)}` : sign }),
    el("span", { class: "unseen", text: label }),
  );
}

/** A bar on the one scale of all stages, 0 to 1: of two searches, too, the longer bar is the better hit. */
function stageBar(stage) {
  const share = stage.normalized ?? 0;
  const name = t(`stage_${stage.name}`);
  const score = stage.score.toFixed(stage.name === "keyword" ? 1 : 3);
  return el(
    "div",
    { class: `stage s-${stage.name}`, title: t("stage_title", { stage: name, score, rank: number(stage.rank) }) },
    el("span", { class: "stage-name", text: name }),
    el("span", { class: "stage-bar" }, el("i", { style: { width: `${Math.max(0, Math.min(1, share)) * 100}%` } })),
    el("span", { class: "stage-score", text: score }),
    el("span", { class: "stage-rank", text: `#${number(stage.rank)}` }),
  );
}

/** Opens a whole document in a dialog; `hit` saves a request and marks what was found. */
export async function openDocument(index, id, hit = null) {
  const dialog = byId("document-dialog");
  const body = el("div", { class: "document-text" });
  const close = el("button", { type: "button", class: "main", text: t("close"), on: { click: () => dialog.close() } });
  fill(dialog, el("h2", { id: "document-title", text: String(id) }), body, el("div", { class: "dialog-buttons" }, close));
  if (!dialog.open) dialog.showModal();
  close.focus();
  if (hit) {
    fill(body, marked(hit), metadataLine(hit));
    body.querySelector("mark")?.scrollIntoView({ block: "center" });
    return;
  }
  fill(body, t("loading"));
  try {
    const found = await api.document(index, id);
    fill(body, el("p", { class: "passage", text: found.text }), metadataLine(found));
  } catch (error) {
    showError(body, error, () => openDocument(index, id));
  }
}

function marked(hit) {
  const { start, end } = hit.sentence ?? hit.passage;
  const [from, to] = unitOffsets(hit.text, start, end);
  return el("p", { class: "passage" }, hit.text.slice(0, from), el("mark", { text: hit.text.slice(from, to) }), hit.text.slice(to));
}
