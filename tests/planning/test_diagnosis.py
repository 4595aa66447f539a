"""Who is suspected on which evidence: rules as data, and what they may never do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.model.case import Fault, PartClass, RemedyKind
from provisioner.model.inventory import Device, DeviceKind, Inventory
from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind
from provisioner.planning.certification.regression import list_parts
from provisioner.planning.repair.diagnosis import Diagnosis, diagnose, load_rules
from provisioner.planning.repair.part_names import (
    at_missing,
    gone_of,
    locate_fault,
    names_of,
    of_missing,
)
from provisioner.planning.repair.remedies import load_escalation_orders

SENTENCES = {
    "Xid 79 accuses the GPU": (
        [("check", "kernel_log", "GPU_SXM_1", "Xid 79 name=<unknown>")],
        ("gpu", "GPU_SXM_1", RemedyKind.COLD_BOOT),
    ),
    "a missing GPU explains what its absence breaks": (
        [
            ("check", "gpu_inventory", "GPU_SXM_5", "7 of 8 GPUs; missing serial 165491"),
            ("check", "nvlink", "host", "GPUs with NVLinks 7"),
            ("check", "ecc", "host", "GPUs that report ECC 7"),
        ],
        ("gpu", "GPU_SXM_5", RemedyKind.COLD_BOOT),
    ),
    "a failed remap is returned, not reset": (
        [("check", "row_remap", "GPU_SXM_6", "a row remapping failed 1")],
        ("gpu_memory", "GPU_SXM_6", RemedyKind.REPLACE),
    ),
    "a pending remap waits for a reset": (
        [("check", "row_remap", "GPU_SXM_6", "a row waits to be remapped 1")],
        ("gpu_memory", "GPU_SXM_6", RemedyKind.GPU_RESET),
    ),
    "a fatal SXid clears the links of the GPUs": (
        [
            ("check", "kernel_log", "NVSwitch_1", "SXid 20034: potentially fatal"),
            ("check", "nvlink", "GPU_SXM_8", "the NVLink is down"),
        ],
        ("nvswitch", "NVSwitch_1", RemedyKind.COLD_BOOT),
    ),
    "a leaf that partners accuse clears the node's own link": (
        [
            ("isolation", "fabric", "leaf-su0-r3", "the leaf is to blame"),
            ("check", "mlxlink", "NIC_3", "the link's speed 200G"),
        ],
        ("leaf", "leaf-su0-r3", None),
    ),
    "a link that flaps is mostly optics": (
        [("alert", "LinkFlap", "NIC_2", "the link was lost 5 times")],
        ("optic", "NIC_2", RemedyKind.RESEAT),
    ),
    "a power supply by its event log": (
        [("event_log", "PowerSupplyFailed", "PSU_2", "Power supply lost input")],
        ("psu", "PSU_2", RemedyKind.RESEAT),
    ),
    "a fan by its sensor": (
        [("check", "bmc_sensors", "FAN_3", "below its critical limit 0")],
        ("fan", "FAN_3", RemedyKind.REPLACE),
    ),
    "a DIMM by the event log": (
        [("event_log", "MemoryECCError", "DIMM_12", "uncorrectable ECC")],
        ("memory", "DIMM_12", RemedyKind.COLD_BOOT),
    ),
    "a BFB that was cut off": (
        [("work", "update_stalled", "su0-n00/bluefield.bundle/DPU_1", "not installed")],
        ("dpu", "DPU_1", RemedyKind.REFLASH),
    ),
    "a BMC that is silent": (
        [("work", "unreachable", "su0-n00/host", "no answer")],
        ("bmc", "su0-n00/host", RemedyKind.AC_CYCLE),
    ),
    "a narrow link of a GPU": (
        [("check", "pcie_link", "GPU_SXM_7", "the PCIe link trained down Gen5 x8")],
        ("pcie", "GPU_SXM_7", RemedyKind.COLD_BOOT),
    ),
    "a cable in the wrong port": (
        [("check", "lldp", "NIC_0", "the cable is plugged into another card than planned")],
        ("cable", "NIC_0", RemedyKind.RESEAT),
    ),
    "a worn disk": (
        [("check", "nvme_smart", "nvme3", "spare below its threshold")],
        ("storage", "nvme3", None),
    ),
}


def faults(told: list[tuple[str, str, str, str]]) -> list[Fault]:
    return [Fault(source=s, id=i, part=p, detail=d) for s, i, p, d in told]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_the_evidence_names_the_part_and_the_first_remedy(sentence: str) -> None:
    told, (kind, part, start) = SENTENCES[sentence]

    found = diagnose(faults(told), None)

    assert (found.suspects[0].kind.value, found.suspects[0].part) == (kind, part)
    assert found.start is start


def test_every_rule_names_a_part_with_a_ladder_that_has_its_first_rung() -> None:
    lost = [
        r.name
        for r in load_rules()
        if r.start is not None
        and r.start not in {rung.remedy for rung in load_escalation_orders()[r.kind]}
    ]

    assert lost == []
    assert set(load_escalation_orders()) == set(PartClass)
    assert len({r.name for r in load_rules()}) == len(load_rules())


def test_two_witnesses_are_surer_than_one_and_nobody_is_certain() -> None:
    one = faults([("check", "kernel_log", "GPU_SXM_1", "Xid 79")])
    two = [*one, *faults([("check", "gpu_burn", "GPU_SXM_1", "wrong results")])]

    sure = {s.kind: s.confidence for s in diagnose(two, None).suspects}

    assert sure[PartClass.GPU] > diagnose(one, None).suspects[0].confidence
    assert max(sure.values()) < 1.0


def test_ten_lines_of_one_log_are_one_witness() -> None:
    one = faults([("check", "kernel_log", "GPU_SXM_1", "Xid 79")])
    ten = [f.model_copy(update={"at": float(n)}) for f in one for n in range(10)]

    assert diagnose(ten, None).suspects[0].confidence == diagnose(one, None).suspects[0].confidence


def test_what_no_rule_knows_accuses_the_node_barely() -> None:
    found = diagnose(faults([("check", "no_such_check", "", "strange")]), None)

    assert (found.suspects[0].kind, found.suspects[0].confidence) == (PartClass.HOST, 0.1)


def test_a_suspect_has_its_serial_and_part_number() -> None:
    gpu = Device(kind=DeviceKind.GPU, slot="GPU_SXM_1", serial="165491", part="692-2G520")
    inventory = Inventory(node="n", vendor="generic", devices=(gpu,))

    found = diagnose(faults([("check", "kernel_log", "GPU_SXM_1", "Xid 79")]), inventory)

    assert (found.suspects[0].serial, found.suspects[0].part_number) == ("165491", "692-2G520")


TEXTS = st.text(max_size=40) | st.sampled_from(["Xid 79", "GPU_SXM_1", "fan", "remap", "nvlink"])
FAULTS = st.builds(
    Fault,
    source=st.sampled_from(["check", "alert", "work", "isolation", "event_log", "report", "?"]),
    id=TEXTS,
    part=TEXTS,
    detail=TEXTS,
)


@given(st.lists(FAULTS, max_size=12), st.randoms(use_true_random=False))
def test_order_means_nothing_and_somebody_is_always_suspected(seen, random) -> None:
    shuffled = list(seen)
    random.shuffle(shuffled)

    found: Diagnosis = diagnose(seen, None)

    assert found == diagnose(shuffled, None)
    assert found.suspects
    assert all(0.0 <= s.confidence < 1.0 for s in found.suspects)


def test_what_tools_call_a_part_is_joined_by_its_serial() -> None:
    gpu = Device(kind=DeviceKind.GPU, slot="GPU_SXM_6", serial="1654917421304")
    nic = Device(kind=DeviceKind.NIC, slot="NIC_3", pci="0000:4d:00.0")
    port = Port(switch="leaf-3", interface="swp1s0", rail=3, nic_slot="NIC_3")
    node = Node(id="n", kind=NodeKind.HOST, ports=(port,))
    inventory = Inventory(node="n", vendor="generic", devices=(gpu, nic))
    table = (
        '{"gpus": {"source": "nvidia-smi --query-gpu=index,uuid,serial,pci.bus_id '
        '--format=csv,noheader", "exit_code": 0, "text": '
        '"5, GPU-b1e8754a, 1654917421304, 00000000:7E:00.0", "truncated": false}}'
    )
    names = names_of(node, inventory, [table])

    seen = [
        locate_fault(Fault(source="check", id="x", part=part), names).part
        for part in ("GPU 5 link 2", "GPU-b1e8754a", "PCI 0000:7e:00", "port 0000:4d:00.0",
                     "leaf-3/swp1s0", "enp77s0np0", "enp78s0np0", "enP1p77s0", "mlx5_9")
    ]  # fmt: skip

    assert seen == ["GPU_SXM_6", "GPU_SXM_6", "GPU_SXM_6", "NIC_3", "NIC_3", "NIC_3",
                    "enp78s0np0", "enP1p77s0", "mlx5_9"]  # fmt: skip


def gpus(*numbers: int) -> Inventory:
    return Inventory(
        node="n",
        vendor="generic",
        devices=tuple(
            Device(
                kind=DeviceKind.GPU, slot=f"GPU_SXM_{n}", serial=f"165491000000{n}", part="2G520"
            )
            for n in numbers
        ),
    )


COUNTED = Fault(source="check", id="gpu_inventory", part="host", detail="7 of 8 GPUs 7")
TWO = COUNTED.model_copy(update={"detail": "6 of 8 GPUs 6"})
ALL_EIGHT = (1, 2, 3, 4, 5, 6, 7, 8)
# what is there now, what was there before, the fault, where it is
GAPS = {
    "the slot that is empty since the case was opened": (
        (1, 2, 3, 4, 5, 6, 7), ALL_EIGHT, COUNTED, ["GPU_SXM_8"]),
    "a GPU that was never seen is the gap": (
        (1, 2, 3, 4, 6, 7, 8), (1, 2, 3, 4, 6, 7, 8), COUNTED, ["GPU_SXM_5"]),
    "the gap may be at either end: nothing is guessed": (
        (1, 2, 3, 4, 5, 6, 7), (1, 2, 3, 4, 5, 6, 7), COUNTED, ["host"]),
    "two that are gone are two faults": (
        (1, 2, 3, 4, 6, 8), ALL_EIGHT, TWO, ["GPU_SXM_5", "GPU_SXM_7"]),
    "one of two that are gone was never seen": (
        (1, 2, 3, 4, 6, 8), (1, 2, 3, 4, 5, 6, 8), TWO, ["GPU_SXM_5", "GPU_SXM_7"]),
    "serials in the words, as long as the inventory lists them": (
        ALL_EIGHT, ALL_EIGHT,
        TWO.model_copy(update={"detail": "6 of 8 GPUs; missing 1654910000002, 1654910000007"}),
        ["GPU_SXM_2", "GPU_SXM_7"]),
    "what Redfish sees and the driver does not, without a serial": (
        ALL_EIGHT, ALL_EIGHT, COUNTED, ["host"]),
}  # fmt: skip


@pytest.mark.parametrize("sentence", GAPS)
def test_a_count_of_gpus_stands_at_those_that_are_missing(sentence: str) -> None:
    now, before, fault, slots = GAPS[sentence]
    gone = gone_of(list_parts(gpus(*before)), gpus(*now))

    assert [f.part for f in at_missing([fault], gone, gpus(*now))] == slots


def test_a_dead_gpu_keeps_name_and_serial_when_the_inventory_was_read_anew() -> None:
    before, after = gpus(*ALL_EIGHT), gpus(1, 2, 3, 4, 6, 7, 8)
    first = COUNTED.model_copy(update={"detail": "7 of 8 GPUs; missing serial 1654910000005"})
    gone = gone_of(list_parts(before), after)

    other = COUNTED.model_copy(update={"id": "unreadable"})  # it counts, and tells no serial

    seen = [at_missing([first, other], (), before), at_missing([COUNTED, other], gone, after)]
    late = diagnose(seen[1], after, gone=gone).suspects[0]

    keys = ["check:gpu_inventory:GPU_SXM_5", "check:unreadable:GPU_SXM_5"]
    assert [[f.key for f in faults] for faults in seen] == [keys, keys]
    assert (late.part, late.serial, late.part_number) == ("GPU_SXM_5", "1654910000005", "2G520")
    assert of_missing("n", gone)["n/gpu"] == "GPU_SXM_5"


def test_of_a_node_whose_inventory_is_unknown_no_part_is_gone() -> None:
    assert gone_of(list_parts(gpus(*ALL_EIGHT)), None) == ()
