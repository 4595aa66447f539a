"""`provisioner bmc dry-run` over HTTP: only reads reach the BMC; the last line is the result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from program import Done, run
from served_tree import Served, serve_tree


@pytest.fixture
def bmc(request: pytest.FixtureRequest) -> Iterator[Served]:
    with serve_tree(request.param) as served:
        yield served


def dry_run(bmc: Served, words: list[str], cwd: Path) -> tuple[Done, dict[str, Any]]:
    done = run(["bmc", "dry-run", bmc.url, *words, "--json"], cwd)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return done, result


@pytest.mark.parametrize("bmc", ["lenovo_xcc"], indirect=True)
def test_requests_are_printed_and_not_sent(bmc: Served, tmp_path: Path) -> None:
    image = ["--image", "http://192.0.2.9/maintenance.iso"]

    done, result = dry_run(bmc, ["boot-maintenance", *image], tmp_path)

    assert done.returncode == 0
    assert result["refused"] is None
    assert [w["method"] for w in result["writes"]] == ["PATCH", "PATCH", "POST", "POST"]
    assert set(result["writes"][0]) == {"method", "path", "headers", "body", "upload"}
    assert bmc.others == []


@pytest.mark.parametrize("bmc", ["dgx_h100"], indirect=True)
def test_a_refusal_is_the_last_line_and_exit_code_1(bmc: Served, tmp_path: Path) -> None:
    done, result = dry_run(bmc, ["ac-cycle"], tmp_path)

    assert done.returncode == 1
    assert result["writes"] == []
    assert set(result["refused"]) == {"reason", "detail", "unblock"}


@pytest.mark.parametrize("bmc", ["bluefield3"], indirect=True)
def test_the_password_of_the_administrator_is_changed_where_no_user_is_named(
    bmc: Served, tmp_path: Path
) -> None:
    _, result = dry_run(bmc, ["change-password"], tmp_path)

    assert [(w["path"].rpartition("/")[2], w["body"]) for w in result["writes"]] == [
        ("root", {"Password": "***"})
    ]


def test_a_bmc_that_does_not_answer_is_a_refusal(tmp_path: Path) -> None:
    done = run(["bmc", "dry-run", "http://127.0.0.1:1", "power", "on", "--json"], tmp_path)

    assert done.returncode == 1
    assert json.loads(done.stdout.splitlines()[-1])["refused"]["reason"] == "unreachable"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["explode"], "no such action"),
        (["power", "sideways"], "no such state"),
        (["push", "host.bios"], "no such file"),
        (["push", "host.nothing", "--file", "x"], "no such component kind"),
        (["boot-maintenance"], "needs it"),
        (["subscribe"], "needs it"),
    ],
)
def test_wrong_input_is_named_before_the_bmc_is_asked(
    words: list[str], named: str, tmp_path: Path
) -> None:
    done = run(["bmc", "dry-run", "http://127.0.0.1:1", *words], tmp_path)

    assert done.returncode == 2
    assert named in done.stderr
