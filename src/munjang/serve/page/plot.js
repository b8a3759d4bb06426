// plotly, fetched from the service when a picture is first wanted, and the colours of the page for it.

import { ApiError } from "./api.js";

let loading = null;

/** Resolves to plotly; an ApiError of kind 'plotly' where the service has none. */
export function plotly() {
  if (window.Plotly) return Promise.resolve(window.Plotly);
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "/page/plotly.js";
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => {
      loading = null; // so that 'try again' tries again
      script.remove();
      reject(new ApiError("plotly", ""));
    };
    document.head.append(script);
  });
  return loading;
}

/** A colour of the page's style sheet. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** What plotly would read as mark-up becomes plain text. */
export const plain = (text) => text.replace(/[&<>]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[sign]);

export const GROUPS = 12; // colours of groups; further ones begin again

export const groupColour = (label) => (label < 0 ? colour("group-none") : colour(`group-${label % GROUPS}`));

/** A layout without frame, ticks and plotly's own colours. */
export function bareLayout(more = {}) {
  const text = colour("ink");
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, color: text, size: 13 },
    margin: { l: 8, r: 8, t: 8, b: 8 },
    showlegend: false,
    ...more,
  };
}

// No button of plotly's bar, no logo, no double-click surprises beyond 'reset'.
export const CONFIG = { displayModeBar: false, displaylogo: false, responsive: true, scrollZoom: true, showTips: false };

let bubble = null;

/** A tooltip at the pointer; its text is a text. */
export function showBubble(event, lines) {
  bubble ??= document.body.appendChild(Object.assign(document.createElement("div"), { className: "bubble" }));
  bubble.replaceChildren(...lines.filter(Boolean).map((line, at) => Object.assign(document.createElement(at ? "p" : "b"), { textContent: line })));
  bubble.hidden = false;
  const { width, height } = bubble.getBoundingClientRect();
  const x = Math.min(event.clientX + 14, innerWidth - width - 8);
  const y = event.clientY + 18 + height > innerHeight ? event.clientY - height - 12 : event.clientY + 18;
  bubble.style.left = `${Math.max(8, x)}px`;
  bubble.style.top = `${Math.max(8, y)}px`;
}

export const hideBubble = () => bubble && (bubble.hidden = true);
