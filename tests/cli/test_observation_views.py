"""Tables of an observing daemon: each kind of finding is a count, and a debt says what it needs."""

from __future__ import annotations

import random
from typing import Any

import pytest

from provisioner.cli.client import calls, views
from provisioner.cli.client.output import show_rows
from provisioner.cli.options import tables
from provisioner.model.adoption.capability import Observation
from provisioner.model.node import Node, NodeKind, Origin, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.campaigns.release_drift import find_lapsed_certificates

DAY_S = 86_400.0


def print_rows(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    rows: list[dict[str, Any]],
) -> list[str]:
    monkeypatch.setenv("COLUMNS", "200")
    show_rows(command, rows, list(rows[0]) if rows else [], "table")
    return capsys.readouterr().out.splitlines()


def test_a_list_of_observations_counts_what_was_found_and_what_was_not_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = Blocker(reason=Reason.CABLING, subject="n1/NIC_3", detail="x", unblock="Move it.")
    row = Observation(
        node="n1", at=DAY_S, state=State.RELEASED, cabling=(wrong,), unread=(wrong, wrong)
    )
    shown = row.model_dump(mode="json") | {"at": "1970-01-02T00:00:00Z"}
    lines = print_rows(capsys, monkeypatch, "observation list", [shown])

    title = [word.strip() for word in lines[1].split("┃")[1:-1]]
    cells = [word.strip() for word in lines[3].split("│")[1:-1]]
    counts = dict(zip(title, cells, strict=True))
    assert (counts["cables"], counts["unread"], counts["ports"]) == ("1", "2", "–")
    assert counts["node"] == "n1"
    (empty,) = print_rows(capsys, monkeypatch, "observation list", [])
    assert "provisioner mode" in empty


def test_an_adopted_host_is_a_debt_with_its_date_and_what_it_waits_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(
        id="n1",
        kind=NodeKind.HOST,
        state=State.RELEASED,
        origin=Origin.ADOPTED,
        entered_at=DAY_S,
    )
    (line,) = find_lapsed_certificates([node], {}, set(), 9 * DAY_S)
    rows = [line.model_dump(mode="json")]

    text = print_rows(capsys, monkeypatch, "debt", rows)[3]

    assert "serving, not certified: adopted 1970-01-02" in text
    assert "drain" in text


@pytest.mark.parametrize(
    ("ratio", "low", "high", "shown"),
    [
        (None, None, None, "unknown"),
        (6.0, 2.0, None, "2.00 to unknown"),
        (0.0, None, 0.5, "unknown to 0.50"),
        (0.0, 0.0, 0.0, "0.00 to 0.00"),
        (1e6, 2.0, 1e9, "2.00 to"),
    ],
)
def test_a_suspect_whose_interval_has_no_end_is_shown(
    ratio: float | None, low: float | None, high: float | None, shown: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    evidence = {"ratio": ratio, "low": low, "high": high, "faults_with": 3, "faults_without": 0}
    one = {"what": ["rack=r07"], "accused": True, "evidence": evidence, "decided_by": []}
    views.show_suspects({"faults": 3, "node_days": 9.0, "items": [one]}, {})
    assert shown in capsys.readouterr().out


@pytest.mark.parametrize(
    ("told", "says", "not_said"),
    [
        ({}, "0 ports were judged", "No optic degrades"),
        ({"ports": 16, "unknown": 16}, "16 of them unknown", "No optic degrades"),
        ({"ports": 16, "unknown": 15}, "No optic degrades or flaps", "Not judged"),
        ({"ports": 16, "unread": ["leaf-9"]}, "Not judged as a whole: leaf-9", "unknown: "),
    ],
)
def test_optics_of_which_nothing_is_known_are_not_called_good(
    told: dict[str, object], says: str, not_said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    none = {"items": [], "causes": [], "ports": 0, "unknown": 0, "unread": []}
    views.show_optics({**none, **told}, {})
    shown = capsys.readouterr().out
    assert says in shown
    assert not_said not in shown


def test_a_space_that_could_not_be_read_shows_why_in_its_row_and_fails_the_check(
    capsys: pytest.CaptureFixture[str],
) -> None:
    blocker = {"reason": "unreachable", "subject": "vms", "detail": "no answer", "unblock": "x"}
    row = {"tenant": "red", "space": "", "clients": [], "exports": [], "quota_bytes": None}
    row |= {"encrypted": False, "foreign": [], "steps": [], "blockers": []}
    whole = {"items": [{**row, "space": "red"}]}
    assert not calls.FAILS["storage check"](whole)
    for odd in ({"blockers": [blocker]}, {"foreign": ["10.0.0.9"]}, {"steps": ["admit"]}):
        assert calls.FAILS["storage check"]({"items": [*whole["items"], {**row, **odd}]})
    show_rows("storage check", [{**row, "blockers": [blocker]}], list(row), "table")
    assert "no answer" in capsys.readouterr().out


@pytest.mark.parametrize("width", [20, 40, 79, 80, 81, 100, 200])
def test_no_table_is_cut_at_its_edge(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables.open_console, "__defaults__", (width,))
    rng = random.Random(width)
    for _ in range(40):
        names = [f"f{n}" for n in range(rng.randint(1, 9))]
        words = ["x" * rng.randint(1, 14) for _ in range(30)]
        rows = [{n: " ".join(rng.sample(words, rng.randint(1, 6))) for n in names} for _ in "abc"]
        show_rows("none", rows, names, "table")
        lines = capsys.readouterr().out.splitlines()
        assert {len(line) for line in lines} == {len(lines[0])}
        assert len(lines[0]) <= width
        assert all(line[-1] in "┓┃┩│┘" for line in lines)
        shown = "".join(lines[3:])
        kept = names[: lines[0].count("┳") + 1]
        assert all(shown.count(c) >= 1 for row in rows for n in kept for c in row[n][:1])
