"""`provisioner campaign`, `pin`, `drift`, `debt` on a data directory, as people and scripts do."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from campaign_fleet import Fleet
from campaign_parts import MATRIX
from program import Done, run

from provisioner.daemon.data import DATABASE
from provisioner.planning.places.address_plan import parse

POLICY = """
canary: {size: 2, soak_s: 600}
waves: [{upto: {percent: 50}, soak_s: 60}, {}]
tenants: {notice_s: 0}
"""


PLANES = """
{units: 1, planes: 2, widths: {plane: 1, unit: 7}, names: {
  leaf: "leaf-su{plane}-r{number}", spine: "spine-p{plane}-{number}",
  superspine: "superspine-p{plane}-{number}", card: "NIC_{rail}_{plane}",
  host_interface: "eth{rail}p{plane}"}}
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    async def fill() -> None:
        (tmp_path / "var").mkdir(mode=0o700)
        fleet = Fleet(hosts=8, units=1, idle=2, file=str(tmp_path / "var" / DATABASE))
        fleet.clock.at = time.time()
        await fleet.build()
        await fleet.store.close()

    asyncio.run(fill())
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "m.yaml").write_text(MATRIX.model_dump_json(by_alias=True))
    return tmp_path


def asked(data: Path, *words: str, **settings: Any) -> Done:
    return run(list(words), data, MATRIX, production=False, **settings)


def told(done: Done) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def drafted(data: Path, select: str = "kind=host") -> Done:
    words = ("--release", "next", "--select", select, "--policy", "policy.yaml")
    return asked(data, "campaign", "create", *words)


def test_a_campaign_from_draft_to_abort(data: Path) -> None:
    made = drafted(data)
    (listed,) = told(run(["campaign", "list", "--json"], data))
    preview = told(asked(data, "campaign", "preview", "c0001", "--json"))
    nodes = told(run(["node", "list", "--json"], data))
    started = asked(data, "campaign", "start", "c0001")
    paused = told(run(["campaign", "pause", "c0001", "--reason", "lunch", "--json"], data))
    (held,) = told(run(["campaign", "list", "--json"], data))
    resumed = run(["campaign", "resume", "c0001"], data)
    aborted = run(["campaign", "abort", "c0001", "--yes"], data)
    report = told(run(["campaign", "report", "c0001", "--json"], data))
    shown = run(["campaign", "show", "c0001"], data)

    assert "campaign: c0001" in made.stdout
    assert (listed["state"], listed["release"]) == ("draft", "next")
    assert listed["created_by"] == paused["asked_by"]
    assert sum(len(w["nodes"]) for w in preview["waves"]) == 8
    assert preview["blast"]["gpus"] == 64
    assert {n["release"] for n in nodes} == {"base"}
    assert "state: started" in started.stdout
    assert (held["state"], held["reason"]) == ("paused", "lunch")
    assert "state: started" in resumed.stdout
    assert "state: aborted" in aborted.stdout
    assert (report["state"], report["states"]) == ("aborted", {"pending": 8})
    assert "canaries" in shown.stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["campaign", "create", "--release", "nope", "--select", "all"], 1, "Known: base, next."),
        (["campaign", "create", "--release", "next", "--select", "rak=a"], 1, "no field 'rak'"),
        (["campaign", "create", "--release", "next", "--select", "su=9"], 1, "it picks no node"),
        (["campaign", "start", "c0009"], 4, "no such campaign"),
        (["campaign", "preview", "c0009"], 4, "no such campaign"),
        (["pin", "set", "node", "su0-n00", "--release", "next"], 2, "--reason"),
        (
            [
                "pin",
                "set",
                "rack",
                "r",
                "--release",
                "next",
                "--reason",
                "x",
                "--until",
                "2099-01-01",
            ],
            4,
            "no such rack",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_what_would_help(
    data: Path, words: list[str], code: int, said: str
) -> None:
    done = asked(data, *words)

    assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done


def test_an_address_plan_tells_in_which_planes_switches_would_go_down(data: Path) -> None:
    (data / "policy.yaml").write_text(f"{POLICY}limits: {{total: 8}}\n")
    assert "state: draft" in drafted(data, "kind=switch").stdout
    words = ("campaign", "preview", "c0001")

    plan = parse("plan.yaml", PLANES)
    told_so = told(asked(data, *words, "--json", plan=plan))
    shown = asked(data, *words, plan=plan)
    without = told(asked(data, *words, "--json"))

    assert told_so["blast"]["planes"] == [0]
    assert "planes 0" in shown.stdout
    assert without["blast"]["planes"] == []


def test_a_bad_policy_is_named_with_its_line(data: Path) -> None:
    (data / "policy.yaml").write_text("canary:\n  size: -1\n")

    done = drafted(data)

    assert done.returncode == 2
    assert "canary.size" in done.stderr


def test_a_request_that_the_state_does_not_allow_changes_nothing(data: Path) -> None:
    drafted(data)

    done = run(["campaign", "resume", "c0001", "--json"], data)

    assert done.returncode == 1
    (blocker,) = json.loads(done.stdout)["blockers"]
    assert blocker["detail"] == "it is draft: resume is not possible"


def test_pins_are_kept_and_drift_says_why(data: Path) -> None:
    words = ("--release", "next", "--reason", "a benchmark", "--until", "2099-01-01")
    kept = asked(data, "pin", "set", "node", "su0-n03", *words)
    (pin,) = told(run(["pin", "list", "--json"], data))
    (line,) = told(asked(data, "drift", "--json"))
    table = asked(data, "drift")
    wide = asked(data, "drift", "-o", "wide")
    removed = run(["pin", "remove", "node", "su0-n03", "--yes"], data)
    after = told(asked(data, "drift", "--json"))
    debt = told(run(["debt", "--json"], data))

    assert "release: next" in kept.stdout
    assert (pin["scope"], pin["reason"]) == ("node", "a benchmark")
    assert (line["node"], line["release"], line["target"]) == ("su0-n03", "base", "next")
    assert line["behind"] == [
        {"kind": "host.doca", "running": "1.0.0", "wanted": "2.0.0", "slots": 1}
    ]
    assert table.stdout.splitlines()[-3].split()[1:6:2] == ["host.doca", "1.0.0", "2.0.0"]
    assert "1 nodes differ: -o wide lists them." in table.stdout
    assert "pin of node su0-n03: a benchmark" in " ".join(wide.stdout.split())
    assert (removed.returncode, after) == (0, [])
    # these nodes serve without a certificate, which is owed; nothing else is
    assert {(d["kind"], d["version"]) for d in debt} == {("certificate", "none")}


def test_a_node_is_deferred_skipped_and_tried_again(data: Path) -> None:
    drafted(data)
    asked(data, "campaign", "start", "c0001")
    late = run(["campaign", "defer", "c0001", "su0-n00", "--until", "2099-01-01"], data)
    skipped = run(["campaign", "skip", "c0001", "su0-n00", "--reason", "fragile"], data)
    seen = told(run(["campaign", "show", "c0001", "--json"], data))
    again = run(["campaign", "again", "c0001", "su0-n00"], data)
    stranger = run(["campaign", "skip", "c0001", "n99"], data)

    states = {n["node"]: n["state"] for n in seen["nodes"]}
    assert (late.returncode, "at the latest" in late.stdout + late.stderr) == (1, True)
    assert (skipped.returncode, states["su0-n00"]) == (0, "skipped")
    assert (again.returncode, stranger.returncode) == (0, 4)
