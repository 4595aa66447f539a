"""Acts on adopted nodes: random histories, in which none arrives without a person's grant.

`make soak NAME=capabilities` lives ten thousand of them (docs/adopting.md).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from check_capabilities import is_bad, live_site, read_record, sum_up
from handing_over import HOSTS, SCOPES, History, open_handover
from test_observing import put
from virtual_time import run

from provisioner.integrations.sim.site.truth import list_placements
from provisioner.model.adoption.capability import LADDER
from provisioner.model.events.request_events import RequestCarriedOut
from provisioner.model.node import Origin, State
from provisioner.planning.release.adoption import detach_node
from provisioner.ports import BmcAddress, Call, NotGranted

BRIEF = 15  # histories in CI


def test_no_act_arrives_at_an_adopted_node_without_a_grant() -> None:
    site = live_site(0, BRIEF)

    assert not is_bad(site), (site["unlawful"], site["failure"])
    assert site["histories"] == BRIEF
    assert site["acts"] > BRIEF  # the grants had an effect as well
    assert site["withheld"] > 0
    assert {"grant", "withdraw", "crash"} <= set(site["steps"])


def test_a_run_that_was_ended_goes_on_and_its_sum_names_what_was_unlawful(tmp_path: Path) -> None:
    first = live_site(3, 1)
    record = tmp_path / "record"
    record.write_text(json.dumps(first) + "\n" + json.dumps(first | {"site": 4})[:40])
    bad = first | {"site": 5, "unlawful": ["history 250: an act"]}

    assert read_record(record) == {3: first}
    assert not sum_up([first], 1)["bad_sites"]
    result = sum_up([first, bad, first | {"site": 6, "failure": "KeyError: x"}], 3)
    assert (result["histories"], result["acts_without_a_grant"]) == (3, 1)
    assert result["bad_sites"] == [5, 6]


def test_the_witness_of_the_histories_sees_an_act_without_a_grant(tmp_path: Path) -> None:
    async def scenario() -> None:
        world, witness = await open_handover(tmp_path)
        history = History(world, witness, 1)
        await world.start()
        await history.put([(scope, name, LADDER) for scope, name in SCOPES], granted=True)
        witness.grants = witness.former = ()  # as if nothing was granted
        await history.reclaim()
        await world.clock.sleep(60.0)
        await world.crash()
        assert any("isolation" in act for act in witness.unlawful)

    run(scenario())


def test_a_fence_without_isolation_is_shown_and_carried_out_when_it_is_granted(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        world, witness = await open_handover(tmp_path)
        history = History(world, witness, 1)
        await world.start()
        await history.put([(scope, name, LADDER[:-1]) for scope, name in SCOPES], granted=True)
        put(world, [3], "BLUE", HOSTS[0])
        await world.clock.sleep(300.0)
        node = await world.store.nodes.get(HOSTS[0])
        assert node is not None
        assert (node.state, node.vrf) == (State.RELEASED, "RED")
        assert "BLUE" in list_placements(world.site, HOSTS[0]).values()
        shown = [r for r in await world.store.journal.list(0, 10_000) if r["kind"] == "would"]
        assert {(r["node"], r["detail"]["needs"]) for r in shown} == {(HOSTS[0], "isolation")}
        assert not witness.acts

        await history.put([(scope, name, LADDER) for scope, name in SCOPES], granted=True)
        await world.clock.sleep(300.0)
        await world.crash()
        assert "BLUE" not in list_placements(world.site, HOSTS[0]).values()
        assert not witness.unlawful

    run(scenario())


@pytest.mark.parametrize("origin", [Origin.ADOPTED, Origin.TAKEN_IN])
def test_nothing_is_sent_to_a_detached_node_whatever_is_granted(
    tmp_path: Path, origin: Origin
) -> None:
    async def scenario() -> None:
        world, witness = await open_handover(tmp_path)
        history = History(world, witness, 1)
        nodes = world.store.nodes
        serving = await nodes.get(HOSTS[0])
        assert serving is not None
        serving = await nodes.save(serving.model_copy(update={"origin": origin}))
        now = world.clock.now()
        row = detach_node(serving, "ada", "back to Ironic", now)
        await nodes.save_detached(row, "", RequestCarriedOut(request="detach", by="ada"), now)
        await world.start()
        await history.put([(scope, name, LADDER) for scope, name in SCOPES], granted=True)
        put(world, [3], "BLUE", HOSTS[0])
        await world.clock.sleep(300.0)
        assert world.daemon is not None
        parts = world.daemon.parts
        bmc = BmcAddress(row.bmcs[0].url)
        with pytest.raises(NotGranted, match="is detached"):
            await parts.transport.request(bmc, Call("PATCH", "/redfish/v1/Systems/1", {}))
        await world.crash()
        assert "BLUE" in list_placements(world.site, HOSTS[0]).values()
        assert [a for a in witness.acts if a[0] == HOSTS[0]] == []
        assert not witness.unlawful
        after = await nodes.get(HOSTS[0])
        assert after is not None
        assert (after.state, after.origin) == (State.RETIRED, Origin.DETACHED)
        assert (after.served, after.blockers) == ("red", ())

    run(scenario())
