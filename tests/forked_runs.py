"""`--forks N` runs the tests in N processes that are forked once all tests have been collected.

pytest-xdist starts N interpreters, each of which imports and collects the same 15,000 tests: half a
minute of CPU time and half a gigabyte each. Here that is done once. The order is kept: each process
begins with a stretch of neighbours, which share sites and browsers, and takes half of the longest
rest of another when its own is done, down to single tests.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import sys
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis.internal import charmap


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare `--forks`."""
    parser.addoption("--forks", type=int, default=1, help="run in so many processes, forked late")


def pytest_configure(config: pytest.Config) -> None:
    """Take the loop over, where more than one process is asked for and nobody debugs."""
    if config.getoption("--forks") > 1 and not config.getoption("usepdb"):
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its other threads end with a fork
        config.pluginmanager.register(ForkedRuns(config.getoption("--forks")), "forked runs")
        terminal: Any = config.pluginmanager.getplugin("terminalreporter")
        if terminal is not None:
            terminal.showfspath = False  # neighbouring reports are of different files


@dataclass
class Child:
    """A process with its end of the pipe and the tests, by index, that it has still to take."""

    name: str
    todo: list[int]
    pid: int = 0  # 0 while it does not run
    pipe: Connection | None = None
    taken: list[int] = field(default_factory=list)  # begun, or asked for next


class ForkedRuns:
    """Replaces the loop over tests."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._children: list[Child] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Fork, hand out tests, and report what comes back."""
        count = min(self._count, len(session.items))
        if session.testsfailed or session.config.option.collectonly or count < 2:
            return None
        charmap.intervals_from_codec("utf-8")  # two seconds of each process, where nothing keeps it
        shares = list(_stretches([item.nodeid for item in session.items], count))
        self._children = [Child(f"gw{number}", share) for number, share in enumerate(shares)]
        for child in self._children:
            self._fork(child, session)
        try:
            self._serve(session)
        finally:
            for child in self._children:
                _end(child)
        return True

    def _fork(self, child: Child, session: pytest.Session) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        ours, theirs = Pipe()
        child.pid = os.fork()
        if child.pid == 0:
            ours.close()
            for other in self._children:
                if other.pipe is not None:
                    other.pipe.close()
            _live(theirs, child.name, session)
        theirs.close()
        child.pipe = ours

    def _serve(self, session: pytest.Session) -> None:
        open_pipes = {child.pipe: child for child in self._children}
        while open_pipes:
            for pipe in wait([pipe for pipe in open_pipes if pipe is not None]):
                assert isinstance(pipe, Connection)
                child = open_pipes[pipe]
                try:
                    kind, content = pickle.loads(pipe.recv_bytes())
                except (EOFError, ConnectionError):
                    del open_pipes[pipe]
                    pipe.close()
                    if child.taken:  # it died in a test; the rest has another
                        self._report_death(child, session)
                        self._fork(child, session)
                        open_pipes[child.pipe] = child
                    continue
                self._hear(child, kind, content, session)

    def _hear(self, child: Child, kind: str, content: Any, session: pytest.Session) -> None:
        hook = session.config.hook
        if kind == "next":
            if content is not None:
                child.taken.remove(content)
            index = self._take(child)
            if index is not None:
                child.taken.append(index)
            assert child.pipe is not None
            child.pipe.send(index)
        elif kind == "start":
            hook.pytest_runtest_logstart(**content)
        elif kind == "finish":
            hook.pytest_runtest_logfinish(**content)
        elif kind == "warning":
            hook.pytest_warning_recorded.call_historic(kwargs=content)
        elif kind == "report":
            report = hook.pytest_report_from_serializable(config=session.config, data=content)
            report.node = _node(child.name)
            hook.pytest_runtest_logreport(report=report)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
        else:
            raise RuntimeError(f"{child.name}: {content}")

    def _take(self, child: Child) -> int | None:
        """Return its next test; where it has none, half of what the busiest other one has left."""
        if not child.todo:
            busiest = max(self._children, key=lambda other: len(other.todo))
            kept = len(busiest.todo) // 2
            child.todo, busiest.todo = busiest.todo[kept:], busiest.todo[:kept]
        return child.todo.pop(0) if child.todo else None

    def _report_death(self, child: Child, session: pytest.Session) -> None:
        """Blame the test that was running, and give the one asked for in advance back."""
        _pid, status = os.waitpid(child.pid, 0)
        child.pid = 0
        running, *ahead = child.taken
        child.taken, child.todo = [], ahead + child.todo
        item = session.items[running]
        code = os.waitstatus_to_exitcode(status)
        said = f"{child.name} ended with {code} while it ran {item.nodeid}"
        report = pytest.TestReport(
            item.nodeid, item.location, {}, "failed", said, "call", [], 0.0, 0.0, 0.0
        )
        report.node = _node(child.name)  # type: ignore[attr-defined]
        session.config.hook.pytest_runtest_logreport(report=report)


def _node(name: str) -> SimpleNamespace:
    """What pytest's reports show of the process, as of one of xdist's."""
    return SimpleNamespace(gateway=SimpleNamespace(id=name), _workerinfocache=f"[{name}]")


def _stretches(names: list[str], count: int) -> Iterator[list[int]]:
    """Yield as many stretches of neighbours, alike long, none of which begins within a file."""
    begin = 0
    for number in range(1, count + 1):
        end = max(begin, len(names) * number // count)
        while 0 < end < len(names) and names[end].split("::")[0] == names[end - 1].split("::")[0]:
            end += 1
        yield list(range(begin, end))
        begin = end


def _end(child: Child) -> None:
    """Close the pipe, which ends a process that waits for a test, and wait for it."""
    if child.pipe is None or not child.pid:
        return
    child.pipe.close()
    if sys.exc_info()[0] is not None:
        os.kill(child.pid, signal.SIGTERM)
    os.waitpid(child.pid, 0)


class Teller:
    """Passes to the parent what happens in a forked process."""

    def __init__(self, pipe: Connection, config: pytest.Config) -> None:
        self._pipe, self._config = pipe, config
        self.begun = False  # before, plugins hear again of warnings that the parent has had

    def tell(self, kind: str, content: Any) -> None:
        """Send one message."""
        self._pipe.send_bytes(pickle.dumps((kind, content)))

    def ask(self, done: int | None) -> int | None:
        """Return the index of the next test."""
        self.tell("next", done)
        index: int | None = self._pipe.recv()
        return index

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        """Pass on that a test begins."""
        self.tell("start", {"nodeid": nodeid, "location": location})

    def pytest_runtest_logfinish(self, nodeid: str, location: Any) -> None:
        """Pass on that a test has ended."""
        self.tell("finish", {"nodeid": nodeid, "location": location})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Pass a report on, as xdist does."""
        hook = self._config.hook
        data = hook.pytest_report_to_serializable(config=self._config, report=report)
        self.tell("report", data)

    def pytest_warning_recorded(
        self, warning_message: Any, when: str, nodeid: str, location: Any
    ) -> None:
        """Pass a warning on; its category may be a class that only this process has."""
        if not self.begun:
            return
        content = {
            "warning_message": warning_message,
            "when": when,
            "nodeid": nodeid,
            "location": location,
        }
        try:
            self.tell("warning", content)
        except (pickle.PicklingError, TypeError, AttributeError):
            warning_message.message = UserWarning(str(warning_message.message))
            warning_message.category, warning_message.source = UserWarning, None
            self.tell("warning", content)


def _live(pipe: Connection, name: str, session: pytest.Session) -> None:
    """Run tests until there are none, and end the process."""
    config, code = session.config, 1
    teller = Teller(pipe, config)
    try:
        _become(name, teller, config)
        index, ahead = teller.ask(None), None
        if index is not None:
            ahead = teller.ask(None)
        while index is not None:
            item = session.items[index]
            following = None if ahead is None else session.items[ahead]
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            index, ahead = ahead, teller.ask(index)
            if index is None:  # nothing was left, until another process died and left its own
                index, ahead = ahead, None
        code = 0
    except (EOFError, ConnectionError):
        pass  # the parent has ended, or wants no more
    except BaseException as error:
        teller.tell("error", repr(error))
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(code)


def _become(name: str, teller: Teller, config: pytest.Config) -> None:
    """Have a folder, captured output, reports and things to do at the end of one's own."""
    atexit._clear()  # what the parent has made is the parent's to clear up
    finalize: Any = weakref.finalize
    finalize._registry.clear()
    finalize._registered_with_atexit = False
    os.environ["PYTEST_XDIST_WORKER"] = name  # libraries ask for it
    manager = config.pluginmanager
    for plugin in ("terminalreporter", "lfplugin", "nfplugin", "stepwiseplugin", "json line"):
        if (found := manager.getplugin(plugin)) is not None:
            manager.unregister(found)
    capture: Any = manager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    folders: Any = config._tmp_path_factory  # type: ignore[attr-defined]
    folders._basetemp = folders.getbasetemp() / name
    folders._basetemp.mkdir(mode=0o700, exist_ok=True)
    manager.register(teller, "teller")
    teller.begun = True
