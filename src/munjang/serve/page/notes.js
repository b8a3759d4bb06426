// What a view shows instead of results: nothing yet, work under way, or an error with what to do about it.

import { ApiError, keepKey, readKey } from "./api.js";
import { byId, el, fill } from "./dom.js";
import { number, t } from "./language.js";

/** A card with a title, a text and buttons. tone: calm, warn, bad. */
export function note(title, text, { tone = "calm", buttons = [], detail = "" } = {}) {
  return el(
    "div",
    { class: `note ${tone}`, role: tone === "bad" ? "alert" : null },
    el("p", { class: "note-title", text: title }),
    text ? el("p", { text }) : null,
    detail ? el("p", { class: "note-detail", text: detail }) : null,
    buttons.length ? el("div", { class: "note-buttons" }, buttons) : null,
  );
}

export function busy(text) {
  return el("div", { class: "note calm busy" }, el("span", { class: "spinner", "aria-hidden": "true" }), el("p", { text }));
}

/** Shows an error in `place`; `again` repeats what failed. A stopped request is no error. */
export function showError(place, error, again) {
  if (error.name === "AbortError") return;
  if (!(error instanceof ApiError)) console.error(error);
  const kind = error instanceof ApiError ? error.kind : "failed";
  if (kind === "key") {
    fill(place, keyNote(again));
    askKey(again);
    return;
  }
  const retry = el("button", { type: "button", text: t("again"), on: { click: again } });
  const own = ["offline", "forbidden", "busy", "down", "failed", "plotly"].includes(kind);
  const wait = Math.ceil(error.retryAfter ?? 0);
  const text = own ? t(`error_${kind}_text`, { s: number(wait) }) : error.message;
  const detail = kind === "failed" || kind === "forbidden" ? error.message : "";
  fill(place, note(t(`error_${kind}`), text, { tone: "bad", detail, buttons: again ? [retry] : [] }));
  if (kind === "busy") countDown(retry, wait);
}

function keyNote(again) {
  const give = el("button", { type: "button", class: "main", text: t("error_key_give"), on: { click: () => askKey(again) } });
  return note(t("error_key"), t("error_key_text"), { tone: "warn", buttons: [give] });
}

function countDown(button, seconds) {
  button.disabled = seconds > 0;
  button.textContent = seconds > 0 ? `${t("again")} (${number(seconds)})` : t("again");
  if (seconds > 0 && (button.isConnected || seconds > 1)) setTimeout(() => countDown(button, seconds - 1), 1000);
}

let afterKey = null;

/** Asks for a key in a dialog; `then` runs once there is one. */
export function askKey(then) {
  const dialog = byId("key-dialog");
  afterKey = then ?? null;
  if (dialog.open) return;
  byId("key-wrong").hidden = !readKey();
  byId("key").value = "";
  dialog.showModal();
  byId("key").focus();
}

export function setUpKeyDialog() {
  const dialog = byId("key-dialog");
  byId("key-cancel").addEventListener("click", () => dialog.close());
  byId("key-form").addEventListener("submit", () => {
    keepKey(byId("key").value.trim());
    afterKey?.();
  });
}
