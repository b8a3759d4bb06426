// Words and numbers in the language of the page, which the browser chooses first and the reader may change.

import { words } from "./words.js";

const KEPT = "munjang.language";

export const language = () => (document.documentElement.lang === "ko" ? "ko" : "en");

/** The words of a key, with {name} replaced. */
export function t(key, values = {}) {
  const text = words[language()][key];
  if (text === undefined) throw new Error(`no words for ${key}`);
  return text.replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? ""));
}

export const number = (value, digits = 0) =>
  new Intl.NumberFormat(language(), { maximumFractionDigits: digits }).format(value);

/** Milliseconds as a reader wants them: 0.3, 4.2, 38, 1,204. */
export const milliseconds = (value) => number(value, value < 10 ? 1 : 0);

/** Writes the words of everything that stands in the page's own HTML. */
export function translatePage() {
  for (const node of document.querySelectorAll("[data-t]")) node.textContent = t(node.dataset.t);
  for (const node of document.querySelectorAll("[data-t-label]")) node.setAttribute("aria-label", t(node.dataset.tLabel));
  for (const node of document.querySelectorAll("[data-t-place]")) node.placeholder = t(node.dataset.tPlace);
}

export function switchLanguage() {
  const next = language() === "ko" ? "en" : "ko";
  document.documentElement.lang = next;
  try {
    localStorage.setItem(KEPT, next);
  } catch {
    // kept until the page is closed
  }
}
