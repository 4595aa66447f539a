"""What judging a cohort costs: 4,096 nodes with 56 numbers each; and 512 nodes that wait.

Prints what it ran on and, as the last line, JSON.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from random import Random

from provisioner.model.cohort import Baseline, Sample
from provisioner.planning.certification.cohort import (
    MEMBERS_MAX,
    LearningPolicy,
    Policy,
    find_outliers,
    judge_cohort,
    judge_node,
    learn_baseline,
)

NODES = 4096
BAD = 40
ALONE = 8  # of those that wait are judged one by one; the others would cost as much


def fleet(rng: Random) -> list[Sample]:
    """Forty nodes are 10 % slow in one number each."""
    samples = []
    for n in range(NODES):
        measured = {f"busbw_gb_s/rail {r}": rng.gauss(390, 2) for r in range(8)}
        for metric, level in (("host_to_gpu_gb_s", 54), ("hbm_gb_s", 2500), ("burn_gflop_s", 5e4)):
            measured |= {f"{metric}/GPU {g}": rng.gauss(level, level / 200) for g in range(8)}
        measured |= {f"out_of_sequence_per_s/mlx5_{p}": rng.random() for p in range(8)}
        measured |= {f"gpu_temperature_c/GPU {g}": rng.gauss(60, 2) for g in range(8)}
        measured |= {f"storage_read_gb_s/nvme{d}": rng.gauss(6, 0.05) for d in range(8)}
        if n < BAD:
            measured[f"busbw_gb_s/rail {n % 8}"] *= 0.9
        samples.append(
            Sample(
                node=f"n{n}",
                rack=f"r{n // 4}",
                profile="p",
                versions="v",
                measured=measured,
                sound=True,
            )
        )
    return samples


def main() -> None:
    samples = fleet(Random(7))
    numbers = sum(len(s.measured) for s in samples)
    began = time.process_time()
    found = find_outliers(samples, Policy())
    judged_s = time.process_time() - began
    began = time.process_time()
    level = learn_baseline(
        "hbm_gb_s", samples, previous=None, published=None, policy=LearningPolicy(), now=0.0
    )
    learned_s = time.process_time() - began
    assert isinstance(level, Baseline)
    waiting = samples[:MEMBERS_MAX]
    began = time.process_time()
    for sample in waiting[:ALONE]:
        judge_node(sample, waiting, Policy())
    alone_s = (time.process_time() - began) / ALONE * len(waiting)
    began = time.process_time()
    judge_cohort(waiting, Policy())
    at_once_s = time.process_time() - began
    bad = {o.node for o in found}
    figures = {
        "nodes": NODES,
        "numbers": numbers,
        "judged_cpu_s": round(judged_s, 2),
        "learned_cpu_s": round(learned_s, 2),
        "waiting": len(waiting),
        "each_alone_over_all_at_once": round(alone_s / at_once_s),
        "planted": BAD,
        "found": len(bad & {f"n{n}" for n in range(BAD)}),
        "innocent": len(bad - {f"n{n}" for n in range(BAD)}),
    }
    sys.stdout.write(
        f"{platform.machine()}, Python {platform.python_version()}\n{json.dumps(figures)}\n"
    )


if __name__ == "__main__":
    main()
