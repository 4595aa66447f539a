"""What the console shows in its tests: two units in every state, a campaign, a case, a liar."""

from __future__ import annotations

from functools import partial

from console_release import NEWER
from console_stories import PROVED, UNDER_WAY, put_stories
from given_events import event_of
from served import PROFILE, RELEASE, fill
from sqlalchemy import Connection

from provisioner.model.campaign import (
    Campaign,
    CampaignNode,
    CampaignRow,
    CampaignState,
    NodeProgress,
    Progress,
)
from provisioner.model.case import (
    Case,
    Fault,
    Origin,
    PartClass,
    RemedyKind,
    RemedyOutcome,
    RemedyTry,
    Service,
    Stage,
    StageTime,
    Suspect,
    Ticket,
)
from provisioner.model.cohort import CheckResult, Finding, Gate, HealthReport, Severity, Verdict
from provisioner.model.inventory import Activation, BackgroundCopy, Component, Device, DeviceKind
from provisioner.model.inventory import Inventory as Seen
from provisioner.model.location import Location, Port
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.store.rows import evidence_rows
from provisioner.store.sql_store import SqlStore

EVIL = "<img src=x onerror=\"document.title='owned'\"><script>window.owned=1</script>\u202eOK"
PROGRESS = (
    Progress.DONE, Progress.DONE, Progress.DONE, Progress.SOAKING, Progress.ADMITTED,
    Progress.FAILED, Progress.ADMITTED, Progress.NOTIFIED, Progress.PENDING, Progress.PENDING,
    Progress.PENDING, Progress.DEFERRED,
)  # fmt: skip


async def fill_console(store: SqlStore, now: float, *, liar: bool = True) -> None:
    """The API tests' fleet, and beside it two units with leaves, a campaign, a case, a liar."""
    await fill(store)
    states = [*[State.RELEASED] * 9, *[State.CERTIFIED] * 4, *State]
    hosts = []
    for number in range(48):
        row = host(number, states[number % len(states)], now)
        await store.nodes.add(row)
        hosts.append((row.id, row.release))
        if row.id in (PROVED, UNDER_WAY):
            continue
        await store.journal.append(
            event_of("state", row.id, {"to": "intake", "why": "identified"}), now - 7200
        )
        detail = {"to": row.state.value, "why": "everything that it waited for is so"}
        await store.journal.append(event_of("state", row.id, detail), row.entered_at)
    for unit in (1, 2):
        for rail in range(8):
            name = f"leaf-su{unit}-r{rail}"
            leaf = Node(
                id=name, kind=NodeKind.SWITCH, state=State.RELEASED, release=RELEASE,
                entered_at=now - 9e4, location=Location(scalable_unit=unit),
            )  # fmt: skip
            await store.nodes.add(leaf)
    await put_stories(store, hosts, now)
    if liar:
        await put_liar(store, now)
    await put_campaign(store, now)
    await put_case(store, now, EVIL if liar else "NVRM: Xid 79, GPU has fallen off the bus.")
    while await store.usage.advance():
        pass


def host(number: int, state: State, now: float) -> Node:
    unit, index = 1 + number // 24, number % 24
    tenant = ("red", "blue")[number % 2] if state is State.RELEASED else ""
    blocker = Blocker(
        reason=Reason.CHECK_FAILED, subject="nvlink", unblock="Reseat GPU 5, then try it again.",
        detail="GPU_SXM_5 has 17 of 18 links",
    )  # fmt: skip
    return Node(
        id=f"su{unit}-n{index:02d}",
        kind=NodeKind.HOST,
        state=state,
        entered_at=now - 600.0 * (number % 4 + 1),
        placement=Placement.CUSTOMER if tenant else Placement.MAINTENANCE,
        vrf=tenant.upper() or "MAINT",
        release=RELEASE if number % 3 and state is not State.CONVERGING else NEWER,
        profile=PROFILE,
        tenant=tenant,
        served=tenant,
        certificate=f"cert-{PROVED}" if number == 0 else "",
        location=Location(scalable_unit=unit, rack=f"su{unit}-rack{index // 4}", index=index),
        ports=tuple(
            Port(
                switch=f"leaf-su{unit}-r{r}", interface=f"swp{index}s0", rail=r, nic_slot=f"NIC_{r}"
            )
            for r in range(8)
        ),
        blockers=(blocker,) if state is State.QUARANTINED else (),
        note="wait for the BMC to come back" if state is State.CONVERGING else "",
    )


async def put_liar(store: SqlStore, now: float) -> None:
    """A node whose serials, versions and findings are markup."""
    blocker = Blocker(reason=Reason.CHECK_FAILED, subject=EVIL, detail=EVIL, unblock="Reseat it.")
    row = Node(
        id="su1-liar", kind=NodeKind.HOST, state=State.QUARANTINED, entered_at=now - 60,
        release=RELEASE, profile=PROFILE, blockers=(blocker,), note=EVIL,
        location=Location(scalable_unit=1, rack=EVIL[:40], index=99),
    )  # fmt: skip
    await store.nodes.add(row)
    seen = Seen(
        node=row.id,
        vendor="generic",
        model=EVIL,
        components=(
            Component(kind="host.bios", slot="host", version=EVIL, source="/redfish"),
            Component(
                kind="hgx.bundle", slot="HGX_0", version="1.6.0", staged="1.7.0",
                pending=Activation.COLD_BOOT, background_copy=BackgroundCopy.IN_PROGRESS,
                source="/redfish",
            ),
        ),
        devices=(Device(kind=DeviceKind.GPU, slot="GPU_SXM_5", serial=EVIL, model="H100"),),
    )  # fmt: skip
    fault = Finding(part=EVIL, severity=Severity.RESET_GPU, detail=EVIL, measured="17", wanted="18")
    results = (
        CheckResult(check="gpu_inventory", gate=Gate.A, verdict=Verdict.PASS, evidence="ab" * 32),
        CheckResult(check="nvlink", gate=Gate.A, verdict=Verdict.FAIL, findings=(fault,)),
    )
    report = HealthReport(
        node=row.id, inventory_digest=seen.digest(), started_at=now - 300, ended_at=now - 200,
        results=results,
    )  # fmt: skip

    def work(connection: Connection) -> None:
        evidence_rows.put_inventory(connection, seen, now)
        evidence_rows.put_report(connection, report)

    await store.write(work)
    await store.journal.append(
        event_of("state", row.id, {"to": "quarantined", "why": EVIL}), now - 60
    )


async def put_campaign(store: SqlStore, now: float) -> None:
    """c0001: started, a canary failed, others under way; c0002 is a draft."""
    book = store.campaigns
    going = Campaign(
        id="c0001", release=NEWER, select="su=1 and kind=host", state=CampaignState.STARTED,
        baseline=RELEASE, created_by="ada", created_at=now - 9000, started_at=now - 8000,
    )  # fmt: skip
    saved = await book.add(going, "ada", now - 9000)
    rows = [
        CampaignRow(
            campaign="c0001",
            progress=NodeProgress(
                node=f"su1-n{n:02d}", wave=min(n // 5, 2), state=state,
                admitted_at=now - 5000 if n < 7 else 0.0,
                finished_at=now - 2000 if state in (Progress.DONE, Progress.FAILED) else 0.0,
                reason="update_failed: hgx.bundle" if state is Progress.FAILED else "",
            ),
            facts=CampaignNode(name=f"su1-n{n:02d}"),
        )
        for n, state in enumerate(PROGRESS)
    ]  # fmt: skip
    await book.put_rows(saved, rows, now - 1000)
    draft = Campaign(
        id="c0002", release=NEWER, select="su=2 and kind=host", created_by="ada", created_at=now
    )
    await book.add(draft, "ada", now)


async def put_case(store: SqlStore, now: float, words: str) -> None:
    stages = ("evidence", "diagnosis", "remedy", "measuring", "diagnosis", "hardware")
    trial = partial(RemedyTry, part="GPU_SXM_5", kind=PartClass.GPU, before=("xid 79",))
    case = Case(
        id="su1-n05-c0001", node="su1-n05", origin=Origin.CHECK, by="gate A", tenant="blue",
        reason="GPU 5 fell off the bus", service=Service.CUT_OFF, stage=Stage.HARDWARE,
        opened_at=now - 7200,
        stages=tuple(
            StageTime(stage=Stage(s), at=now - 7000 + 900 * n) for n, s in enumerate(stages)
        ),
        faults=(Fault(source="xid", id="xid 79", part="GPU_SXM_5", detail=words, count=3),),
        suspects=(
            Suspect(part="GPU_SXM_5", kind=PartClass.GPU, confidence=0.82, rule="xid-79",
                    why="It fell off the bus, twice, on this GPU only.", serial="1652923012345",
                    evidence=("dmesg: NVRM: Xid (PCI:0000:cb:00): 79",)),
            Suspect(part="host", kind=PartClass.BASEBOARD, confidence=0.21, rule="rest",
                    why="Another GPU of the same baseboard was replaced a month ago."),
        ),
        tries=(
            trial(remedy=RemedyKind.GPU_RESET, attempt=1, started_at=now - 6000,
                  measured_at=now - 5400, outcome=RemedyOutcome.SAME, after=("xid 79",)),
            trial(remedy=RemedyKind.COLD_BOOT, attempt=1, started_at=now - 5000,
                  measured_at=now - 3000, outcome=RemedyOutcome.SAME, after=("xid 79",)),
        ),
        ticket=Ticket(id="HW-4711", system="webhook", opened_at=now - 2000, led=True,
                      work="Replace GPU_SXM_5."),
    )  # fmt: skip
    await store.cases.add(case, events=[event_of("case", case.node, {"case": case.id})], now=now)
