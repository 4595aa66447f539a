"""One attempt on a judge or a parser from arbitrary bytes: no crash, and no pass from garbage.

The first bytes choose what is attempted, the rest is what it reads. Hypothesis runs attempts in
CI, atheris for as long as one likes (`make soak NAME=fuzz`); both begin with the recorded outputs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from feeding import Parser
from registry import PARSERS

from provisioner import checks
from provisioner.checks.check import BEFORE, Check, CheckContext
from provisioner.model.cohort import Evidence, Verdict

HERE = Path(__file__).resolve().parents[1]
ROOT = HERE / "golden" / "checks"
SAMPLES = Path(os.environ.get("PROVISIONER_SAMPLES", HERE.parents[1] / "shared" / "samples"))
SAMPLE_BYTES_MAX = 100_000
CONTEXT = CheckContext.model_validate_json((ROOT / "context.json").read_text())
LINES = {c.name: c.line for check in checks.ALL for c in check.commands}


def _recorded(case: Path) -> dict[str, str]:
    return {file.stem: file.read_text() for file in sorted(case.glob("*.txt"))}


GOOD: Mapping[str, Mapping[str, str]] = {
    check.name: _recorded(ROOT / check.name / "good") for check in checks.ALL
}
# no honest output is shorter than a quarter of the shortest good one that is recorded
SHORTEST = {
    check.name: min(sum(map(len, _recorded(c).values())) for c in ROOT.glob(f"{check.name}/good*"))
    for check in checks.ALL
}


# the beginning of a kernel log is a kernel log: one message is as honest as a thousand
ANY_LENGTH = frozenset({"kernel_log"})
HEAD = 4  # bytes: what is attempted (two), how, where


class PassFromGarbage(AssertionError):
    """A judge passed what no tool would print."""


def attempt(data: bytes) -> None:
    """Judge or parse what these bytes say. Raises for a crash or for a pass from garbage."""
    if len(data) < HEAD:
        return
    which = int.from_bytes(data[:2], "big") % (len(checks.ALL) + len(PARSERS))
    how, at = data[2:HEAD]
    if which < len(checks.ALL):
        _judge(checks.ALL[which], how, at, data[HEAD:].decode("utf-8", errors="replace"))
    else:
        promised(PARSERS[which - len(checks.ALL)], data[HEAD:], how)


def make_head(which: int, how: int, at: int) -> bytes:
    """Return the bytes that choose an attempt."""
    return which.to_bytes(2, "big") + bytes((how, at))


def promised(parser: Parser, data: bytes, how: int) -> None:
    """Feed a parser. Raises whatever it did not promise to raise."""
    try:
        parser.feed(data, how)
    except parser.may_raise:
        return


def _judge(check: Check, how: int, at: int, text: str) -> None:
    """`how` 0: every output is the text; 1: the text stands in a good one; 2, 3: it did not end."""
    good = GOOD[check.name]
    names = [name for name in good if not name.endswith(BEFORE)]
    texts = dict(good)
    if how % 4 == 1:
        name = names[at % len(names)]
        place = len(good[name]) * at // 256
        texts[name] = good[name][:place] + text + good[name][place + len(text) :]
    else:
        texts = dict.fromkeys(good, text)
    evidence = {
        name: Evidence(
            source=LINES[name.removesuffix(BEFORE)],
            exit_code=None if how % 4 == 2 else 0,
            text=said,
            truncated=how % 4 == 3,
        )
        for name, said in texts.items()
    }
    result = check.judge(evidence, CONTEXT)
    if (result.verdict is Verdict.PASS) != (not result.findings):
        raise AssertionError(f"{check.name}: {result.verdict} with {len(result.findings)} findings")
    if result.verdict is not Verdict.PASS:
        return
    short = sum(map(len, texts.values())) < SHORTEST[check.name] / 4
    if how % 4 in (2, 3) or (short and check.name not in ANY_LENGTH):
        raise PassFromGarbage(f"{check.name}: {text[:200]!r}")


def seeds() -> Iterator[bytes]:
    """Every recorded output, and every sample where somebody has them, for its check."""
    for number, check in enumerate(checks.ALL):
        for file in sorted(ROOT.glob(f"{check.name}/*/*.txt")):
            yield make_head(number, 0, 0) + file.read_bytes()
            yield make_head(number, 1, 128) + file.read_bytes()[:40]
    whole = {name: {"source": name, "exit_code": 0, "text": "x"} for name in ("gpus", "nccl")}
    for which in range(len(checks.ALL), len(checks.ALL) + len(PARSERS)):
        yield make_head(which, 0, 0) + json.dumps(whole).encode()
        yield make_head(which, 1, 0) + bytes(
            (130, 3, 0, 1, 140, 1, 0, 2, 70, 0, 3, 0, 4, 200, 2, 70)
        )
        yield make_head(which, 0, 0) + b"all_reduce_gb_s:\n  H100: {value: 1, source: x}\n"
    for file in sorted(SAMPLES.rglob("*")) if SAMPLES.is_dir() else ():
        if file.is_file() and file.stat().st_size <= SAMPLE_BYTES_MAX:
            for number in range(0, len(checks.ALL), 8):  # some: the fuzzer tries the others
                yield make_head(number, 0, 0) + file.read_bytes()
