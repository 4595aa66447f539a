"""Serves a recorded BMC: reads are answered from the recording, writes are refused.

A recording shows one moment, and nothing that a write would change; so any write but a login is
HTTP 405. Any user and password log in.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from provisioner.sim.redfish.redfish_answers import Answer, make_answer, make_error

SESSIONS = "/redfish/v1/SessionService/Sessions"


class Replay:
    """The Redfish service of one recording."""

    def __init__(self, tree: Mapping[str, Mapping[str, Any]]) -> None:
        self._tree = tree
        self._sessions = 0

    def handle(
        self,
        method: str,
        path: str,
        _query: Mapping[str, str],
        _headers: Mapping[str, str],
        _body: bytes,
    ) -> Answer:
        """Answer one request; queries are ignored, as a service without them does."""
        place = path.rstrip("/")
        if method in ("GET", "HEAD"):
            body = self._tree.get(place)
            if body is None:
                return make_error(HTTPStatus.NOT_FOUND, "ResourceMissingAtURI", place[:200])
            return make_answer(HTTPStatus.OK, dict(body))
        if method == "POST" and place == SESSIONS:
            self._sessions += 1
            session = f"{SESSIONS}/{self._sessions}"
            headers = {"X-Auth-Token": f"replay-{self._sessions}", "Location": session}
            return make_answer(HTTPStatus.CREATED, {"@odata.id": session}, headers)
        if method == "DELETE" and place.startswith(f"{SESSIONS}/"):
            return make_answer(HTTPStatus.NO_CONTENT)
        return make_error(HTTPStatus.METHOD_NOT_ALLOWED, "OperationNotAllowed")
