"""A profile that requires attestation: an honest node is certified, one that lies never is.

Devices, keys and manifests are the simulator's; the BMC of the lying node shows the right version.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import virtual_time
from branches import branch, certified_host
from rig import World
from test_returns import HOST, state, want

from provisioner.checks.attestation.trust_anchors import digest_spki
from provisioner.checks.attested_firmware import NAME
from provisioner.checks.collected_reports import GPUS, NVSWITCHES
from provisioner.integrations.sim.hardware.device_authority import find_authority
from provisioner.integrations.sim.hardware.report_devices import list_gpu_values, list_switch_values
from provisioner.integrations.sim.redfish.redfish_integrity import list_measurements
from provisioner.model.certificate import Certificate
from provisioner.model.cohort import Verdict
from provisioner.model.node import Node, State

ROOTS = ("HGX_ERoT_BMC_0", "HGX_ERoT_GPU_SXM_*")
INDICES = (1, 2, 3, 4)
LIAR = "su0-n01"
LIMIT_S = 48 * 3600.0


@dataclass(frozen=True)
class Witness:
    """A node that was certified without the rule: its measurements are admitted for the others."""

    measurements: Mapping[str, Mapping[int, bytes]]  # of one root for each glob
    certificate: Certificate
    checks: frozenset[str]
    devices: Mapping[str, Mapping[int, bytes]]  # of one GPU and one NVSwitch, by rule


@pytest.fixture(scope="module")
def witness() -> Witness:
    async def story(world: World) -> Witness:
        node = await state(world, State.CERTIFIED)
        report = await world.store.evidence.get_report(HOST)
        certificate = await certificate_of(world, node)
        assert report is not None
        assert certificate is not None
        machine = world.site.machines[HOST]
        learned = {glob: list_measurements(machine, glob.replace("*", "1")) for glob in ROOTS}
        vbios = machine.firmware["host", "HGX_FW_GPU_SXM_1"].running
        bios = machine.firmware["host", "HGX_FW_NVSwitch_0"].running
        driver = machine.host.loaded["host.driver"]
        devices = {
            GPUS.name: list_gpu_values(vbios, driver),
            NVSWITCHES.name: list_switch_values(bios),
        }
        await world.crash()
        ran = frozenset(r.check for r in report.results)
        return Witness(learned, certificate, ran, devices)

    return branch(certified_host, story)


def require_attestation(world: World, witness: Witness) -> None:
    """Add the rule to the site's overlay."""
    tree: dict[str, Any] = json.loads(world.files.overlay.read_text())
    rule: dict[str, Any] = {
        "policy": "require",
        "makers": [
            {
                "name": find_authority().root_name,
                "spki_sha256": digest_spki(find_authority().root.certificate),
                "source": "the simulator",
            }
        ],
        "components": {
            glob: {
                "count": 8 if "GPU" in glob else 1,
                "digests": {str(i): [measured[i].hex()] for i in INDICES},
                "learned_from": f"witness {HOST}",
            }
            for glob, measured in witness.measurements.items()
        },
    }
    for name, measured in witness.devices.items():
        digests = {str(i): [measured[i].hex()] for i in (2, 5, 21)}
        rule[name] = {"policy": "require", "digests": digests, "learned_from": f"witness {HOST}"}
    for release in tree["releases"].values():
        if "hgx-h100-bf3" in release["profiles"]:
            release["profiles"]["hgx-h100-bf3"]["attestation"] = rule
    world.files.overlay.write_text(json.dumps(tree))


async def live(world: World) -> Node:
    """Let the daemon work until the node rests or the time is over."""
    await want(world, 0)
    await world.start()
    return await rest(world, HOST)


async def rest(world: World, name: str) -> Node:
    """A node once it rests, or once the time is over."""
    until = world.clock.now() + LIMIT_S
    while world.clock.now() < until:
        await world.clock.sleep(60.0)
        node = await world.store.nodes.get(name)
        assert node is not None
        if node.state in (State.CERTIFIED, State.QUARANTINED):
            return node
    return node


def entered(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Nodes with the states that they entered."""
    return [(str(r["node"]), str(r["detail"]["to"])) for r in rows if r["kind"] == "state"]


async def certificate_of(world: World, node: Node) -> Certificate | None:
    return (
        await world.store.evidence.get_certificate(node.certificate) if node.certificate else None
    )


@pytest.mark.slow
def test_an_honest_node_is_certified_and_one_with_a_lying_root_of_trust_beside_it_never_is(
    tmp_path: Path, witness: Witness
) -> None:
    async def story() -> tuple[Node, Certificate | None, Any, Node, str, int]:
        world = World(tmp_path, nodes=2, seed=3)
        require_attestation(world, witness)
        world.site.machines[LIAR].implants.add("HGX_ERoT_GPU_SXM_5")
        await world.take_in()
        await want(world, 0)
        await world.start()
        node, liar = await rest(world, HOST), await rest(world, LIAR)
        report = await world.store.evidence.get_report(HOST)
        certificate = await certificate_of(world, node)
        other = await world.store.evidence.get_report(LIAR)
        assert other is not None
        (result,) = [r for r in other.results if r.check == NAME]
        rows = await world.store.journal.list(limit=100_000)
        certified = [s for n, s in entered(rows) if n == LIAR].count("certified")
        await world.crash()
        return node, certificate, report, liar, str(result.findings), certified

    node, certificate, report, liar, findings, certified = virtual_time.run(story())

    assert node.state is State.CERTIFIED, node.blockers
    asked = {r.check: r for r in report.results if r.check in (NAME, GPUS.name, NVSWITCHES.name)}
    assert len(asked) == 3
    assert certificate is not None
    assert certificate.attestation.startswith("state-sha256:")
    assert all(result.verdict is Verdict.PASS for result in asked.values())
    assert {result.evidence for result in asked.values()} <= {*certificate.evidence}
    assert liar.state is not State.CERTIFIED
    assert (liar.certificate, certified) == ("", 0)
    assert "HGX_ERoT_GPU_SXM_5" in findings
    assert "measurement 3" in findings


@pytest.mark.long  # test_device_reports.py has it for gate A alone
def test_a_node_with_one_lying_gpu_is_never_certified(tmp_path: Path, witness: Witness) -> None:
    async def story() -> tuple[Node, str, int]:
        world = World(tmp_path, nodes=1, seed=3)
        require_attestation(world, witness)
        world.site.machines[HOST].implants.add("GPU_SXM_5")
        await world.take_in()
        node = await live(world)
        report = await world.store.evidence.get_report(HOST)
        assert report is not None
        (result,) = [r for r in report.results if r.check == GPUS.name]
        rows = await world.store.journal.list(limit=100_000)
        await world.crash()
        certified = [s for n, s in entered(rows) if n == HOST].count("certified")
        return node, str(result.findings), certified

    node, findings, certified = virtual_time.run(story())

    assert node.state is not State.CERTIFIED
    assert (node.certificate, certified) == ("", 0)
    assert f"measurement 5 is not the one that witness {HOST} admits" in findings


@pytest.mark.long  # tests/watch/test_attestation_watch.py has it for a node in service
def test_a_root_of_trust_that_its_bmc_leaves_out_is_missed(
    tmp_path: Path, witness: Witness
) -> None:
    async def story() -> tuple[Node, str]:
        world = World(tmp_path, nodes=1, seed=3)
        require_attestation(world, witness)
        world.site.machines[HOST].silent_roots.add("HGX_ERoT_GPU_SXM_5")
        await world.take_in()
        node = await live(world)
        report = await world.store.evidence.get_report(HOST)
        assert report is not None
        (result,) = [r for r in report.results if r.check == NAME]
        await world.crash()
        return node, str(result.findings)

    node, findings = virtual_time.run(story())

    assert node.state is not State.CERTIFIED
    assert "attester missing" in findings


def test_without_the_rule_the_certificate_says_that_none_was_required(witness: Witness) -> None:
    assert witness.certificate.attestation == "not required by the profile"
    assert NAME not in witness.checks
