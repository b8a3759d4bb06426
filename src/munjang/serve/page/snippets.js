// The last request as a command or a script that gives the same answer. A key is named, never written out.

import { readKey } from "./api.js";
import { byId, toast } from "./dom.js";
import { t } from "./language.js";

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`; // as a POSIX shell reads it

export function curlOf(path, body) {
  const lines = [`curl -sS ${quoted(location.origin + path)}`, "-H 'Content-Type: application/json'"];
  if (readKey()) lines.push('-H "Authorization: Bearer $MUNJANG_KEY"');
  lines.push(`-d ${quoted(JSON.stringify(body))}`);
  return lines.join(" \\\n  ");
}

export function pythonOf(path, body) {
  const withKey = Boolean(readKey());
  const key = withKey ? ', "Authorization": f"Bearer {os.environ[\'MUNJANG_KEY\']}"' : "";
  return [
    "import json",
    ...(withKey ? ["import os"] : []),
    "import urllib.request",
    "",
    `body = ${pythonLiteral(body)}`,
    `headers = {"Content-Type": "application/json"${key}}`,
    `request = urllib.request.Request(${pythonLiteral(location.origin + path)}, json.dumps(body).encode(), headers)`,
    "answer = json.load(urllib.request.urlopen(request))",
    'for hit in answer["hits"]:',
    '    print(f"{hit[\'score\']:.3f}", hit["id"], hit["passage"]["text"])',
    "",
  ].join("\n");
}

/** A value as Python writes it. */
export function pythonLiteral(value) {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "number") return String(value);
  if (typeof value === "string") return JSON.stringify(value); // JSON's escapes are Python's, too
  if (Array.isArray(value)) return `[${value.map(pythonLiteral).join(", ")}]`;
  return `{${Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${pythonLiteral(one)}`).join(", ")}}`;
}

/** Into the clipboard; where the browser refuses (http from another machine), into a box to copy from. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast(t("copied"));
  } catch {
    byId("copy-text").value = text;
    byId("copy-dialog").showModal();
    byId("copy-text").select();
  }
}
