"""`provisioner audit archive`, `check-archive`, `prune` and `verify --archives` on a directory."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from given_events import event_of
from program import run

from provisioner.daemon.data import open_data
from provisioner.model.node import Node, NodeKind, State
from provisioner.runtime.wall_clock import WallClock
from provisioner.store.signing import public_pem

ROWS = 12
DAY_S = 86_400.0


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder whose data directory `var` has a journal of some days, and an open operation."""

    async def fill() -> None:
        now = WallClock().now()
        async with open_data(tmp_path / "var", now) as opened:
            (tmp_path / "keys.pem").write_text(public_pem(opened.signer.public_key))
            await opened.store.nodes.add(Node(id="n1", kind=NodeKind.HOST, state=State.CERTIFIED))
            for number in range(ROWS):
                node = "n1" if number == 5 else "n2"
                at = now - (20 - number) * DAY_S
                await opened.store.journal.append(event_of("moved", node, {"number": number}), at)
                if number == 4:
                    await opened.store.operations.open("n1", "converge", at)

    asyncio.run(fill())
    return tmp_path


def ask(site: Path, words: str, *more: str) -> Any:
    done = run(["audit", *words.split(), *more, "--data", "var", "--json"], site)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


def test_the_journal_is_archived_pruned_and_verified(site: Path) -> None:
    _, verified = ask(site, "verify")
    known = f"{verified['rows']}:{verified['head']}"
    _, made = ask(site, "archive --older-than-days 10")
    (one,) = made["result"]["archives"]
    assert one["first"] == 1
    assert ask(site, "archive --older-than-days 10")[1]["result"]["archives"] == []
    code, checked = check(site, one["file"])
    assert (code, checked[0]["problem"]) == (0, "")

    _, pruned = ask(site, "prune --yes")
    assert pruned["result"]["removed"] == one["last"] - pruned["result"]["kept"]
    assert pruned["result"]["kept"] >= 1  # of the node with an open operation
    assert ask(site, "verify")[1]["intact"]
    for more in ([], ["--known", f"3:{head_of_archive(Path(site, one['file']), 3)}"]):
        code, document = ask(site, "verify --archives var/archives", *more)
        assert (code, document["intact"]) == (0, True)
    assert ask(site, "verify", "--known", known)[0] == 0
    code, document = ask(site, "verify", "--known", f"1:{'0' * 64}")
    assert (code, "archive" in document["problem"]) == (1, True)

    _, rows = ask(site, "list")
    kinds = {row["kind"]: row["detail"] for row in rows}
    person = pruned["asked_by"]
    assert kinds["journal_archived"]["by"] == kinds["journal_pruned"]["by"] == person
    assert kinds["journal_pruned"]["archive_sha256"] == one["sha256"]


def check(site: Path, file: str) -> Any:
    done = run(["audit", "check-archive", file, "--key", "keys.pem", "--json"], site)
    return done.returncode, json.loads(done.stdout)


def head_of_archive(file: Path, seq: int) -> str:
    rows = [json.loads(line) for line in file.read_text().splitlines()[1:]]
    return next(str(row[5]) for row in rows if row[0] == seq)


def test_nothing_is_pruned_that_no_good_archive_holds(site: Path) -> None:
    assert ask(site, "prune --yes")[1]["result"]["removed"] == 0
    _, made = ask(site, "archive --older-than-days 10")
    file = Path(site, made["result"]["archives"][0]["file"])
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:-1], lines[-1].replace("moved", "hidden")]) + "\n")
    refused = run(["audit", "prune", "--yes", "--data", "var"], site)
    assert refused.returncode == 1
    assert "differs from the written one" in refused.stderr
    assert check(site, str(file))[0] == 1
    assert ask(site, "verify --archives var/archives")[0] == 1


def test_a_prune_asks_and_a_dry_run_changes_nothing(site: Path) -> None:
    ask(site, "archive --older-than-days 10")
    before = ask(site, "verify")[1]["rows"]
    unasked = run(["audit", "prune", "--data", "var"], site)
    assert unasked.returncode == 2
    assert "--yes" in unasked.stderr
    shown = run(["audit", "prune", "--dry-run", "--data", "var"], site)
    assert shown.returncode == 0
    assert "operation, case, certificate or handover" in shown.stdout
    words = "audit archive --older-than-days 5 --dry-run --data var"
    assert "would be written" in run(words.split(), site).stdout
    assert ask(site, "verify")[1]["rows"] == before


def test_a_prune_waits_for_a_second_person_where_the_site_wants_one(site: Path) -> None:
    ask(site, "archive --older-than-days 10")
    before = ask(site, "verify")[1]["rows"]
    words = ["audit", "prune", "--yes", "--data", "var"]
    waiting = run(words, site, api_four_eyes=["audit.prune"])

    assert waiting.returncode == 3
    assert "waiting" in waiting.stdout
    assert ask(site, "verify")[1]["rows"] == before + 1  # the request alone


def test_an_archive_that_is_missing_after_a_prune_is_noticed(site: Path) -> None:
    _, made = ask(site, "archive --older-than-days 15")
    ask(site, "archive --older-than-days 10")
    ask(site, "prune --yes")
    assert ask(site, "verify --archives var/archives")[0] == 0
    Path(site, made["result"]["archives"][0]["file"]).unlink()
    code, document = ask(site, "verify --archives var/archives")
    assert code == 1
    assert "row 1 is missing" in document["problem"]
    assert ask(site, "verify")[0] == 0


def test_a_time_is_wanted_once(site: Path) -> None:
    both = "archive --until 2026-01-01 --older-than-days 3"
    for words in ("archive", both, "archive --until soon"):
        done = run(["audit", *words.split(), "--data", "var"], site)
        assert done.returncode == 2
        assert "until" in done.stderr
