"""`provisioner pdu show` over a PDU behind a command: outlets are read, and nothing is switched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from program import Done, run

NODES = """nodes:
  - name: n1
    kind: host
    bmc: {serial: A}
    outlets: [{pdu: a, outlet: "1"}, {pdu: b, outlet: "1"}]
  - name: n2
    kind: host
    bmc: {serial: B}
    outlets: [{pdu: a, outlet: "2"}, {pdu: b, outlet: "1"}]
  - name: n3
    kind: host
    bmc: {serial: C}
    outlets: [{pdu: a, outlet: "3"}, {pdu: b, outlet: "3"}]
"""


def show(tmp_path: Path, *words: str, off: str = "none") -> tuple[Done, Any, str]:
    log, script = tmp_path / "log", tmp_path / "outlet"
    script.write_text(
        f'#!/bin/sh\necho "$@" >> {log}\n[ "$2" = {off} ] && echo off || echo on\n',
        encoding="utf-8",
    )
    script.chmod(0o755)
    pdu = {"kind": "command", "argv": [str(script)]}
    (tmp_path / "settings.yaml").write_text(json.dumps({"pdus": {"a": pdu, "b": pdu}}))
    (tmp_path / "expected.yaml").write_text(NODES)
    files = ["--file", "expected.yaml", "--settings", "settings.yaml"]
    done = run(["pdu", "show", *files, *words, "--json"], tmp_path)
    asked = log.read_text(encoding="utf-8") if log.exists() else ""
    return done, json.loads(done.stdout) if done.stdout else None, asked


def test_a_node_with_outlets_of_its_own_would_be_cycled(tmp_path: Path) -> None:
    done, shown, asked = show(tmp_path, "--node", "n3")

    assert done.returncode == 0
    assert shown["nodes"][0]["would_switch"] == ["a/3", "b/3"]
    assert shown["nodes"][0]["refused"] is None
    assert sorted(asked.split("\n")) == ["", "read 3", "read 3"]


def test_shared_outlets_and_outlets_that_are_off_are_refused(tmp_path: Path) -> None:
    done, shown, _ = show(tmp_path, off="3")

    assert done.returncode == 1
    refused = {n["node"]: n["refused"]["detail"] for n in shown["nodes"]}
    assert refused["n1"] == "the outlet b/1 feeds n2 too"
    assert refused["n2"] == "the outlet b/1 feeds n1 too"
    assert "a/3 is off" in refused["n3"]


def test_a_node_without_outlets_is_a_wrong_argument(tmp_path: Path) -> None:
    done, _, _ = show(tmp_path, "--node", "n9")

    assert done.returncode == 2
    assert "no such node has outlets" in done.stderr
