"""Labelled optics, queues, NCCL's logs and training steps: what is said, and the scores.

The label of an optic is its state; an accusation is dirty, dying or dark. A log is labelled with
the faults that its thread confirms, a training step with the nodes at fault, a queue with alerts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from functools import cache
from math import sin
from pathlib import Path
from typing import Any

import yaml
from corpus_score import Score

from provisioner.checks.check import CheckContext
from provisioner.checks.fabric.nccl_path import Wanted, find_faults
from provisioner.checks.fabric.training_step import judge_training, read_training
from provisioner.checks.readers.nccl_log import read_log
from provisioner.integrations.cumulus import link_reading as cumulus
from provisioner.integrations.optics.trends import Day, judge_port
from provisioner.integrations.sim.outputs.outputs_training import print_training
from provisioner.integrations.sonic import link_reading as sonic
from provisioner.model.link_reading import DARK_DBM, OpticReading
from provisioner.planning.watch.watch_rules import (
    Counters,
    find_rocet_outliers,
    find_slow_receivers,
    held_by_watchdog,
    per_second,
)

FOLDER = Path(__file__).parent / "fabric"
TRAINING = Path(__file__).parent.parent / "golden/training"
ACCUSED = frozenset({"dirty", "dying", "dark"})
NODES = ("n0", "n1", "n2", "n3")
DAYS = 20
LOOK_S = 900.0
BEGAN = date(2026, 5, 1)
Said = tuple[
    Mapping[str, Any], frozenset[str], frozenset[str]
]  # entry, what is wrong, what is said


@cache
def load(kind: str) -> tuple[Mapping[str, Any], ...]:
    return tuple(yaml.safe_load((FOLDER / f"{kind}.yaml").read_text(encoding="utf-8")))


def judge_all() -> dict[str, tuple[Said, ...]]:
    """Return kind -> each entry with its label and what the program says."""
    return {
        "optics": tuple(map(_judge_optic, load("optics"))),
        "queues": tuple(map(_judge_queue, load("queues"))),
        "nccl": tuple(map(_judge_log, load("nccl"))),
        "training": tuple(map(_judge_training, load("training"))),
    }


def count(kind: str, said: Iterable[Said]) -> Score:
    wanted = accused = right = 0
    for _, label, found in said:
        wanted, accused = wanted + len(label), accused + len(found)
        right += len(label & found)
    return Score(
        kind=kind, entries=wanted, accused=accused, right=right, culprits=0, right_culprits=0
    )


def _judge_optic(entry: Mapping[str, Any]) -> Said:
    state = state_of(entry)
    label = frozenset({entry["state"]} & ACCUSED)
    return entry, label, frozenset({state} & ACCUSED)


def state_of(entry: Mapping[str, Any]) -> str:
    """Return the verdict on 20 days of a reading, changed as the entry says."""
    shown = {**next((e for e in load("optics") if e["id"] == entry.get("like")), entry), **entry}
    optic = read_optic(shown)
    return judge_port("leaf/port", [_build_day(shown, optic, n) for n in range(DAYS)]).state


def read_optic(entry: Mapping[str, Any]) -> OpticReading:
    if "nvue" in entry:
        told = dict(entry["nvue"])
        light, bias, limits = (told.pop(n, []) for n in ("rx", "bias", "limits"))
        channels = {
            f"channel-{n}": {
                "rx-power": {"power": rx, **limits},
                "tx-bias-current": {"current": current},
            }
            for n, (rx, current) in enumerate(zip(light, bias, strict=True), 1)
        }
        found = cumulus.read_optic({**told, **({"channel": channels} if channels else {})})
    else:
        tables = dict(entry["sonic"])
        if entry.get("zero_limits"):
            tables["threshold"] = dict.fromkeys(tables["threshold"], "0.0")
        found = sonic.read_optic(*(str(tables[n]) for n in ("info", "sensor", "threshold")))
    assert found is not None
    return found


def _build_day(entry: Mapping[str, Any], optic: OpticReading, number: int) -> Day:
    names = ("rx_dbm", "tx_dbm", "bias_ma")
    values = {q: v for q in names if (v := optic.get_worst(q)) is not None}
    changing = max(0, number - 9)
    if "rx_dbm" in values:
        values["rx_dbm"] += entry.get("swing_db", 0.0) * sin(number * 0.9)
        values["rx_dbm"] -= entry.get("fall_db", 0.0) * changing
        if entry.get("gone") and number >= DAYS - 2:
            values["rx_dbm"] = DARK_DBM
    if "bias_ma" in values:
        values["bias_ma"] *= 1 + entry.get("bias_share", 0.0) * changing
    limits = optic.limits.get("rx_dbm")
    return Day(
        day=BEGAN + timedelta(days=number),
        values=values,
        serial=optic.serial,
        kind=optic.kind,
        low_alarm_dbm=None if limits is None else limits.low_alarm,
        up=entry["up"],
    )


def _judge_queue(entry: Mapping[str, Any]) -> Said:
    looks = _build_looks(entry)
    quiet = [
        Counters(
            at=LOOK_S * n, values={"pause_received": 10 * n, "discards": n, "out_of_buffer": n}
        )
        for n in range(len(looks))
    ]
    fleet = {(f"n{n:02d}", "port"): quiet for n in range(12)} | {("host", "port"): looks}
    rates = {key: rate for key, each in fleet.items() if (rate := per_second(each))}
    found = [*find_slow_receivers(fleet).items(), *find_rocet_outliers(rates).items()]
    said = {f.id for f in held_by_watchdog("port", looks)}
    said |= {f.id if node == "host" else f"{f.id} of another" for node, own in found for f in own}
    return entry, frozenset(entry["says"]), frozenset(said)


def _build_looks(entry: Mapping[str, Any]) -> list[Counters]:
    rows = entry.get("host") or entry.get("sonic") or entry["nvue"]
    rows = [*rows, *[rows[-1]] * (entry.get("stands", 1) - 1)]
    reads = {"host": _read_host, "sonic": _read_sonic, "nvue": _read_nvue}
    read = next(each for kind, each in reads.items() if kind in entry)
    if "grows" in entry:
        ports = [{n: str(more * k) for n, more in entry["grows"].items()} for k in range(3)]
        rows = [{"port": {**rows[0]["port"], **grown}} for grown in ports]
    return [Counters(at=LOOK_S * n, values=read(row)) for n, row in enumerate(rows)]


def _read_host(row: Mapping[str, Any]) -> dict[str, int]:
    """As exporters tell the counters of a card (/sys/class/infiniband/*/ports/1/hw_counters)."""
    return {name: int(value) for name, value in row["port"].items()}


def _read_sonic(row: Mapping[str, Any]) -> dict[str, int]:
    status, storms = row.get("queue", (None, 0))
    told = {"SAI_QUEUE_STAT_PACKETS": "1"} | (
        {"PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED": str(storms)} if "queue" in row else {}
    )
    told |= {"PFC_WD_STATUS": status} if status else {}
    return sonic.read_queues(str(dict(row.get("port", {}))), [str(told)])


def _read_nvue(row: Mapping[str, Any]) -> dict[str, int]:
    pfc = {
        str(n): {"rx-pause-frames": rx, "tx-pause-frames": tx}
        for n, (rx, tx) in row.get("pfc", {}).items()
    }
    status = {
        str(n): {"status": word, "deadlock-count": count}
        for n, (word, count) in row.get("status", {}).items()
    }
    watchdog = {"state": row.get("state", "enabled"), "status": status}
    return cumulus.read_queues({"pfc-stats": pfc}, watchdog)


def _judge_log(entry: Mapping[str, Any]) -> Said:
    wanted = Wanted(rails_apart=True)
    words = [f.detail for f in find_faults(read_log([entry["log"].encode()]), wanted)]
    label = frozenset(entry["faults"])
    # a fault is told by its label's words; one that has none is an accusation of its own
    said = {next((f for f in label if f in w), w) for w in words}
    return entry, label, frozenset(said)


def _judge_training(entry: Mapping[str, Any]) -> Said:
    if "file" in entry:
        text = (TRAINING / f"{entry['file']}.txt").read_text(encoding="utf-8")
    else:
        text = print_training([(n, 2, frozenset({entry["faults"].get(n, "")})) for n in NODES])
    found = judge_training(read_training(text), CheckContext(gpu_model="H100"), NODES, None)
    said = {f.part for f in (*found.wrong, *found.slow) if f.part in NODES}
    return entry, frozenset(entry["wrong"]), frozenset(said)


def describe(said: Said) -> str:
    entry, label, found = said
    return f"{entry['id']}: said {json.dumps(sorted(found))}, labelled {json.dumps(sorted(label))}"
