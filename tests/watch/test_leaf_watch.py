"""The watch of leaves: ports in a customer's network that no row entitles."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy
from leaf_bench import SPARE, A, Bench, play

from provisioner.integrations.sim.switches.switch import Neighbour
from provisioner.model.node import Placement, State
from provisioner.model.outcome import Reason
from provisioner.model.tenant import Outside, PortPlacement, Tenant


@pytest.mark.parametrize("tree", ["operational", "applied", "startup", ""])
@pytest.mark.parametrize(
    ("state", "then"),
    [
        (State.DISCOVERED, State.QUARANTINED),
        (State.CONVERGING, State.QUARANTINED),
        (State.VALIDATING, State.QUARANTINED),
        (State.CERTIFIED, State.QUARANTINED),
        (State.QUARANTINED, State.QUARANTINED),
        (State.REPAIRING, State.REPAIRING),
        (State.RETIRED, State.RETIRED),
    ],
)
def test_a_port_of_a_node_that_is_not_released_is_fenced_and_reported(state, then, tree):
    async def scenario(bench: Bench) -> Any:
        await bench.node(state=state)
        bench.put("RED", trees=(tree,) if tree else ())
        await bench.look()
        stored = await bench.store.nodes.get(A)
        return bench.vrf(), stored, await bench.rows(), await bench.alerts(A)

    vrf, node, rows, alerts = play(scenario)

    assert vrf == "MAINT"
    assert (node.state, node.served) == (then, "VRF RED")
    assert rows == [("trespass", A), ("fence", A)]
    assert [a.split()[0] for a in alerts] == ["PortTrespass"]
    waits = {b.reason for b in node.blockers}
    assert waits == ({Reason.TRESPASS} if then is State.QUARANTINED else set())


@pytest.mark.parametrize("state", [State.VALIDATING, State.REPAIRING, State.DRAINING])
def test_what_was_erased_before_a_trespass_was_fenced_counts_for_nothing(state):
    async def scenario(bench: Bench) -> Any:
        await bench.node(state=state)  # fenced, and perhaps erased since
        bench.put("RED")
        await bench.look()
        [fenced] = [e.time for e in bench.leaf.log if e.kind == "vrf"]
        return fenced, await bench.store.nodes.get(A)

    fenced_at, node = play(scenario)

    assert node.served == "VRF RED"
    assert node.fenced_at >= fenced_at


def test_a_trespass_that_is_recorded_and_not_fenced_yet_begins_a_new_stay():
    async def scenario(bench: Bench) -> Any:
        node = await bench.node(state=State.VALIDATING)
        place = PortPlacement(switch=bench.port.switch, interface=bench.port.interface, vrf="RED")
        first = await bench.violations.note(node, [place], "its driver")
        await bench.rig.clock.sleep(60.0)
        again = await bench.violations.note(node, [place], "its driver")
        return first.fenced_at, again.fenced_at

    first, again = play(scenario)

    assert 1.0 < first < again


@pytest.mark.parametrize(
    ("state", "asked"),
    [
        (State.DISCOVERED, 1),
        (State.INTAKE, 1),
        (State.CONVERGING, 1),
        (State.VALIDATING, 1),
        (State.CERTIFIED, 1),
        (State.QUARANTINED, 1),
        (State.DRAINING, 0),
        (State.REPAIRING, 0),
        (State.RETIRED, 0),
    ],
)
def test_the_question_to_a_person_is_on_the_row_before_a_port_is_fenced(
    state: State, asked: int
) -> None:
    async def scenario(bench: Bench) -> Any:
        node = await bench.node(state=state)
        place = PortPlacement(switch=bench.port.switch, interface=bench.port.interface, vrf="RED")
        await bench.violations.note(node, [place], "its driver")
        await bench.violations.note(node, [place], "its driver")  # written down once
        return (await bench.store.nodes.get(A)).blockers

    blockers = play(scenario)

    assert [b.reason for b in blockers] == [Reason.TRESPASS] * asked


@pytest.mark.parametrize(
    "row",
    [
        {"state": State.RELEASED, "placement": Placement.CUSTOMER, "vrf": "RED", "tenant": "red"},
        {"state": State.DRAINING, "placement": Placement.CUSTOMER, "vrf": "RED"},
        {"state": State.DRAINING, "placement": Placement.MIXED, "vrf": "", "served": "red"},
        {
            "state": State.CERTIFIED,
            "placement": Placement.MIXED,
            "vrf": "",
            "tenant": "red",
            "served": "red",
        },
    ],
)
def test_a_port_that_a_row_entitles_is_left_alone(row):
    async def scenario(bench: Bench) -> Any:
        await bench.node(**row)
        bench.put("RED")
        await bench.look()
        return bench.vrf(), await bench.rows(), len(bench.rig.revisions())

    assert play(scenario) == ("RED", [], 0)


@pytest.mark.parametrize("state", [State.DRAINING, State.CERTIFIED])
def test_no_row_entitles_to_another_customers_network(state):
    async def scenario(bench: Bench) -> Any:
        await bench.node(state=state, placement=Placement.MIXED, vrf="", tenant="red", served="red")
        bench.put("BLUE")
        await bench.look()
        return bench.vrf(), (await bench.store.nodes.get(A)).served

    assert play(scenario) == ("MAINT", "red, VRF BLUE")


def test_a_released_node_with_a_port_in_anothers_network_is_taken_back_and_owes_an_erasure():
    async def scenario(bench: Bench) -> Any:
        await bench.node(
            state=State.RELEASED,
            placement=Placement.CUSTOMER,
            vrf="RED",
            tenant="red",
            served="red",
        )
        bench.put("BLUE")
        await bench.look()
        return bench.vrf(), await bench.store.nodes.get(A), bench.submitted

    vrf, node, submitted = play(scenario)

    assert (vrf, node.state, node.served) == ("MAINT", State.DRAINING, "red, VRF BLUE")
    assert len(submitted) == 1


def test_a_release_that_begins_while_the_leaf_is_read_is_left_alone():
    async def scenario(bench: Bench) -> Any:
        await bench.node(state=State.CERTIFIED, tenant="red")
        bench.watch._owners.take(await bench.store.nodes.list())
        # the rows that the watch knows are older than the release
        await bench.node(
            state=State.CERTIFIED, placement=Placement.MIXED, vrf="", tenant="red", served="red"
        )
        bench.put("RED")
        bench.watch._due[bench.leaf.name] = 0.0
        await bench.watch.check_leaf(bench.leaf.name)
        return bench.vrf(), await bench.rows()

    assert play(scenario) == ("RED", [])


def test_a_node_that_was_never_taken_in_is_listed_and_not_moved():
    async def scenario(bench: Bench) -> Any:
        await bench.node(state=State.QUARANTINED, placement=Placement.NONE, vrf="", fenced_at=0.0)
        bench.put("RED")
        await bench.look()
        return bench.vrf(), await bench.rows(), list(bench.watch.listed)

    vrf, rows, listed = play(scenario)

    assert (vrf, rows) == ("RED", [])
    assert len(listed) == 1


def test_a_port_of_a_retired_node_is_its_successors():
    async def scenario(bench: Bench) -> Any:
        old = await bench.node(state=State.RETIRED)
        new = {"id": "su0-n00-b", "state": State.RELEASED, "placement": Placement.CUSTOMER}
        await bench.store.nodes.add(old.model_copy(update=new | {"vrf": "RED", "tenant": "red"}))
        bench.put("RED")
        await bench.look()
        return bench.vrf(), await bench.rows()

    assert play(scenario) == ("RED", [])


def test_a_leaf_that_is_silent_is_read_again_later():
    async def scenario(bench: Bench) -> Any:
        await bench.node(state=State.QUARANTINED)
        bench.put("RED")
        service = bench.rig.site.nvue[bench.leaf.name]
        service.reachable = lambda: False
        await bench.look()
        silent = bench.vrf()
        service.reachable = lambda: True
        await bench.look()
        return silent, bench.vrf()

    assert play(scenario) == ("RED", "MAINT")


def test_a_host_port_that_no_node_owns_is_fenced():
    async def scenario(bench: Bench) -> Any:
        bench.leaf.add_port(SPARE, "172.9.9.1/31")
        bench.put("RED", SPARE)
        await bench.look()
        return bench.vrf(SPARE), await bench.rows(), await bench.alerts(bench.leaf.name)

    vrf, rows, alerts = play(scenario)

    assert vrf == "MAINT"
    leaf = rows[0][1]
    assert rows == [("trespass", leaf), ("fence", leaf)]
    assert alerts == [f"PortTrespass {leaf}/{SPARE}"]


def _declared(bench: Bench) -> str:
    return SPARE


def _uplink(bench: Bench) -> str:
    bench.leaf.neighbours[SPARE] = Neighbour("leaf-su0-r1", "swp1", "00:00:00:00:00:01")
    return SPARE


def _bond(bench: Bench) -> str:
    return "bond7"


async def _border(bench: Bench) -> None:
    outside = Outside(switch=bench.leaf.name, peer="172.9.9.0", remote_as=65100)
    await bench.store.tenants.put(Tenant(name="red", vrf="RED", outside=(outside,)))


async def _storage(bench: Bench) -> None:
    await bench.store.tenants.put(Tenant(name="blue", vrf="BLUE", storage=("RED",)))


async def _nothing(_bench: Bench) -> None:
    return None


@pytest.mark.parametrize(
    ("name", "prepare", "declared"),
    [
        (_declared, _nothing, ("leaf-su0-*/swp6*",)),
        (_uplink, _nothing, ()),
        (_bond, _nothing, ()),
        (_declared, _border, ()),
        (_declared, _storage, ()),
    ],
    ids=["declared", "uplink", "bond", "border", "storage"],
)
def test_a_port_that_is_not_a_hosts_is_listed_and_never_moved(name, prepare, declared):
    async def scenario(bench: Bench) -> Any:
        await prepare(bench)
        port = name(bench)
        bench.leaf.add_port(port, "172.9.9.1/31")
        bench.put("RED", port)
        await bench.look()
        return bench.vrf(port), await bench.rows(), len(bench.watch.listed)

    assert play(scenario, ports_not_ours=declared) == ("RED", [], 1)


@pytest.mark.parametrize("body", ["{", None])
def test_ports_that_a_damaged_row_may_entitle_are_listed_and_not_moved(body):
    """Without its row nobody knows whether the node serves, nor which ports are its own."""

    async def scenario(bench: Bench) -> Any:
        node = await bench.node(state=State.RELEASED, tenant="red")
        kept = node.model_dump_json().replace('"attempts":0', '"attempts":"many"')
        written = sqlalchemy.text("UPDATE nodes SET body = :body, changed = 999999 WHERE id = :id")
        values = {"body": body or kept, "id": A}
        await bench.store.write(lambda c: c.execute(written, values))
        bench.put("RED")
        await bench.watch.run_round()
        bench.watch._due[bench.leaf.name] = 0.0
        await bench.watch.check_leaf(bench.leaf.name)
        bench.rig.site.advance()
        return bench.vrf(), bench.watch.listed

    vrf, listed = play(scenario)

    assert vrf == "RED"
    assert "damaged" in " ".join(map(str, listed.values()))


STRANGER = {"placement": Placement.NONE, "vrf": "", "fenced_at": 0.0}


@pytest.mark.parametrize("at", ["intake", "identification"])
@pytest.mark.parametrize("state", [State.QUARANTINED, State.INTAKE])
def test_a_port_that_was_in_no_network_when_its_node_was_quarantined_is_fenced(at, state):
    """Its row is ours, and the port was put there since: it is no machine that served before us."""

    async def scenario(bench: Bench) -> Any:
        profile = "hgx-h100" if at == "intake" else ""
        await bench.node(state=state, profile=profile, **STRANGER)
        bench.put("default")
        await bench.look()
        await bench.look()
        bench.put("RED")
        await bench.look()
        return bench.vrf(), await bench.store.nodes.get(A), await bench.rows(), bench.watch.listed

    vrf, node, rows, listed = play(scenario)

    assert vrf == "MAINT"
    assert node.served == "VRF RED"
    assert {b.reason for b in node.blockers} == {Reason.TRESPASS}
    assert rows == [("trespass", A), ("fence", A)]
    assert listed == {}


@pytest.mark.parametrize("state", [State.DISCOVERED, State.INTAKE, State.QUARANTINED])
def test_a_port_that_served_before_its_node_was_known_is_only_listed(state):
    async def scenario(bench: Bench) -> Any:
        await bench.node(state=state, **STRANGER)
        bench.put("RED")
        await bench.look()
        await bench.look()
        return bench.vrf(), await bench.rows(), list(bench.watch.listed)

    vrf, rows, listed = play(scenario)

    assert (vrf, rows, len(listed)) == ("RED", [], 1)


@pytest.mark.parametrize("state", [State.DISCOVERED, State.RETIRED])
def test_a_port_that_comes_to_serve_before_its_intake_began_is_only_listed(state):
    """Another system moves it still; a look that saw it idle before is no word of ours."""

    async def scenario(bench: Bench) -> Any:
        await bench.node(state=state, **STRANGER)
        bench.put("default")
        await bench.look()
        await bench.look()
        bench.put("RED")
        await bench.look()
        return bench.vrf(), await bench.rows(), list(bench.watch.listed)

    assert play(scenario)[:2] == ("RED", [])


def test_a_machine_that_serves_since_before_its_intake_is_not_cut_off_by_its_quarantine():
    """Idle when it was listed, deployed by another system since, and then refused by our intake."""

    async def scenario(bench: Bench) -> Any:
        await bench.node(state=State.DISCOVERED, **STRANGER)
        bench.put("default")
        await bench.look()
        await bench.look()
        bench.put("RED")
        await bench.look()
        await bench.node(state=State.QUARANTINED, **STRANGER)
        await bench.look()
        served = [(bench.vrf(), await bench.rows(), len(bench.watch.listed))]
        for looks in (1, 2):
            bench.put("default")
            for _ in range(looks):
                await bench.look()
            bench.put("RED")
            await bench.look()
            served += [(bench.vrf(), await bench.rows(), len(bench.watch.listed))][: 2 - looks]
        return served, bench.vrf()

    served, vrf = play(scenario)

    assert served == [("RED", [], 1)] * 2  # a single look that misses its network cuts it off never
    assert vrf == "MAINT"  # it was idle again, and ours


def test_a_first_look_that_misses_a_network_is_no_word_that_a_port_was_idle():
    """Of a daemon, or of a leaf that has just started: the machine served before us."""

    async def scenario(bench: Bench) -> Any:
        await bench.node(state=State.QUARANTINED, **STRANGER)
        bench.put("default")
        await bench.look()
        bench.put("RED")
        await bench.look()
        return bench.vrf(), await bench.rows(), len(bench.watch.listed)

    assert play(scenario) == ("RED", [], 1)


def test_a_port_of_a_node_in_repair_that_was_never_taken_in_is_fenced_too():
    async def scenario(bench: Bench) -> Any:
        await bench.node(state=State.REPAIRING, **STRANGER)
        bench.put("default")
        await bench.look()
        await bench.look()
        bench.put("RED")
        await bench.look()
        return bench.vrf(), await bench.store.nodes.get(A), await bench.rows()

    vrf, node, rows = play(scenario)

    assert (vrf, node.state, node.served) == ("MAINT", State.REPAIRING, "VRF RED")
    assert rows == [("trespass", A), ("fence", A)]
