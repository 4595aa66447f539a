"""Routes that are open to anybody: the OpenAPI document, and a page that shows it.

The page is three files of our own, with no script or style from elsewhere: it works without a
network, under a policy that allows nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aiohttp import web
from pydantic import ConfigDict

from provisioner.api.parts import Ask
from provisioner.api.problem import missing
from provisioner.api.route import Route
from provisioner.model.base import Record

STATIC = Path(__file__).parent / "static"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
OPENAPI = "openapi.json"


class Document(Record):
    """An OpenAPI 3.1 document."""

    model_config = ConfigDict(frozen=True, extra="allow")


class Page(Record):
    """A page for people, or a part of one."""


def static_files() -> Mapping[str, tuple[str, bytes]]:
    """The files of the page: name -> (type, content)."""
    return {f.name: (TYPES[f.suffix], f.read_bytes()) for f in sorted(STATIC.iterdir())}


async def document(ask: Ask) -> web.Response:
    """The OpenAPI document, made once."""
    kind, content = ask.parts.static[OPENAPI]
    return web.Response(body=content, content_type=kind, headers={"Cache-Control": "no-cache"})


async def page(ask: Ask) -> web.Response:
    """A file of the page; without a name, its beginning."""
    name = ask.request.match_info.get("file", "docs.html")
    found = ask.parts.static.get(name)
    if found is None or name == OPENAPI:
        raise missing("page")
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}
    return web.Response(body=found[1], content_type=found[0], charset="utf-8", headers=headers)


ROUTES = (
    Route("GET", "/openapi.json", "show_openapi", "document", "This document.", frozenset(),
          document, {200: Document}),
    Route("GET", "/docs", "show_docs", "document", "A page that shows this document.", frozenset(),
          page, {200: Page}, media="text/html"),
    Route("GET", "/docs/{file}", "show_docs_file", "document", "Script and style of that page.",
          frozenset(), page, {200: Page}, media="text/*"),
)  # fmt: skip
