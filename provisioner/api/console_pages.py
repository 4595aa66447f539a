"""Serves the console: plain files of our own, read once, under a policy that allows nothing else.

There is no build step: a browser loads the ES modules as they lie in `console/`. Whatever a device
says reaches a page as text only; Trusted Types make a browser refuse anything else.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from aiohttp import web

from provisioner.api.problem import missing

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
    "Cache-Control": "no-cache",  # asked for again each time, and answered 304
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Vary": "Accept-Encoding",
}


@dataclass(frozen=True)
class File:
    """One file as it is sent."""

    kind: str
    plain: bytes
    packed: bytes
    tag: str


@lru_cache(maxsize=1)
def files() -> dict[str, File]:
    """All files of the console by name."""
    return {f.name: _file(f) for f in sorted(FILES.iterdir()) if f.suffix in TYPES}


def _file(path: Path) -> File:
    plain = path.read_bytes()
    tag = hashlib.sha256(plain).hexdigest()[:24]
    return File(TYPES[path.suffix], plain, gzip.compress(plain, 9, mtime=0), f'"{tag}"')


def accepts_gzip(request: web.Request) -> bool:
    """Whether the client takes gzip (RFC 9110 section 12.5.3; a weight of 0 is a no)."""
    for part in request.headers.get("Accept-Encoding", "").split(","):
        name, _, weight = part.partition(";")
        if name.strip().lower() == "gzip":
            return weight.replace(" ", "").rstrip("0.") != "q="
    return False


async def serve(request: web.Request) -> web.StreamResponse:
    """A file; without a name, the page itself."""
    found = files().get(request.match_info.get("file") or BEGIN)
    if found is None:
        raise missing("page")
    headers = {**HEADERS, "ETag": found.tag}
    known = request.headers.get("If-None-Match", "").split(",")
    if found.tag in [word.strip().removeprefix("W/") for word in known]:
        return web.Response(status=304, headers=headers)
    body = found.plain
    if accepts_gzip(request):
        body = found.packed
        headers["Content-Encoding"] = "gzip"
    return web.Response(body=body, content_type=found.kind, charset="utf-8", headers=headers)


async def home(_request: web.Request) -> web.StreamResponse:
    """Whoever types the host's name only wants the console."""
    return web.Response(status=307, headers={"Location": "/console/", "Cache-Control": "no-cache"})


def add_console(app: web.Application) -> None:
    """The console's paths, beside those of the API."""
    app.router.add_get("/", home)
    app.router.add_get("/console", home)
    app.router.add_get("/console/", serve)
    app.router.add_get("/console/{file:[a-z_]{1,40}\\.[a-z]{2,4}}", serve)
