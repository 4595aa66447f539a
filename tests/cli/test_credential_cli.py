"""`provisioner credential`: listed, changed on demand, one shown to a person with four eyes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from program import Done, run

from provisioner.api import console_pages as local_peer
from provisioner.daemon.data import open_data
from provisioner.model.location import Location
from provisioner.model.node import BmcRef, Node, NodeKind
from provisioner.ports import Secret

PASSWORD = "Kq7-hidden-Word.9"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A data directory with one host whose BMC's password the daemon has set."""

    async def fill() -> None:
        async with open_data(tmp_path / "var", 1.0) as data:
            bmc = BmcRef(name="host", url="https://192.0.2.1", rotated=True)
            place = Location(rack="rack1")
            await data.store.nodes.add(
                Node(id="n0", kind=NodeKind.HOST, bmcs=(bmc,), location=place)
            )
            await data.vault.put("n0/host", "root", Secret(PASSWORD))
            await data.store.credential_standings.enroll({"n0/host": "n0"}, 1.0)

    asyncio.run(fill())
    return tmp_path


def act(site: Path, person: str, monkeypatch: pytest.MonkeyPatch, *words: str) -> Done:
    monkeypatch.setattr(local_peer, "_name", lambda _user: person)  # as the kernel reports it
    return run([*words], site)


def test_a_password_is_shown_to_the_one_who_asked_and_listed_as_due_afterwards(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = act(
        site, "ada", monkeypatch, "credential", "show", "n0", "host", "--reason", "it hangs"
    )
    own = act(site, "ada", monkeypatch, "request", "approve", "r1")
    early = act(site, "ada", monkeypatch, "credential", "reveal", "r1")
    approved = act(site, "ben", monkeypatch, "request", "approve", "r1")
    other = act(site, "ben", monkeypatch, "credential", "reveal", "r1")
    shown = act(site, "ada", monkeypatch, "credential", "reveal", "r1")
    listed = act(site, "ben", monkeypatch, "credential", "list")

    codes = [done.returncode for done in (asked, own, early, approved, other, shown, listed)]
    assert codes == [3, 1, 1, 0, 1, 0, 0], (asked, approved, shown)
    assert PASSWORD in shown.stdout
    for done in (asked, own, early, approved, other, listed):
        assert PASSWORD not in done.stdout + done.stderr
    assert "ada" in listed.stdout
    assert "shown" in listed.stdout


def test_a_change_is_shown_first_and_then_listed_as_due(site: Path) -> None:
    words = ["credential", "rotate", "--rack", "rack1", "--reason", "a laptop was lost"]
    seen = run([*words, "--dry-run"], site)
    unasked = run(words, site)
    before = run(["credential", "list", "--due"], site)
    done = run([*words, "--yes"], site)
    after = run(["credential", "list", "--due"], site)

    assert "Passwords of 1 BMCs are changed" in seen.stdout
    assert unasked.returncode == 2  # no terminal to ask on
    assert "n0/host" not in before.stdout
    assert done.returncode == 0, done.stderr
    assert "n0/host" in after.stdout
