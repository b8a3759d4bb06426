// Fields of an index -> controls -> a filter as the service takes it: chips for values, ranges for numbers and dates.

import { byId, el, fill } from "./dom.js";
import { number, t } from "./language.js";
import { currentIndex, state, tell } from "./state.js";

const DATE = /^\d{4}-\d{2}-\d{2}/;
const FEW = 8; // so many different values are worth chips even where none stands twice

/** How a field is shown: chips, dates, range, truth, or not at all. */
export function kindOf(field) {
  if (field.kind === "bool" || field.kind === "boolean") return "truth";
  if (field.kind === "number") return Number.isFinite(field.min) && field.min < field.max ? "range" : null;
  const values = field.values ?? [];
  const sample = values.length ? values.map(valueOf) : [field.min, field.max].filter((one) => typeof one === "string");
  if (sample.length && sample.every((one) => DATE.test(String(one)))) return "dates";
  const repeated = values.some((one) => countOf(one) > 1);
  return values.length > 1 && (repeated || values.length <= FEW) && field.name !== "title" ? "chips" : null;
}

const valueOf = (entry) => (Array.isArray(entry) ? entry[0] : (entry?.value ?? entry));
const countOf = (entry) => (Array.isArray(entry) ? entry[1] : (entry?.count ?? 1));

export function drawFilters() {
  const place = byId("filters");
  const fields = (currentIndex()?.fields ?? []).map((field) => [field, kindOf(field)]).filter(([, kind]) => kind);
  const wasOpen = place.querySelector("details")?.open;
  const active = Object.keys(state.filter).length;
  place.hidden = !fields.length;
  if (!fields.length) return fill(place);
  const clear = el("button", { type: "button", class: "quiet", text: t("filters_clear"), hidden: !active, on: { click: clearAll } });
  const box = el(
    "details",
    { class: "filter-box" },
    el("summary", {}, el("span", { text: t("filters") }), active ? el("span", { class: "count", text: t("filters_on", { n: number(active) }) }) : null),
    el("div", { class: "filter-fields" }, fields.map(([field, kind]) => DRAW[kind](field)), clear),
  );
  box.open = wasOpen ?? matchMedia("(min-width: 60rem)").matches;
  return fill(place, box);
}

function clearAll() {
  state.filter = {};
  drawFilters();
  tell("filter");
}

/** Puts a condition on a field, or takes it away. */
function put(name, condition) {
  const { [name]: _, ...others } = state.filter;
  state.filter = condition === null ? others : { ...others, [name]: condition }; // also for a field called __proto__
  const focused = document.activeElement?.dataset?.control;
  drawFilters();
  if (focused) byId("filters").querySelector(`[data-control="${CSS.escape(focused)}"]`)?.focus();
  tell("filter");
}

function group(field, ...children) {
  return el("fieldset", { class: "filter" }, el("legend", { text: field.name }), ...children);
}

const DRAW = {
  chips(field) {
    const chosen = state.filter[field.name]?.in ?? [];
    const chips = field.values.map((entry) => {
      const value = valueOf(entry);
      const on = chosen.includes(value);
      const toggle = () => {
        const next = on ? chosen.filter((one) => one !== value) : [...chosen, value];
        put(field.name, next.length ? { in: next } : null);
      };
      return el(
        "button",
        { type: "button", class: "chip", "aria-pressed": String(on), on: { click: toggle }, data: { control: `${field.name}=${value}` } },
        String(value),
        el("span", { class: "count", text: number(countOf(entry)) }),
      );
    });
    return group(field, el("div", { class: "chips" }, chips));
  },

  truth(field) {
    const now = state.filter[field.name];
    const chips = [true, false].map((value) =>
      el("button", {
        type: "button", class: "chip", "aria-pressed": String(now === value), text: t(value ? "yes" : "no"),
        on: { click: () => put(field.name, now === value ? null : value) }, data: { control: `${field.name}=${value}` },
      }),
    );
    return group(field, el("div", { class: "chips" }, chips));
  },

  range(field) {
    const whole = Number.isInteger(field.min) && Number.isInteger(field.max);
    const read = (text) => (text.trim() === "" || !Number.isFinite(Number(text)) ? null : Number(text));
    return limits(field, { type: "number", step: whole ? "1" : "any", inputmode: "decimal", min: field.min, max: field.max }, read);
  },

  dates(field) {
    const values = (field.values ?? []).map((entry) => String(valueOf(entry)));
    const withTime = [...values, String(field.max ?? "")].some((one) => one.length > 10);
    const bounds = typeof field.min === "string" ? { min: field.min.slice(0, 10), max: String(field.max).slice(0, 10) } : {};
    // '~' comes after every digit and letter: the last day is meant whole
    const read = (text, sign) => (DATE.test(text) ? text + (withTime && sign === "<=" ? "~" : "") : null);
    return limits(field, { type: "date", ...bounds }, read);
  },
};

function limits(field, attributes, read) {
  const now = state.filter[field.name] ?? {};
  const { min, max, ...rest } = attributes;
  const input = (sign, label, place) => {
    const change = (event) => {
      const { [sign]: _, ...others } = state.filter[field.name] ?? {};
      const value = read(event.target.value, sign);
      const next = value === null ? others : { ...others, [sign]: value };
      put(field.name, Object.keys(next).length ? next : null);
    };
    const box = el("input", {
      ...rest, value: String(now[sign] ?? "").replace("~", ""), placeholder: place ?? "", on: { change },
      "aria-label": `${field.name} ${label}`, data: { control: `${field.name}${sign}` },
    });
    return el("label", { class: "limit" }, el("span", { text: label }), box);
  };
  const bound = (value) => (typeof value === "number" ? String(value) : undefined);
  return group(field, el("div", { class: "limits" }, input(">=", t("from"), bound(min)), input("<=", t("to"), bound(max))));
}
