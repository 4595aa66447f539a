"""A training step over some nodes: its bits, its times, and who is wrong or slow.

Wrong arithmetic shows as NaN in one of a hundred outcomes only, so bits are compared: with the
other ranks of the run, which compute the same, and with what the fleet computed with the same
versions. The workload is `ansible/roles/checks/files/training_step.py`; it says what it runs.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Annotated

from pydantic import Field, ValidationError

from provisioner.checks.check import Check, CheckContext, Command, NotJudged, Unreadable, fault
from provisioner.checks.fabric.fabric_workloads import TRAINING_PATH
from provisioner.checks.readers.tool_output import read_output
from provisioner.checks.thresholds import check_threshold, require_threshold
from provisioner.model.base import Record
from provisioner.model.cohort import Evidence, Finding, Gate, Sample, Severity

COMMAND = Command(
    name="training_step", line=f"mpirun (all GPUs) python3 {TRAINING_PATH}", limit_s=600.0
)
ALONE = "training_alone"  # measured: what all ranks computed, as a number of 48 bits
CURVE = "training_curve"
AGREE_NODES = 3  # that computed the same: fewer are no reference
AGREE_SHARE = 0.9
ALIKE_NODES = 2  # of one run, whose GPUs computed the same: it shows more than one node alone
_RANKS_MAX = 4096
_COMPARED_MIN = 3  # ranks whose times are compared with one another
_LISTED_MAX = 4

_Ms = Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)]
_Hex = Annotated[str, Field(pattern=r"^[0-9a-f]{8,16}$")]
_Sums = Annotated[tuple[_Hex, ...], Field(min_length=3, max_length=256)]
_Times = Annotated[tuple[_Ms, ...], Field(min_length=3, max_length=256)]


class Begun(Record):
    """What a rank says before it computes."""

    rank: int = Field(ge=0, lt=_RANKS_MAX)
    ranks: int = Field(ge=1, le=_RANKS_MAX)
    host: str = Field(max_length=253)
    key: dict[str, str | int] = Field(max_length=16)  # what its bits depend on
    backend: str = Field(max_length=32)
    began: bool


class Done(Record):
    """What a rank did. `alone`: loss and weights of each step, both in hex."""

    rank: int = Field(ge=0, lt=_RANKS_MAX)
    ranks: int = Field(ge=1, le=_RANKS_MAX)
    host: str = Field(max_length=253)
    alone: _Sums
    alone_ms: _Times
    curve: _Sums  # the mean loss of all ranks
    sums: _Sums  # of the weights that all ranks share
    step_ms: _Times
    comm_ms: _Ms
    receive_ms: dict[int, _Ms] = Field(max_length=8)  # distance in ranks -> time of a block
    ended: bool


class TrainingRun(Record):
    """A run as its ranks printed it; `damaged`: lines that are cut, mixed or no such line."""

    begun: Mapping[int, Begun]
    done: Mapping[int, Done]
    damaged: int = 0
    missing: str = ""  # what a host lacks to run it

    def name_key(self, rank: int) -> str:
        """Return twelve hex digits for what the bits of a rank depend on."""
        text = json.dumps(self.begun[rank].key, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def on_gpus(self) -> bool:
        return all("cuda" in b.key for b in self.begun.values())


def read_training(text: str) -> TrainingRun:
    """Read all ranks' lines, in whatever order; what its CRC does not prove counts as damaged."""
    begun: dict[int, Begun] = {}
    done: dict[int, Done] = {}
    damaged = 0
    missing = ""
    for line in text.splitlines():
        if "TRAINING" not in line:
            continue
        body = _read_body(line)
        try:
            if body is None:
                damaged += 1
            elif "missing" in body:
                missing = missing or str(body["missing"])[:200]
            elif "ended" in body:
                one = Done.model_validate(body)
                damaged += one.rank in done
                done[one.rank] = one
            else:
                first = Begun.model_validate(body)
                damaged += first.rank in begun
                begun[first.rank] = first
        except ValidationError:
            damaged += 1
    return TrainingRun(begun=begun, done=done, damaged=damaged, missing=missing)


def _read_body(line: str) -> dict[str, object] | None:
    word, _, rest = line.partition(" ")
    text, _, code = rest.rpartition(" ")
    if word != "TRAINING" or f"{zlib.crc32(text.encode()):08x}" != code.strip():
        return None
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


class Judged(Record):
    """What a run shows. `wrong`: bits, never outweighed; `slow`: times; both by node."""

    wrong: tuple[Finding, ...] = ()
    slow: tuple[Finding, ...] = ()
    unknown: tuple[str, ...] = ()
    measured: Mapping[str, float] = Field(default_factory=dict)
    words: str = ""


def judge_training(
    run: TrainingRun, context: CheckContext, nodes: Sequence[str] = (), ranks: int | None = None
) -> Judged:
    """Judge a run. `nodes`: in the order of ranks; (): by the hosts' own names.

    `context.training` has what the fleet computed (`learn_references`).
    """
    unknown = _list_unknown(run, nodes, ranks)
    if not run.done or set(run.done) - set(run.begun):
        return Judged(unknown=tuple(unknown))
    where = _place_ranks(run, nodes)
    wrong = list(_judge_alone(run, where, context))
    if len({run.name_key(rank) for rank in run.done}) == 1:
        wrong += _judge_curve(run, where, context)
    if not unknown and not wrong and not _is_proved(run, where, context):
        unknown.append(
            f"nothing to compare its bits with: the fleet has none of these versions, and fewer"
            f" than {ALIKE_NODES} nodes computed them here"
        )
    slow = list(_judge_times(run, where, context)) if not unknown else []
    measured = {} if unknown or wrong else _measure_run(run, len(set(where.values())))
    return Judged(
        wrong=tuple(wrong),
        slow=tuple(slow),
        unknown=tuple(unknown),
        measured=measured,
        words=_describe(run),
    )


def _list_unknown(run: TrainingRun, nodes: Sequence[str], ranks: int | None) -> list[str]:
    unknown = [f"not installed: {run.missing}"] if run.missing else []
    unknown += [f"{run.damaged} lines are cut or mixed with others"] if run.damaged else []
    sizes = {b.ranks for b in run.begun.values()} | {d.ranks for d in run.done.values()}
    if len(sizes) != 1:
        return [*unknown, f"its ranks name {len(sizes)} sizes of the run"]
    size = sizes.pop()
    if ranks is not None and size != ranks:
        unknown.append(f"it has {size} ranks, {ranks} were started")
    if nodes and size % len(nodes):
        unknown.append(f"{size} ranks are not the same number on each of {len(nodes)} nodes")
    for words, seen in (("began", set(run.begun)), ("ended", set(run.done))):
        lost = sorted(set(range(size)) - seen)
        unknown += [f"no line says that rank {_list(lost)} {words}"] if lost else []
    if len({run.name_key(n) for n in run.begun}) > 1:
        keys = sorted({k for b in run.begun.values() for k in b.key})
        shown = {k: {str(b.key.get(k)) for b in run.begun.values()} for k in keys}
        differ = [f"{k} {' and '.join(sorted(v)[:3])}" for k, v in shown.items() if len(v) > 1]
        unknown.append(f"its ranks run different things: {_list(differ)}")
    lengths = {(len(d.alone), len(d.curve), len(d.sums)) for d in run.done.values()}
    unknown += ["its ranks made different numbers of steps"] if len(lengths) > 1 else []
    if nodes and not unknown:
        each = size // len(nodes)
        spans = [range(n * each, n * each + each) for n in range(len(nodes))]
        hosts = [{run.done[rank].host for rank in span} for span in spans]
        if any(len(h) != 1 for h in hosts):
            unknown.append("its ranks are not placed node by node: no rank has a known node")
    return unknown


def _place_ranks(run: TrainingRun, nodes: Sequence[str]) -> dict[int, str]:
    """Return rank -> node."""
    size = max(d.ranks for d in run.done.values())
    each = max(1, size // len(nodes)) if nodes else 1
    return {
        r: nodes[min(r // each, len(nodes) - 1)] if nodes else d.host for r, d in run.done.items()
    }


def _judge_alone(
    run: TrainingRun, where: Mapping[int, str], context: CheckContext
) -> Iterator[Finding]:
    """Yield the ranks that computed something else than all others, or than the fleet."""
    by_key: dict[str, list[int]] = defaultdict(list)
    for rank in sorted(run.done):
        by_key[run.name_key(rank)].append(rank)
    for key, ranks in by_key.items():
        known = context.training.get(f"{ALONE}/{key}")
        usual = _find_usual([(run.done[r].alone, where[r]) for r in ranks])
        if known is not None:
            good = [r for r in ranks if _number(run.done[r].alone) == known]
            usual = run.done[good[0]].alone if good else usual
            if not good:
                detail = "all ranks computed the same bits, which differ from the fleet's"
                if len({run.done[r].alone for r in ranks}) > 1:
                    detail = "no rank computed the bits of the fleet"
                yield fault(
                    "fabric",
                    Severity.ISOLATE,
                    detail,
                    _number(run.done[ranks[0]].alone),
                    f"{known:.0f}",
                )
        if usual is None:
            if len({run.done[r].alone for r in ranks}) > 1:
                detail = "ranks computed different bits, and no majority says which are right"
                yield fault("fabric", Severity.ISOLATE, detail)
            continue
        for rank in ranks:
            own = run.done[rank].alone
            if own != usual:
                pairs = enumerate(zip(own, usual, strict=False))
                step = next((n for n, (a, b) in pairs if a != b), 0)
                detail = f"{_gpu(run, rank)} computes wrong bits from step {step + 1} on"
                yield fault(where[rank], Severity.ISOLATE, detail, own[step], usual[step])


def _find_usual(computed: Sequence[tuple[tuple[str, ...], str]]) -> tuple[str, ...] | None:
    """Return what more than half of the ranks computed, on two nodes where there are several."""
    if not computed:
        return None
    value, count = Counter(bits for bits, _ in computed).most_common(1)[0]
    nodes = {node for bits, node in computed if bits == value}
    enough = len(nodes) >= 2 or len({node for _, node in computed}) == 1  # of one node: its GPUs
    return value if enough and count * 2 > len(computed) else None


def _judge_curve(
    run: TrainingRun, where: Mapping[int, str], context: CheckContext
) -> Iterator[Finding]:
    """Yield what is wrong with the training over all ranks."""
    one = run.done[min(run.done)]
    losses = [struct.unpack(">d", bytes.fromhex(c))[0] for c in one.curve if len(c) == 16]
    if len(losses) != len(one.curve) or not all(math.isfinite(x) for x in losses):
        yield fault("fabric", Severity.ISOLATE, "the loss is not a number at a step")
    elif not losses[-1] < losses[0]:
        detail = "the loss does not fall"
        yield fault("fabric", Severity.ISOLATE, detail, losses[-1], f"below {losses[0]:.6g}")
    both = {r: (*d.curve, *d.sums) for r, d in run.done.items()}
    if len(set(both.values())) > 1:
        usual = _find_usual([(bits, where[r]) for r, bits in both.items()])
        for rank, bits in both.items():
            if usual is not None and bits != usual:
                detail = f"{_gpu(run, rank)} has other weights after summing than the others"
                yield fault(where[rank], Severity.ISOLATE, detail)
        if usual is None:
            detail = "ranks have different weights after summing, and no majority says whose"
            yield fault("fabric", Severity.ISOLATE, detail)
        return
    known = context.training.get(_name_curve(run))
    if known is not None and _number(both[one.rank]) != known:
        detail = "the loss curve differs from the fleet's with the same versions"
        yield fault("fabric", Severity.ISOLATE, detail, _number(both[one.rank]), f"{known:.0f}")


def _is_proved(run: TrainingRun, where: Mapping[int, str], context: CheckContext) -> bool:
    known = f"{ALONE}/{run.name_key(min(run.begun))}" in context.training
    return known or len(set(where.values())) >= ALIKE_NODES


def _judge_times(
    run: TrainingRun, where: Mapping[int, str], context: CheckContext
) -> Iterator[Finding]:
    """Yield slow GPUs and slow receivers by node, then what only the whole run shows."""
    if not run.on_gpus:
        yield fault("fabric", Severity.CONFIG, "it ran without GPUs", "gloo", "nccl")
        return
    slow = require_threshold(context, "training_slow_percent")
    own = {r: median(d.alone_ms) for r, d in run.done.items()}
    for rank, over in _find_late(own, slow):
        detail = f"{_gpu(run, rank)} computes slower than the others"
        yield fault(where[rank], Severity.ISOLATE, detail, f"+{over:.0f} %", f"up to {slow:g} %")
    limit = require_threshold(context, "training_receive_percent")
    for rank, over in _find_receivers(run, limit):
        detail = f"{_gpu(run, rank)} receives slower than the others, from whoever sends"
        yield fault(where[rank], Severity.ISOLATE, detail, f"+{over:.0f} %", f"up to {limit:g} %")
    jitter = _jitter(run)
    missed = check_threshold(context, "training_jitter_percent", jitter)
    if missed is not None:
        yield fault("fabric", Severity.ISOLATE, "the time of a step varies", *missed)
    try:
        missed = check_threshold(context, "training_step_ms", _step_ms(run))
    except NotJudged:
        return  # no reference of the release or the fleet yet
    if missed is not None:
        yield fault("fabric", Severity.ISOLATE, "a step takes longer than it should", *missed)


def _find_late(times: Mapping[int, float], limit: float) -> Iterator[tuple[int, float]]:
    usual = median(times.values())
    if len(times) < _COMPARED_MIN or usual <= 0:
        return
    for rank, value in times.items():
        over = (value / usual - 1) * 100
        if over > limit:
            yield rank, over


def _find_receivers(run: TrainingRun, limit: float) -> Iterator[tuple[int, float]]:
    """Yield who is late at every distance; with one distance the sender may be at fault."""
    distances = sorted(set.intersection(*(set(d.receive_ms) for d in run.done.values())))
    if len(distances) < 2:
        return
    late = [
        dict(_find_late({r: d.receive_ms[n] for r, d in run.done.items()}, limit))
        for n in distances
    ]
    for rank in sorted(set.intersection(*(set(found) for found in late))):
        yield rank, min(found[rank] for found in late)


def _list_steps(run: TrainingRun) -> list[float]:
    """Return the time of each step: the slowest rank decides it."""
    columns = zip(*(d.step_ms for d in run.done.values()), strict=False)
    return [max(column) for column in columns]


def _step_ms(run: TrainingRun) -> float:
    return float(median(_list_steps(run)))


def _jitter(run: TrainingRun) -> float:
    steps = sorted(_list_steps(run))
    usual = median(steps)
    high = steps[math.ceil(len(steps) * 0.9) - 1]
    return (high / usual - 1) * 100 if usual > 0 else 0.0


def _overlap(run: TrainingRun) -> float | None:
    """Return the percentage of the shorter of computing and communicating that was hidden."""
    compute = max(median(d.alone_ms) for d in run.done.values())
    comm = max(d.comm_ms for d in run.done.values())
    shorter = min(compute, comm)
    if shorter <= 0:
        return None
    return min(100.0, max(0.0, (compute + comm - _step_ms(run)) / shorter * 100))


def _measure_run(run: TrainingRun, nodes: int) -> dict[str, float]:
    one = run.done[min(run.done)]
    among = f"{nodes} nodes"
    overlap = _overlap(run)
    more = {} if overlap is None else {f"training_overlap_percent/{among}": overlap}
    received = [ms for d in run.done.values() for ms in d.receive_ms.values()]
    # between two nodes nobody can say who is late: their cohort shows it
    more |= {f"training_receive_ms/{among}": max(received)} if received else {}
    times = {
        f"training_step_ms/{among}": _step_ms(run),
        f"training_jitter_percent/{among}": _jitter(run),
        **more,
    }
    return {
        f"{ALONE}/{run.name_key(one.rank)}": float(_number(one.alone)),
        _name_curve(run): float(_number((*one.curve, *one.sums))),
        **(times if run.on_gpus else {}),
    }


def learn_references(samples: Iterable[Sample]) -> dict[str, float]:
    """Return what the fleet computed, where enough sound nodes did and nearly all agree.

    A name that they dispute is no reference: neither side of it is known to be right.
    """
    computed: dict[str, dict[str, float]] = defaultdict(dict)
    for sample in samples:
        for name, value in sample.measured.items():
            if sample.sound and name.startswith((f"{ALONE}/", f"{CURVE}/")):
                computed[name].setdefault(sample.node, value)
    agreed = {}
    for name, by_node in computed.items():
        value, count = Counter(by_node.values()).most_common(1)[0]
        if count >= AGREE_NODES and count >= AGREE_SHARE * len(by_node):
            agreed[name] = value
    return agreed


def _name_curve(run: TrainingRun) -> str:
    rank = min(run.done)
    return f"{CURVE}/{run.name_key(rank)} of {run.done[rank].ranks} ranks"


def _number(bits: Sequence[str]) -> int:
    """Return 48 bits of a checksum: a float holds them exactly."""
    return int(hashlib.sha256(" ".join(bits).encode()).hexdigest()[:12], 16)


def _gpu(run: TrainingRun, rank: int) -> str:
    host = run.done[rank].host
    first = min(r for r, d in run.done.items() if d.host == host)
    return f"GPU {rank - first} (rank {rank})" if run.on_gpus else f"rank {rank}"


def _describe(run: TrainingRun) -> str:
    one = run.begun[min(run.begun)]
    overlap = _overlap(run)
    hidden = "" if overlap is None else f", {overlap:.0f} % of communication hidden"
    by = "PyTorch" if "torch" in one.key else "cuBLAS"
    version = one.key.get(by.lower().removeprefix("py"))
    return (
        f"training step on {one.key.get('device', 'unknown')}, {by} {version},"
        f" {one.ranks} ranks: {_step_ms(run):.1f} ms{hidden}"
    )


def _list(values: Iterable[object]) -> str:
    listed = [str(v) for v in values]
    more = f" and {len(listed) - _LISTED_MAX} more" if len(listed) > _LISTED_MAX else ""
    return ", ".join(listed[:_LISTED_MAX]) + more


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    judged = _judge(evidence, context)
    yield from (*judged.wrong, *judged.slow)
    if judged.unknown:
        raise Unreadable(f"the training step is unknown: {_list(judged.unknown)}")


def _judge(evidence: Mapping[str, Evidence], context: CheckContext) -> Judged:
    run = read_training(read_output(evidence, COMMAND, any_exit=True))
    if not run.begun and not run.missing:
        raise Unreadable("no rank of the training step printed its line")
    return judge_training(run, context)


CHECK = Check(
    "training_step",
    Gate.C,
    (COMMAND,),
    _findings,
    load=True,
    measure=lambda e, c: _judge(e, c).measured,
    thresholds=(
        "training_step_ms",
        "training_slow_percent",
        "training_receive_percent",
        "training_jitter_percent",
    ),
)
