"""Tables of an observing daemon: each kind of finding is a count, and a debt says what it needs."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.cli.client.output import show_rows
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
