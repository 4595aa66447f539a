"""Which checks a host cannot run, and for want of what."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from provisioner import checks
from provisioner.model.cohort import Evidence, Gate
from provisioner.planning.intake.host_tools import (
    CUDA_PERFTEST,
    HOST_TOOLS_LOOK,
    TOOLS,
    find_lacks,
    list_checks_of,
)

ALL = "".join(f"has {tool.name}\n" for tool in TOOLS) + "looked\n"


def lacks(text: str, code: int = 0) -> tuple[str, ...]:
    return find_lacks(Evidence(source="", exit_code=code, text=text))


def test_a_host_with_every_tool_lacks_nothing() -> None:
    assert lacks(ALL) == ()


def test_a_missing_tool_names_its_gates_checks_and_package() -> None:
    (one,) = lacks(ALL.replace("has nvbandwidth\n", ""))

    assert one == "nvbandwidth (gate b: nvbandwidth); install the site's own build of nvbandwidth"


def test_perftest_without_cuda_is_named_though_perftest_is_there() -> None:
    (one,) = lacks(ALL.replace(f"has {CUDA_PERFTEST}\n", ""))

    assert one.startswith("ib_write_bw --use_cuda (gate b, c: gdr_loopback, rdma_pair)")


@pytest.mark.parametrize(("text", "code"), [("", 0), (ALL, 1), (ALL.replace("looked", ""), 0)])
def test_a_host_that_was_not_looked_at_is_not_complete(text: str, code: int) -> None:
    assert lacks(text, code) == ("its tools could not be listed",)


def test_every_tool_of_the_list_is_needed_by_a_check_or_a_set() -> None:
    assert [tool.name for tool in TOOLS if not list_checks_of(tool)] == []
    needed = {gate for tool in TOOLS for gate in list_checks_of(tool).values()}
    assert needed == {*{c.gate for c in checks.ALL if c.gate in Gate}, None}


def test_the_line_lists_what_a_path_has(tmp_path: Path) -> None:
    for name, body in {"ib_write_bw": "echo --use_cuda=DEVICE", "dcgmi": ""}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "grep").symlink_to("/bin/grep")

    ran = subprocess.run(
        ["/bin/sh", "-c", HOST_TOOLS_LOOK],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.stdout.split("\n")[:-1] == [
        "has dcgmi",
        "has ib_write_bw",
        f"has {CUDA_PERFTEST}",
        "looked",
    ]
