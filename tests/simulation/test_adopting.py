"""Adopting a site that was built by hand: serving nodes enter as read, and nothing is written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rig import World
from test_observing import put, record
from virtual_time import run

from provisioner.adapters.redfish.discovery import probe_all
from provisioner.cli.client.preparing import read_adoption
from provisioner.control.fabric.fabric_standing import Fabrics
from provisioner.daemon.data import read_expected, read_secrets
from provisioner.daemon.observing import ObservingDaemon
from provisioner.execution.tenancy.adopting import Adopted, AdoptionSite, adopt_nodes
from provisioner.model.events.request_events import RequestCarriedOut
from provisioner.model.expected import Expected
from provisioner.model.node import NodeKind, Origin, Placement, State
from provisioner.model.outcome import Reason
from provisioner.planning.intake import expected_text
from provisioner.planning.release.adoption import detach_node
from provisioner.runtime import permit
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.repositories.vault import Vault

NAMES = [f"su0-n{number:02d}" for number in range(6)]


async def open_site(
    tmp_path: Path, fabrics: Fabrics | None = None, **settings: Any
) -> tuple[World, Expected]:
    """Return a site whose nodes serve, and the list of them; cards are left to their hosts."""
    world = World(tmp_path, len(NAMES), 3, **settings)
    world.fabrics = fabrics
    world.vault = Vault(world.store, MasterKey.generate())
    await world.build()
    expected = read_expected(world.files.expected)
    nodes = []
    for node in expected.nodes:
        changes: dict[str, object] = {}
        if node.kind is NodeKind.HOST:
            url = world.site.urls[f"{node.name}/host"]
            changes = {"dpus": (), "bmc": node.bmc.model_copy(update={"url": url})}
        nodes.append(node.model_copy(update=changes))
    return world, expected.model_copy(update={"nodes": tuple(nodes)})


async def adopt(
    world: World,
    expected: Expected,
    *,
    keep: bool = True,
    tenants: Mapping[str, str] | None = None,
) -> Adopted:
    """Adopt a list as the API does in a daemon that observes."""
    assert world.daemon is not None
    with permit.observe():
        daemon = ObservingDaemon(world.daemon.parts)
        transport = daemon.parts.transport
        site = AdoptionSite(transport, world.store, world.vault, daemon.observer.tenancy)
        urls = [n.bmc.url for n in expected.nodes if n.bmc.url]
        probes = await probe_all(transport, urls)
        secrets = read_secrets(expected, {})
        adopted = await adopt_nodes(
            site,
            expected,
            secrets,
            probes,
            by="ada",
            now=world.clock.now(),
            keep=keep,
            recorded_tenants=tenants or {},
        )
        await daemon.stop()
    return adopted


def test_serving_nodes_enter_as_read_and_every_planted_fault_is_named(tmp_path: Path) -> None:
    async def scenario() -> None:
        world, expected = await open_site(tmp_path)
        place_all(world)
        nodes = [
            n.model_copy(update={"username": "root", "password": "not this"})
            if n.name == NAMES[5]
            else n
            for n in expected.nodes
        ]
        expected = expected.model_copy(update={"nodes": tuple(nodes)})
        recorded = record(world)

        adopted = await adopt(world, expected)

        assert recorded.methods <= {"GET", "HEAD"}
        rows = {n.id: n for n in await world.store.nodes.list()}
        hosts = {n.id for n in rows.values() if n.kind is NodeKind.HOST}
        assert hosts == {NAMES[0], NAMES[1]}
        first = rows[NAMES[0]]
        assert (first.state, first.placement) == (State.RELEASED, Placement.CUSTOMER)
        assert (first.vrf, first.tenant, first.origin) == ("RED", "red", Origin.ADOPTED)
        assert (first.certificate, first.fenced_at) == ("", 0.0)
        assert first.note.startswith("serving, not certified: adopted ")
        assert rows[NAMES[1]].tenant == "blue"
        reasons = {b.subject: b.reason for b in adopted.blockers}
        assert reasons[NAMES[2]] is Reason.ISOLATION
        assert reasons[NAMES[3]] is Reason.NOT_EXPECTED
        assert reasons[NAMES[4]] is Reason.PRECONDITION
        assert any(b.reason is Reason.LOGIN_REFUSED for b in adopted.blockers)
        events = [r for r in await world.store.journal.list(0, 1000) if r["kind"] == "adopted"]
        assert {r["node"] for r in events} == set(rows)
        assert not await world.store.operations.list_active()

        again = await adopt(world, expected)
        assert again.nodes == ()
        assert set(again.known) == set(rows)

    run(scenario())


def place_all(world: World) -> None:
    """Two nodes that serve, one in two networks, one in an unknown one, one that serves nobody."""
    for name, vrf in ((NAMES[0], "RED"), (NAMES[1], "BLUE"), (NAMES[2], "RED"), (NAMES[3], "X")):
        put(world, range(8), vrf, name)
    put(world, [5], "BLUE", NAMES[2])


def test_a_bmc_a_serial_and_a_port_belong_to_one_node(tmp_path: Path) -> None:
    async def scenario() -> None:
        world, expected = await open_site(tmp_path)
        place_all(world)
        await adopt(world, expected)
        twin = next(n for n in expected.nodes if n.name == NAMES[0])
        copy = expected.model_copy(update={"nodes": (twin.model_copy(update={"name": "copy"}),)})

        refused = await adopt(world, copy)

        assert refused.nodes == ()
        assert {b.reason for b in refused.blockers} == {Reason.DUPLICATE}
        assert NAMES[0] in refused.blockers[0].detail

    run(scenario())


def test_a_preview_stores_nothing_and_names_the_switches_that_come_first(tmp_path: Path) -> None:
    async def scenario() -> None:
        world, expected = await open_site(tmp_path)
        place_all(world)

        preview = await adopt(world, expected, keep=False)

        assert not await world.store.nodes.list()
        assert {n.kind for n in preview.nodes} == {NodeKind.SWITCH}
        assert all("switch" in b.detail for b in preview.blockers if b.subject == NAMES[0])

    run(scenario())


def test_a_node_that_was_given_back_is_adopted_again_as_it_is_then(tmp_path: Path) -> None:
    async def scenario() -> None:
        world, expected = await open_site(tmp_path)
        place_all(world)
        await adopt(world, expected)
        await adopt(world, expected)  # the hosts, once their switches are known
        nodes = world.store.nodes
        first = await nodes.get(NAMES[0])
        assert first is not None
        tagged = await nodes.save(first.model_copy(update={"tags": ("loan",)}))
        event = RequestCarriedOut(request="detach", by="ada")
        detached = detach_node(tagged, "ada", "back to Ironic", world.clock.now())
        await nodes.save_detached(detached, "", event, world.clock.now())
        put(world, range(8), "BLUE", NAMES[0])  # by the system that has it now
        recorded = record(world)

        again = await adopt(world, expected)

        assert recorded.methods <= {"GET", "HEAD"}
        assert [n.id for n in again.nodes] == [NAMES[0]]
        assert NAMES[0] not in again.known
        row = await nodes.get(NAMES[0])
        assert row is not None
        assert (row.state, row.origin, row.tags) == (State.RELEASED, Origin.ADOPTED, ("loan",))
        assert (row.tenant, row.vrf) == ("blue", "BLUE")

    run(scenario())


def test_a_table_of_hosts_is_adopted_like_a_list_and_another_tenant_is_refused(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        world, expected = await open_site(tmp_path)
        place_all(world)
        switches = tuple(n for n in expected.nodes if n.kind is NodeKind.SWITCH)
        base = expected.model_copy(update={"nodes": switches})
        (tmp_path / "base.json").write_text(base.model_dump_json())
        lines = ["name,bmc,tenant,ports"]
        for node in expected.nodes:
            if node.kind is NodeKind.HOST:
                ports = " ".join(f"{p.switch}/{p.interface}={p.nic_slot}" for p in node.ports)
                lines.append(f"{node.name},{node.bmc.url},red,{ports}")
        (tmp_path / "hosts.csv").write_text("\n".join([*lines, "short"]))
        given = {
            "expected": str(tmp_path / "base.json"),
            "from_": "csv",
            "source": str(tmp_path / "hosts.csv"),
        }
        read_adoption(given)

        assert given["dry_run"]  # without --apply it is only shown
        assert [b["subject"] for b in given["refused_rows"]] == ["row 8"]
        await adopt(world, base)
        listed = expected_text.parse("list", given["expected"])
        tenants = given["recorded_tenants"]
        adopted = await adopt(world, listed, tenants=tenants)
        assert [n.id for n in adopted.nodes] == [NAMES[0]]
        reasons = {b.subject: b.reason for b in adopted.blockers}
        assert reasons[NAMES[1]] is Reason.NOT_EXPECTED  # read in BLUE, recorded as red's
        assert reasons[NAMES[2]] is Reason.ISOLATION

    run(scenario())
