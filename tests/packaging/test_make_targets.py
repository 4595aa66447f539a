"""Every target of `make help` is started once in a fresh clone: it works, or says what it wants.

A target that has much to do is ended after a while: by then its modules were found, its tools were
called, and nothing ended in a traceback. New targets are started without a change here.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
BENCHES = sorted(p.stem[6:].replace("_", "-") for p in ROOT.glob("tests/bench/bench_*.py"))
SOAKS = re.findall(r"^SOAK_([a-z-]+) :=", MAKEFILE, flags=re.MULTILINE)
TARGETS = [
    *re.findall(r"^([a-z-]+):.*##", MAKEFILE, flags=re.MULTILINE),
    *(f"bench {name}" for name in BENCHES),
    *(f"soak {name}" for name in SOAKS),
]
TRIED_S = 45.0
SETUP_S = 900.0
NONE_OF_THEM = "ARGS=-q --collect-only -k no_test_has_this_name"


@dataclass(frozen=True)
class Case:
    """How a target is started, and how it may end: 0 always, and a refusal with these words."""

    words: tuple[str, ...] = ()
    refuses: str = ""  # what it says where something is wanting that a bare clone has not


COLLECTS = Case((NONE_OF_THEM,))
NETWORK = "(?i)error|failed"  # a package registry that cannot be reached, in its client's words
CASES = {
    **dict.fromkeys(("test", "test-all", "test-long", "tutorial", "test-ha"), COLLECTS),
    "soak upgrades": COLLECTS,
    "soak simulation": Case(("SEEDS=1",)),
    "help": Case(),
    "conformance": Case(refuses="error: no folder of schemas"),
    "acceptance": Case(refuses="error: no folder of the suite"),
    "acceptance-counterproofs": Case(refuses="error: no folder of the suite"),
    "acceptance-ironic": Case(refuses="error: no folder of the suite"),
    "test-netbox": Case(refuses="python3.12|error|skipped"),
    "image": Case(refuses="error:"),
    "image-test": Case(refuses="error:"),
    "vm-test": Case(refuses="error:"),
    "bench ansible": Case(("ARGS=--hosts 2",), refuses="(?i)error|root"),
    "audit": Case(refuses=NETWORK),
    "bench fleet-up": Case(("ARGS=--hosts 4",)),
    "bench console": Case(("ARGS=64",)),
    "bench rack-up": Case(("ARGS=--racks 1",)),
    "screenshots": Case(),
    "soak fuzz": Case(("SECONDS=5",), refuses=NETWORK),
    **dict.fromkeys(
        ("lock", "chart-lock", "terraform-lock", "client-lock", "fuzz-lock", "image-lock"),
        Case(refuses=NETWORK),
    ),
}
pytestmark = pytest.mark.long


@dataclass(frozen=True)
class Ended:
    """What a target said, and its exit code; None: it was at work still."""

    said: str
    code: int | None


def start(clone: Path, target: str, words: tuple[str, ...], limit_s: float) -> Ended:
    """Start a target in its own session, and end all of it after a while."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "MAKE"))}
    environment.pop("PYTHONPATH", None)  # pytest's own finds modules that a program has to find
    said = clone.parent / f"{target}.said"
    with said.open("wb") as log:
        process = subprocess.Popen(
            ["make", target, *words],
            cwd=clone,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        code: int | None = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        code = None
    text = said.read_text(
        encoding="utf-8", errors="replace"
    )  # without what our signal makes it say
    for number in (signal.SIGINT, signal.SIGKILL) if code is None else ():
        os.killpg(process.pid, number)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            continue
        break
    return Ended(text, code)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of the last commit, with an environment of its own and nothing built."""
    folder = tmp_path_factory.mktemp("fresh") / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
    ended = start(folder, "setup", (f"PYTHON={sys.base_prefix}/bin/python3.11",), SETUP_S)
    if ended.code != 0:
        pytest.skip(f"needs a package index: {ended.said[-300:]}")
    return folder


@pytest.mark.parametrize("target", [t for t in TARGETS if t not in {"clean", "setup"}])
def test_the_target_works_in_a_fresh_clone_or_says_what_it_wants(clone: Path, target: str):
    case = CASES.get(target, Case())

    name, _, of_many = target.partition(" ")
    words = (f"NAME={of_many}", *case.words) if of_many else case.words

    ended = start(clone, name, words, TRIED_S)

    last = ended.said[-3000:]
    assert "Traceback (most recent call last)" not in ended.said, last
    collected_none = case is COLLECTS and re.search("deselected|no tests ran", last)
    refused = case.refuses and re.search(case.refuses, last)
    measured = target.startswith("bench") and re.search(r"^\{.*\}$", last, re.MULTILINE)
    # a figure that was missed on a busy machine ends a benchmark with 1, after its line
    assert ended.code in {0, None} or collected_none or refused or measured, last
    assert ended.code is None or ended.said.strip(), "it said nothing"


def test_clean_takes_away_what_was_made(clone: Path):
    ended = start(clone, "clean", (), SETUP_S)

    assert ended.code == 0, ended.said
    assert not (clone / ".venv").exists()
    assert not (clone / "build").exists()


def test_each_case_is_a_target_that_is_listed():
    assert set(CASES) - set(TARGETS) == set()
    assert len(TARGETS) > 60
