"""What a released host is asked to send: the lines in a real shell, and what their ends mean."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from virtual_time import VirtualClock, run

from provisioner.execution.tenancy import release_recheck as sending
from provisioner.model.recovery import GateCheck, GateRow, RowVerdict
from provisioner.planning.release import release_probes
from provisioner.planning.release.release_probes import Partners, Ping, ProbeSet
from provisioner.ports import ShellCommand, ShellOutput, Unreachable
from provisioner.settings import Settings

HERE = "127.0.0.1"
needs_ip = pytest.mark.skipif(
    shutil.which("ip") is None, reason="needs ip (apt-get install iproute2)"
)


def ping(check: GateCheck, target: str, size: int = 56) -> Ping:
    return Ping(HERE, target, size, "test", check)


def ran(tmp_path: Path, probe_set: ProbeSet, canary: str) -> dict[str, int]:
    """The probe set's lines in a shell; `canary` is what ib_write_bw does there."""
    for name, body in (("ib_write_bw", canary), ("sleep", "exit 0")):
        tool = tmp_path / name
        tool.write_text(f"#!/bin/sh\n{body}\n")
        tool.chmod(0o755)
    path = f"{tmp_path}:/usr/sbin:/usr/bin:/sbin:/bin"
    told: dict[str, int] = {}
    for _, _, line in sending._lines(probe_set):
        done = subprocess.run(
            ["sh", "-c", line],
            env={"PATH": path, "LOG": str(tmp_path / "log")},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        told |= sending.read_codes(done.stdout)
    return told


BUSY_TWICE = 'echo "$@" >> "$LOG"; [ "$(wc -l < "$LOG")" -ge 3 ]'


@needs_ip
def test_a_canary_that_serves_somebody_else_is_tried_again(tmp_path: Path) -> None:
    probe_set = ProbeSet("n", HERE, (ping(GateCheck.RDMA, "10.0.0.9", 18603),))

    assert ran(tmp_path, probe_set, BUSY_TWICE) == {"10.0.0.9,18603": 0}
    calls = (tmp_path / "log").read_text().splitlines()
    assert len(calls) == 3
    assert set(calls) == {"-d * -x none -s 65536 -n 1000 -F --report_gbits -p 18603 10.0.0.9"}


@needs_ip
def test_a_canary_that_never_answers_is_given_up(tmp_path: Path) -> None:
    probe_set = ProbeSet("n", HERE, (ping(GateCheck.RDMA, "10.0.0.9", 18603),))

    assert ran(tmp_path, probe_set, 'echo "$@" >> "$LOG"; exit 9') == {"10.0.0.9,18603": 9}
    assert len((tmp_path / "log").read_text().splitlines()) == sending.RDMA_TRIES


def test_an_exit_code_is_of_three_plain_digits_at_most() -> None:
    said = "10.0.0.1,56 0\n10.0.0.2,56 127\n10.0.0.3,56 1000\n10.0.0.4,56 ²\n"
    noise = "10.0.0.5,56\n10.0.0.6,56 0 0\n10.0.0.7,56 -1\nsh: 1\n"

    assert sending.read_codes(said + noise) == {"10.0.0.1,56": 0, "10.0.0.2,56": 127, "sh:": 1}


@needs_ip
@pytest.mark.parametrize(
    ("device", "ended", "code"),
    [("lo", 1, 1), ("eno1", 1, 3), ("lo", 2, 2), ("eno1", 0, 0), ("eno1", 127, 127)],
)
def test_silence_by_another_interface_is_told_apart(
    tmp_path: Path, device: str, ended: int, code: int
) -> None:
    for name, body in (
        ("ping", f"exit {ended}"),
        (
            "ip",
            f'[ "$1" = route ] && echo "$3 dev {device} src {HERE}" || echo "1: lo inet {HERE}"',
        ),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    for check in (GateCheck.SHUT_OUT, GateCheck.SHUT_IN):
        probe_set = ProbeSet("n", HERE, (ping(check, "10.0.0.9"),))
        assert ran(tmp_path, probe_set, "exit 1") == {"10.0.0.9,56": code}


@needs_ip
def test_a_route_is_that_of_the_interface_which_has_the_address(tmp_path: Path) -> None:
    probe_set = ProbeSet("n", HERE, (ping(GateCheck.HOST_ROUTE, "127.0.0.2"),))

    assert ran(tmp_path, probe_set, "exit 1") == {"127.0.0.2,56": 0}


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (0, RowVerdict.PASS),
        (1, RowVerdict.FAIL),
        (124, RowVerdict.FAIL),
        (127, RowVerdict.UNKNOWN),
        (None, RowVerdict.UNKNOWN),
    ],
)
def test_how_a_tool_ended_is_judged(code: int | None, verdict: RowVerdict) -> None:
    sent = ping(GateCheck.RDMA, "10.0.0.9", 18603)

    rows = release_probes.judge([ProbeSet("n", HERE, (sent,))], {("n", sent): code})

    assert [r.verdict for r in rows if r.check is GateCheck.RDMA] == [verdict]


@pytest.mark.parametrize(
    ("setting", "verdict"),
    [("required", RowVerdict.UNKNOWN), ("listed", RowVerdict.NONE), ("off", RowVerdict.NONE)],
)
def test_a_site_says_whether_a_tenant_without_a_canary_is_given_nodes(
    setting: str, verdict: RowVerdict
) -> None:
    rows = release_probes.judge([], {}, setting)

    assert [r.verdict for r in rows if r.check is GateCheck.RDMA] == [verdict]


def test_nodes_are_spread_over_the_canaries_of_their_tenant() -> None:
    canaries = tuple(f"{vrf}=10.{n}.0.{i}" for n, vrf in enumerate(("RED", "BLUE")) for i in (1, 2))
    partners = Partners(nodes=(), tenants=(), canaries=canaries)
    names = [f"su0-n{n:02}" for n in range(32)]

    assert {partners.choose_canary(name, "RED") for name in names} == {"10.0.0.1", "10.0.0.2"}
    assert partners.choose_canary("su0-n00", "GREEN") == ""
    off = Partners(nodes=(), tenants=(), rdma="off", canaries=canaries)
    assert off.choose_canary("su0-n00", "RED") == ""


class Shell:
    """Hosts that answer each echo, and count the logins."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    async def run(self, _host: str, _address: str, commands: Sequence[ShellCommand]) -> Any:
        self.lines += [c.line for c in commands] or ["a login for nothing"]
        return [ShellOutput(0, "10.0.0.9,56 0\n", "") for _ in commands]


def test_each_tool_sends_its_own_probes_and_a_host_without_probes_is_not_logged_in_to() -> None:
    shell = Shell()
    echo, route = (ping(c, "10.0.0.9") for c in (GateCheck.SHUT_OUT, GateCheck.HOST_ROUTE))
    sets = (ProbeSet("n", HERE, (echo, route)), ProbeSet("m", HERE, ()))
    site: Any = SimpleNamespace(shell=shell)

    answers = asyncio.run(sending.answers_of(site, sets))

    assert answers == {("n", echo): 0, ("n", route): 0}
    assert ["ping" in line for line in shell.lines] == [True, False]
    assert ["ip route get" in line for line in shell.lines] == [True, True]


@pytest.mark.parametrize(
    ("refused", "rounds"),
    [
        ({}, 1),
        ({GateCheck.REACHES: 2}, 3),  # it answers from the third round on
        ({GateCheck.REACHES: 99}, 6),  # for as long as routes may take to follow
        ({GateCheck.REACHES: 99, GateCheck.RDMA: 99}, 6),
        ({GateCheck.RDMA: 99}, 1),
        ({GateCheck.HOST_ROUTE: 99}, 1),
        ({GateCheck.REACHES: 99, GateCheck.HOST_ROUTE: 99}, 1),
    ],
)
def test_addresses_that_may_still_answer_are_tried_again_at_the_polls_pace(
    refused: dict[GateCheck, int], rounds: int
) -> None:
    tried = 0

    class Hosts:
        async def run(self, *given: Any) -> list[ShellOutput]:
            nonlocal tried
            tried += 1
            ends = [tried <= refused.get(GateCheck(c.name.split()[0]), 0) for c in given[2]]
            return [ShellOutput(0, f"10.0.0.9,56 {int(end)}\n", "") for end in ends]

    async def main() -> tuple[GateRow, ...]:
        settings = Settings(release_settle_s=10.0, switch_poll_s=2.0)
        site: Any = SimpleNamespace(shell=Hosts(), clock=VirtualClock(), settings=settings)
        checks = (GateCheck.REACHES, GateCheck.HOST_ROUTE, GateCheck.RDMA)
        own = ProbeSet("n", HERE, tuple(ping(c, "10.0.0.9") for c in checks))
        return await sending.run_probes(site, [own])

    rows = run(main())

    assert tried == rounds
    assert {r.check for r in rows if r.bad} == {c for c, n in refused.items() if n > rounds}


def test_a_tool_whose_output_is_missing_was_not_sent() -> None:
    class Cut:
        async def run(self, *_: Any) -> list[ShellOutput]:
            return [ShellOutput(0, "10.0.0.9,56 1\n", "")]

    echo, route = (ping(c, "10.0.0.9") for c in (GateCheck.SHUT_OUT, GateCheck.HOST_ROUTE))
    site: Any = SimpleNamespace(shell=Cut())

    assert asyncio.run(sending.answers_of(site, [ProbeSet("n", HERE, (echo, route))])) == {
        ("n", echo): 1
    }


def test_a_host_that_cannot_be_logged_in_to_has_sent_none_of_its_probes_and_the_others_have() -> (
    None
):
    class OneSilent(Shell):
        async def run(self, host: str, address: str, commands: Sequence[ShellCommand]) -> Any:
            if host == "silent":
                raise Unreachable("connection refused", maybe_executed=False)
            return await super().run(host, address, commands)

    never = ping(GateCheck.SHUT_OUT, "10.0.0.9")
    site: Any = SimpleNamespace(shell=OneSilent())
    sets = [ProbeSet(host, HERE, (never,)) for host in ("silent", "n")]

    assert asyncio.run(sending.answers_of(site, sets)) == {("n", never): 0}


class Said:
    """A host whose lines said this, one after the other."""

    def __init__(self, *outputs: ShellOutput) -> None:
        self._outputs = outputs
        self.commands: list[ShellCommand] = []

    async def run(self, _host: str, _address: str, commands: Sequence[ShellCommand]) -> Any:
        self.commands += commands
        return list(self._outputs)

    def answers(self, *pings: Ping) -> sending.Answers:
        site: Any = SimpleNamespace(shell=self)
        return asyncio.run(sending.answers_of(site, [ProbeSet("n", HERE, pings)]))


@pytest.mark.parametrize(
    ("output", "code"),
    [
        (ShellOutput(0, "10.0.0.9,56 1\n", ""), 1),
        (ShellOutput(1, "10.0.0.9,56 1\n", ""), None),
        (ShellOutput(0, "10.0.0.9,56 1\n", "", truncated=True), None),
    ],
    ids=["whole", "failed", "cut"],
)
def test_a_line_that_did_not_come_to_its_end_proves_no_silence(
    output: ShellOutput, code: int | None
) -> None:
    sent = ping(GateCheck.SHUT_OUT, "10.0.0.9")

    assert Said(output).answers(sent) == {("n", sent): code}


def test_each_source_probes_its_own_addresses_and_answers_for_them_alone() -> None:
    first, second = (
        Ping(f"10.0.0.{n}", f"10.0.9.{n}", 56, "test", GateCheck.SHUT_OUT) for n in (1, 2)
    )
    host = Said(
        ShellOutput(0, "10.0.9.1,56 0\n10.0.9.2,56 7\n", ""),
        ShellOutput(0, "10.0.9.1,56 7\n10.0.9.2,56 0\n", ""),
    )

    assert host.answers(first, second) == {("n", first): 0, ("n", second): 0}
    lines = [c.line for c in host.commands]
    assert [f"10.0.9.{n}," in line for line in lines for n in (1, 2)] == [True, False, False, True]


def test_an_rdma_probe_is_given_the_time_of_all_its_tries() -> None:
    host = Said()
    host.answers(*(ping(c, "10.0.0.9") for c in (GateCheck.SHUT_OUT, GateCheck.RDMA)))

    echo, rdma = (c.timeout_s for c in host.commands)
    assert echo < sending.RDMA_TRIES * sending.RDMA_S < rdma
