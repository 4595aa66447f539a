"""Two hosts with a past: one half way to a newer release, one proved, certified and released."""

from __future__ import annotations

from console_release import MOVES, NEWER, seen
from given_events import event_of
from served import PROFILE, RELEASE
from sqlalchemy import Connection

from provisioner.model.certificate import Certificate, GateProof
from provisioner.model.cohort import CheckResult, Finding, Gate, HealthReport, Severity, Verdict
from provisioner.model.operation import ActionStatus
from provisioner.store.rows import evidence_rows
from provisioner.store.sql_store import SqlStore

UNDER_WAY, PROVED = "su1-n15", "su1-n00"
CHECKS = {
    "gpu_inventory": Gate.A, "nvlink": Gate.A, "pcie_link": Gate.A, "row_remap": Gate.A,
    "dcgm_diag": Gate.B, "gpu_burn": Gate.B, "nvbandwidth": Gate.B,
    "rail_port": Gate.C, "nccl_collectives": Gate.C, "congestion": Gate.C,
}  # fmt: skip
JOURNEY = (
    ("discovered", "its BMC answered", 9000),
    ("intake", "it is on the expected-hardware list", 8800),
    ("converging", "it was taken in: 4 components are not at their pins", 8000),
    ("validating", "everything that site-2026.1 pins runs", 6000),
    ("certified", "gates A, B and C passed", 4000),
    ("converging", "campaign c0001 brings it to site-2026.2", 2400),
)


async def put_stories(store: SqlStore, hosts: list[tuple[str, str]], now: float) -> None:
    """What each (host, release) shows, and the past of the two."""

    def look(connection: Connection) -> None:
        for name, release in hosts:
            done = 1 if name == UNDER_WAY else len(MOVES) if release == NEWER else 0
            evidence_rows.put_inventory(connection, seen(name, done), now)
        evidence_rows.put_report(connection, report(PROVED, now - 3000))
        evidence_rows.put_report(connection, report(UNDER_WAY, now - 4100, "optics"))
        evidence_rows.put_certificate(connection, proof(now))

    await store.write(look)
    for state, why, before in JOURNEY:
        await store.journal.append(
            event_of("state", UNDER_WAY, {"to": state, "why": why}), now - before
        )
    for state, why, before in JOURNEY[:5]:
        await store.journal.append(
            event_of("state", PROVED, {"to": state, "why": why}), now - before
        )
    await store.journal.append(
        event_of("state", PROVED, {"to": "released", "why": "tenant red wants 2"}), now - 600
    )
    await put_actions(store, now)


async def put_actions(store: SqlStore, now: float) -> None:
    """The ledger of the one that is under way."""
    operation = await store.operations.open(UNDER_WAY, "release", now - 2400)
    acts = (
        ("update host.doca host 2.10.0-0.5.3 3.3.0-088000", ActionStatus.CONFIRMED, "seen"),
        ("warm_reboot #1", ActionStatus.CONFIRMED, "boot id changed"),
        ("update hgx.bundle HGX_0 1.6.0 1.7.0", ActionStatus.SENT, ""),
    )
    for n, (action, status, outcome) in enumerate(acts):
        at = now - 2300 + 600 * n
        operation, entry = await store.operations.intend(operation, action, {}, at)
        operation, _ = await store.operations.settle(
            operation, entry, status, task="", outcome=outcome, now=at + 240
        )


def report(node: str, at: float, warned: str = "") -> HealthReport:
    """Every check passed; one of them saw something to be told."""
    told = Finding(
        part="NIC_3", severity=Severity.MONITOR, detail="receives 0.4 dB less than its twin",
        measured="-2.1 dBm", wanted="-1.7 dBm",
    )  # fmt: skip
    results = tuple(
        CheckResult(
            check=check, gate=gate, verdict=Verdict.PASS, evidence=f"{n:02x}" * 32,
            findings=(told,) if warned and check == "rail_port" else (),
        )
        for n, (check, gate) in enumerate(CHECKS.items(), 161)
    )  # fmt: skip
    return HealthReport(
        node=node, inventory_digest=seen(node, 0).digest(), started_at=at - 1800, ended_at=at,
        results=results, selected=tuple(CHECKS),
    )  # fmt: skip


def proof(now: float) -> Certificate:
    inventory = seen(PROVED, len(MOVES))
    return Certificate(
        id=f"cert-{PROVED}",
        node=PROVED,
        release=RELEASE,
        profile=PROFILE,
        serials=tuple(sorted(d.serial for d in inventory.devices if d.serial)),
        versions=tuple(sorted((f"{c.kind}/{c.slot}", c.version) for c in inventory.components)),
        boot_id="0e4c6a52",
        location="su1",
        ports=tuple(f"leaf-su1-r{r}/swp0s0" for r in range(8)),
        report_digest="5a" * 32,
        matrix_digest="c3" * 32,
        checks=tuple(sorted(CHECKS)),
        gates=tuple(
            GateProof(gate=g, certificate=f"cert-{PROVED}", proved_at=now - 3000)
            for g in (Gate.A, Gate.B, Gate.C)
        ),
        issued_at=now - 3000,
        expires_at=now + 30 * 86400,
        key_id="9f" * 32,
        signature="00",
    )
