"""A served API on a store in memory: a small fleet of two tenants, a token for each role."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp.test_utils import TestClient, TestServer
from given_events import event_of

from provisioner.access.tokens import DAY_S, new_token
from provisioner.api import table
from provisioner.api.app import build_application
from provisioner.api.parts import ApiParts
from provisioner.control.context import Context
from provisioner.control.fabric.tenant_keeper import TenantKeeper
from provisioner.daemon.api import api_parts
from provisioner.daemon.data import read_matrix
from provisioner.model.access import Role, Scope
from provisioner.model.alert import Alert
from provisioner.model.certificate import Certificate
from provisioner.model.cohort import CheckResult, Finding, Gate, HealthReport, Severity, Verdict
from provisioner.model.inventory import Component, Inventory
from provisioner.model.location import Location, Port
from provisioner.model.matrix import Matrix
from provisioner.model.node import BmcRef, Node, NodeKind, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.tenant import Tenant
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.tenancy.vrf_plan import FabricPlan
from provisioner.runtime.integrations import open_doors
from provisioner.settings import Settings
from provisioner.store.rows import evidence_rows
from provisioner.store.rows import request_rows as token_rows
from provisioner.store.sql_store import SqlStore, open_store

# read once: it is frozen
FILE = Path(__file__).parents[2] / "firmware_matrix.yaml"
MATRIX = read_matrix([FILE])
RELEASE, PROFILE = "spectrum-x-1.3.0", "hgx-h100-bf3"
NOW = 1_800_000_000.0
ELSEWHERE = Scope(racks=("su9-*",))  # no node of this fleet is there


# for tests that ask thousands of times within a minute: limits are tests of their own
RATES = ("api_requests_per_min", "api_changes_per_min", "api_audit_rows_per_h")
WIDE = dict.fromkeys((*RATES, "api_failed_logins_per_min", "api_keys_per_caller"), 1_000_000)


class StillClock:
    """Time that stands still until a test moves it."""

    def __init__(self) -> None:
        self.at = NOW

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


class Served:
    """The parts, a client, and a token by role; "red" and "blue" are tenants' tokens.

    Those with a "-" have a scope.
    """

    def __init__(self, parts: ApiParts, client: TestClient, tokens: dict[str, str]) -> None:
        self.parts, self.client, self.tokens = parts, client, tokens
        self.store: SqlStore = parts.store

    def key(self, who: str, **more: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens[who]}", **more}

    async def ask(
        self, who: str, verb: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, Any]:
        """(status, JSON) of one request."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        given = {} if body is None else {"json": body}
        answer = await self.client.request(
            verb, "/v1" + path, headers={**self.key(who), **named}, **given
        )
        text = await answer.text()
        return answer.status, await answer.json(content_type=None) if text else None


def node(number: int, tenant: str = "", state: State = State.CERTIFIED, **more: Any) -> Node:
    name = f"su0-n{number:02d}"
    return Node(
        id=name,
        kind=NodeKind.HOST,
        state=state,
        entered_at=NOW - 100.0,
        placement=Placement.CUSTOMER if tenant else Placement.MAINTENANCE,
        vrf=tenant.upper() or "MAINT",
        release=RELEASE,
        profile=PROFILE,
        tenant=tenant,
        served=tenant,
        certificate=f"cert-{name}",
        location=Location(rack=f"su0-rack{number % 2}", index=number),
        ports=(Port(switch="leaf-su0-r0", interface=f"swp{number}", rail=0, nic_slot="NIC_1"),),
        bmcs=(BmcRef(name="host", url=f"https://10.0.0.{number}"),),
        **more,
    )


async def fill(store: SqlStore) -> None:
    """Six nodes and a leaf: n01 and n02 are red's, n03 is blue's, n05 is quarantined."""
    await store.tenants.put(Tenant(name="red", vrf="RED", nodes_wanted=2))
    await store.tenants.put(Tenant(name="blue", vrf="BLUE", nodes_wanted=1))
    blocker = Blocker(
        reason=Reason.CHECK_FAILED, subject="gpu", detail="one is missing", unblock="Reseat it."
    )
    rows = [
        node(1, "red", State.RELEASED),
        node(2, "red", State.RELEASED),
        node(3, "blue", State.RELEASED),
        node(4),
        node(5, state=State.QUARANTINED, blockers=(blocker,)),
        node(6),
        Node(id="leaf-su0-r0", kind=NodeKind.SWITCH, state=State.RELEASED),
    ]
    for row in rows:
        await store.nodes.add(row)
        await store.journal.append(
            event_of("state", row.id, {"to": row.state.value, "why": "made"}), NOW - 50.0
        )
        await store.write(partial(_of_node, row=row))
    alert = partial(Alert, target="FAN_1", source="watch", since=NOW - 9, last_at=NOW - 9)
    book = store.alerts
    await book.put([alert(node=n, id="FanFailed") for n in ("su0-n01", "su0-n03")], [], NOW)


def _of_node(connection: Any, row: Node) -> None:
    seen = Inventory(
        node=row.id,
        vendor="generic",
        components=(Component(kind="host.bios", slot="host", version="1.0", source="/redfish"),),
    )
    evidence_rows.put_inventory(connection, seen, NOW)
    fault = Finding(part="GPU_SXM_5", severity=Severity.RESET_GPU, detail="missing")
    result = CheckResult(
        check="gpu_inventory", gate=Gate.A, verdict=Verdict.FAIL, findings=(fault,)
    )
    report = HealthReport(
        node=row.id, inventory_digest=seen.digest(), started_at=1.0, ended_at=2.0, results=(result,)
    )
    evidence_rows.put_report(connection, report)
    if row.certificate:
        evidence_rows.put_certificate(connection, certificate(row))


def certificate(row: Node) -> Certificate:
    return Certificate(
        id=row.certificate,
        node=row.id,
        release=row.release,
        profile=row.profile,
        serials=("S1",),
        versions=(("host.bios/host", "1.0"),),
        boot_id="b",
        location=str(row.location),
        ports=("leaf-su0-r0/swp1",),
        report_digest="0" * 64,
        matrix_digest="0" * 64,
        issued_at=NOW - 100.0,
        expires_at=NOW + 1000.0,
        key_id="k",
        signature="00",
    )


async def no_leaves() -> FabricPlan:
    return FabricPlan(plan=AddressPlan(), leaves=())


@asynccontextmanager
async def serving(
    artifacts: Path = Path("artifacts"), matrix: Matrix = MATRIX, **settings: Any
) -> AsyncIterator[Served]:
    """The API on a filled store in memory."""
    store = open_store(":memory:")
    clock = StillClock()
    try:
        await fill(store)
        tokens = {}
        for name, role, tenant, scope in (
            ("viewer", Role.VIEWER, "", Scope()),
            ("operator", Role.OPERATOR, "", Scope()),
            ("approver", Role.APPROVER, "", Scope()),
            ("red", Role.TENANT, "red", Scope()),
            ("blue", Role.TENANT, "blue", Scope()),
            ("operator-elsewhere", Role.OPERATOR, "", ELSEWHERE),
            ("approver-elsewhere", Role.APPROVER, "", ELSEWHERE),
            ("operator-rack1", Role.OPERATOR, "", Scope(racks=("su0-rack1",))),
            ("operator-red", Role.OPERATOR, "", Scope(tenants=("red",))),
            ("operator-release", Role.OPERATOR, "", Scope(releases=("spectrum-x-2.*",))),
        ):
            token, record = new_token(f"{name}@example", role, tenant, 30.0, NOW - DAY_S, scope)
            await store.write(partial(token_rows.add_token, token=record, now=NOW))
            tokens[name] = token
        keeper = TenantKeeper(store, clock, [], no_leaves)
        chosen = Settings(**settings)
        parts = api_parts(
            store,
            keeper,
            matrix,
            artifacts,
            Context(store, clock, chosen),
            matrix_texts=[(FILE.name, FILE.read_text(encoding="utf-8"))],
        )
        doors = open_doors(chosen, clock, store.directory)
        async with TestClient(TestServer(build_application(parts, table.ALL, doors))) as client:
            yield Served(parts, client, tokens)
    finally:
        await store.close()


def run(scenario: Callable[[Served], Awaitable[None]], **settings: Any) -> None:
    """One scenario on a served API, within a minute."""

    async def bounded() -> None:
        async with asyncio.timeout(60), serving(**settings) as served:
            await scenario(served)

    asyncio.run(bounded())
