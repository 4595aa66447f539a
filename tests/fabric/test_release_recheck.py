"""Looks into a moved host: settings and errors of its NICs, and whom each of its cards hears."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from release_rig import LEAF, MATRIX, NODE, PEER, RED, Bench, play

from provisioner.checks.threshold_data import Limit, Limits
from provisioner.execution.tenancy.release_recheck import ROWS, Rechecks, TenantSessions
from provisioner.model.cohort import Evidence
from provisioner.model.outcome import Reason
from provisioner.model.recovery import GateCheck, GateRow, RowVerdict
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.tenancy.vrf_plan import FabricPlan, LeafPlan
from provisioner.ports import ShellCommand, ShellOutput, Unreachable

TWO = frozenset({3, 7})
ASKED = ["nic_config", "roce_runtime", "rdma_counters", "lldp", "netdevs"]
Change = Callable[[str], str]


def looks(bench: Bench, thresholds: Mapping[str, Limits] | None = None) -> Rechecks:
    return Rechecks(bench.rig.effects, bench.rig.store, MATRIX, thresholds)


def answer(bench: Bench, command: str, change: Change) -> None:
    """From now on the host's output of a command is another one."""
    run = bench.rig.hosts.run

    async def running(*given: Any) -> list[ShellOutput]:
        commands: list[ShellCommand] = given[2]
        outputs = await run(*given)
        return [
            replace(o, stdout=change(o.stdout)) if c.name == command else o
            for c, o in zip(commands, outputs, strict=True)
        ]

    bench.rig.hosts.run = running  # type: ignore[method-assign]


def silence(bench: Bench) -> None:
    """The host gives no answer any more."""

    async def running(*_: Any) -> list[ShellOutput]:
        raise Unreachable("connection refused", maybe_executed=False)

    bench.rig.hosts.run = running  # type: ignore[method-assign]


def earlier(counters: Mapping[str, Evidence], seconds: int, errors: int) -> dict[str, Evidence]:
    """A reading from so many seconds ago, since when a port has counted so many errors."""
    [evidence] = counters.values()
    lines = []
    for line in evidence.text.splitlines():
        name, _, value = line.rpartition(":")
        if name == "/proc/uptime":
            now, idle = value.split()
            value = f"{float(now) - seconds} {idle}"
        elif name.endswith("mlx5_0/ports/1/counters/port_rcv_errors"):
            value = str(int(value) - errors)
        lines.append(f"{name}:{value}" if name else line)
    return {"rdma_counters": evidence.model_copy(update={"text": "\n".join(lines) + "\n"})}


async def look(
    bench: Bench, rechecks: Rechecks, before: Mapping[str, Evidence] | None = None
) -> Any:
    """The rows of one look; without `before` the counters were read just now."""
    leaves = await bench.rig.tenancy.look(bench.node().ports)
    assert isinstance(leaves, dict)
    counted = await rechecks.read_counters(bench.node()) if before is None else before
    return await rechecks.judge_host(bench.node(), counted, leaves)


def verdicts(rows: tuple[GateRow, ...]) -> list[tuple[GateCheck, str, RowVerdict]]:
    return [(r.check, r.subject, r.verdict) for r in rows]


GOOD = [
    (GateCheck.NIC_SETTINGS, f"{NODE} nic_config", RowVerdict.PASS),
    (GateCheck.NIC_SETTINGS, f"{NODE} roce_runtime", RowVerdict.PASS),
    (GateCheck.NIC_ERRORS, f"{NODE} rdma_counters", RowVerdict.PASS),
    (GateCheck.CABLES, NODE, RowVerdict.PASS),
]


def test_a_host_that_is_well_has_a_good_row_of_each_check_and_its_evidence_is_kept() -> None:
    async def scenario(bench: Bench) -> Any:
        rows = await look(bench, looks(bench))
        digest = await _digest(bench, rows[0].seen.removeprefix("evidence "))
        return rows, await bench.rig.store.evidence.get_output(digest), bench.rig.hosts.calls

    rows, text, calls = play(scenario, TWO)

    assert verdicts(rows) == GOOD
    assert [len(r.seen) for r in rows[:3]] == [len("evidence ") + 16] * 3
    assert rows[3].seen.startswith("2 cables ")
    assert calls == [["rdma_counters"], ASKED]
    evidence = json.loads(text)
    assert list(evidence) == sorted(ASKED)
    assert {e["exit_code"] for e in evidence.values()} == {0}


async def _digest(bench: Bench, beginning: str) -> str:
    rows = await bench.rig.store.read(
        lambda c: c.exec_driver_sql("SELECT digest FROM evidence").scalars().all()
    )
    [digest] = [d for d in rows if d.startswith(beginning)]
    return str(digest)


def test_what_is_counted_is_the_errors_of_the_rdma_ports() -> None:
    async def scenario(bench: Bench) -> Any:
        counted = await looks(bench).read_counters(bench.node())
        silence(bench)
        return counted, await looks(bench).read_counters(bench.node())

    counted, silent = play(scenario, TWO)

    assert list(counted) == ["rdma_counters"]
    assert "/counters/symbol_error:" in counted["rdma_counters"].text
    assert silent == {}


@pytest.mark.parametrize(
    ("site", "verdict"),
    [
        ({}, RowVerdict.PASS),
        ({"any": Limit(value=0.01, source="the site")}, RowVerdict.FAIL),
        ({"any": Limit(value=None, source="the site")}, RowVerdict.UNKNOWN),
    ],
    ids=["published", "the site's", "none"],
)
def test_errors_since_before_the_packets_are_judged_by_the_sites_thresholds(
    site: Limits, verdict: RowVerdict
) -> None:
    async def scenario(bench: Bench) -> Any:
        rechecks = looks(bench, {"port_rcv_errors_per_s": site} if site else None)
        old, new = "port_rcv_errors:0", "port_rcv_errors:9"
        answer(bench, "rdma_counters", lambda text: text.replace(old, new))
        counted = await rechecks.read_counters(bench.node())
        return await look(bench, rechecks, earlier(counted, seconds=60, errors=9))

    row = play(scenario, TWO)[2]

    assert (row.check, row.verdict) == (GateCheck.NIC_ERRORS, verdict)
    assert ("port_rcv_errors grows too fast" in row.seen) == (verdict is RowVerdict.FAIL)


def test_errors_before_the_packets_that_were_not_read_prove_nothing() -> None:
    async def scenario(bench: Bench) -> Any:
        return await look(bench, looks(bench), {})

    rows = play(scenario, TWO)

    assert verdicts(rows)[:2] == GOOD[:2]
    assert rows[2] == GateRow(
        check=GateCheck.NIC_ERRORS,
        subject=NODE,
        verdict=RowVerdict.UNKNOWN,
        seen="its counters were not read",
    )
    assert verdicts(rows)[3:] == GOOD[3:]


def test_a_setting_that_a_boot_has_lost_is_named_with_its_card() -> None:
    async def scenario(bench: Bench) -> Any:
        answer(bench, "roce_runtime", lambda text: text.replace("dscp", "pcp"))
        return await look(bench, looks(bench))

    row = play(scenario, TWO)[1]

    assert (row.subject, row.verdict) == (f"{NODE} roce_runtime", RowVerdict.FAIL)
    assert "trust-mode: the run-time setting differs from its pin" in row.seen


@pytest.mark.parametrize(("command", "at"), [("nic_config", 0), ("roce_runtime", 1)])
def test_settings_that_cannot_be_read_are_no_pass(command: str, at: int) -> None:
    async def scenario(bench: Bench) -> Any:
        answer(bench, command, lambda _text: "nonsense")
        return await look(bench, looks(bench))

    rows = play(scenario, TWO)

    assert (rows[at].subject, rows[at].verdict) == (f"{NODE} {command}", RowVerdict.FAIL)
    assert "cannot be judged" in rows[at].seen
    assert [r.verdict for r in rows].count(RowVerdict.PASS) == 3


def test_a_host_that_is_silent_has_unknown_rows_of_each_check() -> None:
    async def scenario(bench: Bench) -> Any:
        silence(bench)
        return await look(bench, looks(bench), {})

    rows = play(scenario, TWO)

    every = (GateCheck.NIC_SETTINGS, GateCheck.NIC_ERRORS, GateCheck.CABLES)
    assert every == ROWS
    assert verdicts(rows) == [(check, NODE, RowVerdict.UNKNOWN) for check in every]
    assert all("connection refused" in r.seen for r in rows)


def test_a_node_whose_parts_are_unknown_has_unknown_rows_of_each_check() -> None:
    async def scenario(bench: Bench) -> Any:
        await bench.rig.store.write(lambda c: c.exec_driver_sql("DELETE FROM inventories"))
        return await look(bench, looks(bench), {})

    rows = play(scenario, TWO)

    assert verdicts(rows) == [(check, NODE, RowVerdict.UNKNOWN) for check in ROWS]
    assert {r.seen for r in rows} == {"nothing is known of its parts"}


def test_a_host_that_hears_nobody_proves_no_cable() -> None:
    async def scenario(bench: Bench) -> Any:
        answer(bench, "lldp", lambda _text: "nonsense")
        return await look(bench, looks(bench))

    assert verdicts(play(scenario, TWO))[3] == (GateCheck.CABLES, NODE, RowVerdict.UNKNOWN)


def test_a_leaf_that_calls_its_port_by_a_mac_proves_no_cable() -> None:
    async def scenario(bench: Bench) -> Any:
        mac = '"0c:42:a1:00:00:09"'
        answer(bench, "lldp", lambda text: text.replace(f'"{bench.port}"', mac))
        return await look(bench, looks(bench))

    assert verdicts(play(scenario, TWO))[3] == (GateCheck.CABLES, NODE, RowVerdict.UNKNOWN)


# --- cables of a node that is taken in


@pytest.mark.parametrize("quiet", [False, True], ids=["it runs", "it is silent"])
@pytest.mark.parametrize("listed", [True, False], ids=["parts listed", "no parts"])
def test_exchanged_cables_are_named_with_the_port_of_the_other_node(
    quiet: bool, listed: bool
) -> None:
    async def scenario(bench: Bench) -> Any:
        mine, other = bench.port, bench.rig.nodes[PEER].ports[0].interface
        cards = bench.leaf.neighbours
        cards[mine], cards[other] = cards[other], cards[mine]
        if quiet:
            silence(bench)
        if not listed:
            await bench.rig.store.write(lambda c: c.exec_driver_sql("DELETE FROM inventories"))
        heard = await bench.rig.tenancy.heard(bench.node().ports)
        return await looks(bench).find_miscablings(bench.node(), heard)

    found = play(scenario, TWO)

    ends = {f.at for f in found} | {f.neighbour for f in found}
    assert ends >= {(PEER, "NIC_3"), (LEAF, "swp1s0")}
    if not quiet:  # its cards are named by their slots, where they were listed
        assert (NODE, "NIC_3" if listed else "enp145s0np0") in ends


def test_cables_that_are_as_planned_contradict_nothing() -> None:
    async def scenario(bench: Bench) -> Any:
        heard = await bench.rig.tenancy.heard(bench.node().ports)
        return await looks(bench).find_miscablings(bench.node(), heard)

    assert play(scenario, TWO) == ()


def test_where_both_ends_are_silent_the_macs_at_the_leaf_name_exchanged_cables() -> None:
    macs = {NODE: "0c:42:a1:00:00:01", PEER: "0c:42:a1:00:00:02"}

    async def scenario(bench: Bench) -> Any:
        silence(bench)
        for name, mac in macs.items():
            await bench.give_mac(name, "NIC_3", mac)
        mine, other = (bench.node(n).ports[0].interface for n in (NODE, PEER))
        learned = {(LEAF, mine): {macs[PEER]}, (LEAF, other): {macs[NODE]}}
        exchanged = await looks(bench).find_miscablings(bench.node(), {}, learned)
        planned = {(LEAF, mine): {macs[NODE]}, (LEAF, other): {macs[PEER]}}
        return exchanged, await looks(bench).find_miscablings(bench.node(), {}, planned)

    exchanged, planned = play(scenario, TWO)

    assert {f.at for f in exchanged} | {f.neighbour for f in exchanged} >= {(PEER, "NIC_3")}
    assert planned == ()


# --- a tenant's sessions on its leaves


@pytest.mark.parametrize("silent", [False, True])
def test_a_leaf_that_is_silent_or_not_known_is_missing_after_its_limit(silent: bool) -> None:
    async def scenario(bench: Bench) -> Any:
        rig = bench.rig
        sessions = TenantSessions(rig.store, rig.effects.reach, rig.clock, rig.effects.settings)
        name = LEAF if silent else "leaf-9"
        if silent:
            rig.site.nvue[LEAF].reachable = lambda: False
        outside = RED.outside[0].model_copy(update={"switch": name})
        red = RED.model_copy(update={"outside": (outside,)})
        leaf = LeafPlan(switch=name, pod=9, unit=9, asn=64999, router_id="192.0.2.9", uplinks=())
        began = rig.clock.now()
        missing = await sessions.missing(red, FabricPlan(plan=AddressPlan(), leaves=(leaf,)))
        return missing, rig.clock.now() - began

    [blocker], took = play(scenario, TWO)

    expected = (Reason.UNREACHABLE, LEAF) if silent else (Reason.NOT_EXPECTED, "leaf-9")
    assert (blocker.reason, blocker.subject) == expected
    assert took == pytest.approx(30.0)  # `switch_apply_limit_s`: routes may still come
