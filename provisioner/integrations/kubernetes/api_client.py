"""Requests of the operator to the daemon, over verified TLS with a token from a file.

A change is tried as a dry run first, so that a refusal that lasts writes no row of the journal.
One that is refused only when it is made is not sent again for a while. An answer that is lost is
asked for again with the same idempotency key.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from provisioner.integrations.kubernetes.conditions import Refusal, read_refusal
from provisioner.model.input_error import InputError

PREFIX = "/v1"
TRIES = 3  # tries of one request whose answer was lost
WAIT_S = 0.5  # seconds before the second try; doubles
LIMIT_S = 150.0  # seconds for one request: the daemon answers a change after api_wait_s at most
REFUSED_FOR_S = 300.0  # seconds for which a refused change is not sent again
PAGE = 500
MERGE = "application/merge-patch+json"
OPEN = frozenset({"waiting", "running"})  # states of an operation that is not over
GOOD = frozenset({"done", "unfinished", "dry_run"})  # the daemon itself continues an unfinished one
STEADY = frozenset({429, 502, 503, 504})  # it may pass


class NoAnswer(Exception):
    """The daemon did not answer, or not as the API does."""


@dataclass(frozen=True)
class Answer:
    """One answer: its status, its JSON and its ETag."""

    status: int
    document: Mapping[str, Any]
    etag: str = ""


@dataclass(frozen=True)
class Change:
    """A change that was asked for: refused, open under an operation's id, or neither: made."""

    refusal: Refusal | None = None
    operation: str = ""
    note: str = ""


class ApiClient:
    """Requests to one daemon; closed by `close`."""

    def __init__(
        self,
        server: str,
        token_file: Path,
        ca: str = "",
        refused_for_s: float = REFUSED_FOR_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises InputError for a server that is no https address."""
        parts = urlsplit(server)
        if parts.scheme != "https" or not parts.hostname:
            remedy = "Write https://HOST:PORT; a token is never sent in clear."
            raise InputError("PROVISIONER_SERVER", server[:80], "not an https address", remedy)
        self._base = f"https://{parts.netloc}"
        self._token_file = token_file
        self._trust = ssl.create_default_context(cafile=ca or None)
        self._refused_for_s = refused_for_s
        self._now = now
        self._session: aiohttp.ClientSession | None = None
        self._refused: dict[str, tuple[float, Refusal]] = {}  # by digest of the change

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def read(self, path: str, query: Mapping[str, str] | None = None) -> Answer | None:
        """Return an answer; None for 404. Raises NoAnswer."""
        answer = await self._ask("GET", path, query or {}, None, {})
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise NoAnswer(f"{path}: {answer.status} {read_refusal(answer.document).detail}")
        return answer

    async def list_nodes(self, tenant: str) -> tuple[Mapping[str, Any], ...]:
        """Return the nodes that are a tenant's now, by name. Raises NoAnswer."""
        nodes: list[Mapping[str, Any]] = []
        query = {"where": f"tenant={tenant}", "limit": str(PAGE), "cursor": ""}
        while True:
            answer = await self.read("/nodes", query)
            if answer is None:
                raise NoAnswer("/nodes: 404")
            nodes += answer.document["items"]
            query["cursor"] = answer.document["next"]
            if not query["cursor"]:
                return tuple(sorted(nodes, key=lambda n: str(n["id"])))

    async def change(
        self, verb: str, path: str, body: Mapping[str, Any] | None = None, etag: str = ""
    ) -> Change:
        """Try a change, then make it. Raises NoAnswer."""
        digest = hashlib.sha256(json.dumps([verb, path, body], sort_keys=True).encode()).hexdigest()
        until, standing = self._refused.get(digest, (0.0, None))
        if standing is not None and self._now() < until:
            return Change(refusal=standing)
        self._refused.pop(digest, None)
        tried = _read_change(await self._ask(verb, path, {"dry_run": "true"}, body, {}))
        if tried.refusal is not None:
            return tried
        headers = {"Idempotency-Key": str(uuid.uuid4())} | ({"If-Match": etag} if etag else {})
        made = _read_change(await self._ask(verb, path, {}, body, headers))
        if made.refusal is not None:
            self._refused[digest] = (self._now() + self._refused_for_s, made.refusal)
        return made

    async def follow(self, operation: str) -> Change:
        """Return the present result of an operation. Raises NoAnswer."""
        answer = await self.read(f"/operations/{operation}")
        return Change() if answer is None else _read_change(answer)

    async def _ask(
        self,
        verb: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str],
    ) -> Answer:
        problem = ""
        for attempt in range(TRIES):
            if attempt:
                await asyncio.sleep(WAIT_S * 2 ** (attempt - 1))
            try:
                answer = await self._once(verb, path, query, body, headers)
            except (OSError, aiohttp.ClientError, TimeoutError) as error:
                problem = f"{self._base} does not answer ({type(error).__name__})."
                continue
            if answer.status not in STEADY or "blockers" in answer.document:
                return answer
            problem = f"{self._base}: {answer.status}: {read_refusal(answer.document).detail}"
        raise NoAnswer(problem)

    async def _once(
        self,
        verb: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str],
    ) -> Answer:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=LIMIT_S), trust_env=False
            )
        named = {"Authorization": f"Bearer {self._read_token()}", **headers}
        data = None if body is None else json.dumps(body)
        if data is not None:
            named["Content-Type"] = MERGE if verb == "PATCH" else "application/json"
        async with self._session.request(
            verb,
            self._base + PREFIX + path,
            params=dict(query),
            data=data,
            headers=named,
            ssl=self._trust,
            allow_redirects=False,
        ) as answer:
            document: Any = None
            with suppress(ValueError, aiohttp.ContentTypeError):
                document = await answer.json(content_type=None)
            if not isinstance(document, dict):
                raise NoAnswer(f"{self._base}{PREFIX}{path}: {answer.status} without an object.")
            return Answer(answer.status, document, answer.headers.get("ETag", ""))

    def _read_token(self) -> str:
        """Return the token, read at each request: Kubernetes renews the file in place."""
        try:
            token = self._token_file.read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            raise NoAnswer(f"{self._token_file}: unreadable ({type(error).__name__}).") from None
        if not token or not token.isprintable():
            raise NoAnswer(f"{self._token_file}: it holds no token.")
        return token


def _read_change(answer: Answer) -> Change:
    document = answer.document
    if answer.status >= 400:
        return Change(refusal=read_refusal(document))
    state = document.get("state")
    if state in OPEN:
        return Change(operation=str(document.get("id", "")), note=str(document.get("note", "")))
    if state not in GOOD or (state == "dry_run" and document.get("blockers")):
        return Change(refusal=read_refusal(document))
    return Change()
