"""Serves the console: plain files of our own, read once, under a policy that allows nothing else.

There is no build step: a browser loads the ES modules as they are in `console/`. A device's text
reaches a page as text only; Trusted Types make a browser refuse anything else.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from aiohttp import web

from provisioner.api.problem import refuse_missing

FILES = Path(__file__).parent / "console"
BEGIN = "index.html"
TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-cache",  # revalidated each time, and answered 304
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Vary": "Accept-Encoding",
}


@dataclass(frozen=True)
class File:
    """One file in the form in which it is sent."""

    kind: str
    plain: bytes
    packed: bytes
    tag: str


@lru_cache(maxsize=1)
def read_files() -> dict[str, File]:
    """Return all files of the console by name."""
    return {f.name: _file(f) for f in sorted(FILES.iterdir()) if f.suffix in TYPES}


def _file(path: Path) -> File:
    plain = path.read_bytes()
    tag = hashlib.sha256(plain).hexdigest()[:24]
    return File(TYPES[path.suffix], plain, gzip.compress(plain, 9, mtime=0), f'"{tag}"')


def accepts_gzip(request: web.Request) -> bool:
    """Return whether the client takes gzip (RFC 9110 section 12.5.3; a weight of 0 refuses it)."""
    for part in request.headers.get("Accept-Encoding", "").split(","):
        name, _, weight = part.partition(";")
        if name.strip().lower() == "gzip":
            return weight.replace(" ", "").rstrip("0.") != "q="
    return False


async def serve(request: web.Request) -> web.StreamResponse:
    """Serve a file; without a name, the page itself."""
    file = read_files().get(request.match_info.get("file") or BEGIN)
    if file is None:
        raise refuse_missing("page")
    headers = {**HEADERS, "ETag": file.tag}
    etags = request.headers.get("If-None-Match", "").split(",")
    if file.tag in [word.strip().removeprefix("W/") for word in etags]:
        return web.Response(status=304, headers=headers)
    body = file.plain
    if accepts_gzip(request):
        body = file.packed
        headers["Content-Encoding"] = "gzip"
    return web.Response(body=body, content_type=file.kind, charset="utf-8", headers=headers)


def send_page(name: str) -> web.StreamResponse:
    """Return a page of the console that is not stored."""
    file = read_files()[name]
    headers = {**HEADERS, "Cache-Control": "no-store"}
    return web.Response(body=file.plain, content_type=file.kind, charset="utf-8", headers=headers)


async def redirect_home(_request: web.Request) -> web.StreamResponse:
    """Redirect a request for the host's name alone to the console."""
    return web.Response(status=307, headers={"Location": "/console/", "Cache-Control": "no-cache"})


def add_console(app: web.Application) -> None:
    """Add the console's paths beside those of the API."""
    app.router.add_get("/", redirect_home)
    app.router.add_get("/console", redirect_home)
    app.router.add_get("/console/", serve)
    app.router.add_get("/console/{file:[a-z_]{1,40}\\.[a-z]{2,4}}", serve)
