"""NCCL took the way that the fabric is built for: RDMA from GPU memory, every rail, PXN.

A collective over sockets or without GPUDirect RDMA still ends well, only slower; NCCL's own log
says so. A log that is cut, mixed or absent shows nothing and never passes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from statistics import fmean, median

from pydantic import Field

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.readers.nccl_log import SOCKET, NcclLog, NcclProcess, Path, read_log
from provisioner.checks.readers.nccl_output import NcclRun
from provisioner.checks.readers.tool_output import read_output
from provisioner.model.base import Record
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

LOG = Command(
    name="nccl_log",
    line="cat (the files of NCCL_DEBUG_FILE of all ranks; NCCL_DEBUG=INFO"
    " NCCL_DEBUG_SUBSYS=INIT,ENV,NET,DESTROY)",
    limit_s=60.0,
)
_LISTED_MAX = 4  # ranks or parts that a text names


class Wanted(Record):
    """What a run's log must show."""

    ranks: int | None = None  # None: as many as the log itself names
    rails: int = 0  # devices that each host must use
    # host -> its RDMA devices that must be used, where they are known
    devices: Mapping[str, frozenset[str]] = Field(default_factory=dict)
    rails_apart: bool = False  # different rails meet only behind their leaves: PXN is wanted
    pxn_off: bool = False  # this run has it off on purpose


def list_unknown(log: NcclLog, wanted: Wanted) -> list[str]:
    """Return what this log does not show; with one entry it proves nothing good."""
    unknown = []
    if log.damaged:
        unknown.append(f"{log.damaged} lines of NCCL are cut or mixed with others")
    processes = log.processes.values()
    sizes = {size for p in processes for size in p.begun.values()}
    if len(sizes) != 1:
        return [*unknown, f"not one size of the communicator in it: {sorted(sizes)[:4]}"]
    size = sizes.pop()
    if wanted.ranks is not None and size != wanted.ranks:
        unknown.append(f"its communicator has {size} ranks, {wanted.ranks} were started")
    for words, shown in (("began", "ready"), ("ended", "ended")):
        there: set[int] = set().union(*(getattr(p, shown) for p in processes))
        missing = sorted(set(range(size)) - there)
        if missing:
            unknown.append(f"no line says that rank {_list(missing)} {words}")
    hosts = {p.host for p in processes}
    if len(hosts) < 2:
        unknown.append("all of it is of one host: nothing crosses the fabric")
    paths_of = _sort_paths(log)
    for host in sorted(hosts):
        ways = {path.sends for path in paths_of[host]}
        if len(ways) < 2:
            unknown.append(f"no way out of and into {host} is named")
        if not any(p.network for p in processes if p.host == host):
            unknown.append(f"the network that {host} uses is not named")
    return unknown


def find_faults(log: NcclLog, wanted: Wanted) -> Iterator[Finding]:
    """Yield what this log shows to be wrong, by host; silence of it means nothing."""
    # a host that uses fewer rails than another has lost one, however many there should be
    paths_of = _sort_paths(log)
    most = max((len(_list_used(log, paths)) for paths in paths_of.values()), default=0)
    wanted = wanted.model_copy(update={"rails": max(wanted.rails, most)})
    for host in sorted({p.host for p in log.processes.values()}):
        processes = [p for p in log.processes.values() if p.host == host]
        paths = paths_of[host]
        if any(p.network == SOCKET for p in processes) or any(w.network == SOCKET for w in paths):
            why = next((p.why_no_ib for p in processes if p.why_no_ib), "NCCL says no reason")
            off = _environment(processes, "NCCL_IB_DISABLE") not in ("", "0")
            why = "NCCL_IB_DISABLE is set" if off else why
            detail = f"NCCL fell back to sockets: {why}"
            yield fault(host, Severity.CONFIG, detail, SOCKET, "RDMA (NET/IB)")
            continue  # the rest follows from it
        yield from _judge_rails(log, host, paths, wanted)
        yield from _judge_direct(host, processes, paths)
        if wanted.rails_apart and not wanted.pxn_off:
            yield from _judge_pxn_use(host, processes, paths)


def _judge_rails(log: NcclLog, host: str, paths: list[Path], wanted: Wanted) -> Iterator[Finding]:
    used = _list_used(log, paths)
    if host in wanted.devices:
        missing = sorted(wanted.devices[host] - used)
        if paths and missing:
            own = [p for p in log.processes.values() if p.host == host]
            seen = {n for p in own for name in p.devices.values() for n in name.split("+")}
            words = "not seen by NCCL" if set(missing) - seen else "seen, but no channel uses it"
            detail = f"NCCL does not use the rail of {_list(missing)} ({words})"
            yield fault(host, Severity.ISOLATE, detail, len(used), len(wanted.devices[host]))
    elif paths and len(used) < wanted.rails:
        detail = f"NCCL uses {len(used)} of {wanted.rails} rails: {_list(sorted(used))}"
        yield fault(host, Severity.ISOLATE, detail, len(used), wanted.rails)


def _judge_direct(host: str, processes: list[NcclProcess], paths: list[Path]) -> Iterator[Finding]:
    staged = sorted({path.rank for path in paths if not path.direct})
    if not staged:
        return
    level = _environment(processes, "NCCL_NET_GDR_LEVEL")
    said = any(p.no_direct for p in processes)
    why = "NCCL found no GPUDirect RDMA for the card (nvidia-peermem or DMA-BUF)" if said else ""
    why = f"NCCL_NET_GDR_LEVEL is {level}" if level in ("LOC", "0") else why
    detail = f"rank {_list(staged)} sends or receives without GPUDirect RDMA"
    yield fault(
        host, Severity.CONFIG, f"{detail}{why and ': '}{why}", "through host memory", "GDRDMA"
    )


def _judge_pxn_use(host: str, processes: list[NcclProcess], paths: list[Path]) -> Iterator[Finding]:
    crossing = [w for w in paths if w.sends and w.point_to_point and w.crosses]
    off = _environment(processes, "NCCL_PXN_DISABLE") not in ("", "0")
    if off:
        detail = "PXN is off (NCCL_PXN_DISABLE), but different rails meet only behind their leaves"
        yield fault(host, Severity.CONFIG, detail, "off", "on")
    elif crossing and all(w.proxy in (None, w.rank) for w in crossing):
        detail = "NCCL sends to other rails without PXN: it finds no way by NVLink to their cards"
        yield fault(host, Severity.ISOLATE, detail, "none", "PXN")


class Seen(Record):
    """What NCCL did in one run: what is wrong, what is not known, and one line for people."""

    faults: tuple[Finding, ...]
    unknown: tuple[str, ...]
    words: str


def judge_log(log: NcclLog, wanted: Wanted) -> Seen:
    return Seen(
        faults=tuple(find_faults(log, wanted)),
        unknown=tuple(list_unknown(log, wanted)),
        words=describe(log),
    )


def judge_pxn(off: NcclRun, on: NcclRun, log: NcclLog | None, part: str) -> Finding | None:
    """Return a finding if small all-to-alls do not gain by PXN on a rail-optimised fabric.

    The gain must be above the spread between the two measurements of each size. `log`: of the run
    with PXN. source: NVIDIA, "Doubling all2all Performance with NCCL 2.12" (PXN joins messages of
    a host's GPUs, and keeps them on one rail); NVIDIA/nccl issue 1189 (the gain is in small sizes).
    Raises Unreadable where the runs have no size in common.
    """
    rows = {row.size: row.bus_gb_s for row in off.rows}
    both = [(rows[row.size], row.bus_gb_s) for row in on.rows if row.size in rows]
    both = [(a, b) for a, b in both if min(a) > 0 and min(b) > 0]
    if not both:
        raise Unreadable("nccl-tests: no size was measured with and without PXN")
    gain = median(fmean(b) / fmean(a) for a, b in both) - 1
    spread = median(max(_spread(a), _spread(b)) for a, b in both)
    if gain > spread:
        return None
    proxied = log is not None and any(w.proxy not in (None, w.rank) for w in log.paths)
    if gain < -spread:
        cause = "the NVSwitch path between the GPUs is slow"
    elif proxied:
        cause = "other rails are as near as the own: rails are wired to one leaf, or crossed"
    else:
        cause = "NCCL did not use it: the NVSwitch path to the other GPUs' cards is not there"
    detail = f"small all-to-alls do not gain by PXN: {cause}"
    return fault(
        part, Severity.ISOLATE, detail, f"{gain:+.0%}", f"more than the spread of {spread:.0%}"
    )


def describe(log: NcclLog) -> str:
    """Return one line on what NCCL did, for people."""
    processes = list(log.processes.values())
    versions = sorted({p.version for p in processes if p.version} | {log.version} - {""})
    plugins = sorted({p.plugin for p in processes if p.plugin}) or ["built in"]
    direct = sum(w.direct for w in log.paths)
    proxied = sum(w.proxy not in (None, w.rank) for w in log.paths)
    networks = sorted({p.network for p in processes if p.network})
    rings = max((p.rings for p in processes), default=0)
    return (
        f"NCCL {_list(versions) or 'of unknown version'}, network {_list(networks) or 'unknown'},"
        f" plugin {_list(plugins)}; {rings} rings{', trees' * any(p.trees for p in processes)};"
        f" {len(log.paths)} ways between hosts, {direct} with GDRDMA, {proxied} with PXN"
    )


def _sort_paths(log: NcclLog) -> dict[str, list[Path]]:
    """Return host -> its paths: once, as a session has thousands of them."""
    paths_of: dict[str, list[Path]] = defaultdict(list)
    for path in log.paths:
        paths_of[log.path_of.get(path.rank, ("", 0))[0]].append(path)
    return paths_of


def _list_used(log: NcclLog, paths: Iterable[Path]) -> set[str]:
    return {name for path in paths for name in _device(log, path).split("+")}


def _device(log: NcclLog, path: Path) -> str:
    process = log.processes[log.path_of[path.rank]]
    return process.devices.get(path.device, f"NET/{path.network}/{path.device}")


def _environment(processes: Iterable[NcclProcess], name: str) -> str:
    return next((p.environment[name] for p in processes if name in p.environment), "")


def _spread(values: tuple[float, ...]) -> float:
    return (max(values) - min(values)) / fmean(values)


def _list(values: Iterable[object]) -> str:
    listed = [str(v) for v in values]
    more = f" and {len(listed) - _LISTED_MAX} more" if len(listed) > _LISTED_MAX else ""
    return ", ".join(listed[:_LISTED_MAX]) + more


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    log = read_log([read_output(evidence, LOG).encode("utf-8", "replace")])
    if not log.processes:
        raise Unreadable("NCCL: no line of its log in it")
    wanted = Wanted(rails=context.rails, rails_apart=context.rails > 1)
    yield from find_faults(log, wanted)
    unknown = list_unknown(log, wanted)
    if unknown:
        raise Unreadable(f"what NCCL did is unknown: {'; '.join(unknown[:_LISTED_MAX])}")


CHECK = Check("nccl_path", Gate.C, (LOG,), _findings)
