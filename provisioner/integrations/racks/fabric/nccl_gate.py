"""Whether NCCL used NVLink between the trays of one domain, by its own logs. Pure.

A collective over the network ends well too, only slower, so that its end proves nothing: each rank
has to say that multi-node NVLink is on, each tray has to have a way to another one by it, and no
rank may have one over the network. What no line says is no proof.

Formats: NVIDIA/nccl v2.21 to v2.30, src/init.cc ("comm … MNNVL 1") and src/transport/p2p.cc ("via
P2P/MNNVL"), with `NCCL_DEBUG=INFO`; ways over the network and a rank's begin and end as the checks
of the fabric read them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from provisioner.checks.readers.nccl_log import NcclLog, read_log
from provisioner.model.outcome import Blocker, Reason

LOG_MAX_BYTES = 64 * 2**20  # of one tray; four ranks with 64 channels print some 2 MiB
LINE_MAX = 4096
_COMM = re.compile(
    rb"comm \S{1,20} rank (\d{1,6}) nRanks \d{1,6} nNodes \d{1,6} localRanks \d{1,6}"
    rb" localRank \d{1,6} MNNVL (\d)\s*$"
)
_WAY = re.compile(
    rb"Channel \d{1,4}/\d : (\d{1,6})\[[0-9a-f]{1,16}\] -> (\d{1,6})\[[0-9a-f]{1,16}\]"
    rb" via P2P/MNNVL(?:/read)?(?:/CE)?\s*$"
)
_MARK = b" NCCL INFO "
_REMEDY = (
    "Look at the NVLink fabric, IMEX and NCCL_MNNVL_ENABLE, then run it over the whole domain "
    "with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,ENV,NET,P2P,DESTROY."
)


@dataclass(frozen=True)
class TrayLog:
    """What the ranks of one tray said. `on`: whether multi-node NVLink is, by rank."""

    log: NcclLog
    on: Mapping[int, bool] = field(default_factory=dict)
    ways: frozenset[tuple[int, int]] = frozenset()  # of ranks, by NVLink between hosts


def read_nccl(printed: bytes) -> TrayLog:
    """Return what one tray's log says; what is in other words says nothing."""
    text = printed[:LOG_MAX_BYTES]
    on: dict[int, bool] = {}
    ways: set[tuple[int, int]] = set()
    for line in text.splitlines():
        _, mark, said = line[:LINE_MAX].partition(_MARK)
        if not mark or _MARK in said:
            continue  # two processes' lines in one: the reader of logs counts it as damaged
        if found := _COMM.match(said):
            rank = int(found[1])
            on[rank] = found[2] == b"1" and on.get(rank, True)
        elif (found := _WAY.match(said)) and len(ways) < 1 << 16:
            ways.add((int(found[1]), int(found[2])))
    return TrayLog(read_log([text]), on, frozenset(ways))


def judge_nccl(
    planned: Mapping[str, int], logs: Mapping[str, TrayLog | None]
) -> tuple[Blocker, ...]:
    """Return why these trays (GPUs by tray) did not prove NCCL over NVLink; empty: they did."""
    tray_of: dict[int, str] = {}
    faults: list[Blocker] = []
    for tray in planned:
        one = logs.get(tray)
        for rank in () if one is None else _list_whole(one.log):
            if rank in tray_of:
                faults.append(_refuse(tray, f"rank {rank} is {tray_of[rank]}'s, too"))
            tray_of[rank] = tray
    size = sum(planned.values())
    for tray, gpus in planned.items():
        one = logs.get(tray)
        if one is None:
            faults.append(_refuse(tray, "its log of NCCL was not read"))
            continue
        faults += [_refuse(tray, why) for why in _find_faults(one, tray, gpus, size, tray_of)]
    return tuple(faults)


def _list_whole(log: NcclLog) -> frozenset[int]:
    """Return the ranks whose communicator began and ended."""
    processes = log.processes.values()
    return frozenset(rank for one in processes for rank in one.ready & one.ended)


def _find_faults(
    one: TrayLog, tray: str, gpus: int, size: int, tray_of: Mapping[int, str]
) -> Iterator[str]:
    log = one.log
    if log.damaged:
        yield f"{log.damaged} lines of NCCL are cut or mixed with others"
    sizes = {size for process in log.processes.values() for size in process.begun.values()}
    if sizes != {size}:
        yield f"its communicator has {sorted(sizes)[:4]} ranks, and the domain {size} GPUs"
    ranks = _list_whole(log)
    if len(ranks) != gpus:
        yield f"{len(ranks)} of its {gpus} ranks began and ended"
    if networks := sorted({path.network for path in log.paths}):
        senders = sorted({path.rank for path in log.paths})
        yield f"rank {senders[0]} has a way over the network: NET/{networks[0]}, and not NVLink"
    if off := sorted(rank for rank, is_on in one.on.items() if not is_on):
        why = next(
            (p.environment["NCCL_MNNVL_ENABLE"] for p in log.processes.values()
             if "NCCL_MNNVL_ENABLE" in p.environment), ""
        )  # fmt: skip
        reason = f": NCCL_MNNVL_ENABLE is {why}" if why else ""
        yield f"multi-node NVLink is off at rank {off[0]}{reason}"
    if silent := sorted(ranks - one.on.keys()):
        yield f"rank {silent[0]} does not say whether multi-node NVLink is on"
    ends = {tray_of.get(to) for by, to in one.ways if tray_of.get(by) == tray}
    if len(tray_of) > gpus and not ends - {tray, None}:
        yield "no line shows a way to another tray by NVLink (via P2P/MNNVL)"


def _refuse(subject: str, detail: str) -> Blocker:
    return Blocker(reason=Reason.FABRIC, subject=subject, detail=detail[:300], unblock=_REMEDY)
