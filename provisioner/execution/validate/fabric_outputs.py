"""Takes the outputs of one test among hosts apart, rail by rail. Nothing is run here.

Silence and garbage are no pass, and no failure of the rail either.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from provisioner.checks.check import CheckContext, Unreadable
from provisioner.checks.fabric import fabric_checks, fabric_workloads, nccl_path, training_step
from provisioner.checks.fabric.nccl_judge import average_bus_gb_s
from provisioner.checks.readers.nccl_log import NcclLog
from provisioner.checks.readers.nccl_output import (
    NcclRun,
    read,
    read_bandwidths,
    select_largest_message,
)
from provisioner.checks.readers.sysfs import FIND_GID
from provisioner.model.cohort import Evidence, Finding, Severity, Verdict
from provisioner.model.fabric_session import FabricRun, RailRun
from provisioner.model.location import find_host_end
from provisioner.model.outcome import Blocker
from provisioner.planning.fault_location.isolation_words import ALL_RAILS

# ------------------------------------------------------------------------------
# Command lines of tests among nodes, for a host's shell: look, serve, measure, clean.
#
# Whatever is started carries `PROVISIONER_FABRIC` in its environment; `CLEAN` finds it by that, and
# what `mpi_door.py` opened by its folder.


MARK = "PROVISIONER_FABRIC"
FOLDER = "/run/provisioner-fabric."  # the files of a test in a host, in memory
LOOK = (
    "command -v ib_write_bw; "
    f"for p in /sys/bus/pci/devices/*/infiniband/*; do {FIND_GID} echo $p gid $g; done; echo looked"
)
CLEAN = (
    f"for f in $(grep -lsz '^{MARK}=.' /proc/[0-9]*/environ); do p=${{f#/proc/}};"
    " kill -9 ${p%/environ}; done;"
    # sshd writes its title over its environment, and so over the mark: it is known by its pid
    f" for f in {FOLDER}*/pid; do p=$(cat $f 2>/dev/null) &&"
    ' [ "$(cat /proc/$p/comm 2>/dev/null)" = sshd ] && kill -9 $p; done;'
    f" rm -rf {FOLDER}*; echo cleaned"
)

# NCCL's own logs of this host's ranks: without the ways inside it, each way once for all channels
# and for all ranks at its far end, so that an all-to-all of 64 nodes has a few lines a rank too
LOG_BYTES = 400_000
_WAY = (
    'k=$0; sub(/Channel [0-9][0-9]/, "", k);'
    ' if (k ~ /\\[send\\]/) sub(/-> [0-9]+/, "", k); else sub(/ : [0-9]+/, "", k)'
)
GATHER = (
    f"for f in {fabric_workloads.LOGS}*; do [ -f $f ] || continue; echo == log $f; grep -a NCCL $f"
    f" | grep -avE ' via (P2P|SHM)/' | awk '{{{_WAY}}} !s[k]++'"
    f" | head -c {LOG_BYTES}; echo; done; echo gathered"
)
_GATHERED = re.compile(
    rf"^== log {re.escape(fabric_workloads.LOGS)}([a-z0-9_]{{1,40}})\.\S{{1,300}}$", re.MULTILINE
)


def read_logs(outputs: Mapping[str, Evidence | Blocker]) -> dict[str, NcclLog]:
    """Return test (`name_log`) -> its log over all these nodes. A node whose answer is not whole
    damages all of them: its part is unknown.
    """
    logs: dict[str, NcclLog] = {}
    parts = [
        (node, match[1], said.text[match.end() + 1 : end])
        for node, said in outputs.items()
        if isinstance(said, Evidence)
        for found in (list(_GATHERED.finditer(said.text)),)
        for match, end in zip(
            found, [*(m.start() for m in found[1:]), said.text.rfind("gathered")], strict=False
        )
    ]
    for node, name, text in parts:
        log = logs.setdefault(name, NcclLog())
        log.host = node
        # a blank line was added behind each: without it the last line may be cut
        log.feed(text.removesuffix("\n").encode("utf-8", "replace"))
        log.end()
    cut = sum(
        isinstance(said, Blocker) or said.truncated or not said.text.endswith("gathered\n")
        for said in outputs.values()
    )
    for log in logs.values():
        log.damaged += cut
    return logs


def host_end(leaf_end: str) -> str:
    """The host's address of a cable from its leaf's, "172.0.0.1/31" -> "172.0.0.0"; "": none."""
    end = find_host_end(leaf_end)
    return "" if end is None else str(end.ip)


def serve(mark: str, tests: Sequence[fabric_workloads.FabricTest]) -> str:
    """Start the servers of all rails and say how many listen within ten seconds."""
    lines = [command.line for test in tests for command in test.servers.values()]
    ports = "|".join(str(fabric_workloads.PORT + (t.rail or 0)) for t in tests)
    started = " ".join(
        f"setsid sh -c {shlex.quote(line)} >/dev/null 2>&1 </dev/null &" for line in lines
    )
    return (
        f"export {MARK}={shlex.quote(mark)}; {started} n=0;"
        f" while [ $n -lt 20 ]; do l=$(ss -Hltn | grep -cE ':({ports}) ');"
        f" [ $l -ge {len(lines)} ] && break; sleep 0.5; n=$((n+1)); done; echo listening $l"
    )


def build_measure_line(
    mark: str,
    tests: Sequence[fabric_workloads.FabricTest],
    exports: str = "",
    *,
    together: bool = True,
) -> str:
    """Return the line that runs the clients, each one's output with its exit code behind it: rails
    `together`.

    Tests without a rail are numbered in their order. `exports`: shell words before them.
    """
    numbered = [
        (n if t.rail is None else t.rail, command.line)
        for n, t in enumerate(tests)
        for command in t.clients.values()
    ]
    started = " ".join(
        f"(sh -c {shlex.quote(line)} >$d/{n} 2>&1; echo == end {n} $? >>$d/{n})"
        f" {'&' if together else ';'}"
        for n, line in numbered
    )
    numbers = " ".join(str(n) for n, _ in numbered)
    return (
        f"export {MARK}={shlex.quote(mark)}; {exports} d=$(mktemp -d) || exit 1; {started} wait;"
        f" for r in {numbers}; do echo == rail $r; cat $d/$r; done; rm -r $d"
    )


_SECTION = re.compile(
    r"^== rail (\d{1,3})$(.*?)^== end (\d{1,3}) (\d{1,3})$", re.MULTILINE | re.DOTALL
)


def parse_sections(text: str) -> dict[int, tuple[str, int]]:
    """Return rail -> (output, exit code); a rail that is listed twice is left out."""
    outputs: dict[int, tuple[str, int]] = {}
    twice = set()
    for match in _SECTION.finditer(text):
        rail = int(match[1])
        if rail in outputs or match[1] != match[3]:
            twice.add(rail)
        outputs[rail] = (match[2].strip("\n") + "\n", int(match[4]))
    return {rail: output for rail, output in outputs.items() if rail not in twice}


def rdma_rail(test: fabric_workloads.FabricTest, said: Evidence, context: CheckContext) -> RailRun:
    """Return one rail's outcome. Silence and garbage are no pass, and no failure of the rail
    either.
    """
    assert test.rail is not None
    if said.exit_code is None or said.exit_code in (124, 137):
        return RailRun(rail=test.rail, shown="timeout", detail="the client did not end in time")
    text, code = parse_sections(said.text).get(test.rail, ("", 127))
    if code in (126, 127):
        return RailRun(rail=test.rail, shown="not_run", detail=_words(text))
    if code in (124, 137):
        return RailRun(rail=test.rail, shown="timeout", detail=_words(text))
    client = test.nodes[1]
    command = test.clients[client]
    output = Evidence(source=command.line, exit_code=code, text=text)
    result = fabric_checks.judge_test(test, {client: {command.name: output}}, context)
    try:
        gbit_s = select_largest_message(read_bandwidths(text, command.line)).gbit_s
    except Unreadable:
        if code:
            return RailRun(rail=test.rail, shown="fail", detail=f"exit code {code}: {_words(text)}")
        return RailRun(rail=test.rail, shown="not_run", detail=f"unreadable: {_words(text)}")
    if result.verdict is Verdict.PASS and not code:
        return RailRun(rail=test.rail, shown="pass", gbit_s=gbit_s)
    detail = result.findings[0].detail if result.findings else f"exit code {code}"
    return RailRun(rail=test.rail, shown="fail", gbit_s=gbit_s, detail=detail)


def nccl_rail(
    run: RailRun,
    test: fabric_workloads.FabricTest,
    said: Evidence,
    context: CheckContext,
    seen: nccl_path.Seen | None = None,
) -> RailRun:
    """Return the rail's outcome with NCCL's result: wrong values count, regardless of RDMA's own
    result.

    A collective that did not start is a fault of its launcher, not of the rail; so is one whose
    way is unknown. `seen`: what NCCL's logs show of it; None: nobody asked.
    """
    text, code = parse_sections(said.text).get(run.rail, ("", 127))
    try:
        run_read = read(text)
    except Unreadable:
        return run
    if len(run_read.hosts) != len(test.nodes) or run.shown == "not_run":
        return run
    bus = average_bus_gb_s(run_read)
    if run_read.wrong or not run_read.bounds_ok:
        detail = f"NCCL: {run_read.wrong} wrong values"
        return run.model_copy(update={"shown": "wrong_data", "bus_gb_s": bus, "detail": detail})
    ((node, command),) = test.clients.items()
    output = Evidence(source=command.line, exit_code=code, text=text)
    result = fabric_checks.judge_test(test, {node: {command.name: output}}, context)
    bad = [f for f in result.findings if f.severity is Severity.ISOLATE]
    if seen is not None and not seen.faults and seen.unknown:
        return run.model_copy(update={"detail": _unknown(seen)})
    bad = [*_by_host(seen), *bad]
    changes: dict[str, object] = {"bus_gb_s": bus}
    if bad and run.shown == "pass":
        changes |= {"shown": "fail", "detail": bad[0].detail}
    return run.model_copy(update=changes)


def _unknown(seen: nccl_path.Seen) -> str:
    return f"what NCCL did is unknown: {'; '.join(seen.unknown)}"[:400]


def _by_host(seen: nccl_path.Seen | None) -> list[Finding]:
    """Return the faults of a way with their host in the text, as it becomes a run's detail."""
    return [
        f.model_copy(update={"detail": f"{f.part}: {f.detail}"})
        for f in (seen.faults if seen is not None else ())
    ]


def judge_collective(
    tests: Sequence[fabric_workloads.FabricTest],
    said: Evidence,
    context: CheckContext,
    logs: Mapping[str, NcclLog] | None = None,
    wanted: nccl_path.Wanted | None = None,
) -> RailRun:
    """Return the worst result of collectives over all rails of some nodes, as one run.

    A collective that did not start is a fault of its launcher, and of no node: it was not run. So
    is one whose way is unknown, by `logs` (`read_logs`); None: nobody asked.
    """
    measured: dict[str, object] = {}
    problems: list[tuple[str, str]] = []
    words = ""
    small: dict[bool, NcclRun] = {}  # all-to-alls with and without PXN
    for number, test in enumerate(tests):
        text, code = parse_sections(said.text).get(number, ("", 127))
        if test.kind is fabric_workloads.FabricKind.TRAINING:
            trained = training_step.judge_training(
                training_step.read_training(text), context, test.nodes, test.ranks
            )
            problems += _list_trained(trained, late=code in (124, 137))
            problems += _list_way(test, logs, wanted)
            measured["training"] = trained.measured
            continue
        try:
            run = read(text)
        except Unreadable as problem:
            late = code in (124, 137) or said.exit_code in (None, 124, 137)
            problem_text = f"{test.kind.value}: {problem}: {_words(text)}"
            problems.append(("timeout" if late else "not_run", problem_text))
            continue
        problems += _list_way(test, logs, wanted)
        if logs is not None and wanted is not None:
            words = words or judge_way(test, logs, wanted).words
        if test.pxn is not None:
            small[test.pxn] = run
            if run.wrong or not run.bounds_ok:
                problems.append(("wrong_data", f"small all-to-all: {run.wrong} wrong values"))
            continue
        bus = average_bus_gb_s(run)
        key = (
            "alltoall_gb_s"
            if test.kind is fabric_workloads.FabricKind.NCCL_GROUP_ALLTOALL
            else "bus_gb_s"
        )
        measured[key] = bus
        ((node, command),) = test.clients.items()
        output = Evidence(source=command.line, exit_code=code, text=text)
        result = fabric_checks.judge_test(test, {node: {command.name: output}}, context)
        grave = [f for f in result.findings if f.severity is Severity.ISOLATE]
        if run.wrong or not run.bounds_ok:
            problems.append(("wrong_data", f"{test.kind.value}: {run.wrong} wrong values"))
        elif grave:
            problems.append(("fail", grave[0].detail))
        elif result.verdict is Verdict.FAIL:  # not all ranks, or an end with an error
            problems.append(("not_run", result.findings[0].detail))
    if len(small) == 2:
        log = (logs or {}).get(_log_of(fabric_workloads.FabricKind.NCCL_GROUP_ALLTOALL, pxn=True))
        no_gain = _judge_small(small, log, tests[0].part)
        problems += [no_gain] if no_gain is not None else []
    order = ("wrong_data", "fail", "timeout", "not_run")
    shown, detail = min(problems, key=lambda p: order.index(p[0]), default=("pass", words))
    fields = {"rail": ALL_RAILS, "shown": shown, "detail": detail[:400], **measured}
    return RailRun.model_validate(fields)


def _list_way(
    test: fabric_workloads.FabricTest,
    logs: Mapping[str, NcclLog] | None,
    wanted: nccl_path.Wanted | None,
) -> list[tuple[str, str]]:
    """Return (shown, detail) of what NCCL's logs have against a test; nobody asked: nothing."""
    if logs is None or wanted is None:
        return []
    seen = judge_way(test, logs, wanted)
    if seen.unknown and not seen.faults:
        return [("not_run", f"{test.kind.value}: {_unknown(seen)}")]
    return [("fail", f.detail) for f in _by_host(seen)]


def _list_trained(judged: training_step.Judged, *, late: bool) -> list[tuple[str, str]]:
    """Return (shown, detail) of a training step; wrong bits stand, whatever else is unknown."""
    listed = [("wrong_data", f"{f.part}: {f.detail}") for f in judged.wrong]
    listed += [("fail", f"{f.part}: {f.detail} ({f.measured})") for f in judged.slow]
    if judged.unknown and not listed:
        why = "; ".join(judged.unknown)
        listed.append(("timeout" if late else "not_run", f"training step: {why}"[:400]))
    return listed


_log_of = fabric_workloads.name_log


def judge_way(
    test: fabric_workloads.FabricTest, logs: Mapping[str, NcclLog], wanted: nccl_path.Wanted
) -> nccl_path.Seen:
    """Return what the ranks' own logs show of one test; without them nothing is known."""
    name = f"rail{test.rail}" if test.rail is not None else _log_of(test.kind, pxn=test.pxn)
    own = {"ranks": test.ranks, "pxn_off": test.pxn is False}
    return nccl_path.judge_log(logs.get(name, NcclLog()), wanted.model_copy(update=own))


def _judge_small(
    small: Mapping[bool, NcclRun], log: NcclLog | None, part: str
) -> tuple[str, str] | None:
    try:
        found = nccl_path.judge_pxn(small[False], small[True], log, part)
    except Unreadable as problem:
        return "not_run", str(problem)
    return None if found is None else ("fail", f"{found.detail} ({found.measured})")


def slowest_together(runs: Sequence[FabricRun]) -> dict[str, float]:
    """Return metric -> the lowest bus bandwidth in GB/s of the collectives that passed."""
    lowest: dict[str, float] = {}
    for run in runs:
        if run.kind != "group" or run.results[0].shown != "pass":
            continue
        figures = (run.results[0].bus_gb_s, run.results[0].alltoall_gb_s)
        names = ("nccl_pair_gb_s" if len(run.nodes) == 2 else "nccl_group_gb_s",)
        for name, figure in zip((*names, "nccl_group_alltoall_gb_s"), figures, strict=True):
            if figure is not None:
                key = f"{name}/{len(run.nodes)} nodes"
                lowest[key] = min(figure, lowest.get(key, figure))
        for key, figure in run.results[0].training.items():
            lowest[key] = max(figure, lowest.get(key, figure))  # times: the longest
    return lowest


def find_slowest(runs: Sequence[FabricRun]) -> dict[int, float]:
    """Return rail -> the lowest bus bandwidth in GB/s of the tests that passed on it with NCCL."""
    lowest: dict[int, float] = {}
    for run in runs:
        for r in run.results:
            if r.shown == "pass" and r.bus_gb_s is not None:
                lowest[r.rail] = min(r.bus_gb_s, lowest.get(r.rail, r.bus_gb_s))
    return lowest


def _words(text: str) -> str:
    """Return the end of a host's output, without terminal control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text[-300:]).split())
