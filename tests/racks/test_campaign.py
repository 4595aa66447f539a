"""A campaign over racks: order, exclusions, drains, limits; held where anything is unknown.

What the plan's executor did is judged by a checker that shares no code with it.
"""

from __future__ import annotations

import json
import random
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from rack_checker import Checker, Row
from rack_lives import live
from rack_world import Shape, Site, World, make_site, make_world
from typer.testing import CliRunner, Result

from provisioner.integrations.racks import rack_commands
from provisioner.integrations.racks.campaign import Campaign, CampaignFile, plan_campaign
from provisioner.integrations.racks.campaign_run import predict
from provisioner.integrations.racks.impact import build_graph, derive_impact
from provisioner.integrations.racks.leaving.decommission import take_out
from provisioner.integrations.racks.plan import RackPlan
from provisioner.integrations.racks.update_start import limit_plan
from provisioner.model.input_error import InputError

SMALL = Shape(trays=3, switches=2, shelves=2, supplies=2)


def plan(site: Site, asked: Site) -> Campaign:
    return plan_campaign(RackPlan.model_validate(site), CampaignFile.model_validate(asked))


def rows(world: World) -> list[Row]:
    return [Row(h.kind, h.on, h.begin_s, h.end_s) for h in world.log]


def judge(site: Site, asked: Site, world: World) -> list[str]:
    checker = Checker(site, asked)
    return [
        *checker.find_violations(rows(world)),
        *checker.find_missed(world.running),
        *checker.find_repeated(world.flashed),
    ]


@pytest.mark.parametrize("seed", range(12))
def test_any_site_ends_with_each_version_and_breaks_no_rule(seed: int) -> None:
    rng = random.Random(seed)
    shape = Shape(*(rng.randint(1, 4) for _ in range(4)))
    site, asked = make_site(rng.randint(1, 9), seed, shape, current=rng.random())
    asked["limits"] = {"at_once": rng.randint(1, 4), "per_tenant": 1, "per_loop": rng.randint(1, 3)}
    campaign = plan(site, asked)
    world = make_world(site, asked, seed)

    outcome = live(campaign, world)[0].outcome()

    assert outcome.finished
    assert not campaign.held
    assert judge(site, asked, world) == []


def test_a_daemon_that_dies_anywhere_goes_on_and_writes_nothing_twice() -> None:
    site, asked = make_site(2, 3, SMALL, current=0.0)
    campaign = plan(site, asked)
    alone = make_world(site, asked)
    live(campaign, alone)
    steps = 6 * len(alone.log)  # two writes and a request, each before and after

    for step in range(1, steps + 1, 5):
        world = make_world(site, asked)
        assert live(campaign, world, {step, step + 7})[0].outcome().finished
        assert judge(site, asked, world) == []
        assert world.running == alone.running


def test_a_failed_act_stops_its_domain_and_no_other() -> None:
    site, asked = make_site(3, 1, SMALL, current=0.0)
    asked["limits"] = {"at_once": 2}
    campaign = plan(site, asked)
    world = make_world(site, asked)
    world.broken = frozenset({"r001-t1/hgx-bundle"})
    execution, _ = live(campaign, world)

    outcome = execution.outcome()

    assert outcome.held == {"d001": "r001-t1/hgx-bundle"}
    assert not outcome.finished
    assert all(h.kind != "prove" for h in world.log if h.on == "d001")
    missed = list(Checker(site, asked).find_missed(world.running))
    assert missed
    assert all(each.startswith("r001") for each in missed)


def test_an_act_of_which_nothing_is_seen_is_never_done() -> None:
    site, asked = make_site(1, 1, SMALL, current=0.0)
    campaign = plan(site, asked)
    world = make_world(site, asked)
    world.dumb = frozenset({"r000-s0/switch-reboot"})
    execution, _ = live(campaign, world)
    while execution.outcome().running:
        execution.observe("r000-s0/switch-reboot")

    assert execution.outcome().held == {"d000": "r000-s0/switch-reboot"}
    assert not any(h.kind == "activate" for h in world.log)


def change(asked: Site, unit: str, **fields: Any) -> Site:
    asked = deepcopy(asked)
    asked["units"][unit].update(fields)
    return asked


@pytest.mark.parametrize(
    ("unit", "fields", "says"),
    [
        ("r000-t0", {"water": "wet"}, "water is wet"),
        ("r000-t0", {"water": "unknown"}, "water is unknown"),
        ("r000-t0", {"water": "none"}, "water is none"),
        ("r000-t0", {"member": False}, "not proved to be where"),
        ("r000-t0", {"tenant": None}, "nobody looked whose host"),
        ("r000-s0", {"running": {"nvos": "25.02.2553"}}, "version of switch-firmware is not known"),
        ("r000-t1", {"running": {"host-bundle": "    ", "hgx-bundle": "1"}}, "not known"),
    ],
)
def test_what_is_unknown_holds_its_whole_domain(unit: str, fields: Site, says: str) -> None:
    site, asked = make_site(2, 0, SMALL, current=0.0)
    campaign = plan(site, change(asked, unit, **fields))

    assert [job.domain for job in campaign.jobs] == ["d001"]
    assert [(b.subject, says in b.detail) for b in campaign.held["d000"]] == [(unit, True)]


def test_a_unit_or_a_number_of_supplies_that_nobody_gave_holds_its_domain() -> None:
    site, asked = make_site(1, 0, SMALL, current=0.0)
    del asked["units"]["r000-p1"]
    next(u for u in site["racks"][0]["units"] if u["name"] == "r000-p0").pop("supplies")

    held = plan(site, asked).held["d000"]

    assert [b.detail for b in held] == [
        "how many power supplies it has is not known",
        "nothing is said of it",
    ]


def test_a_domain_with_every_version_is_left_alone() -> None:
    site, asked = make_site(2, 0, SMALL, current=1.0)

    campaign = plan(site, asked)

    assert (campaign.jobs, campaign.done) == ((), ("d000", "d001"))


def test_what_is_predicted_keeps_the_rules_too() -> None:
    site, asked = make_site(9, 5, SMALL)
    expected = predict(plan(site, asked))

    log = [Row(str(e.act.kind), e.act.on, e.begin_s, e.end_s) for e in expected]
    checker = Checker(site, asked)

    assert list(checker.find_violations(log)) == []
    assert max(r.end for r in log) >= checker.bound(log) - 1e-6


def shift(log: list[Row], kind: str, to: float) -> list[Row]:
    """Return the log with the first act of a kind begun at another time."""
    row = next(r for r in log if r.kind == kind)
    return [r._replace(begin=to, end=to + r.end - r.begin) if r is row else r for r in log]


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("drain", "before its domain was drained"),
        ("activate", "was activated before all switches"),
        ("psu", "psu on"),
        ("hgx-bundle", "beside hgx-bundle on"),
        ("nvlink-cluster", "beside or after the cluster's configuration"),
        ("switch-reboot", "switch-reboot"),
        ("prove", "after its domain was proved"),
        ("pmc-backup", "pmc-backup after pmc-primary"),
    ],
)
def test_the_checker_finds_each_broken_rule(kind: str, says: str) -> None:
    site, asked = make_site(1, 0, SMALL, current=0.0)
    asked["units"]["r000-t0"]["tenant"] = "a"
    world = make_world(site, asked)
    live(plan(site, asked), world)
    log = rows(world)
    begin = next(r.end for r in log if r.kind == "drain")
    at = {"drain": begin, "pmc-backup": log[-1].end, "nvlink-cluster": begin}.get(kind, begin + 1)

    found = list(Checker(site, asked).find_violations(shift(log, kind, at)))

    assert any(says in each or each.startswith(says) for each in found), found


def test_the_checker_finds_too_many_domains_missed_versions_and_second_writes() -> None:
    site, asked = make_site(3, 0, SMALL, current=0.0)
    asked["limits"] = {"at_once": 3}
    world = make_world(site, asked)
    live(plan(site, asked), world)
    checker = Checker(site, {**asked, "limits": {"at_once": 1}})

    assert "3 domains of site" in " ".join(checker.find_violations(rows(world))) or "2 domains" in (
        " ".join(checker.find_violations(rows(world)))
    )
    world.flashed["r000-t0", "hgx-bundle"] += 1
    world.running["r001-s0"]["nvos"] = "old"
    assert len(judge(site, asked, world)) == 2


GRAPH_SITE, GRAPH_ASKED = make_site(2, 0, SMALL)
GRAPH_PLAN = RackPlan.model_validate(GRAPH_SITE)


def lost(*down: str, site: Site = GRAPH_SITE) -> set[str]:
    planned = RackPlan.model_validate(site)
    return set(derive_impact(build_graph(planned, {"r000-t0": "a"}), down).lost)


def test_what_an_act_takes_away_is_derived_from_what_each_thing_needs() -> None:
    first = {f"host:r000-t{n}" for n in range(3)}
    assert lost("r000-t0") == {"r000-t0", "host:r000-t0", "tenant:a"}
    assert lost("r000-s1") == {"r000-s1", "tenant:a"} | first
    assert lost("r000-p0") >= first | {"r000-s0"}  # how many shelves suffice is not said
    assert lost("leaf:su0-leaf1") == {"leaf:su0-leaf1", "host:r000-t1", "host:r001-t1"}
    assert "r001-s0" in lost("loop:cdu0")
    assert lost("feed:hall0-a") >= {"r000-p0", "host:r001-t2"}
    with pytest.raises(InputError, match="no such thing"):
        lost("feed:nowhere")


def test_spines_superspines_and_storage_are_lost_by_what_the_plan_says_that_they_serve() -> None:
    needs = {
        "leaf:su0-leaf1": [{"what": "uplinks", "of": ["spine:a", "spine:b"], "least": 1}],
        "spine:a": [{"what": "uplinks", "of": ["superspine:x"]}],
        "spine:b": [{"what": "uplinks", "of": ["superspine:x", "superspine:y"], "least": 1}],
        "host:r000-t0": [{"what": "storage", "of": ["storage:lustre1"]}],
    }
    site = {**GRAPH_SITE, "needs": needs}
    hosts = {"host:r000-t1", "host:r001-t1"}
    assert lost("superspine:y", site=site) == {"superspine:y"}
    assert lost("superspine:x", site=site) == {"superspine:x", "spine:a"}
    both = lost("superspine:x", "superspine:y", site=site)
    assert both == {"superspine:x", "superspine:y", "spine:a", "spine:b", "leaf:su0-leaf1"} | hosts
    assert lost("spine:b", site=site) == {"spine:b"}
    assert lost("spine:a", "spine:b", site=site) >= hosts
    assert lost("storage:lustre1", site=site) == {"storage:lustre1", "host:r000-t0", "tenant:a"}
    planned = RackPlan.model_validate(site)
    weakened = derive_impact(build_graph(planned), ["spine:b"]).weakened
    assert weakened == {"leaf:su0-leaf1": "uplinks: spine:b of 2"}
    assert limit_plan(planned, ["r000"]).needs == planned.needs
    left = take_out(planned, [unit.name for unit in planned.find("r000").units])
    assert left is not None
    assert set(left.needs) == set(planned.needs) - {"host:r000-t0"}
    with pytest.raises(ValidationError, match=r"needs\.laef:su0-leaf1: nothing of the plan"):
        RackPlan.model_validate({**site, "needs": {"laef:su0-leaf1": needs["leaf:su0-leaf1"]}})


def edit(unit: str, rack: Site | None = None, **fields: Any) -> Site:
    site = deepcopy(GRAPH_SITE)
    site["racks"][0].update(rack or {})
    next(u for u in site["racks"][0]["units"] if u["name"] == unit).update(fields)
    return site


def test_enough_shelves_only_weaken_and_what_is_not_described_is_lost() -> None:
    spare = edit("r000-p0", {"shelves_needed": 1})
    assert lost("r000-p0", site=spare) == {"r000-p0"}
    planned = RackPlan.model_validate(spare)
    impact = derive_impact(build_graph(planned), ["r000-p0"])
    assert impact.weakened["r000-s0"] == "power: r000-p0 of 2"
    assert "r000-p1" in lost("feed:hall0-a", site=edit("r000-p1", feeds=[]))
    assert "host:r000-t0" in lost("leaf:su0-leaf1", site=edit("r000-t0", leaves=[]))
    assert "host:r000-t2" in lost("r001-s0", site=edit("r000-t2", {"domain": ""}))
    assert "r000-t1" in lost("loop:cdu0", site=edit("r000-t1", {"loop": ""}))


def test_a_name_or_address_that_stands_in_two_racks_is_refused() -> None:
    site = deepcopy(GRAPH_SITE)
    site["racks"][1]["units"][0]["name"] = "r000-t0"
    with pytest.raises(ValidationError, match="`name` r000-t0 stands twice"):
        RackPlan.model_validate(site)
    for first, second in (
        ("https://10.0.9.9", "https://10.0.9.9/"),
        ("https://a.b", "https://A.B"),
    ):
        site = deepcopy(GRAPH_SITE)
        for rack, address in zip(site["racks"], (first, second), strict=False):
            rack["units"][0]["bmc"] = address
        with pytest.raises(ValidationError, match="stands twice"):
            RackPlan.model_validate(site)


def invoke(tmp_path: Path, *words: str, asked: Site) -> Result:
    (tmp_path / "racks.json").write_text(json.dumps(GRAPH_SITE))
    (tmp_path / "campaign.json").write_text(json.dumps(asked))
    command, *options = words
    files = [str(tmp_path / "racks.json")]
    files += [str(tmp_path / "campaign.json")] if command == "plan" else []
    return CliRunner().invoke(rack_commands.app, [command, *files, *options])


def test_a_campaign_is_printed_and_a_held_domain_is_told(tmp_path: Path) -> None:
    told = invoke(tmp_path, "plan", "--json", asked=GRAPH_ASKED)
    said = json.loads(told.stdout)
    assert (told.exit_code, len(said["jobs"]), said["held"]) == (0, 2, {})
    assert said["durations"]["psu"]["source"].startswith("assumed")
    assert "assumed" not in said["durations"]["host-bundle"]["source"]
    first = invoke(tmp_path, "plan", "--domain", "d000", asked=GRAPH_ASKED)
    assert "switch-reboot" in first.stdout
    assert "r001" not in first.stdout
    held = invoke(tmp_path, "plan", asked=change(GRAPH_ASKED, "r001-t0", water="wet"))
    assert held.exit_code == 1
    assert "r001-t0: water is wet" in held.stdout
    unknown = invoke(tmp_path, "plan", "--domain", "d9", asked=GRAPH_ASKED)
    assert "no such domain" in str(unknown.exception)
    wrong = {**GRAPH_ASKED, "targets": {"compute-tray": {"bios": "1"}}}
    assert "no compute-tray has a component bios" in invoke(tmp_path, "plan", asked=wrong).stdout


def test_a_state_of_a_unit_that_no_rack_has_and_an_empty_target_are_refused(
    tmp_path: Path,
) -> None:
    known = {"r000-t0": {"water": "dry"}}
    for units, target, where in (({"r000-t9": {}} | known, "1", "r000-t9"), (known, " ", "pmc")):
        asked = {"targets": {"power-shelf": {"pmc": target}}, "units": units}
        told = invoke(tmp_path, "plan", asked=asked)
        assert isinstance(told.exception, InputError)
        assert where in str(told.exception)


def test_an_impact_is_printed_with_its_reasons(tmp_path: Path) -> None:
    shown = invoke(tmp_path, "impact", "r000-s0", asked=GRAPH_ASKED).stdout
    assert "3 hosts lost" in shown
    said = json.loads(invoke(tmp_path, "impact", "r000-s0", "--json", asked=GRAPH_ASKED).stdout)
    assert said["lost"]["host:r000-t0"] == "NVLink: r000-s0"


def test_an_act_that_hits_a_tenant_or_an_unknown_host_is_refused(tmp_path: Path) -> None:
    """An outlet is switched, or a loop is drained, by others: they ask before."""
    file = ("--campaign", str(tmp_path / "campaign.json"))
    free = {n: {**one, "tenant": ""} for n, one in GRAPH_ASKED["units"].items() if "-t" in n}
    asked = {**GRAPH_ASKED, "units": {**GRAPH_ASKED["units"], **free}}
    assert invoke(tmp_path, "impact", "loop:cdu0", *file, asked=asked).exit_code == 0
    used = change(asked, "r000-t1", tenant="acme")
    told = invoke(tmp_path, "impact", "loop:cdu0", *file, "--json", asked=used)
    assert told.exit_code == 1
    (refused,) = json.loads(told.stdout)["refused"]
    assert refused.startswith("acme loses r000-t1: ")
    unknown = change(asked, "r001-t0", tenant=None)
    told = invoke(tmp_path, "impact", "leaf:su0-leaf0", *file, asked=unknown)
    assert told.exit_code == 1
    assert "nobody looked who uses r001-t0" in told.output


def test_an_outlet_takes_its_shelf_and_one_that_nobody_described_any() -> None:
    site = edit("r000-p0", {"shelves_needed": 1}, outlets=["pdu1/3", "pdu1/4"])
    assert lost("outlet:pdu1/3", site=site) >= {"r000-p0", "r000-p1", "r001-p0"}  # not described
    for rack in site["racks"]:
        for n, unit in enumerate(u for u in rack["units"] if u["kind"] == "power-shelf"):
            unit.setdefault("outlets", [f"{rack['name']}/{n}"])
    assert lost("outlet:pdu1/3", site=site) == {"outlet:pdu1/3", "r000-p0"}
