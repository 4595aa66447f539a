"""`provisioner capability` from the first look to the withdrawal, as a person does it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from program import Done, run

from provisioner.daemon.data import open_data
from provisioner.model.adoption.capability import Capability
from provisioner.model.events.request_events import ActWithheld
from provisioner.model.location import Location
from provisioner.model.node import Node, NodeKind, Origin, Placement, State

NODE = "su0-n03"
RACK = ("--scope", "rack", "--name", "su0-rack1")
WHY = ("--reason", "first rack", "--yes")
FENCE = "move 8 ports to MAINT"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A data directory with one adopted node, of which a fence was withheld."""

    async def fill() -> None:
        async with open_data(tmp_path / "var", 1.0) as data:
            row = Node(
                id=NODE,
                kind=NodeKind.HOST,
                state=State.RELEASED,
                placement=Placement.CUSTOMER,
                origin=Origin.ADOPTED,
                tenant="red",
                vrf="RED",
                location=Location(rack="su0-rack1"),
            )
            await data.store.nodes.add(row)
            withheld = ActWithheld(
                about=NODE,
                act=FENCE,
                needs=Capability.ISOLATION,
                why="isolation is not granted",
            )
            await data.store.journal.append(withheld, 2.0)

    asyncio.run(fill())
    return tmp_path


def ask(site: Path, *words: str) -> Done:
    return run(["capability", *words], site)


def show(site: Path) -> Any:
    return json.loads(ask(site, "show", NODE, "--json").stdout)


def test_a_handover_is_shown_previewed_granted_withdrawn_and_logged(site: Path) -> None:
    before = show(site)
    assert (before["origin"], before["allowed"], before["decisions"]) == ("adopted", [], [])
    assert [(a["act"], a["needs"]) for a in before["would"]] == [(FENCE, "isolation")]

    # a preview names the node, and changes nothing
    preview = ask(site, "grant", "watch", *RACK, *WHY[:2], "--dry-run")
    assert preview.returncode == 0, preview.stderr
    assert NODE in preview.stdout
    assert "Nothing was done" in preview.stdout
    assert show(site) == before

    # a later step is refused before the former ones, and says which
    early = ask(site, "grant", "isolation", *RACK, *WHY)
    assert early.returncode == 1
    assert "watch" in early.stdout + early.stderr

    for step in list(Capability)[:-1]:
        granted = ask(site, "grant", step, *RACK, *WHY)
        assert granted.returncode == 0, granted.stdout + granted.stderr
    last = ask(site, "grant", "isolation", *RACK, *WHY[:2], "--dry-run")
    assert f"{NODE} would then: {FENCE}" in last.stdout
    assert ask(site, "grant", "isolation", *RACK, *WHY).returncode == 0
    assert show(site)["allowed"] == list(Capability)

    # the withdrawal of an early step stops the later ones
    preview = ask(site, "withdraw", "firmware", *RACK, *WHY[:2], "--dry-run")
    assert NODE in preview.stdout
    assert show(site)["allowed"] == list(Capability)
    assert ask(site, "withdraw", "firmware", *RACK, *WHY[:2]).returncode == 0
    after = show(site)
    assert after["allowed"] == ["watch", "tickets", "credentials"]
    assert {d["by"] for d in after["decisions"]} == {read_person(site)}

    events = json.loads(run(["event", "list", "--kind", "capability", "--json"], site).stdout)
    grants = [row["detail"]["grant"] for row in events]
    assert len(grants) >= len(Capability) + 1
    assert all(g["by"] and g["reason"] == "first rack" and g["at"] for g in grants)
    assert {(g["capability"], g["granted"]) for g in grants} >= {
        ("watch", True),
        ("isolation", True),
        ("firmware", False),
    }


def read_person(site: Path) -> str:
    """Return the person that the daemon takes this caller for."""
    return str(json.loads(run(["whoami", "--json"], site).stdout)["subject"])


def test_a_scope_without_an_adopted_node_is_refused_with_its_remedy(site: Path) -> None:
    done = ask(site, "grant", "watch", "--scope", "rack", "--name", "elsewhere", *WHY)

    assert done.returncode == 1
    assert "no adopted node is there" in done.stdout + done.stderr
