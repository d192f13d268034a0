"""An OpenAPI document as a plain HTML page, rendered once when a server starts.

The page loads nothing and runs no scripts. Its Content-Security-Policy allows only its inline style sheet. So it
works without internet access, and exposes nothing to third parties.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

import msgspec

_METHODS: Final = ("get", "post", "put", "patch", "delete")

_STYLE: Final = """
:root { color-scheme: light dark; --line: #d5dae1; --soft: #5a6575; --panel: #f5f7fa; --link: #0b57d0;
  --get: #0b6e4f; --post: #0b57d0; --put: #8a5a00; --patch: #7a3e9d; --delete: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --line: #3a4350; --soft: #9aa6b5; --panel: #1c2129; --link: #8ab4f8;
  --get: #5dd39e; --post: #8ab4f8; --put: #f0b95b; --patch: #d29bf0; --delete: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1rem; font: 1rem/1.5 system-ui, sans-serif;
  background: Canvas; color: CanvasText; overflow-wrap: break-word; }
h1 { margin: 0.5rem 0 0; } h2 { margin: 2.5rem 0 0.5rem; } h3 { margin: 1.5rem 0 0.25rem; font-size: 1rem; }
h4 { margin: 1rem 0 0.25rem; font-size: 0.85rem; text-transform: uppercase; letter-spacing: 0.04em;
  color: var(--soft); }
p { margin: 0.25rem 0 0.75rem; } a { color: var(--link); } .soft { color: var(--soft); }
code, pre { font: 0.875em/1.5 ui-monospace, monospace; }
pre { background: var(--panel); border-radius: 6px; padding: 0.75rem; overflow-x: auto; }
nav ul { display: flex; flex-wrap: wrap; gap: 0.25rem 1rem; margin: 0.5rem 0; padding: 0; list-style: none; }
details { border: 1px solid var(--line); border-radius: 6px; margin: 0.5rem 0; }
code { overflow-wrap: anywhere; } th code { white-space: nowrap; }
summary { cursor: pointer; display: flex; flex-wrap: wrap; gap: 0.25rem 0.75rem; align-items: baseline;
  padding: 0.5rem 0.75rem; }
summary:focus-visible, a:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
details[open] > summary { border-bottom: 1px solid var(--line); }
details > div { padding: 0.25rem 0.75rem 0.75rem; }
.method { font: 700 0.8rem/1.5 ui-monospace, monospace; min-width: 4.2em; }
.get { color: var(--get); } .post { color: var(--post); } .put { color: var(--put); }
.patch { color: var(--patch); } .delete { color: var(--delete); }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; vertical-align: top;
  padding: 0.35rem 0.75rem 0.35rem 0; border-bottom: 1px solid var(--line); } th { font-weight: 600; }
tbody th { width: 22%; } td:nth-child(2) { width: 28%; }
thead th { color: var(--soft); font-weight: 400; font-size: 0.85rem; }
@media (max-width: 40rem) { thead { display: none; } tr { display: block; border-bottom: 1px solid var(--line);
  padding: 0.35rem 0; } tr > th, tr > td { display: block; width: auto; border: 0; padding: 0; } }
"""


class HtmlPage(msgspec.Struct, frozen=True):
    """A page and its Content-Security-Policy."""

    html: bytes
    content_security_policy: str


def render(document: Mapping[str, Any], *, document_url: str) -> HtmlPage:
    """Render a document of `openapi.document`."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    return HtmlPage(
        html="".join(_page(document, document_url)).encode(),
        content_security_policy=(
            f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'"
        ),
    )


def _page(document: Mapping[str, Any], document_url: str) -> Iterator[str]:
    info, schemas = document["info"], document["components"]["schemas"]
    title = escape(info["title"])
    yield f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<style>{_STYLE}</style></head><body><header><h1>{title}</h1>"
    yield f'<p class="soft">Version {escape(info["version"])} · <a href="{escape(document_url)}">OpenAPI '
    yield f"{escape(document['openapi'])}</a></p>{_prose(info.get('description', ''))}</header>"
    tags = document["tags"]
    yield '<nav aria-label="Sections"><ul>'
    for tag in tags:
        yield f'<li><a href="#{_anchor("tag", tag["name"])}">{escape(tag["name"])}</a></li>'
    yield '<li><a href="#schemas">Schemas</a></li></ul></nav><main>'
    for tag in tags:
        yield f'<section><h2 id="{_anchor("tag", tag["name"])}">{escape(tag["name"])}</h2>'
        yield _prose(tag["description"])
        for path, operations in document["paths"].items():
            for method in _METHODS:
                operation = operations.get(method)
                if operation is not None and tag["name"] in operation["tags"]:
                    yield from _operation(method, path, operation)
        yield "</section>"
    yield '<section><h2 id="schemas">Schemas</h2>'
    for name, schema in schemas.items():
        yield from _schema(name, schema)
    yield "</section></main></body></html>"


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f'<details id="{_anchor("operation", operation["operationId"])}"><summary>'
    yield f'<span class="method {method}">{method.upper()}</span><code>{escape(path)}</code>'
    yield f'<span class="soft">{escape(operation["summary"])}</span></summary><div>'
    yield _prose(operation.get("description", ""))
    roles = operation.get("x-roles")
    yield f'<p class="soft">{"Roles: " + escape(", ".join(roles)) if roles else "No token needed."}</p>'
    if operation["parameters"]:
        yield "<h4>Parameters</h4>" + _table(
            ("Name", "Type", "Description"),
            [
                (
                    f"<code>{escape(each['name'])}</code>",
                    f"{_type(each['schema'])} <span class='soft'>{_where(each)}</span>",
                    _limits(each["schema"], each["description"]),
                )
                for each in operation["parameters"]
            ],
        )
    if (body := operation.get("requestBody")) is not None:
        yield f"<h4>Body</h4>{_prose(body['description'])}{_content(body['content'])}"
    yield "<h4>Responses</h4>" + _table(
        ("Status", "Body", "Meaning"),
        [
            (f"<code>{status}</code>", _content(response.get("content", {})) or "none", _meaning(response))
            for status, response in operation["responses"].items()
        ],
    )
    yield "</div></details>"


def _schema(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f'<h3 id="{_anchor("schema", name)}"><code>{escape(name)}</code></h3>'
    yield _prose(schema.get("description", ""))
    properties = schema.get("properties")
    if not properties:
        yield f"<p>{_type(schema)}</p>"
        return
    required = schema.get("required", ())
    yield _table(
        ("Field", "Type", "Description"),
        [
            (
                f"<code>{escape(field)}</code>",
                f"{_type(each)} <span class='soft'>{'' if field in required else 'optional'}</span>",
                _limits(each, each.get("description", "")),
            )
            for field, each in properties.items()
        ],
    )


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th scope='col'>{cell}</th>" for cell in header)
    body = "".join(
        f"<tr><th scope='row'>{first}</th>{''.join(f'<td>{cell}</td>' for cell in rest)}</tr>"
        for first, *rest in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _content(content: Mapping[str, Any]) -> str:
    texts = []
    for media_type, media in content.items():
        shown = f"{_type(media.get('schema', {}))} <span class='soft'>{escape(media_type)}</span>"
        if "example" in media:
            example = media["example"]
            if not isinstance(example, str):  # text is shown as it is
                example = msgspec.json.format(msgspec.json.encode(example), indent=2).decode()
            shown += f"<pre>{escape(example)}</pre>"
        texts.append(shown)
    return "<br>".join(texts)


def _meaning(response: Mapping[str, Any]) -> str:
    headers = [name for name, header in response.get("headers", {}).items() if "$ref" not in header]
    named = ", ".join(f"<code>{escape(name)}</code>" for name in headers)
    return _inline(response["description"]) + (f" <span class='soft'>Headers: {named}</span>" if named else "")


def _type(schema: Mapping[str, Any]) -> str:
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        return f'<a href="#{_anchor("schema", name)}">{escape(name)}</a>'
    if alternatives := schema.get("anyOf"):
        return " or ".join(map(_type, alternatives))
    if (choices := schema.get("enum")) is not None:
        return "one of " + ", ".join(f"<code>{escape(str(choice))}</code>" for choice in choices)
    kind = schema.get("type", "any")
    if kind == "array":
        return f"array of {_type(schema.get('items', {}))}"
    if kind == "object" and isinstance(values := schema.get("additionalProperties"), Mapping):
        return f"object of {_type(values)}"
    return escape(f"{kind} ({schema['format']})" if "format" in schema else str(kind))


def _limits(schema: Mapping[str, Any], description: str) -> str:
    words = (
        ("minimum", "at least"),
        ("maximum", "at most"),
        ("minLength", "characters, at least"),
        ("maxLength", "characters, at most"),
        ("minItems", "items, at least"),
        ("maxItems", "items, at most"),
        ("pattern", "matching"),
        ("default", "default"),
    )
    limits = [
        f"{word} <code>{escape(msgspec.json.encode(schema[key]).decode())}</code>"
        for key, word in words
        if schema.get(key) is not None and schema[key] not in ("", [], {})
    ]
    return _inline(description) + (f" <span class='soft'>{'; '.join(limits)}</span>" if limits else "")


def _where(parameter: Mapping[str, Any]) -> str:
    return escape(parameter["in"] if parameter["required"] else f"{parameter['in']}, optional")


def _prose(text: str) -> str:
    return "".join(f"<p>{_inline(paragraph)}</p>" for paragraph in text.split("\n\n") if paragraph.strip())


def _inline(text: str) -> str:
    """Render text in which backquotes mark code."""
    parts = escape(text).split("`")
    if len(parts) % 2 == 0:
        return "`".join(parts)
    return "".join(f"<code>{part}</code>" if index % 2 else part for index, part in enumerate(parts))


def _anchor(kind: str, name: str) -> str:
    return f"{kind}-{''.join(character if character.isalnum() else '-' for character in name)}"
