"""CPU seconds to judge what NCCL did in a session of 64 nodes (512 ranks, 2 MB of log a rank).

Each log has the lines of a published one (NVIDIA/nccl 2.21, subsystems INIT, ENV, NET): rings and,
for an all-to-all, a way to each other rank and back on every channel. The ratio is to a plain read
of the same bytes, line by line. The last line is JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator

from provisioner.checks.fabric.nccl_path import Wanted, judge_log
from provisioner.checks.readers.nccl_log import NcclLog

CHUNK = 1 << 16
CHANNELS = 16
LIMIT_S = 5.0


def print_rank(rank: int, ranks: int, gpus: int, size: int) -> bytes:
    """The log of one rank: its ways to all others, again and again up to this size."""
    host, gpu = divmod(rank, gpus)
    head = f"node{host}:{5100 + gpu}:{5200 + gpu} [{gpu}] NCCL INFO "
    using = " ".join(f"[{n}]mlx5_{n}:1/RoCE" for n in range(gpus))
    comm = f"ncclCommInitRank comm 0x55d0 rank {rank} nranks {ranks} cudaDev {gpu} busId 1b000"
    ring = " ".join(f"{n:3}" for n in range(ranks))
    begun = [
        "NCCL version 2.21.5+cuda12.4",
        f"NET/IB : Using {using} [RO]; OOB eno1:10.0.0.1<0>",
        "Using network IB",
        f"{comm} commId 0xa1b2 - Init START",
        *(f"Channel {c:02}/{CHANNELS} : {ring}" for c in range(CHANNELS)),
    ]
    ended = [
        "Connected all rings",
        f"{comm} commId 0xa1b2 - Init COMPLETE",
        f"comm 0x55d0 rank {rank} nranks {ranks} cudaDev {gpu} busId 1b000 - Destroy COMPLETE",
    ]
    ways = "".join(f"{head}{text}\n" for text in list_ways(rank, ranks, gpus))
    texts = ["".join(f"{head}{text}\n" for text in part) for part in (begun, ended)]
    room = size - sum(len(t) for t in texts)
    more = ways * (room // len(ways) + 1)
    more = ways if room <= 0 else more[: more.rfind("\n", 0, room) + 1]
    return (texts[0] + more + texts[1]).encode()


def list_ways(rank: int, ranks: int, gpus: int) -> Iterator[str]:
    """As ncclTransportP2pSetup connects them: peer by peer, all channels in, then all out."""
    gpu = rank % gpus
    for step in range(1, ranks):
        source, target = (rank - step) % ranks, (rank + step) % ranks
        for sends, peer in ((False, source), (True, target)):
            at = peer % gpus
            ends = f"{rank}[{gpu}] -> {peer}[{at}]" if sends else f"{peer}[{at}] -> {rank}[{gpu}]"
            proxy = "" if at == gpu or not sends else f"({rank - gpu + at})"
            card = at if sends else gpu
            way = f"[{'send' if sends else 'receive'}] via NET/IB/{card}{proxy}/GDRDMA/Shared"
            way = "via P2P/CUMEM" if peer // gpus == rank // gpus else way
            yield from (f"Channel {c:02}/1 : {ends} {way}" for c in range(CHANNELS))


def read_plainly(text: bytes) -> int:
    """The ways in a log, looked for line by line."""
    return sum(b" via NET/" in line for line in text.splitlines())


def main() -> None:
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    gpus = 8
    size = 2_000_000
    log = NcclLog()
    spent = plain = 0.0
    total = 0
    for rank in range(nodes * gpus):
        text = print_rank(rank, nodes * gpus, gpus, size)
        total += len(text)
        began = time.process_time()
        read_plainly(text)
        plain += time.process_time() - began
        began = time.process_time()
        for at in range(0, len(text), CHUNK):
            log.feed(text[at : at + CHUNK])
        log.end()
        spent += time.process_time() - began
    began = time.process_time()
    seen = judge_log(log, Wanted(ranks=nodes * gpus, rails=gpus, rails_apart=True))
    spent += time.process_time() - began
    row = {
        "nodes": nodes,
        "gb": round(total / 1e9, 3),
        "cpu_s": round(spent, 2),
        "cpu_s_max": LIMIT_S,
        "plain_cpu_s": round(plain, 2),
        "ratio": round(spent / plain, 2),
        "ways": len(log.paths),
        "faults": len(seen.faults),
        "unknown": list(seen.unknown),
    }
    row["ok"] = spent <= LIMIT_S and not seen.faults and not seen.unknown
    sys.stdout.write(json.dumps(row) + "\n")
    sys.exit(0 if row["ok"] else 1)


if __name__ == "__main__":
    main()
