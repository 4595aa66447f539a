"""`provisioner remote` against a served API in a process of its own, over its TLS."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from served import node
from typer.testing import CliRunner, Result

from provisioner.access.tokens import new_token
from provisioner.api import table
from provisioner.cli import app
from provisioner.cli.client.remote import NOT_HERE
from provisioner.cli.client.remote import app as remote
from provisioner.daemon.data import open_data
from provisioner.model.access import Role
from provisioner.model.node import State
from provisioner.model.outcome import Blocker, Reason
from provisioner.runtime.wall_clock import WallClock
from provisioner.store.rows import token_rows

ROOT = Path(__file__).parents[2]
BLOCKER = Blocker(
    reason=Reason.CHECK_FAILED, subject="gpu\x1b[2J", detail="one is missing", unblock="Reseat it."
)


async def _fill(data: Path) -> dict[str, str]:
    tokens, now = {}, WallClock().now()
    async with open_data(data, now) as opened:
        for number in range(1, 6):
            await opened.store.add_node(node(number))
        await opened.store.add_node(node(6, state=State.QUARANTINED, blockers=(BLOCKER,)))
        await opened.store.journal("state", "su0-n06", {"to": "quarantined"}, now)
        for role in (Role.VIEWER, Role.OPERATOR):
            token, record = new_token("ada", role, "", 1.0, now)
            await opened.store.write(partial(token_rows.add_token, token=record, now=now))
            tokens[role.value] = token
    return tokens


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    folder = tmp_path_factory.mktemp("remote")
    for role, token in asyncio.run(_fill(folder / "var")).items():
        (folder / role).write_text(token + "\n")
    words = ["api", "--data", str(folder / "var"), "--port", "0"]
    server = subprocess.Popen(
        [sys.executable, "-m", "provisioner", *words], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        yield folder, server.stdout.readline().strip()
    finally:
        server.terminate()
        server.wait(30)
        server.stdout.close()


def ask(place: tuple[Path, str], *words: str, role: str = "viewer") -> Result:
    folder, url = place
    reached = ["--server", url, "--token-file", str(folder / role)]
    ca = ["--ca", str(folder / "var/agent-ca.pem")]
    return CliRunner().invoke(app, ["remote", *reached, *ca, *words])


def test_every_verb_of_the_api_has_a_command() -> None:
    wanted = {r.name.replace("_", "-") for r in table.ALL if r.name not in NOT_HERE}

    assert {c.name for c in remote.registered_commands} == wanted


def test_nodes_are_listed_filtered_and_paged(place: tuple[Path, str]) -> None:
    quarantined = ask(place, "list-nodes", "--where", "state=quarantined", "--json")
    first = ask(place, "list-nodes", "--limit", "2")

    assert [n["id"] for n in json.loads(quarantined.stdout)["items"]] == ["su0-n06"]
    assert "su0-n01" in first.stdout
    assert "--cursor" in first.stdout


def test_one_node_is_shown_line_by_line_with_nothing_that_moves_the_cursor(
    place: tuple[Path, str],
) -> None:
    shown = ask(place, "show-node", "su0-n06")

    assert shown.exit_code == 0, shown.output
    assert "Reseat it." in shown.stdout
    assert "\x1b" not in shown.stdout


def test_a_change_is_made_and_followed(place: tuple[Path, str]) -> None:
    asked = ask(place, "retry-node", "su0-n06", "--no-wait", "--json", role="operator")
    told = json.loads(asked.stdout)

    assert asked.exit_code == 0, asked.output
    assert (told["kind"], told["subject"]) == ("node.retry", "su0-n06")
    assert "retry" in ask(place, "list-requests").stdout


def test_a_no_names_what_unblocks_it_and_has_its_exit_code(place: tuple[Path, str]) -> None:
    forbidden = ask(place, "retry-node", "su0-n06")
    refused = ask(place, "reclaim-node", "su0-n02", role="operator")
    wrong = ask(place, "list-nodes", "--where", "state==")

    assert forbidden.exit_code == 1
    assert refused.exit_code == 1
    assert "precondition" in refused.stderr
    assert wrong.exit_code == 2
    assert wrong.stderr.count("\n") >= 2


def test_what_is_missing_is_said_before_anything_is_sent(tmp_path: Path) -> None:
    nowhere = CliRunner().invoke(app, ["remote", "list-nodes"])
    plain = tmp_path / "token"
    plain.write_text("x")
    clear = ["remote", "--server", "http://127.0.0.1:1", "--token-file", str(plain), "list-nodes"]
    unsafe = CliRunner().invoke(app, clear)

    assert "PROVISIONER_SERVER" in str(nowhere.exception)
    assert "never sent in clear" in str(unsafe.exception)


def test_another_server_s_certificate_gets_no_token(place: tuple[Path, str]) -> None:
    folder, url = place
    reached = ["--server", url, "--token-file", str(folder / "viewer")]

    found = CliRunner().invoke(app, ["remote", *reached, "list-nodes"])

    assert found.exit_code != 0
    assert "certificate" in str(found.exception).lower()
