"""Gates A to D, dry, with the tools that each supported distribution has.

Every command of every check is in `distributions.toml`: run in Debian's suites, whose versions are
those of the distributions or lie around them; read from published outputs; or named as neither.
Recorded outputs of the runs are in tests/golden/tools. `RECORD_GOLDEN=1` with `-m long` records
them anew.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path

import pytest
import tool_roots
from distribution_table import DISTRIBUTIONS, GOLDEN, HOST, TABLE, suites_of, write_table
from test_golden import CONTEXT, LINES, good
from tool_roots import RAILS, Root, make_root

from provisioner.checks import rail_routes
from provisioner.checks.check import Check, CheckContext
from provisioner.checks.readers.tool_output import END_WORDS as END
from provisioner.model.cohort import Evidence, Gate, Verdict
from provisioner.planning.intake import host_tools
from tests.real.test_ipmi_consoles import PASSWORD, serve_ipmi

RECORDING = bool(os.environ.get("RECORD_GOLDEN"))


def evidence_of(command: str, text: str) -> Evidence:
    return Evidence(source=LINES[command], exit_code=0, text=text)


def list_recorded(suite: str) -> dict[str, Evidence]:
    """Return command -> output of a suite's tool, as it was recorded."""
    return {f.stem: evidence_of(f.stem, f.read_text()) for f in (GOLDEN / suite).glob("*.txt")}


def outputs_of(check: Check, suite: str) -> dict[str, Evidence]:
    """Return a check's good example, with what a suite's tools printed in the place of its own."""
    return good(check) | {
        name: output for name, output in list_recorded(suite).items() if name in good(check)
    }


def context_of(check: Check) -> CheckContext:
    """Return the context of a run on a machine that is no HGX host."""
    few = {name: (0.001, "this machine") for name in CONTEXT.learned if "storage" in name}
    return CONTEXT.model_copy(update={"sockets": 0, "learned": {**CONTEXT.learned, **few}})


@pytest.mark.parametrize("gate", [Gate.A, Gate.B, Gate.C, Gate.D], ids=lambda g: g.value)
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_a_gate_is_green_with_the_tools_of_a_distribution(distribution: str, gate: Gate) -> None:
    mine = [check for check in HOST if check.gate is gate]
    walked = {}
    for check in mine:
        tools = [TABLE["run"][c.name] for c in check.commands if c.name in TABLE["run"]]
        for suite in suites_of(distribution, tools[0]) if tools else ["bookworm"]:
            result = check.judge(outputs_of(check, suite), context_of(check))
            walked[check.name, suite] = (result.verdict, result.findings)

    assert {name for name, _ in walked} == {check.name for check in mine}
    assert {at: found for at, found in walked.items() if found[0] is not Verdict.PASS} == {}


def test_each_command_has_one_origin() -> None:
    commands = sorted({c.name for check in HOST for c in check.commands})

    assert sorted(n for s in ("run", "files", "published", "nothing") for n in TABLE[s]) == commands


def test_each_recorded_tool_has_an_output_of_each_suite() -> None:
    unrecorded = {"memory", "kernel_log", "kernel_errors"}  # they are read where they are run

    for suite in tool_roots.SUITES:
        assert set(list_recorded(suite)) == set(TABLE["run"]) - unrecorded


def test_the_table_has_each_check_of_a_host_and_each_distribution() -> None:
    head, _, *rows = write_table().splitlines()

    assert [row.split("`")[1] for row in rows] == [check.name for check in HOST]
    assert {row.count(" | ") for row in (head, *rows)} == {len(DISTRIBUTIONS)}


@pytest.fixture(scope="module", params=tool_roots.SUITES)
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Root:
    if reason := tool_roots.why_not():
        pytest.skip(reason)
    made = make_root(request.param, tmp_path_factory.mktemp("roots"))
    if made is None:
        pytest.skip("no network to Debian's mirror here")
    if RECORDING:
        (GOLDEN / made.suite).mkdir(parents=True, exist_ok=True)
        kept = GOLDEN / "versions.json"
        versions = json.loads(kept.read_text()) if kept.exists() else {}
        versions[made.suite] = {tool: made.read_version(tool) for tool in tool_roots.VERSIONS}
        kept.write_text(json.dumps(versions, indent=1, sort_keys=True) + "\n")
    return made


def passes(check: str, root: Root, ran: dict[str, Evidence]) -> None:
    """The run of a suite's tool makes its check green beside the rest of the good example."""
    mine = next(c for c in HOST if c.name == check)
    if RECORDING:
        for name, output in ran.items():
            (GOLDEN / root.suite / f"{name}.txt").write_text(output.text)

    result = mine.judge(good(mine) | ran, context_of(mine))

    assert result.verdict is Verdict.PASS, (result.findings, ran)


@pytest.mark.long
@pytest.mark.slow
def test_tools_of_a_suite_by_the_lines_of_the_checks(root: Root) -> None:
    passes("cpu_memory", root, {"lscpu": root.run(LINES["lscpu"], devices=True)})
    passes("disk_space", root, {"disk_space": root.run(LINES["disk_space"])})
    shorter = LINES["stress"].replace("120s", "2s").replace("40%", "1%")
    ran = root.run(shorter, devices=True, asks=LINES["stress"])
    passes("cpu_stress", root, {"stress": ran})
    for n in (0, 1):
        (root.path / f"srv/nvme{n}n1").write_bytes(os.urandom(1 << 24))
    shorter = LINES["storage"].replace("/dev/nvme", "/srv/nvme")
    shorter = shorter.replace("--ramp_time=5 --runtime=30", "--runtime=1")
    passes(
        "storage_load", root, {"storage": root.run(shorter, devices=True, asks=LINES["storage"])}
    )


@pytest.mark.long
@pytest.mark.slow
def test_the_kernels_log_is_read_as_a_suites_dmesg_prints_it(root: Root) -> None:
    for check in (c for c in HOST if c.name in ("kernel_log", "kernel_errors")):
        ran = {c.name: root.run(c.line) for c in check.commands}

        result = check.judge(ran, CONTEXT)

        assert not [f for f in result.findings if "cannot be judged" in f.detail], ran
        for part in (0, -1):
            line = ran[check.name].text.splitlines()[part]
            assert line == "end-of-output" or line[:3] == "202", line


@pytest.mark.long
@pytest.mark.slow
def test_neighbours_of_a_suites_lldpd(root: Root) -> None:
    with tool_roots.open_neighbours(root) as space:
        for _ in range(100):
            ran = root.run(f"sleep 0.2; {LINES['lldp']}", space=space, asks=LINES["lldp"])
            if all(leaf in ran.text for _, leaf, _ in RAILS):
                break

        passes("lldp", root, {"lldp": ran})


@pytest.mark.long
@pytest.mark.slow
def test_events_of_a_bmc_as_a_suites_ipmitool_prints_them(root: Root, tmp_path: Path) -> None:
    if shutil.which("ipmi_sim") is None:
        pytest.skip("ipmi_sim is not installed: apt install openipmi")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with serve_ipmi(tmp_path, port):
        text = tool_roots.read_events(root, port, PASSWORD)

        passes("event_log", root, {"event_log": evidence_of("event_log", f"{text}{END}\n")})


@pytest.mark.long
@pytest.mark.slow
def test_rails_by_a_suites_iproute2_and_ping(root: Root) -> None:
    (command,) = rail_routes.CHECK.commands_of(CONTEXT)
    with tool_roots.open_rails(root) as space:
        ran = root.run(command.line, space=space, asks=LINES["rail_routes"])

    passes("rail_routes", root, {"rail_routes": ran})


@pytest.mark.long
@pytest.mark.slow
def test_files_of_the_kernel_by_a_suites_shell(root: Root) -> None:
    read = {}
    for name in TABLE["files"]:
        check = next(c for c in HOST if name in [k.name for k in c.commands])
        root.lay(good(check)[name].text)
    for name in TABLE["files"]:
        for check in (c for c in HOST if name in [k.name for k in c.commands]):
            read[check.name] = check.judge(good(check) | {name: root.run(LINES[name])}, CONTEXT)

    assert {n: r.findings for n, r in read.items() if r.verdict is not Verdict.PASS} == {}


@pytest.mark.long
@pytest.mark.slow
def test_the_doctor_of_a_host_with_the_tools_of_a_suite(root: Root) -> None:
    lacks = host_tools.find_lacks(root.run(host_tools.LOOK))
    lacking = {lack.partition(" (")[0] for lack in lacks}

    assert not lacking & {"ip", "ping", "ethtool", "lldpctl", "ipmitool", "smartctl", "fio"}
    assert host_tools.CUDA_PERFTEST in lacking  # Debian builds perftest without CUDA
    assert {"nvidia-smi", "mlxlink", host_tools.HOSTENGINE} <= lacking
