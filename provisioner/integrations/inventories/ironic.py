"""An OpenStack Ironic: its nodes are read by GET alone, with the caller's own right.

Pages are asked for by the last record's id: `next` may name any host.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from provisioner.integrations.inventories.deciding.belief import Belief, SourceRow
from provisioner.integrations.inventories.deciding.ironic_nodes import (
    list_links,
    list_nodes,
    list_ports,
    read_belief,
)
from provisioner.integrations.inventories.record_service import RecordService
from provisioner.ports import Secret
from provisioner.ports.errors import Malformed, PortError, TooLarge

PAGE = 200  # records in one answer
RECORDS_MAX = 65_536 * 16
VERSION_HEADER = "X-OpenStack-Ironic-API-Version"
VERSION = (1, 86)  # the first one that has firmware components; inventories came with 1.81
OLDEST = (1, 65)  # the first one that shows a node's lessee
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
        root = url.rstrip("/").removesuffix("/v1")
        options = "--token-file or --user"
        self._service = RecordService("Ironic", root, login=options, ca_file=ca_file)
        headers = self._service.headers
        if token is not None:
            headers["X-Auth-Token"] = token.reveal()
        if login is not None:
            pair = f"{login[0]}:{login[1].reveal()}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"

    def read(self) -> tuple[Belief, ...]:
        """Return the record of every node that the login may see."""
        self._agree_on_version()
        beliefs = []
        for node in self._list_pages("nodes", list_nodes):
            path = f"/v1/nodes/{quote(str(node['uuid']), safe='')}"
            firmware = self._service.get(f"{path}/firmware", absent=ABSENT)
            inventory = self._service.get(f"{path}/inventory", absent=ABSENT)
            beliefs.append(read_belief(node, firmware, inventory))
        return tuple(beliefs)

    def read_rows(self) -> tuple[SourceRow, ...]:
        """Return every node with the leaf ports that its Ironic ports name."""
        beliefs = self.read()
        links = list_links(tuple(self._list_pages("ports", list_ports)))
        return tuple(SourceRow(belief=b, ports=links.get(b.key, ())) for b in beliefs)

    def _agree_on_version(self) -> None:
        """Ask for the newest version that both sides speak."""
        root = self._service.get("/v1")
        shown = root.get("version") if isinstance(root, dict) else None
        newest = _parse_version(shown.get("version") if isinstance(shown, dict) else None)
        if newest < OLDEST:
            spoken = ".".join(map(str, newest))
            raise PortError(f"Ironic: its API is {spoken}; 1.65 or newer is needed")
        self._service.headers[VERSION_HEADER] = ".".join(map(str, min(newest, VERSION)))

    def _list_pages(
        self, kind: str, parse: Callable[[object], Sequence[Mapping[str, Any]]]
    ) -> Iterator[Mapping[str, Any]]:
        last = ""
        for _ in range(RECORDS_MAX // PAGE):
            after = f"&marker={quote(last, safe='')}" if last else ""
            try:
                page = parse(self._service.get(f"/v1/{kind}/detail?limit={PAGE}{after}"))
            except ValueError as error:
                raise Malformed(f"Ironic: {error}") from None
            yield from page
            if not page or str(page[-1]["uuid"]) == last:
                return
            last = str(page[-1]["uuid"])
        raise TooLarge(f"Ironic: more than {RECORDS_MAX} {kind}")


def _parse_version(text: object) -> tuple[int, int]:
    major, _, minor = str(text).partition(".")
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else (0, 0)
