"""Requests to one switch: actions with their jobs, and what image it runs."""

from __future__ import annotations

from urllib.parse import quote

from provisioner.execution.actions.leaf_turns import turn
from provisioner.execution.actions.work import Site
from provisioner.model.base import Record
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import Call, PortError, SwitchAddress
from provisioner.switches import cumulus

GONE = 404  # a job is kept in memory: it is not there any more after the API was restarted


class Images(Record):
    """What is installed on a switch. `versions`: of both partitions, without duplicates."""

    running: str
    next: str
    versions: tuple[str, ...]


class Platform(Record):
    """What a switch is; None where it does not say."""

    model: str | None = None
    serial: str | None = None


class SwitchApi:
    """One switch's API. Methods raise `PortError` while it does not answer."""

    os = cumulus

    def __init__(self, site: Site, node: Node, address: SwitchAddress) -> None:
        self._site = site
        self._node = node
        self._address = address

    @classmethod
    async def open(cls, site: Site, node: Node) -> SwitchApi | Blocker:
        """The API of a switch, with its credential."""
        address = await site.reach.switch(node)
        return address if isinstance(address, Blocker) else cls(site, node, address)

    async def call(self, call: Call) -> object | Blocker:
        """One request; its JSON, or what the switch refused."""
        reply = await self._site.reach.switches.request(self._address, call)
        if reply.status >= 300:
            return self._refused(f"{call.method} {call.path}: status {reply.status}")
        return reply.json() if reply.body else {}

    async def images(self) -> Images | Blocker:
        """Running and installed images."""
        answer = await self.call(Call("GET", cumulus.IMAGES_PATH))
        if isinstance(answer, Blocker):
            return answer
        found = cumulus.read_images(answer)
        if isinstance(found, str):
            return self._refused(found, Reason.MALFORMED)
        return Images(running=found.running, next=found.next, versions=found.versions)

    async def platform(self) -> Platform | Blocker:
        """Model and serial."""
        answer = await self.call(Call("GET", f"{cumulus.PREFIX}/platform?rev=operational"))
        if isinstance(answer, Blocker):
            return answer
        found = answer if isinstance(answer, dict) else {}
        model, serial = found.get("product-name"), found.get("serial-number")
        return Platform(
            model=model if isinstance(model, str) else None,
            serial=serial if isinstance(serial, str) else None,
        )

    async def action(self, ask: cumulus.Ask, limit_s: float) -> Blocker | None:
        """Start an action and wait for its job; `limit_s` 0: the switch goes away, do not wait.

        None also where the switch has forgotten the job: its state says what became of it. It is
        started in the switch's turn, so that no revision is half done when the switch reboots; the
        job is awaited outside of it, since it takes minutes in which ports have to be moved.
        """
        async with turn(self._node.id):
            answer = await self.call(Call(ask.method, ask.path, ask.body))
        if isinstance(answer, Blocker):
            return answer
        if limit_s == 0:
            return None
        job = cumulus.read_job_id(answer)
        if job is None:
            return self._refused(f"{ask.path}: an answer without a job", Reason.MALFORMED)
        until = self._site.clock.now() + limit_s
        while self._site.clock.now() < until:
            try:
                look = Call("GET", f"{cumulus.JOBS_PATH}/{quote(job, safe='')}")
                reply = await self._site.reach.switches.request(self._address, look)
                if reply.status == GONE:
                    return None
                state = cumulus.read_job(reply.json()) if reply.status < 300 else None
            except PortError:
                state = None  # silence while waiting is no failure
            if state is not None and state.done:
                return None if state.ok else self._refused(state.detail, Reason.UPDATE_FAILED)
            await self._site.clock.sleep(self._site.settings.poll_s)
        return self._refused(f"{ask.path}: no end within {limit_s:.0f} s", Reason.UPDATE_STALLED)

    def _refused(self, detail: str, reason: Reason = Reason.SWITCH_REFUSED) -> Blocker:
        return Blocker(
            reason=reason,
            subject=f"{self._node.id}/switch.os",
            detail=detail,
            unblock="Look at the switch's own log, then retry the node.",
        )
