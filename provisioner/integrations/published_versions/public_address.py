"""Fetch one published file from an address that a person names: HTTPS only, with limits."""

from __future__ import annotations

import asyncio
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from yarl import URL

from provisioner.adapters.bounded_http import (
    Attempt,
    BoundedSession,
    error_words,
    open_session,
    open_trust,
    time_limit,
)
from provisioner.model.input_error import InputError

FETCH_S = 60.0  # a page has some hundred kilobytes, Dell's packed catalogue 20 MB
FETCHED_BYTES_MAX = 64 * 1024 * 1024
# by content type, for addresses whose last part has no ending of its own
_ENDINGS = {"text/html": ".html", "application/json": ".json", "text/csv": ".csv"}
_SAVED = "Save the file with a browser, and name the file."


def fetch(address: str, ca_file: str = "") -> tuple[str, bytes]:
    """Return the file's name and content. Raises InputError, which never has the query."""
    parts = urlsplit(address)
    if parts.scheme != "https" or not parts.hostname or parts.username or parts.password:
        problem = "it is no https address without credentials"
        raise InputError("FILE", parts.hostname or address[:80], problem, _SAVED)
    return asyncio.run(_fetch(URL(address, encoded=True), ca_file))


async def _fetch(url: URL, ca_file: str) -> tuple[str, bytes]:
    shown = str(url.with_query(None).with_fragment(None))[:200]
    trust = open_trust("--ca", ca_file)
    session = open_session(per_host=1, keep_alive=False)
    try:
        bounded = BoundedSession(session, trust, Attempt(safe=True), FETCHED_BYTES_MAX, "gzip")
        async with bounded.request("GET", url, timeout=time_limit(FETCH_S)) as answer:
            body = await answer.read() if answer.status == 200 else b""
    except Exception as error:  # aiohttp's and our own: all are one line to the person
        raise InputError("FILE", shown, error_words(error), _SAVED) from None
    finally:
        await session.close()
    if answer.status != 200:
        where = answer.headers.get("Location", "")
        more = f", and leads to {where[:120]}" if 300 <= answer.status < 400 else ""
        raise InputError("FILE", shown, f"it answers with status {answer.status}{more}", _SAVED)
    name = PurePosixPath(url.path).name or "index"
    if not PurePosixPath(name).suffix or name.endswith("+Support"):
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        name += _ENDINGS.get(kind, ".txt")
    return name, body
