"""Where a command goes: the socket of a data directory, a server by TLS, a context by its name."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from local_daemon import daemon
from program import Done, alone
from served import node

from provisioner.access.tokens import new_token
from provisioner.cli.client.connection import find_file, find_place, read_contexts
from provisioner.daemon.api import SOCKET
from provisioner.daemon.data import open_data
from provisioner.model.access import Role
from provisioner.model.input_error import InputError
from provisioner.model.node import State
from provisioner.model.outcome import Blocker, Reason
from provisioner.runtime.wall_clock import WallClock
from provisioner.store.rows import request_rows as token_rows

BLOCKER = Blocker(
    reason=Reason.CHECK_FAILED, subject="gpu\x1b[2J", detail="one is missing", unblock="Reseat it."
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A folder with a served directory `var` and a file for each role's token; and the URL."""
    folder = tmp_path_factory.mktemp("served")

    async def fill() -> None:
        now = WallClock().now()
        async with open_data(folder / "var", now) as opened:
            for number in range(1, 6):
                await opened.store.nodes.add(node(number))
            await opened.store.nodes.add(node(6, state=State.QUARANTINED, blockers=(BLOCKER,)))
            for role in (Role.VIEWER, Role.OPERATOR):
                token, record = new_token("ada", role, "", 1.0, now)
                await opened.store.write(partial(token_rows.add_token, token=record, now=now))
                (folder / role.value).write_text(token + "\n")

    asyncio.run(fill())
    with daemon(folder / "var", api_serve=True) as url:
        yield folder, url


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No context of the person who runs the tests."""
    for name in ("SERVER", "DATA", "TOKEN_FILE", "CA"):
        monkeypatch.delenv(f"PROVISIONER_{name}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def ask(place: tuple[Path, str], *words: str, role: str = "viewer") -> Done:
    folder, url = place
    ca = str(folder / "var" / "agent-ca.pem")
    reached = ["--server", url, "--token-file", str(folder / role), "--ca", ca]
    return alone([*words, *reached], folder)


def test_the_socket_is_for_the_daemons_own_user(place: tuple[Path, str]) -> None:
    folder, _ = place

    assert stat.S_IMODE((folder / "var" / SOCKET).stat().st_mode) == 0o600
    me = json.loads(alone(["whoami", "--json"], folder).stdout)
    assert me["roles"] == ["approver", "operator", "viewer"]
    assert me["via"].startswith("the unix socket")


def test_nodes_are_listed_filtered_sorted_and_cut(place: tuple[Path, str]) -> None:
    quarantined = ask(place, "node", "list", "--where", "state=quarantined", "--json")
    last = ask(place, "node", "list", "--sort", "-id", "--limit", "2", "-o", "json")
    table = ask(place, "node", "list", "--limit", "2")
    text = ask(place, "node", "list", "-o", "yaml")

    assert [n["id"] for n in json.loads(quarantined.stdout)] == ["su0-n06"]
    assert [n["id"] for n in json.loads(last.stdout)] == ["su0-n06", "su0-n05"]
    assert "su0-n01" in table.stdout
    assert "--limit" in table.stderr
    assert "id: su0-n06" in text.stdout


def test_one_node_is_shown_with_nothing_that_moves_the_cursor(place: tuple[Path, str]) -> None:
    shown = ask(place, "node", "show", "su0-n06")

    assert shown.returncode == 0, shown.stderr
    assert "Reseat it." in shown.stdout
    assert "\x1b" not in shown.stdout


def test_a_token_may_do_what_its_role_may(place: tuple[Path, str]) -> None:
    forbidden = ask(place, "node", "retry", "su0-n06")
    asked = ask(place, "node", "retry", "su0-n06", "--json", role="operator")
    refused = ask(place, "node", "reclaim", "su0-n02", "--yes", role="operator")
    wrong = ask(place, "node", "list", "--where", "state==")

    told = json.loads(asked.stdout)
    assert (forbidden.returncode, refused.returncode, wrong.returncode) == (1, 1, 2)
    assert (told["kind"], told["subject"], told["asked_by"]) == ("node.retry", "su0-n06", "ada")
    assert "retry" in ask(place, "request", "list").stdout
    assert "precondition" in refused.stderr


def test_another_server_s_certificate_gets_no_token(place: tuple[Path, str]) -> None:
    folder, url = place
    words = ["node", "list", "--server", url, "--token-file", str(folder / "viewer")]

    found = alone(words, folder)

    assert found.returncode == 1
    assert "certificate is not trusted" in found.stderr


def test_a_context_is_added_used_and_removed(place: tuple[Path, str], home: Path) -> None:
    folder, url = place
    ca = str(folder / "var" / "agent-ca.pem")
    far = ["--server", url, "--token-file", str(folder / "viewer"), "--ca", ca]
    added = alone(["context", "add", "far", *far], folder)
    alone(["context", "add", "near", "--data", "var"], folder)
    by_default = alone(["whoami", "--json"], folder)
    by_name = alone(["whoami", "--json", "--context", "near"], folder)
    alone(["context", "use", "near"], folder)
    listed = json.loads(alone(["context", "list", "--json"], folder).stdout)
    removed = alone(["context", "remove", "near"], folder)
    gone = alone(["context", "use", "near"], folder)

    assert added.stdout == f"far: {url}\n"
    assert json.loads(by_default.stdout)["subject"] == "ada"
    assert json.loads(by_name.stdout)["via"].startswith("the unix socket")
    assert [(c["name"], c["current"]) for c in listed] == [("far", False), ("near", True)]
    assert (removed.returncode, gone.returncode) == (0, 2)
    assert stat.S_IMODE(find_file().stat().st_mode) == 0o600
    assert read_contexts().current == ""


def test_what_is_given_goes_before_the_environment_and_that_before_the_context(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone(["context", "add", "lab", "--server", "https://lab:8443"], Path.cwd())

    assert find_place({}).server == "https://lab:8443"
    monkeypatch.setenv("PROVISIONER_DATA", "/srv/var")
    assert find_place({}).data == "/srv/var"
    monkeypatch.setenv("PROVISIONER_SERVER", "https://env:8443")
    assert find_place({}).server == "https://env:8443"
    assert find_place({"data": Path("here")}).data == "here"
    with pytest.raises(InputError):
        find_place({"data": Path("here"), "server": "https://other"})


def test_an_unreadable_file_of_contexts_is_named() -> None:
    find_file().parent.mkdir(parents=True)
    find_file().write_text("[")

    with pytest.raises(InputError, match=r"contexts\.json"):
        find_place({})


def test_a_socket_deep_in_the_file_system_is_reached(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60) / "var"

    with daemon(deep):
        done = alone(["health", "--data", str(deep)], tmp_path)

    assert done.returncode == 0, done.stderr
    assert not (deep / SOCKET).exists()
