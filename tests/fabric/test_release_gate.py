"""The gate of a release passes what is well, and names each fault that is planted in a switch."""

from __future__ import annotations

from typing import Any

import pytest
from release_faults import FAULTS
from release_rig import FEW, LEAF, NODE, OTHER_LEAF, Bench, bad, play

from provisioner.model.recovery import GateCheck, RowVerdict
from provisioner.planning.release.release_gate import list_gate_blockers


def test_a_release_without_a_fault_passes_every_row() -> None:
    outcome = play(lambda b: b.release())

    assert outcome.blockers == ()
    passed = {r.check for r in outcome.rows if r.verdict is RowVerdict.PASS}
    # test_bonds.py, test_hosts_apart.py and tests/simulation/test_handed_over_login.py have those
    assert passed == set(GateCheck) - {
        GateCheck.BOND,
        GateCheck.HOSTS_APART,
        GateCheck.TENANT_LOGIN,
        GateCheck.TENANT_USER_DATA,
        GateCheck.LOGIN_REMOVED,
        GateCheck.LIBRARIES,
        GateCheck.STORAGE_OPEN,
        GateCheck.STORAGE_SHUT,
        GateCheck.NVLINK_PARTITION,
    }


@pytest.mark.parametrize("fault", FAULTS)
def test_the_gate_catches(fault: str) -> None:
    plant, check = FAULTS[fault]

    async def scenario(bench: Bench) -> Any:
        plant(bench)
        return await bench.release()

    outcome = play(scenario, FEW)

    named = {(r.check.value, r.verdict.value) for r in bad(outcome)}
    assert (check, "fail") in named
    assert outcome.blockers == list_gate_blockers(outcome.rows)
    at_leaf = LEAF if check != "remote_route" else OTHER_LEAF
    mine = [r for r in bad(outcome) if r.check.value == check]
    at_card = [f"{NODE} {c}" for c in ("nic_config", "roce_runtime", "rdma_counters")]
    assert any(
        at_leaf in r.subject + r.seen
        or "172.96.0" in r.subject + r.seen
        or (r.subject in at_card and r.seen.startswith(("0000:", "mlx5_")))
        for r in mine
    )


def test_there_are_at_least_twenty_five_planted_faults_and_they_cover_every_row() -> None:
    assert len(FAULTS) >= 25
    # that it stands is what all the others say when they are judged again; the rows of bonds, of
    # hosts kept apart and of the logins have faults of their own (test_bonds.py,
    # test_hosts_apart.py, tests/simulation/test_handed_over_login.py,
    # tests/real/test_tenant_login.py)
    others = {
        "stands",
        "bond",
        "hosts_apart",
        "login_removed",
        "tenant_login",
        "tenant_user_data",
        "libraries",
        "storage_open",  # those of shared storage have theirs in tests/storage
        "storage_shut",
        "nvlink_partition",  # tests/racks/test_handed_over_partitions.py
    }
    assert {check for _, check in FAULTS.values()} == {c.value for c in GateCheck} - others


def test_a_host_that_cannot_be_asked_is_no_proof_of_silence() -> None:
    async def scenario(bench: Bench) -> Any:
        bench.rig.site.machines["su0-n00"].host.phase = "off"
        return await bench.release()

    outcome = play(scenario, FEW)

    probes = [r for r in bad(outcome) if r.check.value in ("reaches", "shut_out")]
    assert probes
    assert {r.verdict for r in probes} == {RowVerdict.UNKNOWN}


def test_a_leaf_that_falls_silent_is_unknown_and_that_is_a_no() -> None:
    async def scenario(bench: Bench) -> Any:
        def silent() -> None:
            bench.rig.site.nvue[LEAF].reachable = lambda: False

        bench.when_probed(silent)
        return await bench.release()

    outcome = play(scenario, FEW)

    assert {(r.subject, r.verdict) for r in bad(outcome)} == {(LEAF, RowVerdict.UNKNOWN)}
    assert outcome.blockers


def test_what_takes_a_moment_to_follow_is_waited_for() -> None:
    async def scenario(bench: Bench) -> Any:
        bench.leaf.leaks[bench.prefix] = "MAINT"
        later = bench.rig.clock.now() + 60.0
        bench.rig.site.schedule.plan_act(later, lambda _at: bench.leaf.leaks.clear())
        return await bench.release()

    assert play(scenario, FEW, release_settle_s=60.0).blockers == ()


@pytest.mark.parametrize(("state", "fault"), [("invalid", "apply_fails"), ("stuck", "apply_hangs")])
def test_a_revision_that_does_not_become_applied_ends_the_release(state: str, fault: str) -> None:
    async def scenario(bench: Bench) -> Any:
        bench.leaf.faults.add(fault)
        return await bench.release()

    outcome = play(scenario, FEW, switch_apply_limit_s=10.0)

    assert [b.reason.value for b in outcome.blockers] == ["switch_refused"], state
    assert outcome.rows == ()


def test_a_configuration_that_is_not_kept_ends_the_release() -> None:
    async def scenario(bench: Bench) -> Any:
        bench.leaf.faults.add("save_lost")
        return await bench.release()

    outcome = play(scenario, FEW, switch_apply_limit_s=10.0)

    assert "startup differs from applied" in outcome.blockers[0].detail
