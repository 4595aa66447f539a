"""A stand-in for an NVIDIA infra controller (NICo): its REST API as far as hosts are listed.

Its shape comes from the published OpenAPI document of the REST API, version 1.5.0
(`rest-api/openapi/spec.yaml` of NVIDIA/infra-controller at a02fa34b): paths, query parameters,
names of fields, values of MachineStatus, pages of at most 100, and which lists a provider alone
gets. `components` of a rack carry a machine's id in `componentId`, in version 2.0.0 in `id`. It
answers nothing that the document does not have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from answering import Query, Served, serve_answers

ORG = "acme"
TOKEN = "jwt.of.the-provider"
SITE = "60189e9c-7d12-438c-b9ca-6998d9c364b1"
PROVIDER = "e94bcfda-f6cb-42e4-80ec-516811e5abbf"
TENANT = "f97df110-f4de-492e-8849-4a6af68026b0"
FIELDS = frozenset(
    {
        "id",
        "siteId",
        "instanceId",
        "tenantId",
        "vendor",
        "serialNumber",
        "maintenanceMessage",
        "metadata",
        "labels",
        "status",
    }
)
STATES = frozenset(
    {
        "Initializing",
        "Ready",
        "Reset",
        "Maintenance",
        "InUse",
        "Error",
        "Decommissioned",
        "Unknown",
    }
)
PARAMETERS: Mapping[str, frozenset[str]] = {
    "site": frozenset(),
    "machine": frozenset({"siteId", "includeMetadata", "orderBy"}),
    "expected-machine": frozenset({"siteId"}),
    "rack": frozenset({"siteId", "includeComponents"}),
    "tenant/account": frozenset({"infrastructureProviderId"}),
}
PAGES = frozenset({"pageNumber", "pageSize"})
PAGE_MAX = 100


def machine(number: int, status: str, **fields: Any) -> dict[str, Any]:
    """Return a machine as a provider gets it with its metadata."""
    assert status in STATES
    used = status == "InUse"
    row = {
        "id": f"fm100{number:04d}",
        "siteId": SITE,
        "instanceId": "497f6eca-6276-4993-bfeb-53cbbbba6f08" if used else None,
        "tenantId": TENANT if used else None,
        "vendor": "Supermicro",
        "serialNumber": f"S{number}",
        "maintenanceMessage": None,
        "metadata": {
            "dmiData": {"biosVersion": "1.4", "productSerial": f"S{number}"},
            "bmcInfo": {"ip": f"10.0.0.{number}", "mac": None, "firmwareRevision": "11.01.01"},
        },
        "labels": {},
        "status": status,
        **fields,
    }
    assert set(row) <= FIELDS
    return row


@dataclass
class Records:
    """What it answers, by the last part of the path; `refused`: lists that are not shown."""

    machines: list[dict[str, Any]]
    refused: frozenset[str] = frozenset()
    machine_key: str = "componentId"
    names: dict[str, str] = field(default_factory=dict)  # machine id -> name

    def list(self, kind: str) -> list[dict[str, Any]]:
        """Return every record of a kind."""
        if kind == "machine":
            return self.machines
        if kind == "site":
            return [{"id": SITE, "name": "fra1", "status": "Registered"}]
        if kind == "tenant/account":
            return [{"id": "a1", "tenantId": TENANT, "tenantOrg": "red", "status": "Ready"}]
        if kind == "expected-machine":
            return [
                {"id": f"e{m['id']}", "machineId": m["id"], "name": self.names.get(m["id"])}
                for m in self.machines
            ]
        components = [
            {self.machine_key: m["id"], "type": "Compute", "powerState": "on"}
            for m in self.machines
        ]
        return [{"id": "r1", "name": "rack1", "components": components}]


@contextmanager
def serve_nico(records: Records) -> Iterator[Served]:
    """Serve the records page by page. Another token gets 401, an unknown parameter 400."""
    base = f"/v2/org/{ORG}/nico/"

    def answer(path: str, query: Query, headers: Mapping[str, str]) -> tuple[int, Any]:
        kind = path.removeprefix(base)
        if headers.get("Authorization") != f"Bearer {TOKEN}":
            return 401, {"message": "unauthorized"}
        if kind == "infrastructure-provider/current":
            return 200, {"id": PROVIDER, "org": ORG}
        if kind not in PARAMETERS or kind in records.refused:
            return (403 if kind in records.refused else 404), {"message": "-"}
        if set(query) - PAGES - PARAMETERS[kind]:
            return 400, {"message": "unknown parameter"}
        if kind == "rack" and "siteId" not in query:
            return 400, {"message": "siteId is required"}
        size = int(query["pageSize"][0])
        if not 1 <= size <= PAGE_MAX:
            return 400, {"message": "pageSize"}
        first = (int(query["pageNumber"][0]) - 1) * size
        return 200, records.list(kind)[first : first + size]

    with serve_answers(answer) as served:
        yield served
