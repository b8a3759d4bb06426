// Elements from plain values. Texts become text nodes, never mark-up: what an index holds cannot act on the page.

/** A new element. `props`: class, text, on (events), data, style (single properties), anything else an attribute. */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") node.textContent = value;
    else if (name === "class") node.className = value;
    else if (name === "on") for (const [event, run] of Object.entries(value)) node.addEventListener(event, run);
    else if (name === "data") Object.assign(node.dataset, value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) node.style.setProperty(key, one);
    else if (name === "value" || name === "checked" || name === "disabled" || name === "hidden") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const byId = (id) => document.getElementById(id);

/** Replaces what a node holds. */
export function fill(node, ...children) {
  node.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** The first `limit` characters, with an ellipsis where something was left out; characters, not UTF-16 halves. */
export function shorten(text, limit) {
  const flat = text.replace(/\s+/g, " ").trim();
  if (flat.length <= limit) return flat;
  const points = Array.from(flat.slice(0, 2 * limit + 2));
  return points.length <= limit ? flat : points.slice(0, limit - 1).join("").trimEnd() + "…";
}

/** The service counts characters (code points), JavaScript counts UTF-16 units: where the one is the other. */
export function unitOffsets(text, ...points) {
  const wanted = [...points].sort((a, b) => a - b);
  const found = new Map();
  let unit = 0;
  let point = 0;
  for (const one of wanted) {
    while (point < one && unit < text.length) {
      unit += text.codePointAt(unit) > 0xffff ? 2 : 1;
      point += 1;
    }
    found.set(one, unit);
  }
  return points.map((one) => found.get(one));
}

let toastTimer = 0;

/** A short note at the foot of the page, read out by screen readers. */
export function toast(text) {
  const node = byId("toast");
  node.textContent = text;
  node.classList.add("shown");
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => node.classList.remove("shown"), 2600);
}
