"""The smallest set of tests that covers what changed; nothing that must be is left out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.checks import ALL
from provisioner.model.certificate import Certificate
from provisioner.model.cohort import Gate
from provisioner.model.inventory import Component, Device, DeviceKind, Inventory
from provisioner.planning.certification.certification import list_serials, list_versions
from provisioner.planning.certification.check_selection import (
    DEVICES,
    EVERYTHING,
    TESTS,
    Cause,
    Change,
    FaultRecord,
    SelectionPolicy,
    change_since,
    domains_of,
    domains_of_component,
    domains_of_device,
    incident_probability,
    select_checks,
)
from provisioner.planning.repair.case_joining import select_deeper_checks

ALL_GATES = SelectionPolicy(gates=frozenset(Gate))
INVENTORY = Inventory(
    node="n1",
    vendor="supermicro",
    system_serial="S1",
    devices=(
        Device(kind=DeviceKind.GPU, slot="GPU_SXM_1", serial="G1"),
        Device(kind=DeviceKind.NIC, slot="NIC_0", serial="N0"),
    ),
    components=(
        Component(kind="hgx.gpu", slot="GPU_SXM_1", version="96.00", source="x"),
        Component(kind="host.bios", slot="host", version="2.0", source="x"),
    ),
)
LAST = Certificate(
    id="c", node="n1", release="r", profile="p", serials=list_serials(INVENTORY),
    versions=list_versions(INVENTORY), boot_id="b", location="l", ports=(), report_digest="d",
    matrix_digest="m", issued_at=1.0, expires_at=2.0,
)  # fmt: skip


def loads(change: Change, policy: SelectionPolicy = ALL_GATES, **more) -> set[str]:
    return {n for n in select_checks(change, ALL, policy, **more).checks if n in TESTS}


def test_every_load_test_of_the_catalogue_has_a_row_and_every_row_a_test():
    mine = [c for c in ALL if c.load and not c.on_request and c.gate is not Gate.C]

    assert {c.name for c in mine} == set(TESTS)
    assert set(DEVICES) <= {k.value for k in DeviceKind}


def since(last, inventory, *, turnover=False, suspect=False) -> Change:
    return change_since(last, inventory, turnover=turnover, suspect=suspect)


def test_a_node_that_failed_since_is_tested_in_full():
    assert since(LAST, INVENTORY, suspect=True).causes == (Cause.UNKNOWN,)


def test_what_differs_from_the_certificate_is_the_cause():
    swapped = INVENTORY.model_copy(
        update={
            "devices": (
                INVENTORY.devices[0],
                INVENTORY.devices[1].model_copy(update={"serial": "X"}),
            )
        }
    )
    updated = INVENTORY.model_copy(
        update={"components": (INVENTORY.components[0].model_copy(update={"version": "97"}),)}
    )

    assert since(None, INVENTORY) == Change(causes=(Cause.NEW,))
    assert since(LAST, INVENTORY) == Change(causes=(Cause.PERIODIC,))
    assert since(LAST, INVENTORY, turnover=True).causes == (Cause.TURNOVER,)
    assert since(LAST, swapped) == Change(causes=(Cause.REPAIRED,), devices=("nic/NIC_0",))
    assert since(LAST, updated) == Change(
        causes=(Cause.UPDATED,), components=("hgx.gpu/GPU_SXM_1",)
    )


@pytest.mark.parametrize("cause", [Cause.NEW, Cause.UNKNOWN])
def test_a_stranger_is_tested_in_full(cause):
    found = select_checks(Change(causes=(cause,)), ALL, ALL_GATES)

    assert loads(Change(causes=(cause,))) == set(TESTS)
    assert found.fabric
    assert found.left_out == {}


def test_between_tenants_everything_but_the_long_burn_runs():
    found = select_checks(Change(causes=(Cause.TURNOVER,)), ALL, ALL_GATES)
    gates = {c.gate for c in ALL if c.name in found.checks}

    assert gates == {Gate.A, Gate.B}
    assert found.fabric
    assert "new here" in found.left_out["dcgm_xlong"]


def test_a_new_gpu_is_burnt_and_the_nics_are_left_alone():
    found = loads(Change(causes=(Cause.REPAIRED,), devices=("gpu/GPU_SXM_3",)))

    assert {"gpu_burn_long", "dcgm_xlong", "hbm", "nvbandwidth"} <= found
    assert "storage_load" not in found
    assert "cpu_stream" not in found


def test_a_new_nic_is_tested_with_partners_and_the_gpus_are_not_burnt():
    found = select_checks(Change(causes=(Cause.REPAIRED,), devices=("nic/NIC_0",)), ALL, ALL_GATES)

    assert found.fabric
    assert "gdr_loopback" in found.checks
    assert not {"gpu_burn_long", "dcgm_long", "dcgm_xlong"} & set(found.checks)
    assert found.reasons["gdr_loopback"].startswith("repaired: nic")


def test_a_firmware_wave_tests_what_it_touched_and_burns_nothing():
    gpu = loads(Change(causes=(Cause.UPDATED,), components=("hgx.gpu/GPU_SXM_1",)))
    nic = select_checks(
        Change(causes=(Cause.UPDATED,), components=("supernic.nic/NIC_0",)), ALL, ALL_GATES
    )
    disk = select_checks(
        Change(causes=(Cause.UPDATED,), components=("host.nvme/0",)), ALL, ALL_GATES
    )

    assert "gpu_burn_long" not in gpu
    assert {"dcgm_diag", "hbm"} <= gpu
    assert nic.fabric
    assert not disk.fabric
    assert loads(Change(causes=(Cause.UPDATED,), components=("host.nvme/0",))) == set()


def test_what_no_table_knows_concerns_everything():
    assert domains_of_component("quantum.flux") == EVERYTHING
    assert domains_of_device("system") == EVERYTHING
    assert domains_of(Change(causes=(Cause.UPDATED,), components=("quantum.flux/x",))) == EVERYTHING


def test_a_gate_that_the_site_does_not_demand_is_named_as_left_out():
    found = select_checks(Change(causes=(Cause.NEW,)), ALL, SelectionPolicy())

    assert not found.fabric
    assert "does not demand gate C" in found.left_out["fabric"]
    assert "does not demand gate D" in found.left_out["gpu_burn_long"]
    assert {c.gate for c in ALL if c.name in found.checks} == {Gate.A, Gate.B}


def test_what_must_be_is_never_dropped_for_time():
    short = ALL_GATES.model_copy(update={"budget_s": 300.0})
    found = select_checks(Change(causes=(Cause.NEW,)), ALL, short)

    assert found.blocker is not None
    assert "Raise the budget" in found.blocker.unblock
    assert loads(Change(causes=(Cause.NEW,)), short) == set(TESTS)


def test_periodic_tests_fit_into_their_time_and_prefer_what_finds_faults():
    periodic = Change(causes=(Cause.PERIODIC,))
    short = ALL_GATES.model_copy(update={"budget_s": 260.0})
    fond = FaultRecord(incidents=3, healthy_days=10, found={"gdr_loopback": 500})

    found = select_checks(periodic, ALL, short, FaultRecord(incidents=3, healthy_days=10))
    assert found.blocker is None
    assert found.seconds <= 260.0
    assert loads(periodic, short, standing=FaultRecord(incidents=3)) != set()
    roomy = ALL_GATES.model_copy(update={"budget_s": 330.0})
    assert loads(periodic, roomy, standing=fond) == {"gdr_loopback"}
    chosen = select_checks(periodic, ALL, roomy, fond)
    assert chosen.optional == ("gdr_loopback",)
    assert "gdr_loopback" not in chosen.demanded


def test_a_node_with_a_past_is_tested_more_than_a_quiet_one():
    periodic = Change(causes=(Cause.PERIODIC,))
    quiet, busy = FaultRecord(healthy_days=20_000), FaultRecord(incidents=5, healthy_days=30)

    assert (
        incident_probability(quiet)
        < incident_probability(FaultRecord())
        < incident_probability(busy)
    )
    assert loads(periodic, standing=quiet) < loads(periodic, standing=busy)


CHANGES = st.builds(
    Change,
    causes=st.lists(st.sampled_from(Cause), min_size=1, max_size=3, unique=True).map(tuple),
    devices=st.lists(st.sampled_from(["gpu/1", "nic/2", "cpu/0", "other/9"])).map(tuple),
    components=st.lists(st.sampled_from(["hgx.gpu/1", "host.bios/0", "strange/1"])).map(tuple),
)


@given(CHANGES, CHANGES)
def test_more_change_is_never_less_testing(one, other):
    both = Change(
        causes=tuple({*one.causes, *other.causes} - {Cause.PERIODIC}) or (Cause.PERIODIC,),
        devices=one.devices + other.devices,
        components=one.components + other.components,
    )
    alone = select_checks(one, ALL, ALL_GATES)

    if Cause.PERIODIC not in one.causes:
        assert set(alone.checks) <= set(select_checks(both, ALL, ALL_GATES).checks)
    assert set(alone.checks) | set(alone.left_out) - {"fabric"} == {
        c.name for c in ALL if c.kind.value == "host" and not c.on_request and c.gate is not Gate.C
    }


def test_a_repeat_offender_is_tested_beyond_what_the_site_demands_within_a_time():
    change = since(None, INVENTORY, suspect=True)
    little = SelectionPolicy(gates=frozenset({Gate.A, Gate.B}))
    usual = select_checks(change, ALL, little)

    deeper = select_deeper_checks(change, ALL, little, None, limit_s=1e6)
    short = select_deeper_checks(change, ALL, little, None, limit_s=0.0)
    tight = little.model_copy(update={"budget_s": usual.seconds})

    burns = {c.name for c in ALL if c.gate is Gate.D and not c.on_request}
    assert set(deeper.checks) - set(usual.checks) == burns
    assert burns
    assert short == usual
    assert select_deeper_checks(change, ALL, tight, None, limit_s=1e6).blocker is None
