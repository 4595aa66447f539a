"""One run that is under way, or that a predecessor left, followed to its end by verdicts."""

from __future__ import annotations

import asyncio
import logging

from provisioner.adapters.playbooks import processes
from provisioner.adapters.playbooks.events import Events, Verdicts
from provisioner.adapters.playbooks.folder import READ_MAX, RunFolder
from provisioner.ports import Clock, PlaybookCall, PlaybookResult, Run

log = logging.getLogger(__name__)

POLL_S = 0.2  # between looks at the events: a task costs 0.15 CPU seconds, so it is not missed
INTERRUPT_S = 10.0  # Ansible ends within 1.2 s of being asked (facts: ansible 2)


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
        """Return whether this is the run of just that call."""
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

    async def wait_until_decided(self, host: str) -> None:
        """Wait until this run does nothing more on a host."""
        await self.result(host)

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
