"""Firmware that a tenant replaced under the same version is written over between two tenants."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from pathlib import Path

import pytest
import virtual_time
import yaml
from returned import HOST, give_back, until_settled
from rig import World
from test_erasure_crashes import stormy
from test_erasure_journeys import report_of

from provisioner.integrations.demo.site import ARTIFACTS
from provisioner.integrations.sim.hardware.build import make_image
from provisioner.model.erasure import ErasureReport, Holder, Result
from provisioner.model.node import Boots, Node, State

CARD_BMC = "BF-24.10-10"
CARD_EROT = "00.02.0195.0000_n02"
CARD_OS = "bf-bundle-2.9.0-90_24.10_ubuntu-22.04_prod"
BIOS = "BIOS Date: 08/04/2023 Ver 1.4"
# what runs on the simulated machines already, as files of the site
FILES: Mapping[str, tuple[str, str, bytes, str]] = {
    "card-bmc.fwpkg": (
        "bluefield.bmc",
        CARD_BMC,
        make_image("bluefield.bmc", {"BMC_Firmware": CARD_BMC}),
        "bmc_reset",
    ),
    "card-erot.fwpkg": (
        "bluefield.erot",
        CARD_EROT,
        make_image("bluefield.erot", {"Bluefield_FW_ERoT": CARD_EROT}),
        "ac_cycle",
    ),
    "card-os.bfb": (
        "bluefield.bundle",
        "2.9.0-90",
        make_image("bluefield.bundle", {"DPU_OS": CARD_OS}),
        "cold_boot",
    ),
    "bios.bin": ("host.bios", BIOS, make_image("host.bios", {"BIOS": BIOS}), "cold_boot"),
}
CARDS = {"BMC_Firmware", "Bluefield_FW_ERoT", "DPU_OS"}


def bring_files(world: World) -> None:
    """The matrix has a file of each version that runs."""
    overlay = yaml.safe_load(world.files.overlay.read_text())
    for name, (kind, version, content, reset) in FILES.items():
        (world.files.artifacts / name).write_bytes(content)
        edge = {
            "from": [f"before {version}"],
            "to": version,
            "activates_by": reset,
            "artifact": name,
            "sha256": hashlib.sha256(content).hexdigest(),
            "evidence": "the choice of a simulated site",
        }
        overlay["edges"].setdefault(kind, []).append(edge)
    world.files.overlay.write_text(yaml.safe_dump(overlay))


def implant(world: World) -> None:
    """The tenant's firmware is in every part, under the version that was there."""
    for item in world.site.machines[HOST].firmware.values():
        item.implanted = True


def list_implanted(world: World) -> set[str]:
    """Items of cards that still run another content than their version's.

    In NIC mode a BMC shows no system of the card: it is refused by name.
    """
    items = world.site.machines[HOST].firmware.values()
    return {
        f"{i.bmc}/{i.id}"
        for i in items
        if i.implanted and i.id in CARDS and (i.id != "DPU_OS" or i.bmc.startswith("DPU"))
    }


def open_world(directory: Path, required: str, rewrites: str, *, wipes: bool = False) -> World:
    files = {**ARTIFACTS, **{name: content for name, (_, _, content, _) in FILES.items()}}
    return World(
        directory,
        nodes=1,
        seed=11,
        files=files,
        erase_required=required,
        erase_rewrites=rewrites,
        erase_card_storage=wipes,
    )  # type: ignore[arg-type]


def write_again(
    directory: Path, required: str, rewrites: str
) -> tuple[Node, ErasureReport, set[str], list[str], list[str]]:
    """A returned node with an implant: what is left of it, the acts in their order, violations.

    Where cards are written, their storage is wiped before; the UEFI of one forgets the order.
    """

    async def main() -> tuple[Node, ErasureReport, set[str], list[str], list[str]]:
        world = open_world(directory, required, rewrites, wipes="card" in rewrites)
        bring_files(world)
        await give_back(world)
        implant(world)
        world.site.machines[HOST].bluefields["DPU_1"].drops_wipes = True
        since = world.clock.now()
        await world.start()
        node = await until_settled(world)
        report = await report_of(world, node)
        rows = await world.store.operations.list_entries(HOST)
        acts = [r.action for r in rows if r.intended_at >= since]
        wrong = await world.violations()
        await world.crash()
        return node, report, list_implanted(world), acts, wrong

    return virtual_time.run(main())


@pytest.mark.slow
def test_an_implant_under_the_pinned_version_is_written_over_and_the_report_names_the_rest(
    tmp_path: Path,
) -> None:
    node, report, left, acts, wrong = write_again(tmp_path, "disk", "bmc bios gpu nic card")

    records = {r.device: r for r in report.select_records(Holder.FIRMWARE)}
    done = {device for device, r in records.items() if r.result is Result.DONE}
    assert left == set()
    refused = {d for d in records if d.startswith("bluefield.")} - done
    assert refused == {f"bluefield.nic/DPU_{n}" for n in range(2)} | {
        f"bluefield.bundle/NIC_{n}" for n in range(8)
    }
    assert "none runs between two tenants" in records["bluefield.nic/DPU_0"].detail
    assert "no source documents a force" in records["host.bios/BIOS"].detail
    assert "no source documents a force" in records["host.bmc/BMC"].detail
    assert records["hgx.bundle/bundle"].result is Result.UNSUPPORTED
    assert (node.state, node.boots) == (State.CONVERGING, Boots.SYSTEM)
    first = next(n for n, act in enumerate(acts) if act.startswith("update bluefield"))
    assert first > max(n for n, act in enumerate(acts) if act.startswith("erase"))
    assert acts.count("reset after rewriting") == 1  # one AC cycle for roots of trust and bundles
    assert wrong == []
    cards = {r.device: r for r in report.select_records(Holder.BLUEFIELD_STORAGE)}
    assert {device for device, r in cards.items() if r.result is Result.DONE} == {"DPU_0"}
    assert "no system started" in cards["DPU_0"].detail
    assert "former system still starts" in cards["DPU_1"].detail
    assert "would have no system" in cards["NIC_0"].detail
    assert acts.count("card storage wipe DPU_0") == 1
    wiped = next(n for n, act in enumerate(acts) if act.startswith("card storage proved"))
    assert wiped < first


def test_a_site_that_requires_firmware_gets_no_node_with_a_part_that_was_refused(
    tmp_path: Path,
) -> None:
    node, _, _, _, wrong = write_again(tmp_path, "disk firmware", "bios")

    assert node.state is State.QUARANTINED
    assert [b.subject for b in node.blockers] == [f"{HOST}/firmware/host.bios/BIOS"]
    assert wrong == []


@pytest.mark.parametrize(
    "seed", [pytest.param(s, marks=pytest.mark.long if s else ()) for s in range(4)]
)
def test_firmware_is_written_over_however_often_the_daemon_dies(tmp_path: Path, seed: int) -> None:
    async def main() -> tuple[Node, set[str], list[str]]:
        world = open_world(tmp_path, "disk", "card", wipes=seed > 0)
        bring_files(world)
        await give_back(world)
        implant(world)
        rng = random.Random(f"rewriting/{seed}")
        node, _ = await stormy(world, rng, by_writes=seed % 2 == 0)
        return node, list_implanted(world), await world.violations()

    node, left, wrong = virtual_time.run(main())

    assert (node.state, node.boots) == (State.CONVERGING, Boots.SYSTEM), node.note
    assert left == set()
    assert wrong == []
