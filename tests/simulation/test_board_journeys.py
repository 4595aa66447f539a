"""A node whose maintenance agent must quote the TPM of its board, also after an exchange."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from branches import branch, certified_host, change_settings
from cryptography.hazmat.primitives.asymmetric import ec
from given_events import in_state
from returned import HOST, HOUR_S, TENANT, holds, node_of, take_from_tenant, until_settled
from rig import World

from provisioner.checks.attestation.endorsement_certificates import read_endorsement
from provisioner.checks.attestation.tpm_quotes import digest_key, parse_attestation_key
from provisioner.integrations.sim.hardware.simulated_tpm import MAKER, SimulatedTpm, make_authority
from provisioner.model.node import BoardTpm, Node, NodeKind, State, TpmProof
from provisioner.planning.lifecycle.operator_requests import retry_node

Told = TypeVar("Told")


async def say(world: World, kind: str) -> list[dict[str, Any]]:
    rows = await world.store.journal.list(limit=100_000)
    return [dict(r) for r in rows if r["kind"] == kind]


def pin_maker(folder: Path) -> str:
    """Write the site's file of TPM makers, with the simulator's; return its path."""
    path = folder / "makers.pem"
    path.write_text(make_authority(MAKER).root.pem, encoding="utf-8")
    return str(path)


def returned(story: Callable[[World], Awaitable[Told]], policy: str, **changes: str) -> Told:
    """What a story tells of a host that a tenant has just left; no daemon runs yet."""

    async def main(world: World) -> Told:
        assert (await node_of(world)).tpm is None
        await take_from_tenant(world)
        change_settings(world, agent_tpm=policy, **changes)
        return await story(world)

    return branch(certified_host, main)


def test_a_board_is_enrolled_once_and_another_one_is_refused_until_a_person_says_so(
    tmp_path: Path,
) -> None:
    async def main(world: World) -> tuple[Node, Node, dict[str, str], Node, list[dict[str, Any]]]:
        machine = world.site.machines[HOST]
        await world.start()
        first = await until_settled(world, 48 * HOUR_S)
        await world.crash()
        served = in_state(first, State.DRAINING, world.clock.now(), served=TENANT)
        await world.store.nodes.save(served)
        for disk in machine.disks.values():
            disk.holds = "tenant"
        machine.tpm = SimulatedTpm("another board")
        await world.start()
        refused = await until_settled(world, 48 * HOUR_S)
        disks = holds(world)
        stored = await node_of(world)
        again = retry_node(stored, world.clock.now(), new_board=True)
        assert isinstance(again, Node)
        await world.store.nodes.save(again)
        last = await until_settled(world, 48 * HOUR_S)
        events = await say(world, "board_tpm")
        await world.crash()
        return first, refused, disks, last, events

    first, refused, disks, last, events = returned(
        main, "require", tpm_makers_file=pin_maker(tmp_path)
    )

    assert first.tpm is not None
    assert (first.tpm.proof, first.tpm.maker) == (TpmProof.MAKER, MAKER)
    assert refused.state is State.QUARANTINED, refused.note
    assert refused.tpm == first.tpm
    assert "not this board's: ak" in str(events)
    assert set(disks.values()) == {"tenant"}  # nothing was believed, and nothing was erased
    assert last.tpm is not None
    assert last.tpm.key_sha256 != first.tpm.key_sha256
    assert last.state is State.CONVERGING  # erased, and with its new system


@pytest.mark.parametrize(("policy", "enrolled"), [("record", True), ("require", False)])
def test_a_board_without_a_proof_is_served_where_the_policy_permits_it(
    tmp_path: Path, policy: str, enrolled: bool
) -> None:
    """`record` writes down that the board is another one; a node without a TPM quotes none."""

    async def main(world: World) -> tuple[Node, list[dict[str, Any]]]:
        node = await node_of(world)
        if enrolled:
            changes = {"tpm": BoardTpm(key_sha256="0" * 64, enrolled_at=1.0)}
            await world.store.nodes.save(node.model_copy(update=changes))
        else:
            world.site.machines[HOST].tpm = None
        await world.start()
        node = await until_settled(world, 48 * HOUR_S)
        events = await say(world, "board_tpm")
        await world.crash()
        return node, events

    node, events = returned(main, policy)

    assert node.state is State.CONVERGING, node.note  # erased, and with its new system
    assert (node.tpm is not None) is enrolled
    assert ("not this board's: ak" in str(events)) is enrolled


def test_a_tpm_of_an_unknown_maker_is_enrolled_by_a_person_only(tmp_path: Path) -> None:
    async def main(world: World) -> tuple[Node, dict[str, str], Node, list[dict[str, Any]]]:
        await world.start()
        refused = await until_settled(world, 48 * HOUR_S)
        disks = holds(world)
        (blocker,) = refused.blockers
        key = blocker.detail.rpartition(" ")[2]
        again = retry_node(await node_of(world), world.clock.now(), admit_tpm=key)
        assert isinstance(again, Node)
        await world.store.nodes.save(again)
        last = await until_settled(world, 48 * HOUR_S)
        events = await say(world, "board_tpm")
        await world.crash()
        return refused, disks, last, events

    refused, disks, last, events = returned(main, "require")

    assert refused.state is State.QUARANTINED, refused.note
    assert refused.tpm is None
    assert "ek maker is not pinned: 'CN=Simulated TPM Maker'" in refused.blockers[0].detail
    assert set(disks.values()) == {"tenant"}
    assert last.tpm is not None
    assert (last.tpm.proof, last.tpm.maker) == (TpmProof.PERSON, "")
    assert last.state is State.CONVERGING, last.note
    assert "its TPM is unproved" in str(events)


def test_a_key_that_an_older_release_enrolled_by_its_first_quote_stays_and_says_so(
    tmp_path: Path,
) -> None:
    tpm = SimulatedTpm(HOST)
    key = parse_attestation_key(tpm.area).spki_sha256

    async def main(world: World) -> tuple[Node, list[dict[str, Any]]]:
        node = await node_of(world)
        changes = {"tpm": BoardTpm(key_sha256=key, enrolled_at=1.0)}
        await world.store.nodes.save(node.model_copy(update=changes))
        await world.start()
        node = await until_settled(world, 48 * HOUR_S)
        events = await say(world, "board_tpm")
        await world.crash()
        return node, events

    node, events = returned(main, "require", tpm_makers_file=str(tmp_path / "no such file"))

    assert node.state is State.CONVERGING, node.note
    assert node.tpm is not None
    assert (node.tpm.key_sha256, node.tpm.proof) == (key, TpmProof.QUOTE)
    assert "`tpm_makers_file` cannot be read" in str(events)


def list_keys(folder: Path, name: str, seed: str) -> str:
    """Write the site's list of boards with one TPM's key; return its path."""
    endorsement = SimulatedTpm(seed).endorsement
    raw = endorsement.list_certificates()["0x1c0000a"]
    key = read_endorsement(raw).public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    path = folder / "boards.txt"
    path.write_text(f"{name} {digest_key(key)}\n", encoding="utf-8")
    return str(path)


STRANGERS = {
    "the list has another node's": (lambda folder: list_keys(folder, "another", HOST), "another"),
    "the list has another key": (lambda folder: list_keys(folder, HOST, "delivered"), "tpm_boards"),
    "the list cannot be read": (lambda folder: str(folder / "none"), "`tpm_boards_file` cannot"),
    "another node has it": (lambda _: "", "it is enrolled for n9"),
    "nothing speaks against it": (lambda folder: list_keys(folder, HOST, HOST), ""),
}


@pytest.mark.parametrize("case", STRANGERS)
def test_a_genuine_tpm_enrols_for_the_node_that_the_site_names_and_for_no_second_one(
    tmp_path: Path, case: str
) -> None:
    write, words = STRANGERS[case]
    boards = write(tmp_path)
    key = parse_attestation_key(SimulatedTpm(HOST).area).spki_sha256

    async def main(world: World) -> tuple[Node, dict[str, str]]:
        if case == "another node has it":
            tpm = BoardTpm(key_sha256=key, enrolled_at=1.0, proof=TpmProof.MAKER)
            await world.store.nodes.add(Node(id="n9", kind=NodeKind.HOST, tpm=tpm))
        await world.start()
        node = await until_settled(world, 48 * HOUR_S)
        disks = holds(world)
        await world.crash()
        return node, disks

    node, disks = returned(
        main, "require", tpm_makers_file=pin_maker(tmp_path), tpm_boards_file=boards
    )

    if not words:
        assert node.tpm is not None
        assert node.state is State.CONVERGING, node.note
        return
    assert (node.state, node.tpm) == (State.QUARANTINED, None)
    assert words in str(node.blockers)
    assert set(disks.values()) == {"tenant"}


def show_tpm(world: World) -> None:
    """Have the host's BMC list the TPM, as the recorded trees of Dell and of a DGX do."""
    tree = world.services[f"https://{HOST}.host.test"].tree
    (path,) = (p for p in tree.resources if re.fullmatch(r"/redfish/v1/Systems/(1|DGX)", p))
    system = tree.resources[path]
    read = system.read
    assert read is not None
    module = {"FirmwareVersion": None, "InterfaceType": "TPM2_0", "Status": {"State": "Enabled"}}
    system.read = lambda: {**(read() or {}), "TrustedModules": [module]}


def show_secure_boot(world: World) -> None:
    """Have the host's BMC state that Secure Boot runs; the machine boots without it."""
    tree = world.services[f"https://{HOST}.host.test"].tree
    (path,) = (p for p in tree.resources if p.endswith("/SecureBoot"))
    resource = tree.resources[path]
    read = resource.read
    assert read is not None
    resource.read = lambda: {**(read() or {}), "SecureBootCurrentBoot": "Enabled"}


@pytest.mark.parametrize("lies", [False, True])
def test_a_bmc_that_states_another_secure_boot_than_the_tpm_measured_is_named(
    tmp_path: Path, lies: bool
) -> None:
    async def main(world: World) -> tuple[Node, list[dict[str, Any]]]:
        if lies:
            show_secure_boot(world)
        await world.start()
        node = await until_settled(world, 48 * HOUR_S)
        events = await say(world, "board_tpm")
        await world.crash()
        return node, events

    node, events = returned(main, "require", tpm_makers_file=pin_maker(tmp_path))

    assert node.tpm is not None
    assert (node.tpm.secure_boot, node.tpm.shown_secure_boot) == (False, lies)
    assert ("by the TPM's quote, in one boot" in str(events)) is lies


@pytest.mark.parametrize("listed", [False, True])
def test_an_agent_that_denies_the_tpm_which_the_bmc_or_the_list_shows_is_refused(
    tmp_path: Path, listed: bool
) -> None:
    boards = list_keys(tmp_path, HOST, HOST) if listed else ""

    async def main(world: World) -> tuple[Node, dict[str, str]]:
        world.site.machines[HOST].tpm = SimulatedTpm(HOST, denied=True)
        if not listed:
            show_tpm(world)
        await world.start()
        node = await until_settled(world, 48 * HOUR_S)
        disks = holds(world)
        await world.crash()
        return node, disks

    node, disks = returned(
        main, "require", tpm_makers_file=pin_maker(tmp_path), tpm_boards_file=boards
    )

    assert node.state is State.QUARANTINED, node.note
    words = "`tpm_boards_file` lists one" if listed else "the node's BMC shows an enabled one"
    assert words in node.blockers[0].detail
    assert set(disks.values()) == {"tenant"}
