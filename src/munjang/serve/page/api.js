// Requests to the service this page came from. Every failure becomes an ApiError that the views know how to show.

const KEY = "munjang.key";
let memoryKey = ""; // for browsers that keep nothing

export class ApiError extends Error {
  /** kind: offline, key, forbidden, busy, large, input, missing, down, failed */
  constructor(kind, message, { status = 0, retryAfter = 0 } = {}) {
    super(message);
    this.kind = kind;
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

export function readKey() {
  try {
    return sessionStorage.getItem(KEY) ?? memoryKey;
  } catch {
    return memoryKey;
  }
}

/** Keeps the key until the tab is closed. */
export function keepKey(key) {
  memoryKey = key;
  try {
    sessionStorage.setItem(KEY, key);
  } catch {
    // kept in memory only
  }
}

const headers = (more = {}) => (readKey() ? { ...more, Authorization: `Bearer ${readKey()}` } : more);

/** Sends a request and reads JSON; resolves to {status, body}. */
async function send(path, { method = "GET", json, form, signal } = {}) {
  const answer = await open(path, { method, json, form, signal });
  return { status: answer.status, body: answer.status === 204 ? null : await readJson(answer) };
}

async function open(path, { method, json, form, signal }) {
  const body = json === undefined ? form : JSON.stringify(json);
  const head = headers(json === undefined ? {} : { "Content-Type": "application/json" });
  let answer;
  try {
    answer = await fetch(path, { method, body, headers: head, signal, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("offline", error.message);
  }
  if (!answer.ok) throw await refusal(answer);
  return answer;
}

async function readJson(answer) {
  try {
    return await answer.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("offline", error.message); // the connection broke within the answer
  }
}

const KINDS = { 401: "key", 403: "forbidden", 404: "missing", 413: "large", 429: "busy", 503: "down" };

async function refusal(answer) {
  const text = await answer.text().catch(() => "");
  const kind = KINDS[answer.status] ?? (answer.status < 500 ? "input" : "failed");
  const wait = Number.parseFloat(answer.headers.get("Retry-After") ?? "");
  const retryAfter = Number.isFinite(wait) ? Math.max(0, wait) : kind === "busy" ? 1 : 0;
  return new ApiError(kind, messageOf(text) || answer.statusText, { status: answer.status, retryAfter });
}

/** The message of an error in any of the shapes that the service uses. */
export function messageOf(text) {
  let found;
  try {
    found = JSON.parse(text);
  } catch {
    return text.slice(0, 300);
  }
  const inner = found?.error?.message ?? found?.error ?? found?.message ?? found?.detail ?? text;
  if (Array.isArray(inner)) return inner.map((one) => one?.msg ?? JSON.stringify(one)).join("; ");
  return typeof inner === "string" ? inner : JSON.stringify(inner);
}

const indexPath = (index, action) => `/indexes/${encodeURIComponent(index)}/${action}`;
const documentsPath = (index) => `/documents/${encodeURIComponent(index)}`;

/** An id is a query parameter, never a part of the path, from which browsers drop `.` and `..`. */
const documentPath = (index, id) => `${documentsPath(index)}?${new URLSearchParams({ id })}`;

export const moreLikePath = (index) => indexPath(index, "more-like");

export const api = {
  info: async () => (await send("/info")).body,
  indexes: async () => (await send("/indexes")).body,
  search: async (json, signal) => (await send("/search", { method: "POST", json, signal })).body,
  moreLike: async (index, json, signal) => (await send(moreLikePath(index), { method: "POST", json, signal })).body,
  document: async (index, id, signal) => (await send(documentPath(index, id), { signal })).body,
  similarity: async (json, signal) => (await send("/similarity", { method: "POST", json, signal })).body,
  cluster: async (json, signal) => (await send("/cluster", { method: "POST", json, signal })).body,
  place: async (index, query, signal) => (await send(indexPath(index, "place"), { method: "POST", json: { query }, signal })).body,

  /** The map of an index, asked for until it is there; `tellProgress` hears how far it is. */
  async map(index, { signal, tellProgress }) {
    for (;;) {
      const { status, body } = await send(indexPath(index, "map"), { signal });
      if (status !== 202) return body;
      tellProgress(typeof body.progress === "number" ? body.progress : null);
      await pause(700, signal);
    }
  },

  /** Sends a file and hands every line of the answer to `tellLine`; resolves to the report. */
  async upload(index, file, { signal, tellLine }) {
    const form = new FormData();
    form.append("file", file, file.name);
    const answer = await open(`${documentsPath(index)}/file`, { method: "POST", form, signal });
    for await (const line of lines(answer)) {
      if (line.error) throw new ApiError("input", messageOf(JSON.stringify(line)), { status: 422 });
      if (line.report) return line.report;
      tellLine(line);
    }
    throw new ApiError("offline", "the answer ended before its report");
  },
};

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("stopped", "AbortError"));
    });
  });
}

/** JSON values of a newline-delimited answer, as they come. */
async function* lines(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read().catch((error) => {
      if (error.name === "AbortError") throw error;
      throw new ApiError("offline", error.message);
    });
    rest += value ?? "";
    const parts = rest.split("\n");
    rest = done ? "" : parts.pop();
    for (const part of parts) if (part.trim()) yield JSON.parse(part);
    if (done) return;
  }
}
