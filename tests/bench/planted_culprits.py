"""Culprits that only work shows, planted among 10,000 nodes, and how many of them are named.

Dying optics in series of 30 days, hosts that pause their leaf for good, and GPUs that compute
wrong bits, compute slowly or receive slowly in training steps of eight nodes. Noise and innocents
(unused ports, copper, "N/A", one bad day, a swing with the week's heat, a burst of many to one)
are drawn with fixed seeds; their sizes are ours, none is published.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from math import exp, sin

from provisioner.checks.check import CheckContext
from provisioner.checks.fabric.training_step import judge_training, read_training
from provisioner.integrations.optics.trends import Day, judge_port
from provisioner.integrations.sim.outputs.outputs_training import _line, print_training
from provisioner.model.link_reading import DARK_DBM
from provisioner.planning.watch.watch_rules import Counters, find_slow_receivers

NODES = 10_000
SHARE = 50  # one node of so many is a culprit
SESSION = 8  # nodes of one training step
GPUS = 2  # of each: bits and times are compared by rank
BEGAN = date(2026, 5, 1)
FOUND_MIN = 0.98
TRAINING = ("training_wrong_ulp", "training_slow_gpu", "training_slow_receiver")


@dataclass
class Tally:
    """Of one kind of culprit."""

    nodes: int = 0
    planted: int = 0
    found: int = 0
    innocent: int = 0
    cpu_s: float = 0.0

    def count(self, planted: set[str], blamed: set[str]) -> None:
        self.planted += len(planted)
        self.found += len(planted & blamed)
        self.innocent += len(blamed - planted)


def plant_all(nodes: int = NODES) -> dict[str, Tally]:
    """Return the tally of each kind of culprit."""
    return {
        "dying_optics": judge_optics(nodes),
        "slow_receivers": judge_receivers(nodes),
        **judge_sessions(nodes),
    }


def sum_up(tallies: dict[str, Tally]) -> dict[str, float]:
    """Return the figures of the last line."""
    told: dict[str, float] = {}
    for kind, tally in tallies.items():
        told[f"{kind}_found"] = round(tally.found / max(1, tally.planted), 4)
        told[f"{kind}_innocent"] = tally.innocent
    return told | {"planted_cpu_s": round(sum(t.cpu_s for t in tallies.values()), 1)}


def judge_optics(nodes: int) -> Tally:
    rng = random.Random("optics")
    tally = Tally(nodes)
    for number in range(nodes):
        name = f"n{number}"
        kind = rng.choice(("dirt", "laser", "dim")) if number % SHARE == 0 else ""
        days = list(_draw_days(rng, kind))
        began = time.process_time()
        verdict = judge_port(name, days)
        tally.cpu_s += time.process_time() - began
        wanted = "dirty" if kind == "dirt" else "dying"
        named = verdict.state == wanted if kind else verdict.state in ("dirty", "dying", "dark")
        tally.count({name} if kind else set(), {name} if named else set())
    return tally


def _draw_days(rng: random.Random, kind: str) -> Iterator[Day]:
    level, bias, sent = rng.uniform(-2.0, 1.5), rng.uniform(6.0, 90.0), rng.uniform(-1.0, 2.0)
    odd = "" if kind else rng.choice(("", "", "", "", "unused", "copper", "n/a", "bad day", "heat"))
    begins, pace = rng.randint(8, 16), rng.uniform(0.18, 0.45)
    for number in range(30):
        gone = max(0, number - begins)
        rx = level + rng.gauss(0, 0.15) + (0.3 * sin(number) if odd == "heat" else 0.0)
        rx -= pace * gone if kind == "dirt" else 0.0
        rx -= 6.0 if odd == "bad day" and number == begins else 0.0
        values = {
            "rx_dbm": DARK_DBM if odd == "unused" else round(rx, 2),
            "tx_dbm": round(sent + rng.gauss(0, 0.1) - (pace * gone if kind == "dim" else 0.0), 2),
            "bias_ma": round(
                bias * (1 + rng.gauss(0, 0.01) + (0.03 * gone if kind == "laser" else 0.0)), 2
            ),
        }
        yield Day(
            day=BEGAN + timedelta(days=number),
            values={} if odd in ("copper", "n/a") else values,
            kind="copper" if odd == "copper" else "optic",
            low_alarm_dbm=rng.choice((None, -9.0)),
            serial="A",
        )


def judge_receivers(nodes: int) -> Tally:
    rng = random.Random("receivers")
    looks: dict[tuple[str, str], Sequence[Counters]] = {}
    planted = set()
    for number in range(nodes):
        slow = number % SHARE == 0
        planted |= {f"n{number}"} if slow else set()
        rate = 2.0 * exp(rng.gauss(0, 0.4)) * (30.0 if slow else 1.0)
        burst = rng.choice((0, 1, 1, 1)) if not slow and rng.random() < 0.03 else None
        missing = not slow and rng.random() < 0.01
        count, kept = 1000, []
        for look in range(3):
            values = {} if missing else {"pause_received": count, "discards": rng.randint(0, 3)}
            kept.append(Counters(at=300.0 * look, values=values))
            count += round(300 * rate * (50.0 if burst == look else 1.0))
        looks[f"n{number}", "swp1"] = kept
    began = time.process_time()
    blamed = {node for node, listed in find_slow_receivers(looks).items() if listed}
    tally = Tally(nodes, cpu_s=time.process_time() - began)
    tally.count(planted, blamed)
    return tally


def judge_sessions(nodes: int) -> dict[str, Tally]:
    """Return the tally of each fault of a training step; an innocent session counts to the first.

    A fault that is named at the right node, but as something else, is not found.
    """
    rng = random.Random("sessions")
    tallies = {fault.removeprefix("training_"): Tally(nodes) for fault in TRAINING}
    words = ("computes wrong bits", "computes slower", "receives slower")
    for number in range(nodes // SESSION):
        names = [f"s{number}-n{i}" for i in range(SESSION)]
        # one culprit in each sixth session, so that one node in 48 is one
        fault = TRAINING[number // 6 % 3] if number % 6 == 0 else ""
        culprit = rng.randrange(SESSION)
        hosts = [
            (n, GPUS, frozenset({fault} if fault and i == culprit else ()))
            for i, n in enumerate(names)
        ]
        text = _add_noise(print_training(hosts), rng)
        began = time.process_time()
        found = judge_training(read_training(text), CheckContext(gpu_model="H100"), names, None)
        spent = time.process_time() - began
        tally = tallies[(fault or TRAINING[0]).removeprefix("training_")]
        tally.cpu_s += spent
        said = [f for f in (*found.wrong, *found.slow) if f.part in names]
        wanted = words[TRAINING.index(fault)] if fault else ""
        named = {f.part for f in said if not fault or wanted in f.detail}
        others = {f.part for f in said} - {names[culprit]} if fault else set()
        tally.count({names[culprit]} if fault else set(), named | others)
    return tallies


def _add_noise(text: str, rng: random.Random) -> str:
    """Return the run with times that scatter: 1 % of a pass, 4 % of a message."""
    lines = []
    for line in text.splitlines():
        row = json.loads(line.removeprefix("TRAINING ").rpartition(" ")[0])
        if "alone_ms" in row:
            row["alone_ms"] = [round(v * (1 + rng.gauss(0, 0.01)), 3) for v in row["alone_ms"]]
            row["receive_ms"] = {
                d: round(v * (1 + rng.gauss(0, 0.04)), 3) for d, v in row["receive_ms"].items()
            }
        lines.append(_line(row))
    return "".join(lines)
