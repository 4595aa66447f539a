"""Judges the mutants of one row of the table: which of its tests notices which of them.

pytest collects the row's tests once. Then this process forks: one child runs them all on the code
as it is and writes down which test runs which line; afterwards one child for each mutant puts the
changed code in place and runs the tests that come to the changed statement until one fails: first
those that fail soonest for their time, by what they did with other mutants of the function. A
child's limits are CPU time and, far behind it, time of the wall, both in relation to
what the test took on the code as it is.
"""

from __future__ import annotations

import ast
import functools
import gc
import importlib
import inspect
import json
import os
import pickle
import resource
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, NoReturn

import pytest
from mutations import Constant, Function, Mutant, mutate

KILLED, SURVIVED, OUT_OF_TIME, NOT_RUN = "killed", "survived", "out of time", "not run"
CPU_LIMIT_S, CPU_LIMIT_PART = 1.0, 6.0  # of one test: this, and so many times what it took
WALL_LIMIT_S, WALL_LIMIT_PART = 20.0, 30.0  # one that waits for ever; the machine may be busy
MEMORY_LIMIT = 8 << 30  # bytes; an endless loop may gather something
_FAILED, _PASSED, _BROKEN = 1, 0, 9
_NONE = b"%8d" % -1


class Target:
    """One function of the product, and how to put another code into it."""

    def __init__(self, name: str, module: ModuleType, tree: ast.Module, node: Function) -> None:
        self.name = name
        self.module = module
        self._tree = tree
        self._node = node
        self._function = _live_function(module, name.partition(":")[2])
        self.codes = frozenset(_all_codes(self._function.__code__))

    def mutants(self) -> Iterator[Mutant]:
        """Every mutant of it, in the order of the source."""
        yield from mutate(self._tree, self.name, self._node, vars(self.module))

    def is_concerned(self, mutant: Mutant, file: str, line: int) -> bool:
        """Whether a test that runs this line comes to the change."""
        return file == str(self.module.__file__) and line in mutant.lines

    def prepare(self, mutant: Mutant) -> Callable[[], None]:
        """What puts the change in place."""
        whole = compile(mutant.build(), str(self.module.__file__), "exec", dont_inherit=True)
        old = self._function.__code__
        for code in _all_codes(whole):
            if (code.co_qualname, code.co_firstlineno) == (old.co_qualname, old.co_firstlineno):
                return functools.partial(setattr, self._function, "__code__", code)
        raise LookupError(f"no {self.name} in the changed module")


class ConstantTarget:
    """One constant of a module, which the module's own functions look up when they run.

    What another module has imported by name stays as it is.
    """

    def __init__(self, name: str, module: ModuleType, tree: ast.Module, node: Constant) -> None:
        self.name = name
        self.module = module
        self._tree = tree
        self._node = node
        word = name.partition(":")[2]
        functions = [_live_function(module, n) for n, _ in _functions(tree)]
        readers = [f.__code__ for f in functions if _reads(f.__code__, word)]
        self.codes = frozenset(inner for code in readers for inner in _all_codes(code))
        self._lines = {n for code in self.codes for _, _, n in code.co_lines() if n}

    def mutants(self) -> Iterator[Mutant]:
        """Every mutant of it, in the order of the source."""
        if self.codes:
            yield from mutate(self._tree, self.name, self._node, vars(self.module))

    def is_concerned(self, _mutant: Mutant, file: str, line: int) -> bool:
        """Whether a test that runs this line runs a function that reads the constant."""
        return file == str(self.module.__file__) and line in self._lines

    def prepare(self, mutant: Mutant) -> Callable[[], None]:
        """What puts the change in place."""
        changed = next(
            n
            for n in mutant.build().body
            if isinstance(n, type(self._node)) and n.lineno == self._node.lineno
        )
        code = compile(ast.Module([changed], []), str(self.module.__file__), "exec")
        return functools.partial(exec, code, vars(self.module))


AnyTarget = Target | ConstantTarget


def _reads(code: CodeType, word: str) -> bool:
    return any(word in inner.co_names for inner in _all_codes(code))


def find_targets(patterns: Sequence[str]) -> list[AnyTarget]:
    """What patterns name: "module:function", "module:Class.*", "module:CONSTANT", "module:*"."""
    targets: dict[str, AnyTarget] = {}
    for pattern in patterns:
        place, _, wanted = pattern.partition(":")
        module = importlib.import_module(place)
        tree = ast.parse(Path(str(module.__file__)).read_text())
        before = len(targets)
        for name, node in (*_constants(tree), *_functions(tree)):
            if name == wanted or (wanted.endswith("*") and name.startswith(wanted[:-1])):
                full = f"{place}:{name}"
                if isinstance(node, Function):
                    targets[full] = Target(full, module, tree, node)
                else:
                    targets[full] = ConstantTarget(full, module, tree, node)
        if len(targets) == before:
            raise LookupError(f"the table names {pattern}, which does not exist")
    return list(targets.values())


def _constants(tree: ast.Module) -> Iterator[tuple[str, Constant]]:
    for node in tree.body:
        match node:
            case ast.Assign([ast.Name(name)]) | ast.AnnAssign(ast.Name(name), value=ast.expr()):
                yield name, node


def _functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """Functions of a module and methods of its classes, but for those without a body."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef) and not _is_protocol(node):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{node.name}.{inner.name}", inner


def _is_protocol(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)


def _live_function(module: ModuleType, name: str) -> FunctionType:
    """The function itself, from behind properties and decorators."""
    owner, _, last = name.rpartition(".")
    holder: Any = getattr(module, owner) if owner else module
    found: Any = inspect.getattr_static(holder, last)
    if isinstance(found, property):
        found = found.fget
    elif isinstance(found, staticmethod | classmethod):
        found = found.__func__
    elif isinstance(found, functools.cached_property):
        found = found.func
    found = inspect.unwrap(found)
    assert isinstance(found, FunctionType), name
    return found


def _all_codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _all_codes(inner)


@dataclass(frozen=True)
class Choice:
    """Which mutants of a row are judged: by a part of the name, by whole names, every n-th."""

    only: str = ""
    names: Sequence[str] | None = None
    every: int = 1

    def includes(self, number: int, name: str) -> bool:
        """Return whether the mutant with this number is judged."""
        named = self.names is None or name in self.names
        return named and self.only in name and number % self.every == 0


class Judging:
    """The plugin of pytest that runs instead of its loop. `report` gets (mutant, result)."""

    def __init__(
        self, targets: Sequence[AnyTarget], report: Callable[[str, str], object], choice: Choice
    ) -> None:
        self._targets = targets
        self._report = report
        self._choice = choice
        self._failed = False
        self._tried: Counter[tuple[str, int]] = Counter()  # mutants of a function, by test
        self._noticed: Counter[tuple[str, int]] = Counter()
        self._last = mmap(-1, len(_NONE))  # shared with a child: how far it came in its order

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed = self._failed or report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Everything happens here: the tests are collected, and nothing has run yet."""
        if session.testsfailed:
            raise session.Interrupted("the tests could not be collected")
        gc.freeze()  # a forked child that does not touch old objects shares their memory
        runs = self._run_unchanged(session.items)
        made = ((target, mutant) for target in self._targets for mutant in target.mutants())
        for number, (target, mutant) in enumerate(made):
            if self._choice.includes(number, mutant.name):
                self._report(mutant.name, self._judge(session.items, target, mutant, runs))
        return True

    def _run_unchanged(self, items: Sequence[pytest.Item]) -> Runs:
        codes = {c for t in self._targets for c in t.codes}
        out, into = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(out)
            _leave(lambda: self._write_runs(items, codes, into))
        os.close(into)
        with os.fdopen(out, "rb") as pipe:
            told = pipe.read()
        _, status = os.waitpid(child, 0)
        if status:
            pytest.exit(f"a test fails on the code as it is: {told.decode()}", 3)
        runs: Runs = pickle.loads(told)  # our own child wrote it
        return runs

    def _write_runs(self, items: Sequence[pytest.Item], codes: set[CodeType], into: int) -> int:
        runs = Runs()
        for at, item in enumerate(items):
            lines: set[tuple[str, int]] = set()
            began = time.process_time()
            with _Tracing(codes, lines):
                self._run(items, at, at + 1)
            runs.took_s.append(time.process_time() - began)
            for line in lines:
                runs.tests_of[line].append(at)
            if self._failed:
                os.write(into, item.nodeid.encode())
                return _FAILED
        with os.fdopen(into, "wb") as pipe:
            pickle.dump(runs, pipe)
        return _PASSED

    def _run(self, items: Sequence[pytest.Item], at: int, after: int | None) -> None:
        """One test. `after`: the one that comes next, whose wider fixtures are kept."""
        following = items[after] if after is not None and after < len(items) else None
        items[at].config.hook.pytest_runtest_protocol(item=items[at], nextitem=following)

    def _judge(
        self, items: Sequence[pytest.Item], target: AnyTarget, mutant: Mutant, runs: Runs
    ) -> str:
        tests = {
            test
            for (file, line), mine in runs.tests_of.items()
            if target.is_concerned(mutant, file, line)
            for test in mine
        }
        if not tests:
            return NOT_RUN
        order = sorted(tests, key=lambda t: (self._expect_s(target, t, runs), t))
        change = target.prepare(mutant)
        self._last[:] = _NONE
        child = os.fork()
        if child == 0:
            _leave(lambda: self._run_changed(items, order, change, runs))
        result = _wait(child)
        begun = order[: 1 + int(self._last[:])]
        self._tried.update((target.name, test) for test in begun)
        self._noticed.update((target.name, test) for test in begun[-1:] if result != SURVIVED)
        return result

    def _expect_s(self, target: AnyTarget, test: int, runs: Runs) -> float:
        """CPU time until a test notices a mutant of this function, by those that it was tried on.

        One that was tried on none is taken to notice one of two.
        """
        key = target.name, test
        return runs.took_s[test] * (self._tried[key] + 2) / (self._noticed[key] + 1)

    def _run_changed(
        self,
        items: Sequence[pytest.Item],
        order: Sequence[int],
        change: Callable[[], None],
        runs: Runs,
    ) -> int:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
        change()
        for number, at in enumerate(order):
            self._last[:] = b"%8d" % number
            signal.setitimer(signal.ITIMER_PROF, CPU_LIMIT_S + CPU_LIMIT_PART * runs.took_s[at])
            signal.setitimer(signal.ITIMER_REAL, WALL_LIMIT_S + WALL_LIMIT_PART * runs.took_s[at])
            following = order[number + 1] if number + 1 < len(order) else None
            self._run(items, at, following)
            if self._failed:
                return _FAILED
        return _PASSED


class Runs:
    """What the tests do on the code as it is."""

    def __init__(self) -> None:
        self.took_s: list[float] = []  # CPU time, by number of the test
        self.tests_of: dict[tuple[str, int], list[int]] = defaultdict(list)


class _Tracing:
    """While inside, lines of these codes are noted, in every thread."""

    def __init__(self, codes: set[CodeType], lines: set[tuple[str, int]]) -> None:
        self._kept = codes
        self._codes = {id(code) for code in codes}  # comparing codes themselves takes long
        self._lines = lines

    def __enter__(self) -> None:
        sys.settrace(self._called)
        threading.settrace(self._called)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]

    def _called(self, frame: FrameType, _event: str, _value: object) -> Any:
        return self._note if id(frame.f_code) in self._codes else None

    def _note(self, frame: FrameType, event: str, _value: object) -> Any:
        if event == "line":
            self._lines.add((frame.f_code.co_filename, frame.f_lineno))
        return self._note


def _leave(work: Callable[[], int]) -> NoReturn:
    """Run in a forked child, which says nothing and never comes back."""
    code = _BROKEN
    try:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        code = work()
    finally:
        os._exit(code)


def _wait(child: int) -> str:
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        timer = os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGALRM)
        return OUT_OF_TIME if timer else KILLED
    return SURVIVED if os.WEXITSTATUS(status) == _PASSED else KILLED


def main(arguments: Sequence[str]) -> int:
    """One row, as JSON in the first argument; a line of JSON for each mutant on the output."""
    row = json.loads(arguments[0])
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever pytest has to say
    judging = Judging(
        find_targets(row["targets"]),
        lambda name, result: out.write(json.dumps([name, result]) + "\n"),
        Choice(**row["choice"]),
    )
    # which assertion failed, and with which values, nobody reads: it takes longer than most tests
    quiet = ["-q", "--tb=no", "--assert=plain", "--no-header"]
    options = ["-k", row["select"], *quiet, "-p", "no:cacheprovider", "-p", "no:xdist"]
    return int(pytest.main([*options, *row["tests"]], plugins=[judging]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
