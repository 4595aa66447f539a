"""Tenants on the command line: tables, JSON, exit codes, and nothing secret in what is kept."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import sys
from pathlib import Path

import pytest

from provisioner.cli import main
from provisioner.daemon.data import open_data
from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind


def run(*words: str) -> tuple[int, str, str]:
    """Exit code, output and errors of `provisioner WORDS`."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["provisioner", *words])
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main()
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else 0
    return code, out.getvalue(), err.getvalue()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with one leaf that nobody can log in to."""
    directory = tmp_path / "var"
    directory.mkdir(mode=0o700)

    async def fill() -> None:
        async with open_data(directory, 1.0) as opened:
            leaf = Node(id="leaf-su0-r0", kind=NodeKind.SWITCH, address="https://127.0.0.1:1")
            await opened.store.add_node(leaf)
            port = Port(switch="leaf-su0-r0", interface="swp1s0", rail=0, nic_slot="NIC_0")
            await opened.store.add_node(Node(id="su0-n00", kind=NodeKind.HOST, ports=(port,)))

    asyncio.run(fill())
    return directory


def tenant(data: Path, *words: str) -> tuple[int, str, str]:
    return run("tenant", "--data", str(data), *words)


def test_an_unreachable_leaf_leaves_the_tenant_in_the_making(data):
    code, out, _ = tenant(data, "create", "red", "--nodes", "1", "--json")

    answer = json.loads(out)
    assert (code, answer["written"], answer["tenant"]["phase"]) == (1, True, "making")
    assert [b["reason"] for b in answer["blockers"]] == ["login_refused"]
    code, out, _ = tenant(data, "list")
    assert code == 0
    assert "red" in out
    assert "making" in out


def test_a_dry_run_keeps_nothing(data):
    code, out, _ = tenant(data, "create", "red", "--dry-run")

    assert code == 1
    assert "no credential" in out
    assert json.loads(tenant(data, "list", "--json")[1]) == []


def test_a_switch_that_the_plan_does_not_know_is_named(data, tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text('names: {leaf: "tor-{unit}-{number}"}\n')

    code, out, _ = run(
        "tenant", "--data", str(data), "--plan", str(plan), "create", "red", "--dry-run"
    )

    assert code == 1
    assert "no leaf is known" in out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nodes: many\n", "nodes"),
        ("colour: red\n", "colour"),
        ("- 1\n", "no tenant"),
        ("outside: [{switch: a, peer: b}]\n", "remote_as"),
    ],
)
def test_a_file_that_is_no_tenant_is_refused_with_its_line(data, tmp_path, text, words):
    file = tmp_path / "red.yaml"
    file.write_text(text)

    code, _, err = tenant(data, "create", "red", "--file", str(file))

    assert code == 2
    assert words in err


def test_a_missing_tenant_and_a_second_deletion_are_told_apart(data):
    assert tenant(data, "shrink", "red", "--to", "0")[0] == 1
    code, out, _ = tenant(data, "delete", "red")
    assert (code, out.strip()) == (0, "nothing to do")


def test_ufm_needs_its_secret_from_the_environment(data, monkeypatch):
    monkeypatch.delenv("PROVISIONER_UFM_SECRET", raising=False)

    code, _, err = run("tenant", "--data", str(data), "--ufm", "https://ufm.example", "audit")

    assert code == 2
    assert "PROVISIONER_UFM_SECRET" in err
