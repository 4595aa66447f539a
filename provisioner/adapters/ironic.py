"""An OpenStack Ironic: its nodes are read by GET alone, with the caller's own right.

The client is synchronous: a caller with an event loop calls it in a thread. Links of answers are
not followed (`next` may name any host): pages are asked for by the last node's id.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import requests

from provisioner.model.input_error import InputError
from provisioner.model.integrations.belief import Belief
from provisioner.model.integrations.loopback import is_loopback
from provisioner.planning.intake.ironic_nodes import list_nodes, read_belief
from provisioner.ports import Secret
from provisioner.ports.errors import LoginRefused, Malformed, PortError, TooLarge, Unreachable

PAGE = 200  # nodes in one answer
NODES_MAX = 65_536
ANSWER_MAX = 32 * 2**20  # bytes of one answer
REQUEST_S = 60.0
TEXT_MAX = 300  # characters of a refusal
VERSION_HEADER = "X-OpenStack-Ironic-API-Version"
VERSION = (1, 86)  # the first one that has firmware components; inventories came with 1.81
OLDEST = (1, 65)  # the first one that shows a node's lessee
REFUSED = frozenset({401, 403})
ABSENT = frozenset({400, 404, 405, 406})  # of firmware and inventories: not recorded, or too old


class Ironic:
    """One Ironic. Methods raise `PortError`."""

    def __init__(
        self,
        url: str,
        *,
        token: Secret | None = None,
        login: tuple[str, Secret] | None = None,
        ca_file: str | None = None,
    ) -> None:
        """`token`: of Keystone; `login`: of Ironic's own HTTP basic authentication."""
        parts = urlsplit(url)
        if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname)):
            remedy = "Say https://; only a loopback address may be plain http."
            raise InputError("URL", url[:200], "a login goes over https only", remedy)
        if parts.username or parts.password:
            raise InputError("URL", "…", "it has a login in it", "Use --token-file or --user.")
        self._url = url.rstrip("/").removesuffix("/v1")
        self._session = requests.Session()
        self._session.trust_env = False  # no proxy and no .netrc: no other host gets the login
        self._session.verify = ca_file or True
        if token is not None:
            self._session.headers["X-Auth-Token"] = token.reveal()
        if login is not None:
            pair = f"{login[0]}:{login[1].reveal()}".encode()
            self._session.headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"

    def read(self) -> tuple[Belief, ...]:
        """Return the record of every node that the login may see."""
        self._agree_on_version()
        beliefs = []
        for node in self._list_nodes():
            path = f"/v1/nodes/{quote(str(node['uuid']), safe='')}"
            firmware = self._get(f"{path}/firmware", absent=ABSENT)
            inventory = self._get(f"{path}/inventory", absent=ABSENT)
            beliefs.append(read_belief(node, firmware, inventory))
        return tuple(beliefs)

    def _agree_on_version(self) -> None:
        """Ask for the newest version that both sides speak."""
        root = self._get("/v1")
        shown = root.get("version") if isinstance(root, dict) else None
        newest = _parse_version(shown.get("version") if isinstance(shown, dict) else None)
        if newest < OLDEST:
            spoken = ".".join(map(str, newest))
            raise PortError(f"Ironic: its API is {spoken}; 1.65 or newer is needed")
        self._session.headers[VERSION_HEADER] = ".".join(map(str, min(newest, VERSION)))

    def _list_nodes(self) -> Iterator[Mapping[str, Any]]:
        last = ""
        for _ in range(NODES_MAX // PAGE):
            after = f"&marker={quote(last, safe='')}" if last else ""
            try:
                page = list_nodes(self._get(f"/v1/nodes/detail?limit={PAGE}{after}"))
            except ValueError as error:
                raise Malformed(f"Ironic: {error}") from None
            yield from page
            if not page or str(page[-1]["uuid"]) == last:
                return
            last = str(page[-1]["uuid"])
        raise TooLarge(f"Ironic: more than {NODES_MAX} nodes")

    def _get(self, path: str, absent: frozenset[int] = frozenset()) -> Any:
        """Return the document at a path; None for a status of `absent`."""
        try:
            with self._session.get(
                f"{self._url}{path}", timeout=REQUEST_S, stream=True, allow_redirects=False
            ) as answer:
                body = answer.raw.read(ANSWER_MAX + 1, decode_content=True)
                status = answer.status_code
        except (requests.RequestException, OSError) as error:
            raise Unreachable(f"Ironic: {_clean(str(error))}", maybe_executed=True) from None
        if status in REFUSED:
            raise LoginRefused(f"Ironic: HTTP status {status} for {path}")
        if status in absent:
            return None
        if status != 200:
            raise PortError(f"Ironic: HTTP status {status} for {path}")
        if len(body) > ANSWER_MAX:
            raise TooLarge(f"Ironic: {path} has more than {ANSWER_MAX} bytes")
        try:
            return json.loads(body)
        except ValueError:
            raise Malformed(f"Ironic: {path} is no JSON") from None


def _parse_version(text: object) -> tuple[int, int]:
    major, _, minor = str(text).partition(".")
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else (0, 0)


def _clean(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)[:TEXT_MAX]
