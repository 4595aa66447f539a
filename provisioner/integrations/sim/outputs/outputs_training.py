"""The reference training step among simulated hosts, in the form of training_step.py's lines.

Times are made up; bits are hashes that depend on what a true run's depend on. Faults:
`training_wrong_ulp` (GPU 1 of the host), `training_slow_gpu` (GPU 0), `training_slow_receiver`.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Sequence

STEPS = 11
KEY = {
    "device": "NVIDIA H100 80GB HBM3",
    "torch": "2.13.0+cu126",
    "cuda": "12.6",
    "nccl": "2.29.3",
    "cudnn": "91002",
    "workload": 1,
    "width": 4096,
    "layers": 2,
    "tokens": 8192,
    "steps": 12,
}
WRONG_GPU = 1
SLOW_GPU = 0
ALONE_MS = 41.0
STEP_MS = 55.0
COMM_MS = 30.0
RECEIVE_MS = 1.6


def print_training(hosts: Sequence[tuple[str, int, frozenset[str]]]) -> str:
    """Return all ranks' lines; `hosts`: (name, GPUs, faults) in the order of ranks."""
    placed = [(name, gpu, faults) for name, count, faults in hosts for gpu in range(count)]
    size = len(placed)
    wrong = any("training_wrong_ulp" in f for _, _, f in hosts)
    slow = any("training_slow_gpu" in f for _, _, f in hosts)
    curve = [
        struct.pack(">d", 2.0 / (n + 1) + (1e-15 if wrong and n > 3 else 0.0)).hex()
        for n in range(STEPS)
    ]
    sums = [_hash(f"sums {size} {n} {wrong and n > 3}") for n in range(STEPS)]
    each = hosts[0][1]
    distances = list(range(each, size, each))[:4]
    lines = []
    for rank, (name, gpu, faults) in enumerate(placed):
        head = {"rank": rank, "ranks": size, "host": name}
        lines.append({**head, "key": KEY, "backend": "nccl", "began": True})
        bad = "training_wrong_ulp" in faults and gpu == WRONG_GPU
        late = "training_slow_gpu" in faults and gpu == SLOW_GPU
        received = 1.0 + 0.9 * ("training_slow_receiver" in faults)
        lines.append(
            {
                **head,
                "alone": [_hash(f"alone {n} {bad and n > 3}") * 2 for n in range(STEPS)],
                "alone_ms": _spread(ALONE_MS * (1.12 if late else 1.0), rank),
                "curve": curve,
                "sums": sums,
                "step_ms": _spread(STEP_MS * (1.09 if slow else 1.0), 0),
                "comm_ms": COMM_MS,
                "receive_ms": {
                    str(d): round(
                        RECEIVE_MS
                        * max(received, 1.0 + 0.9 * _is_slow(placed[(rank + d) % size][2])),
                        3,
                    )
                    for d in distances
                },
                "ended": True,
            }
        )
    return "".join(_line(row) for row in lines)


def _is_slow(faults: frozenset[str]) -> bool:
    return "training_slow_receiver" in faults


def _spread(level: float, seed: int) -> list[float]:
    return [round(level * (1 + ((seed * 7 + n * 13) % 10 - 5) / 1000), 3) for n in range(STEPS)]


def _hash(text: str) -> str:
    return f"{zlib.crc32(hashlib.sha256(text.encode()).digest()):08x}"


def _line(row: dict[str, object]) -> str:
    text = json.dumps(row, separators=(",", ":"), sort_keys=True)
    return f"TRAINING {text} {zlib.crc32(text.encode()):08x}\n"
