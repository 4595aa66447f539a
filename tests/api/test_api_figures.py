"""Routes of figures: settings in force, thresholds, measured values, the journal's chain."""

from __future__ import annotations

from given_events import in_state
from served import PROFILE, Served, run
from sqlalchemy import Connection

from provisioner.checks.threshold_data import THRESHOLDS
from provisioner.model.cohort import Baseline, Sample
from provisioner.model.inventory import Component, Inventory
from provisioner.model.location import Location, Outlet
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.certification.certification import DAY_S
from provisioner.planning.certification.cohort import BINS, describe_spreads
from provisioner.settings import Settings


def sample(node: str, **measured: float) -> Sample:
    return Sample(
        node=node, rack="r", profile=PROFILE, versions="v" * 64, sound=True,
        measured={name.replace("__", "/"): value for name, value in measured.items()},
    )  # fmt: skip


def test_every_setting_is_listed_and_a_changed_one_is_marked():
    async def scenario(served: Served) -> None:
        status, listed = await served.ask("viewer", "GET", "/settings")
        rows = {row["name"]: row for row in listed["items"]}

        assert status == 200
        assert set(rows) == set(Settings.model_fields)
        assert [n for n, row in rows.items() if row["changed"]] == ["ticket_url"]
        assert rows["ticket_url"]["value"] == "https://tickets.example/new"  # without the login
        assert all(row["about"] for row in rows.values())

    run(scenario, ticket_url="https://bot:secret@tickets.example/new")


def test_a_metric_is_described_over_all_parts_of_all_nodes():
    floor = Baseline(
        metric="hbm", profile=PROFILE, versions="v", level=2.0, floor=1.5, anchor=2.0, nodes=2,
        racks=1, below=0, learned_at=1.0,
    )  # fmt: skip
    rows = [sample("n1", hbm__g0=1.0, hbm__g1=2.0), sample("n2", hbm__g0=3.0)]

    (spread,) = describe_spreads(rows, [floor])

    assert (spread.metric, spread.values, spread.nodes, spread.floor) == ("hbm", 3, 2, 1.5)
    assert (spread.least, spread.median, spread.most) == (1.0, 2.0, 3.0)
    assert (spread.bins[0], spread.bins[BINS // 2], spread.bins[-1]) == (1, 1, 1)


def test_equal_values_fall_into_one_bin():
    (spread,) = describe_spreads([sample("n1", a__x=5.0, a__y=5.0)], [])

    assert spread.bins == (2, *[0] * (BINS - 1))
    assert spread.floor is None


def test_measurements_name_every_threshold_with_its_source():
    async def scenario(served: Served) -> None:
        await served.store.cohorts.put_sample(sample("su0-n01", busbw_gb_s=460.0))
        status, view = await served.ask("viewer", "GET", "/measurements")

        assert status == 200
        assert {row["name"] for row in view["thresholds"]} == set(THRESHOLDS)
        assert all(row["source"] for row in view["thresholds"])
        assert [s["metric"] for s in view["spreads"]] == ["busbw_gb_s"]

    run(scenario)


def test_a_comparison_without_version_sets_is_of_the_two_measured_last():
    def measured(versions: str, taken_at: float, value: float) -> Sample:
        fields = {"versions": versions * 64, "taken_at": taken_at}
        return sample("su0-n01", busbw_gb_s=value).model_copy(update=fields)

    async def scenario(served: Served) -> None:
        none = await served.ask("viewer", "GET", "/cohorts/comparison")
        for row in (
            measured("a", 1.0, 480.0),
            measured("b", 2.0, 470.0),
            measured("c", 3.0, 240.0),
        ):
            await served.store.cohorts.put_sample(row)
        newest = await served.ask("viewer", "GET", "/cohorts/comparison")
        chosen = await served.ask("viewer", "GET", "/cohorts/comparison?before=b&after=c")
        older = await served.ask("viewer", "GET", "/cohorts/comparison?after=b")
        named = await served.ask("viewer", "GET", "/cohorts/comparison?before=a&after=b")

        assert none == (200, {"items": []})
        assert newest == chosen
        assert newest[1]["items"]
        assert (older, named[0]) == (named, 200)

    run(scenario)


def test_a_power_feed_whose_nodes_fail_is_accused_by_the_faults_that_the_journal_tells_of():
    """From the rows of nodes and their changes of state to the answer of the route."""
    why = Blocker(reason=Reason.CHECK_FAILED, subject="gpu", detail="Xid 79", unblock="Repair it.")

    async def scenario(served: Served) -> None:
        store, begin = served.store, served.parts.clock.now() - 40 * DAY_S
        gpu = Component(kind="hgx.gpu", slot="GPU_SXM_1", version="97.00", source="/redfish/v1")
        for number in range(12):
            node = Node(
                id=f"h{number}", kind=NodeKind.HOST, location=Location(rack=f"r{number // 4}"),
                outlets=(Outlet(pdu=f"p{number % 2}", outlet="1"),), tags=("batch-a",),
            )  # fmt: skip
            await store.nodes.add(node)
            seen = Inventory(node=node.id, vendor="generic", components=(gpu,))
            await store.evidence.put_inventory(seen, begin)
            await change(served, node.id, begin, State.CERTIFIED)
        for number in range(36):  # of p1 each node in turn, and once one of p0
            name, at = f"h{(2 * number + 1) % 12 if number % 9 else 4}", begin + number * DAY_S
            await change(served, name, at + 3600, State.QUARANTINED, why)
            await change(served, name, at + 7200, State.CERTIFIED)
        while await store.usage.advance():
            pass
        status, told = await served.ask("viewer", "GET", "/cohorts/suspects")
        assert status == 200
        assert told["faults"] == 36
        assert [one["what"] for one in told["items"] if one["accused"]] == [["pdu=p1"]]
        whats = [what for one in told["items"] for what in one["what"]]
        assert set(whats) == {"pdu=p0", "pdu=p1", "rack=r0", "rack=r1", "rack=r2"}

    run(scenario)


async def change(served: Served, name: str, at: float, state: State, *blockers: Blocker) -> None:
    node = await served.store.nodes.get(name)
    assert node is not None
    await served.store.nodes.save(in_state(node, state, at, blockers=blockers))


def change_second_row(connection: Connection) -> None:
    """Change a row of the journal, as a person with rights on the database may."""
    triggers = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'journal'"
    for (name,) in connection.exec_driver_sql(triggers).all():
        connection.exec_driver_sql(f"DROP TRIGGER {name}")
    connection.exec_driver_sql("UPDATE journal SET detail = '{}' WHERE seq = 2")


def test_the_journals_chain_is_followed_and_a_changed_row_is_named():
    async def scenario(served: Served) -> None:
        _, good = await served.ask("viewer", "GET", "/audit/verification")
        await served.store.write(change_second_row)
        _, broken = await served.ask("viewer", "GET", "/audit/verification")

        assert good["intact"]
        assert good["rows"] >= 7
        assert (broken["intact"], broken["broken_at"]) == (False, 2)

    run(scenario)
