"""An NVIDIA infra controller (NICo): its machines are read by GET alone, with a provider's right.

Expected machines, racks, sites and tenants' accounts fill in names, power states and places; where
the token may not read them, they count as not recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from provisioner.integrations.inventories.deciding.belief import SourceRow
from provisioner.integrations.inventories.deciding.nico_machines import (
    NicoRecords,
    list_records,
    list_rows,
)
from provisioner.integrations.inventories.record_service import RecordService
from provisioner.model.input_error import InputError
from provisioner.ports import Secret
from provisioner.ports.errors import Malformed, TooLarge

PAGE = 100  # the most that it gives in one answer
RECORDS_MAX = 65_536
ABSENT = frozenset({400, 403, 404})  # of all lists but the machines: not offered, or not allowed
NAME = "NICo"


class Nico:
    """One NICo. Methods raise `PortError`."""

    def __init__(self, url: str, org: str, token: Secret, ca_file: str | None = None) -> None:
        """`token`: a JWT of the organisation's provider."""
        if not org.isascii() or not org.replace("-", "").replace("_", "").isalnum():
            raise InputError("--org", org[:80], "it is no name of an org", "Name NICo's org.")
        root = url.rstrip("/").removesuffix("/v2")
        self._service = RecordService(NAME, root, login="--token-file", ca_file=ca_file)
        self._service.headers["Authorization"] = f"Bearer {token.reveal()}"
        self._base = f"/v2/org/{quote(org, safe='')}/nico"

    def read_rows(self, sites: tuple[str, ...] = ()) -> tuple[SourceRow, ...]:
        """Return every machine of these sites (names), or of all that the token may see."""
        listed = tuple(self._list_pages("site", {}, ABSENT))
        chosen = [s for s in listed if not sites or s.get("name") in sites]
        if absent := sorted(set(sites) - {str(s.get("name")) for s in listed}):
            problem = f"{NAME} has no such site, or does not show it"
            raise InputError("--site", absent[0][:80], problem, "Name one of its sites.")
        numbers = [str(s["id"]) for s in chosen if s.get("id")]
        machines: list[Mapping[str, Any]] = []
        for query in [{"siteId": n} for n in numbers] if sites else [{}]:
            query = {**query, "includeMetadata": "true", "orderBy": "ID_ASC"}
            machines += self._list_pages("machine", query)
        racks: list[Mapping[str, Any]] = []
        for number in numbers:
            query = {"siteId": number, "includeComponents": "true"}
            racks += self._list_pages("rack", query, ABSENT)
        records = NicoRecords(
            machines=tuple(machines),
            expected=tuple(self._list_pages("expected-machine", {}, ABSENT)),
            racks=tuple(racks),
            sites=listed,
            accounts=tuple(self._list_accounts()),
        )
        return list_rows(records)

    def _list_accounts(self) -> Iterator[Mapping[str, Any]]:
        """Yield the tenants' accounts, whose orgs are the tenants' names."""
        provider = self._service.get(f"{self._base}/infrastructure-provider/current", ABSENT)
        number = provider.get("id") if isinstance(provider, dict) else None
        if isinstance(number, str):
            query = {"infrastructureProviderId": number}
            yield from self._list_pages("tenant/account", query, ABSENT)

    def _list_pages(
        self, kind: str, query: Mapping[str, str], absent: frozenset[int] = frozenset()
    ) -> Iterator[Mapping[str, Any]]:
        for number in range(1, RECORDS_MAX // PAGE + 1):
            text = urlencode({**query, "pageNumber": number, "pageSize": PAGE})
            document = self._service.get(f"{self._base}/{kind}?{text}", absent)
            try:
                page = () if document is None else list_records(document)
            except ValueError as error:
                raise Malformed(f"{NAME}: {kind}: {error}") from None
            yield from page
            if len(page) < PAGE:
                return
        raise TooLarge(f"{NAME}: more than {RECORDS_MAX} records of {kind}")
