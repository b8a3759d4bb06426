// The keyboard: / to the search box, arrows through hits, Enter opens a hit, Esc leads back.

import { byId } from "./dom.js";
import { state } from "./state.js";

const isTyping = (node) => node.matches("input:not([type=radio]):not([type=checkbox]), textarea, select");

const hits = () => [...document.querySelectorAll("#hits .hit")];

function step(event, by) {
  const all = hits();
  if (!all.length || state.view !== "search") return;
  const at = all.findIndex((hit) => hit.contains(document.activeElement));
  const inBox = document.activeElement === byId("query");
  if (at < 0 && !(inBox && by > 0)) return;
  event.preventDefault();
  if (at + by < 0) byId("query").focus();
  else all[Math.min(all.length - 1, at + by)].focus();
}

function back() {
  const box = byId("query");
  if (document.activeElement !== box) box.focus();
  else if (box.value) box.value = "";
  else box.blur();
}

function pressed(event) {
  if (event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return; // Hangul is being put together
  if (document.querySelector("dialog[open]")) return; // a dialog has keys of its own
  const { target, key } = event;
  const searchShown = !byId("search-form").hidden;
  if (key === "/" && searchShown && !isTyping(target)) {
    event.preventDefault();
    byId("query").focus();
    byId("query").select();
  } else if (key === "ArrowDown") step(event, 1);
  else if (key === "ArrowUp") step(event, -1);
  else if (key === "Enter" && target.matches?.(".hit")) {
    event.preventDefault(); // else the same key presses the button of the dialog that it opens
    target.querySelector('[data-action="open"]').click();
  } else if (key === "Escape" && searchShown && (target === byId("query") || target.closest?.(".hit"))) {
    event.preventDefault();
    back();
  }
}

export function setUpKeys() {
  document.addEventListener("keydown", pressed);
}
