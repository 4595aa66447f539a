"""Calls per host in, batched runs out: each a detached process that the next daemon takes over.

The order that must hold: row in the store, folder with its lock, process; and at the end: processes
gone, output stored, row closed. So after a crash a run is either under way, or over, and then a
host without a verdict is unknown.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path

from provisioner.integrations.playbooks import folder as folders
from provisioner.integrations.playbooks import folder as processes
from provisioner.integrations.playbooks.events import Events, Verdicts
from provisioner.integrations.playbooks.folder import (
    READ_MAX,
    RunFolder,
    command,
    environment,
    has_secrets,
    make_cgroup,
    start,
    volatile_root,
    write_data_directory,
)
from provisioner.ports import Clock, PlaybookCall, PlaybookResult, Remote, Run, RunRepository
from provisioner.runtime import permit
from provisioner.runtime.event_loop import end_tasks
from provisioner.settings import Settings

# ------------------------------------------------------------------------------
# One run that is under way, or that a predecessor left, followed to its end by verdicts.


log = logging.getLogger(__name__)

POLL_S = 0.2  # between looks at the events: a task costs 0.15 CPU seconds, so it is not missed
# Ansible ends within 1.2 s of being asked (docs/sources/host.md#ansible-interrupt)
INTERRUPT_S = 10.0


class LiveRun:
    """`folder` None: there is only its row, so that nothing can be said about its hosts."""

    def __init__(self, run: Run, folder: RunFolder | None, clock: Clock) -> None:
        self.run = run
        self.folder = folder
        self.pid = 0  # of the process, if we started it
        self.problem = ""  # why it could not be started
        self.cancelled = asyncio.Event()
        self.over = asyncio.Event()
        self.events = Events(run.hosts)
        if folder is not None:
            self.events.hide(folder.secrets())
        self._clock = clock
        self._offset = 0
        self._results: dict[str, PlaybookResult] = {}
        self._answers: dict[str, list[asyncio.Future[PlaybookResult]]] = {}

    def runs_call(self, call: PlaybookCall) -> bool:
        return self.run.play == call.play and self.run.hosts.get(call.host) == call.digest

    def hand_over(self, host: str, answer: asyncio.Future[PlaybookResult]) -> None:
        """Give a host's result to the callers that wait for it."""
        if host in self._results:
            answer.set_result(self._results[host])
        else:
            self._answers.setdefault(host, []).append(answer)

    async def result(self, host: str) -> PlaybookResult:
        """Return the host's result as soon as it is certain, without waiting for other hosts."""
        answer: asyncio.Future[PlaybookResult] = asyncio.get_running_loop().create_future()
        self.hand_over(host, answer)
        return await answer

    def reread_verdicts(self) -> None:
        """Read the verdicts of a run that was followed to its end before."""
        self._drain(whole=True)
        self._rest()

    async def follow(self) -> str:
        """Follow until the run has ended and no process of it lives here; return how it ended."""
        until = self.run.started_at + self.run.limit_s
        state = "lost"
        timed_out = False
        while self.folder is not None:
            processes.reap(self.pid)
            over = self.folder.has_finished() or not self.folder.is_alive()
            # queried before reading, so that its last events are not missed
            self._drain(whole=over)
            if over:
                state = "ended" if self.folder.has_finished() else "lost"
                break
            timed_out = self._clock.now() >= until
            if timed_out or self.cancelled.is_set():
                await self._interrupt("over its limit" if timed_out else "cancelled")
                self._drain(whole=True)
                state = "cancelled"
                break
            await asyncio.sleep(POLL_S)
        await self._end()
        if self.problem:
            self._deliver(self.events.all_left("failed", self.problem))
        if timed_out:
            detail = f"the play did not end within {self.run.limit_s:.0f} s"
            self._deliver(self.events.all_left("timeout", detail))
        self._rest()
        bad = any(r.status != "ok" for r in self._results.values())
        return "failed" if state == "ended" and bad else state

    def fail(self, error: BaseException) -> None:
        """Give a bug of ours to every caller that waits."""
        for answers in self._answers.values():
            for answer in answers:
                if not answer.done():
                    answer.set_exception(error)

    async def _interrupt(self, why: str) -> None:
        assert self.folder is not None
        log.warning("run %s of %s is ended: %s", self.run.id, self.run.play, why)
        await asyncio.to_thread(processes.interrupt, self.run.id)
        for _ in range(int(INTERRUPT_S / POLL_S)):
            processes.reap(self.pid)
            if not self.folder.is_alive():
                return
            await asyncio.sleep(POLL_S)

    async def _end(self) -> None:
        """End every process that could still write to a host, then store the output."""
        folder = self.folder
        control = folder.control if folder is not None else ""
        cgroup = folder.cgroup if folder is not None else ""
        if not await asyncio.to_thread(processes.kill_all, self.run.id, cgroup, control):
            log.error("processes of run %s do not die", self.run.id)
        processes.reap(self.pid)
        if folder is not None:
            await asyncio.to_thread(folder.settle)

    def _drain(self, *, whole: bool) -> None:
        while self.folder is not None:
            data = self.folder.events(self._offset)
            self._offset += len(data)
            self._deliver(self.events.feed(data, self._tell))
            if not whole or len(data) < READ_MAX:
                return

    def _rest(self) -> None:
        """Deliver the result of the hosts without a verdict, once nothing more comes."""
        ended = self.folder is not None and self.folder.has_finished()
        self._deliver(self.events.end_run(self.folder.output() if self.folder and ended else None))

    def _tell(self, host: str, task: str) -> None:
        log.info("%s: %s: %s", host, self.run.play, task)

    def _deliver(self, found: Verdicts) -> None:
        for host, result in found:
            self._results[host] = result
            for answer in self._answers.pop(host, ()):
                if not answer.done():
                    answer.set_result(result)


GATHER_S = 0.2  # calls of one play that come this close together share a process
DAY_S = 86400.0


@dataclass(eq=False)
class _Waiting:
    """A call that is in no run yet."""

    call: PlaybookCall
    answer: asyncio.Future[PlaybookResult]


class AnsibleRunner:
    """The `PlaybookRunner` for real hosts. `attach` first: it takes over a predecessor's runs."""

    def __init__(
        self,
        playbooks: Path,
        work: Path,
        remote: Remote,
        runs: RunRepository,
        clock: Clock,
        settings: Settings,
    ) -> None:
        self._playbooks = playbooks.resolve()
        self._work = work.resolve()
        self._remote = remote
        self._runs = runs
        self._clock = clock
        self._settings = settings
        self._slots = asyncio.Semaphore(settings.playbook_slots)
        self._waiting: dict[str, list[_Waiting]] = {}
        self._queues: dict[str, asyncio.Lock] = {}  # by host: one call at a time
        self._live: dict[str, LiveRun] = {}  # by run id
        self._batches: set[asyncio.Task[None]] = set()

    async def attach(self) -> int:
        """Follow every run that has no end yet and prune old ones; return how many there were."""
        open_runs = await self._runs.list_open()
        for run in open_runs:
            folder = folders.RunFolder.find(Path(run.folder))
            live = LiveRun(run, folder, self._clock)
            self._live[run.id] = live  # at once: a caller may want it before its task begins
            self._background(self._to_its_end(live))
        await self.prune()
        return len(open_runs)

    async def run(self, call: PlaybookCall) -> PlaybookResult:
        """Run one play on one host, together with other callers of the same play now."""
        if (wrong := self._refusal(call)) is not None:
            return wrong
        if (same := self._on(call.host)) is not None and same.runs_call(call):
            # left by a predecessor, or by a caller who did not wait for it
            return await same.result(call.host)
        async with self._queues.setdefault(call.host, asyncio.Lock()):
            while (earlier := self._on(call.host)) is not None:
                await earlier.result(call.host)
            await self._elsewhere(call.host)
            return await self._queue(call)

    async def recall(self, call: PlaybookCall, since: float) -> PlaybookResult | None:
        """Return the result of the same call made at `since` or later. See the port."""
        await self._elsewhere(call.host)
        for run in await self._runs.list_since(call.host, since):
            live = self._live.get(run.id)
            if live is not None and live.runs_call(call):
                return await live.result(call.host)
            past = LiveRun(run, folders.RunFolder.find(Path(run.folder)), self._clock)
            if live is None and past.runs_call(call):
                past.reread_verdicts()
                return await past.result(call.host)
        return None

    def progress(self) -> dict[str, str]:
        """Return the present task of each host. See the port."""
        return {
            host: f"{live.run.play}: {task or 'begins'}"
            for live in self._live.values()
            for host, task in live.events.waiting.items()
        }

    async def idle(self) -> None:
        """Wait until every run that is followed now has ended."""
        await asyncio.gather(*(live.over.wait() for live in self._live.values()))

    async def cancel(self, host: str) -> None:
        """End the run that this host is in; no process of it is left on this machine afterwards.

        A task inside a host may continue (it must: a firmware burn is not cut in half), so the
        results are "unknown": the host is read before anything else is done there.
        """
        if (live := self._on(host)) is not None:
            live.cancelled.set()
            await live.over.wait()

    async def prune(self) -> None:
        """Remove old folders and rows; those of failed runs are stored longer."""
        now = self._clock.now()
        for run in await self._runs.list_ended_before(now - self._settings.runs_keep_days * DAY_S):
            kept_s = self._settings.runs_failed_keep_days * DAY_S
            if run.state != "ended" and run.ended_at > now - kept_s:
                continue
            await asyncio.to_thread(folders.remove, Path(run.folder), self._work)
            await self._runs.forget(run.id)

    async def close(self) -> None:
        """Stop following. Runs continue; callers that still wait are cancelled."""
        await end_tasks(*self._batches)

    async def _elsewhere(self, host: str) -> None:
        """Wait until no run of another machine can be working on a host any more."""
        while (until := await self._runs.find_end_elsewhere(host)) > self._clock.now():
            await self._clock.sleep(min(until - self._clock.now(), self._settings.poll_s))

    def _refusal(self, call: PlaybookCall) -> PlaybookResult | None:
        if not (self._playbooks / f"{call.play}.yml").is_file():
            return PlaybookResult("failed", {}, f"there is no playbook {call.play}.yml")
        if has_secrets(call) and volatile_root() is None:
            detail = "no tmpfs to hand secrets over in: give the daemon a /dev/shm"
            return PlaybookResult("failed", {}, detail)
        return None

    def _on(self, host: str) -> LiveRun | None:
        live = (r for r in self._live.values() if host in r.events.waiting)
        return next(live, None)

    async def _queue(self, call: PlaybookCall) -> PlaybookResult:
        waiting = _Waiting(call, asyncio.get_running_loop().create_future())
        queue = self._waiting.setdefault(call.play, [])
        queue.append(waiting)
        if len(queue) == 1:
            self._background(self._gather(call.play))
        return await waiting.answer

    async def _gather(self, play: str) -> None:
        await asyncio.sleep(GATHER_S)
        queue = self._waiting.pop(play)
        most = self._settings.playbook_hosts_max
        for i in range(0, len(queue), most):
            self._background(self._batch(play, queue[i : i + most]))

    def _background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._batches.add(task)
        task.add_done_callback(self._batches.discard)

    async def _batch(self, play: str, batch: Sequence[_Waiting]) -> None:
        """Carry one run from its row to its last verdict."""
        await self._slots.acquire()
        try:
            waiting = [w for w in batch if not w.answer.done()]  # whose caller gave up meanwhile
            if not waiting:
                return
            live = LiveRun(self._row(play, [w.call for w in waiting]), None, self._clock)
            self._live[live.run.id] = live  # before the first await: no other run on these hosts
            for w in waiting:
                live.hand_over(w.call.host, w.answer)
            await self._begin(live, [w.call for w in waiting])
            await self._to_its_end(live)
        except Exception as error:  # a bug of ours, or the store: every caller that waits gets it
            for w in batch:
                if not w.answer.done():
                    w.answer.set_exception(error)
        finally:
            self._slots.release()
            for w in batch:
                w.answer.cancel()  # the daemon stops; done ones stay as they are

    def _row(self, play: str, calls: Sequence[PlaybookCall]) -> Run:
        run_id = uuid.uuid4().hex
        return Run(
            id=run_id,
            play=play,
            hosts={c.host: c.digest for c in calls},
            folder=str(self._work / f"{play}-{run_id}"),
            started_at=self._clock.now(),
            limit_s=max(c.timeout_s for c in calls),
        )

    async def _begin(self, live: LiveRun, calls: Sequence[PlaybookCall]) -> None:
        await self._runs.begin(live.run)
        try:
            await asyncio.to_thread(self._start, live, calls)
        except OSError as error:
            log.error("run %s was not started: %s", live.run.id, error)
            live.problem = f"the run was not started: {error.strerror or error}"

    def _start(self, live: LiveRun, calls: Sequence[PlaybookCall]) -> None:
        """Make the folder and the variables in memory, and start the process."""
        run_id = live.run.id
        root = volatile_root() or self._work
        self._work.mkdir(mode=0o700, parents=True, exist_ok=True)
        volatile = root / f"provisioner-run-{run_id}"
        request = {"play": live.run.play, "hosts": dict(live.run.hosts)}
        made = folders.RunFolder.create(
            Path(live.run.folder), volatile, make_cgroup(run_id), request
        )
        live.folder = made
        with made.locked() as lock:
            write_data_directory(volatile, run_id, calls, self._remote)
            live.events.hide(made.secrets())
            playbook = self._playbooks / f"{live.run.play}.yml"
            variables = environment(volatile, run_id, self._playbooks.parent, len(calls))
            permit.ask()
            live.pid = start(made, lock, command(volatile, playbook), variables)

    async def _to_its_end(self, live: LiveRun) -> None:
        """Follow, then close the row. Cancelled (the daemon stops): the run is left as it is."""
        try:
            state = await live.follow()
            await self._runs.end(live.run.id, state, self._clock.now())
            await self.prune()
        except Exception as error:
            live.fail(error)
            raise
        finally:
            self._live.pop(live.run.id, None)
            live.over.set()
