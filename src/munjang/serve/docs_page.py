"""`/docs`: what the service can be asked, as a plain page that is made here and loads nothing from anywhere.

Enters: the application's OpenAPI description (`/openapi.json`). Leaves: HTML with every request, its fields and an
example as a curl command. The usual page of FastAPI loads its script from the internet, which a service on a closed
network cannot, and one on an open network should not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

router = APIRouter(include_in_schema=False)

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, "Apple SD Gothic Neo", "Malgun Gothic", "Noto Sans KR", sans-serif;
  margin: 2rem auto; max-width: 56rem; padding: 0 1rem; }
h2 { margin-top: 2.5rem; }
summary { cursor: pointer; padding: .3rem 0; }
code, pre { font-family: ui-monospace, monospace; }
pre { overflow-x: auto; padding: .75rem; border: 1px solid #8886; border-radius: .4rem; }
.method { display: inline-block; min-width: 4.5em; font-weight: 700; }
table { border-collapse: collapse; }
td { text-align: left; vertical-align: top; padding: .15rem .75rem .15rem 0; }
.quiet { opacity: .7; }
"""
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


@router.get("/docs", response_class=HTMLResponse)
async def docs(request: Request) -> HTMLResponse:
    """The page."""
    return HTMLResponse(page(request.app.openapi(), str(request.base_url).rstrip("/")), headers=_HEADERS)


def page(description: Mapping[str, Any], address: str) -> str:
    """The description as HTML."""
    groups: dict[str, list[str]] = {}
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            group = (operation.get("tags") or ["other"])[0]
            groups.setdefault(group, []).append(_operation(description, address, path, method, operation))
    title = escape(f"{description['info']['title']} {description['info']['version']}")
    parts = "".join(f"<h2>{escape(group)}</h2>{''.join(shown)}" for group, shown in groups.items())
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>'
        f'<body><h1>{title}</h1><p>For programs: <a href="/openapi.json">/openapi.json</a></p>{parts}</body></html>'
    )


def _operation(
    description: Mapping[str, Any], address: str, path: str, method: str, operation: Mapping[str, Any]
) -> str:
    schema = _body_schema(description, operation)
    words = escape(operation.get("description") or "")
    fields = "".join(_field(*one) for one in _fields(description, schema, operation))
    told = f"<table>{fields}</table>" if fields else ""
    command = escape(_curl(address, path, method, schema))
    return (
        f'<details><summary><span class="method">{method.upper()}</span> <code>{escape(path)}</code> '
        f'<span class="quiet">{escape(operation.get("summary") or "")}</span></summary>'
        f"<p>{words}</p>{told}<pre>{command}</pre></details>"
    )


def _resolved(description: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema itself, where it only names another, and the first of several."""
    while True:
        if "$ref" in schema:
            schema = description["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]]
        elif schema.get("oneOf") or (schema.get("anyOf") and "type" not in schema):
            schema = (schema.get("oneOf") or schema["anyOf"])[0]
        else:
            return schema


def _body_schema(description: Mapping[str, Any], operation: Mapping[str, Any]) -> Mapping[str, Any]:
    content = operation.get("requestBody", {}).get("content", {})
    form = content.get("multipart/form-data")
    found = form or content.get("application/json") or {}
    return {**_resolved(description, found.get("schema", {})), **({"form": True} if form else {})}


def _fields(
    description: Mapping[str, Any], schema: Mapping[str, Any], operation: Mapping[str, Any]
) -> Iterator[tuple[str, str, str]]:
    """Name, type and meaning of everything that a request takes."""
    for one in operation.get("parameters", ()):
        yield one["name"], f"in the {one['in']}", one.get("description", "")
    required = set(schema.get("required", ()))
    for name, given in schema.get("properties", {}).items():
        own = _resolved(description, given)
        kind = str(own.get("type", own.get("title", "")))
        default = f" = {json.dumps(given['default'], ensure_ascii=False)}" if given.get("default") is not None else ""
        yield name, kind + default + (", required" if name in required else ""), given.get("description", "")


def _field(name: str, kind: str, meaning: str) -> str:
    return f"<tr><td><code>{escape(name)}</code></td><td>{escape(kind)}</td><td>{escape(meaning)}</td></tr>"


def _curl(address: str, path: str, method: str, schema: Mapping[str, Any]) -> str:
    """The request as a command."""
    where = f"{address}{path}".replace("{id:path}", "{id}")
    verb = "" if method == "get" else f"-X {method.upper()} "
    if schema.get("form"):
        return f"curl {verb}'{where}' -F file=@documents.csv"
    examples = schema.get("examples")
    if not examples:
        return f"curl {verb}'{where}'"
    body = json.dumps(examples[0], ensure_ascii=False).replace("'", "'\\''")
    return f"curl '{where}' -H 'Content-Type: application/json' -d '{body}'"
