"""The REST API of a running daemon: each answer is recorded before a step reads it."""

from __future__ import annotations

import json
import os
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

AGENT = "acceptance/1"
POLL_S = 1.0
REQUEST_S = 60.0
ENDED = ("done", "dry_run", "failed", "unfinished", "refused", "expired", "lost", "parked")


class RefusedError(Exception):
    """The daemon refused a request, or an operation of it failed."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(f"HTTP {status}: {why}")
        self.status = status


class Daemon:
    """Sends requests with one token and writes each answer into a folder of evidence."""

    def __init__(self, url: str, authority: str, token: str, evidence: Path) -> None:
        self.url = url
        self._token = token
        self._evidence = evidence
        self._context = ssl.create_default_context(cafile=authority) if authority else None

    def get(self, path: str, **query: str | int) -> Any:
        """Return the answer to a reading request."""
        asked = f"?{urllib.parse.urlencode(query)}" if query else ""
        return self._send("GET", path + asked, None)

    def find(self, path: str) -> Any | None:
        """Return an object, or None where the daemon answers that there is none."""
        try:
            return self.get(path)
        except RefusedError as error:
            if error.status != 404:
                raise
            return None

    def list_all(self, path: str, **query: str | int) -> list[Any]:
        """Return every item of a list, page by page."""
        items: list[Any] = []
        page = self.get(path, limit=500, **query)
        while True:
            items += page["items"]
            if not page["items"] or not page.get("next"):
                return items  # a list of events always has a next page
            page = self.get(path, limit=500, cursor=page["next"], **query)

    def change(
        self, verb: str, path: str, body: Mapping[str, Any] | None = None, *, limit_s: float = 300.0
    ) -> dict[str, Any]:
        """Send a change and return its operation once it has ended well."""
        return self._follow(path, self._send(verb, path, body), limit_s)

    def upload(self, path: str, content: bytes, sha256: str, note: str) -> dict[str, Any]:
        """Send a file's bytes and return the operation once it has ended well."""
        query = {"sha256": sha256, "size_bytes": len(content), "note": note}
        asked = f"{path}?{urllib.parse.urlencode(query)}"
        return self._follow(path, self._send("PUT", asked, None, content), REQUEST_S)

    def _follow(self, path: str, operation: dict[str, Any], limit_s: float) -> dict[str, Any]:
        until = time.monotonic() + limit_s
        while operation["state"] not in ENDED and time.monotonic() < until:
            time.sleep(POLL_S)
            operation = self.get(f"/operations/{operation['id']}")
        blockers = "; ".join(b["detail"] for b in operation.get("blockers", ()))
        if operation["state"] not in ("done", "dry_run") or blockers:
            raise RefusedError(409, f"{path} is {operation['state']}: {blockers}")
        return dict(operation)

    def accept(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a change and return its operation as it was accepted, without waiting."""
        return dict(self._send("POST", path, body))

    def _send(
        self, verb: str, path: str, body: Mapping[str, Any] | None, file: bytes | None = None
    ) -> Any:
        kind = "application/json" if file is None else "application/octet-stream"
        request = urllib.request.Request(
            f"{self.url}/v1{path}",
            method=verb,
            data=file if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": kind}
            | {"User-Agent": os.environ.get("ACCEPTANCE_AGENT", AGENT)},
        )
        try:
            with urllib.request.urlopen(
                request, context=self._context, timeout=REQUEST_S
            ) as answer:
                status = answer.status
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            status = error.code
            text = error.read().decode()
        except OSError as error:
            self._record(verb, path, body, 0, str(error))
            raise RefusedError(0, f"the daemon does not answer: {error}") from None
        answered = json.loads(text) if text else None
        self._record(verb, path, body, status, answered)
        if status == 429:
            time.sleep(POLL_S)  # more requests than a minute allows
            return self._send(verb, path, body, file)
        if status >= 400:
            fields = ("title", "detail", "unblock")
            raise RefusedError(status, "; ".join(filter(None, map(answered.get, fields)))[:300])
        return answered

    def _record(self, verb: str, path: str, body: Any, status: int, answer: Any) -> None:
        line = {
            "at": time.time(),
            "request": f"{verb} {path}",
            "body": body,
            "status": status,
            "answer": answer,
        }
        with self._evidence.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def open_daemon(step: str, token: str = "") -> Daemon:
    """Return the daemon that the environment names, with a file of evidence for a step.

    Without a token it is the environment's.
    """
    folder = Path(os.environ["ACCEPTANCE_EVIDENCE"])
    folder.mkdir(parents=True, exist_ok=True)
    if not token:
        token = Path(os.environ["ACCEPTANCE_TOKEN_FILE"]).read_text(encoding="utf-8").strip()
    authority = os.environ.get("ACCEPTANCE_CA", "")
    return Daemon(os.environ["ACCEPTANCE_API"], authority, token, folder / f"{step}.jsonl")


def wait_for(read: Callable[[], Any], limit_s: float, goal: str) -> Any:
    """Return the first true answer of `read`. Raise RefusedError if there is none in time."""
    until = time.monotonic() + limit_s
    while True:
        answer = read()
        if answer:
            return answer
        if time.monotonic() > until:
            raise RefusedError(0, f"within {limit_s:.0f} s not reached: {goal}")
        time.sleep(POLL_S)


def list_hosts(daemon: Daemon, where: str = "kind=host") -> list[dict[str, Any]]:
    """Return the hosts that the caller may see."""
    return daemon.list_all("/nodes", where=where)


def pick_host(daemon: Daemon) -> dict[str, Any]:
    """Return the first host that the caller may see. Raise RefusedError if there is none."""
    hosts = list_hosts(daemon)
    if not hosts:
        raise RefusedError(404, "the caller sees no host")
    return hosts[0]


def read_inventories(daemon: Daemon) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each host with the last reading of its parts."""
    for host in list_hosts(daemon):
        yield host, daemon.get(f"/nodes/{host['id']}/inventory")


def count_devices(inventory: Mapping[str, Any], kind: str) -> int:
    """Return the number of devices of a kind."""
    return sum(1 for device in inventory["devices"] if device["kind"] == kind)


def mark(**results: bool) -> dict[str, Any]:
    """Return the results of operations in the suite's form."""
    return {"operations": {name: {"passed": bool(done)} for name, done in results.items()}}


def count_rows(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return rows under their name, with their number."""
    return {f"{name}_checked": len(rows), name: rows}


def read_age_s(daemon: Daemon, at: str | None) -> float | None:
    """Return the age of a time by the daemon's own clock, which may run fast."""
    if at is None:
        return None
    now = datetime.fromisoformat(daemon.get("/me")["now"])
    return (now - datetime.fromisoformat(at)).total_seconds()
