// Light, dark, or as the system has it; one button goes round.

import { byId } from "./dom.js";
import { t } from "./language.js";
import { tell } from "./state.js";

const KEPT = "munjang.theme";
const ROUND = ["auto", "light", "dark"];
const SIGNS = { auto: "◐", light: "○", dark: "●" };

const now = () => document.documentElement.dataset.theme ?? "auto";

export function drawTheme() {
  const label = t(`theme_${now()}`);
  byId("theme").textContent = SIGNS[now()];
  byId("theme").title = label;
  byId("theme").setAttribute("aria-label", label);
}

function next() {
  const theme = ROUND[(ROUND.indexOf(now()) + 1) % ROUND.length];
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem(KEPT, theme);
  } catch {
    // kept until the page is closed
  }
  drawTheme();
  tell("theme");
}

export function setUpTheme() {
  byId("theme").addEventListener("click", next);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => tell("theme"));
}
