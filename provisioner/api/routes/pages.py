"""Routes that need no token: the OpenAPI document, and a page that shows it.

The page is three files of our own, with no script or style from elsewhere: it works without a
network, under a policy that allows nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from aiohttp import web
from pydantic import ConfigDict

from provisioner.api.parts import Ask
from provisioner.api.problem import refuse_missing
from provisioner.api.route import Route
from provisioner.model.base import Record

STATIC = Path(__file__).parents[1] / "static"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Document(Record):
    """An OpenAPI 3.1 document."""

    model_config = ConfigDict(frozen=True, extra="allow")


class Page(Record):
    """A page for people, or a part of one."""


def read_static_files() -> Mapping[str, tuple[str, bytes]]:
    """Return the files of the page: name -> (type, content)."""
    return {f.name: (TYPES[f.suffix], f.read_bytes()) for f in sorted(STATIC.iterdir())}


async def serve_document(ask: Ask) -> web.Response:
    """Return the OpenAPI document, built once, when the first client asks."""
    content = await asyncio.to_thread(ask.parts.write_document)
    headers = {"Cache-Control": "no-cache"}
    return web.Response(body=content, content_type="application/json", headers=headers)


async def serve_page(ask: Ask) -> web.Response:
    """Return a file of the page; without a name, the page itself."""
    name = ask.request.match_info.get("file", "docs.html")
    file = ask.parts.static.get(name)
    if file is None:
        raise refuse_missing("page")
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}
    return web.Response(body=file[1], content_type=file[0], charset="utf-8", headers=headers)


ROUTES = (
    Route(
        "GET",
        "/openapi.json",
        "show_openapi",
        "document",
        "Return this document.",
        frozenset(),
        serve_document,
        {200: Document},
    ),
    Route(
        "GET",
        "/docs",
        "show_docs",
        "document",
        "Return a page that shows this document.",
        frozenset(),
        serve_page,
        {200: Page},
        media="text/html",
    ),
    Route(
        "GET",
        "/docs/{file}",
        "show_docs_file",
        "document",
        "Return script and style of that page.",
        frozenset(),
        serve_page,
        {200: Page},
        media="text/*",
    ),
)
