"""When a node is clean: the ladder, the report's verdict, and who must be erased at all."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from provisioner.model.erasure import (
    Disk,
    ErasurePolicy,
    ErasureRecord,
    ErasureReport,
    Holder,
    Method,
    Result,
)
from provisioner.model.node import Node, NodeKind, State
from provisioner.planning.erasure.erasure import (
    certificate_text,
    find_disk_changes,
    list_methods,
    list_unreached,
    list_unsanitized,
    merge_tries,
    policy_of,
    record_memory,
    render_certificate,
    require_erasure,
)
from provisioner.settings import Settings

NODE = Node(id="n0", kind=NodeKind.HOST, state=State.DRAINING, served="red")
DISKS = tuple(
    Disk(name=f"/dev/nvme{n}n1", serial=f"S{n}", size_bytes=10, methods=(Method.FORMAT_CRYPTO,))
    for n in range(2)
)


def done(holder: Holder, device: str, serial: str = "") -> ErasureRecord:
    return ErasureRecord(holder=holder, device=device, serial=serial, result=Result.DONE)


CLEAN = ErasureReport(
    node="n0",
    tenant="red",
    fenced_at=1.0,
    started_at=2.0,
    ended_at=3.0,
    expected=("S0", "S1"),
    expected_count=2,
    before=DISKS,
    after=DISKS,
    records=(
        *(done(Holder.DISK, d.name, d.serial) for d in DISKS),
        done(Holder.HOST_MEMORY, "host"),
        done(Holder.GPU_MEMORY, "GPU_SXM_1"),
    ),
)


def without(holder: Holder, count: int = 1) -> ErasureReport:
    left = [r for r in CLEAN.records if r.holder is holder][count:]
    rest = [r for r in CLEAN.records if r.holder is not holder]
    return CLEAN.model_copy(update={"records": (*rest, *left)})


def with_result(result: Result) -> ErasureReport:
    first = CLEAN.records[0].model_copy(update={"result": result})
    return CLEAN.model_copy(update={"records": (first, *CLEAN.records[1:])})


NOT_CLEAN = {
    "a disk has no record": (without(Holder.DISK), "disk/S0"),
    "a disk was not done": (with_result(Result.NOT_DONE), "disk/S0"),
    "a disk is unsupported": (with_result(Result.UNSUPPORTED), "disk/S0"),
    "the BMC lists a drive more": (
        CLEAN.model_copy(update={"expected": ("S0", "S1", "S2")}),
        "disks",
    ),
    "the profile has a disk more": (CLEAN.model_copy(update={"expected_count": 3}), "disks"),
    "a disk went meanwhile": (CLEAN.model_copy(update={"after": DISKS[:1]}), "disks"),
    "a disk came meanwhile": (
        CLEAN.model_copy(update={"after": (*DISKS, DISKS[0].model_copy(update={"serial": "S9"}))}),
        "disks",
    ),
    "there is no disk at all": (
        CLEAN.model_copy(update={"before": (), "after": (), "expected": (), "expected_count": 0}),
        "disks",
    ),
    "host memory has no record": (without(Holder.HOST_MEMORY), "host_memory"),
    "GPU memory has no record": (without(Holder.GPU_MEMORY), "gpu_memory"),
}


def test_a_node_whose_every_device_is_done_is_sanitized() -> None:
    assert list_unsanitized(CLEAN, ErasurePolicy()) == ()


@pytest.mark.parametrize("case", NOT_CLEAN)
def test_a_node_is_not_sanitized_when(case: str) -> None:
    report, subject = NOT_CLEAN[case]

    found = list_unsanitized(report, ErasurePolicy())

    assert [b.subject for b in found] == [f"n0/{subject}"]


def test_what_the_policy_does_not_ask_for_is_named_and_blocks_nothing() -> None:
    extra = ErasureRecord(
        holder=Holder.TPM, device="host", result=Result.NOT_DONE, detail="no step"
    )
    report = CLEAN.model_copy(update={"records": (*CLEAN.records, extra)})
    asking = ErasurePolicy(required=(Holder.DISK, Holder.TPM))

    assert list_unsanitized(report, ErasurePolicy()) == ()
    assert [b.detail for b in list_unsanitized(report, asking)] == ["not_done: no step"]


def test_serials_are_compared_without_regard_to_case() -> None:
    report = CLEAN.model_copy(update={"expected": ("s0", "s1")})

    assert list_unsanitized(report, ErasurePolicy()) == ()


ALL = tuple(Method)[:13]
LADDERS = {
    "everything, no overwriting": (ALL, False, ALL[:12]),
    "everything, overwriting allowed": (ALL, True, ALL),
    "only overwriting, not allowed": ((Method.OVERWRITE,), False, ()),
    "in the order of the ladder, not the disk's": (
        (Method.FORMAT_USER_DATA, Method.SANITIZE_BLOCK),
        False,
        (Method.SANITIZE_BLOCK, Method.FORMAT_USER_DATA),
    ),
    "nothing": ((), True, ()),
}


@pytest.mark.parametrize("case", LADDERS)
def test_the_ladder_of_a_disk_that_offers(case: str) -> None:
    offered, overwrite, wanted = LADDERS[case]

    found = list_methods(
        DISKS[0].model_copy(update={"methods": offered}), ErasurePolicy(overwrite=overwrite)
    )

    assert found == wanted


OWED = {
    "it served nobody": (NODE.model_copy(update={"served": ""}), False, False),
    "it served and is nobody's": (NODE, True, True),
    "it goes to another tenant": (NODE.model_copy(update={"tenant": "blue"}), True, True),
    "it goes back, and that may skip": (NODE.model_copy(update={"tenant": "red"}), True, False),
    "it goes back, and that may not skip": (
        NODE.model_copy(update={"tenant": "red"}),
        False,
        True,
    ),
}


@pytest.mark.parametrize("case", OWED)
def test_an_erasure_is_owed_when(case: str) -> None:
    node, may_skip, wanted = OWED[case]

    assert bool(require_erasure(node, ErasurePolicy(same_tenant_may_skip=may_skip))) is wanted


@pytest.mark.parametrize(
    ("off_at", "on_at", "result"),
    [(100.0, 160.0, Result.DONE), (100.0, 159.0, Result.NOT_DONE), (0.0, 0.0, Result.NOT_DONE)],
)
def test_memory_is_erased_by_power_that_was_seen_off_for_long_enough(
    off_at: float, on_at: float, result: Result
) -> None:
    assert record_memory(Holder.HOST_MEMORY, "host", off_at, on_at, 60.0).result is result


def test_the_record_of_a_disk_names_what_failed_before() -> None:
    first = ErasureRecord(
        holder=Holder.DISK,
        device="/dev/nvme0n1",
        method=Method.SANITIZE_CRYPTO,
        result=Result.NOT_DONE,
        detail="status 6",
        started_at=1.0,
    )
    second = first.model_copy(update={"method": Method.FORMAT_CRYPTO, "result": Result.DONE})

    found = merge_tries([first, second.model_copy(update={"detail": "", "started_at": 5.0})])

    assert (found.method, found.result, found.started_at) == (
        Method.FORMAT_CRYPTO,
        Result.DONE,
        1.0,
    )
    assert found.detail == "before it: nvme_sanitize_crypto: status 6"


def test_disks_that_got_other_names_at_a_boot_are_the_same_disks() -> None:
    swapped = (
        DISKS[0].model_copy(update={"name": "/dev/nvme1n1"}),
        DISKS[1].model_copy(update={"name": "/dev/nvme0n1"}),
    )

    assert find_disk_changes(DISKS, swapped) == ()
    assert (
        find_disk_changes(DISKS, (DISKS[0], DISKS[1].model_copy(update={"size_bytes": 11}))) != ()
    )


def test_a_drive_whose_namespaces_were_made_whole_is_the_same_drive() -> None:
    divided = DISKS[0].model_copy(update={"capacity_bytes": 100, "size_bytes": 10, "wwn": "eui.1"})
    whole = divided.model_copy(update={"size_bytes": 100, "wwn": "eui.2"})
    larger = divided.model_copy(update={"capacity_bytes": 200})

    assert find_disk_changes((divided,), (whole,)) == ()
    assert find_disk_changes((divided,), (larger,)) != ()


def test_the_certificate_says_its_verdict_and_has_a_line_for_each_device() -> None:
    document = json.loads(render_certificate(without(Holder.DISK)))
    text = certificate_text(CLEAN)

    assert document["sanitized"] is False
    assert document["blockers"][0]["subject"] == "n0/disk/S0"
    assert text.startswith("SANITIZED: node n0")
    assert all(d.serial in text for d in DISKS)


def test_a_site_may_ask_for_more_than_the_default() -> None:
    settings = Settings(site="s", erase_required="disk tpm bios")

    assert policy_of(settings).required == (Holder.DISK, Holder.TPM, Holder.BIOS)


def test_a_reset_of_a_bmc_blocks_only_where_it_is_required() -> None:
    with pytest.raises(ValidationError, match="erase_bmc_defaults is off"):
        Settings(site="s", erase_required="disk bmc_defaults")
    settings = Settings(
        site="s", erase_required="disk bmc_defaults", erase_bmc_defaults="network_kept"
    )
    policy = policy_of(settings)
    assert policy.bmc_defaults == "network_kept"
    for result in (Result.NOT_DONE, Result.UNSUPPORTED):
        record = ErasureRecord(holder=Holder.BMC_DEFAULTS, device="host", result=result)
        report = CLEAN.model_copy(update={"records": (*CLEAN.records, record)})
        assert list_unsanitized(report, ErasurePolicy(required=(Holder.DISK,))) == ()
        (blocker,) = list_unsanitized(report, policy)
        assert blocker.subject.endswith("bmc_defaults/host")


def test_places_that_no_method_reaches_are_named_and_block_nothing() -> None:
    records = list_unreached(["host", "DPU_0"], 3.0, ErasurePolicy())
    report = CLEAN.model_copy(update={"records": (*CLEAN.records, *records)})
    policy = ErasurePolicy(required=(Holder.DISK, Holder.BMC))

    assert [r.device for r in records] == ["host settings", "DPU_0 settings"]
    resets = ErasurePolicy(bmc_defaults="network_kept")
    assert list_unreached(["host"], 3.0, resets) == []
    assert all(r.detail for r in records)
    assert list_unsanitized(report, policy) == ()
    assert "DPU_0 settings" in certificate_text(report)
