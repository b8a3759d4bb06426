// Where the time of a search went, as a small stacked bar with its legend.

import { el } from "./dom.js";
import { milliseconds, number, t } from "./language.js";

const PARTS = ["tokenise", "queue", "encode", "search", "keyword", "fetch", "rerank", "sentences"];

/** The parts of a search in milliseconds, in the order in which they ran; what no stage claims is 'other'. */
export function timeParts(timings) {
  const parts = PARTS.map((name) => [name, timings[name] ?? 0]).filter(([, time]) => time > 0);
  const rest = (timings.total ?? 0) - parts.reduce((sum, [, time]) => sum + time, 0);
  if (rest > 0.05) parts.push(["other", rest]);
  return parts;
}

export function timeBar(answer) {
  const parts = timeParts(answer.timings ?? {});
  const sum = parts.reduce((total, [, time]) => total + time, 0);
  if (!sum) return null;
  const said = parts.map(([name, time]) => `${t(`time_${name}`)} ${t("ms", { n: milliseconds(time) })}`);
  const bar = el("div", { class: "time-bar", role: "img", "aria-label": `${t("time")}: ${said.join(", ")}` });
  const legend = el("ul", { class: "time-legend", "aria-hidden": "true" });
  for (const [at, [name, time]] of parts.entries()) {
    bar.append(el("span", { class: `time-part t-${name}`, title: said[at], style: { "flex-grow": String(time / sum) } }));
    legend.append(
      el("li", {}, el("i", { class: `dot t-${name}` }), t(`time_${name}`), el("b", { text: milliseconds(time) })),
    );
  }
  if (answer.scored) legend.append(el("li", { class: "scored", text: t("scored", { n: number(answer.scored) }) }));
  return el("div", { class: "time" }, bar, legend);
}
