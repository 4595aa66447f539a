"""`provisioner alert` on a data directory, as people and scripts use it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from program import run

from provisioner.cli.serve.daemon_parts import read_senders
from provisioner.daemon.data import DATABASE
from provisioner.model.alert import Alert, Classification
from provisioner.model.input_error import InputError
from provisioner.model.node import Node, NodeKind
from provisioner.store.sql_store import open_store

HOT = Alert(
    node="n1",
    id="SensorReading",
    target="Fan_1",
    classifications=(Classification.SENSOR_CRITICAL,),
    message="too hot \x1b[31m",
    source="redfish/host",
    since=1_790_000_000.0,
    last_at=1_790_000_000.0,
    raises=(1_790_000_000.0,),
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    async def fill() -> None:
        (tmp_path / "var").mkdir(mode=0o700)
        store = open_store(tmp_path / "var" / DATABASE)
        await store.nodes.add(Node(id="n1", kind=NodeKind.HOST))
        await store.alerts.put([HOT], [], 0.0)
        await store.close()

    asyncio.run(fill())
    return tmp_path


def test_alerts_are_listed_shown_overridden_and_cleared(data: Path) -> None:
    listed = run(["alert", "list"], data)
    (document,) = json.loads(run(["alert", "list", "--json"], data).stdout)
    why = ["--why", "fan is ordered"]
    over = run(["alert", "override", "n1", "SensorReading", *why, "--hours", "2"], data)
    (held,) = json.loads(run(["alert", "list", "--node", "n1", "--json"], data).stdout)
    clear = run(
        ["alert", "clear", "n1", "SensorReading", "--target", "Fan_1", *why, "--json"], data
    )
    left = json.loads(run(["alert", "list", "--json"], data).stdout)
    (kept,) = json.loads(run(["alert", "list", "--node", "n1", "--json"], data).stdout)

    assert "SensorReading" in listed.stdout
    assert "\x1b" not in listed.stdout
    assert (document["id"], document["overridden_until"]) == ("SensorReading", None)
    assert over.returncode == clear.returncode == 0
    asked_by = json.loads(clear.stdout)["asked_by"]
    assert (held["overridden_by"], held["overridden_why"]) == (asked_by, "fan is ordered")
    assert left == []
    assert kept["cleared_why"] == f"{asked_by}: fan is ordered"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["list", "--node", "n9"], "no such node"),
        (["clear", "n1", "SensorReading", "--why", " "], "why"),
        (["clear", "n1", "SensorReading"], "--why"),
        (["override", "n1", "*", "--why", "b", "--hours", "9999"], "hours"),
    ],
)
def test_what_is_wrong_is_one_clear_line(data: Path, words: list[str], said: str) -> None:
    done = run(["alert", *words], data)

    assert done.returncode == (4 if said == "no such node" else 2)
    assert said in done.stderr


def test_sources_are_read_with_secrets_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROM_TOKEN", "t" * 32)
    (tmp_path / "netq").write_text("s" * 32 + "\n")
    file = tmp_path / "sources.yaml"
    file.write_text(
        "sources:\n"
        "  - {name: prom, format: alertmanager, bearer_env: PROM_TOKEN}\n"
        f"  - name: netq\n    format: plain\n    hmac_file: {tmp_path / 'netq'}\n"
        "    classifications: [Link, FatalEvent]\n"
    )

    prom, netq = read_senders(file)

    assert (prom.signed, prom.secret.reveal()) == (False, "t" * 32)
    assert (netq.signed, netq.secret.reveal()) == (True, "s" * 32)
    assert Classification.FATAL_EVENT in netq.source.classifications
    assert "tttt" not in repr(prom)


@pytest.mark.parametrize(
    "text",
    [
        "sources: [{name: a, format: plain}]",
        "sources: [{name: a, format: xml, bearer_env: HOME}]",
        "sources: [{name: a, format: plain, bearer_env: NOT_SET_ANYWHERE}]",
        "sources: [{name: a, format: plain, bearer_env: A, hmac_env: B}]",
        "sources: [{name: a, format: plain, bearer_env: PATH, classifications: [Nonsense]}]",
        "sources: [{name: a, format: plain, bearer_env: LONG}, "  # noqa: ISC004 (one text)
        "{name: a, format: plain, bearer_env: LONG}]",
    ],
)
def test_a_wrong_list_of_sources_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("LONG", "x" * 32)
    file = tmp_path / "sources.yaml"
    file.write_text(text)

    with pytest.raises(InputError):
        read_senders(file)
