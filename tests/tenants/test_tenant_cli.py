"""Tenants on the command line: tables, JSON, exit codes, and nothing secret in what is kept."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from program import run

from provisioner.daemon.data import open_data
from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind
from provisioner.planning.places.address_plan import parse


def tenant(data: Path, *words: str, **more: Any) -> tuple[int, str, str]:
    """Exit code, output and errors of `provisioner tenant WORDS`."""
    done = run(["tenant", *words, "--data", str(data)], data.parent, **more)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with one leaf that nobody can log in to."""
    directory = tmp_path / "var"
    directory.mkdir(mode=0o700)

    async def fill() -> None:
        async with open_data(directory, 1.0) as opened:
            leaf = Node(id="leaf-su0-r0", kind=NodeKind.SWITCH, address="https://127.0.0.1:1")
            await opened.store.nodes.add(leaf)
            port = Port(switch="leaf-su0-r0", interface="swp1s0", rail=0, nic_slot="NIC_0")
            await opened.store.nodes.add(Node(id="su0-n00", kind=NodeKind.HOST, ports=(port,)))

    asyncio.run(fill())
    return directory


def test_an_unreachable_leaf_leaves_the_tenant_in_the_making(data):
    code, out, _ = tenant(data, "apply", "red", "--nodes", "1", "--json")

    answer = json.loads(out)
    result = answer["result"]
    assert (code, result["written"], result["tenant"]["phase"]) == (1, True, "making")
    assert [b["reason"] for b in answer["blockers"]] == ["login_refused"]
    code, out, _ = tenant(data, "list")
    assert code == 0
    assert "red" in out
    assert "making" in out


def test_a_dry_run_keeps_nothing(data):
    code, _, err = tenant(data, "apply", "red", "--dry-run")

    assert code == 1
    assert "no credential" in err
    assert json.loads(tenant(data, "list", "--json")[1]) == []


def test_a_switch_that_the_plan_does_not_know_is_named(data):
    plan = parse("plan.yaml", 'names: {leaf: "tor-{unit}-{number}"}\n')

    code, _, err = tenant(data, "apply", "red", "--dry-run", plan=plan)

    assert code == 1
    assert "no leaf is known" in err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nodes: many\n", "nodes"),
        ("colour: red\n", "colour"),
        ("- 1\n", "no mapping"),
        ("outside: [{switch: a, peer: b}]\n", "remote_as"),
    ],
)
def test_a_file_that_is_no_tenant_is_refused_with_its_line(data, tmp_path, text, words):
    file = tmp_path / "red.yaml"
    file.write_text(text)

    code, _, err = tenant(data, "apply", "red", "--file", str(file))

    assert code == 2
    assert words in err


def test_a_missing_tenant_and_a_second_deletion_are_told_apart(data):
    assert tenant(data, "shrink", "red", "--to", "0", "--yes")[0] == 1
    assert tenant(data, "delete", "red", "--yes")[0] == 0


def test_an_audit_names_what_is_not_as_written_down(data):
    tenant(data, "apply", "red", "--nodes", "1")

    code, _, err = tenant(data, "audit")

    assert (code, "no credential" in err) == (1, True)
