"""Takes a switch out of the fabric's paths before a reboot, and puts it back when it is well.

Draining is absolute: a switch that is drained is not drained again, so whoever takes over after a
crash begins at the top. The drain is saved, so that the switch comes back drained: it carries
nothing before it was seen to be well. If the traffic does not move, the drain is taken back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from provisioner.execution.actions.leaf_turns import turn
from provisioner.execution.actions.work import Site
from provisioner.execution.observe.switch_api import SwitchApi
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.versions import parse_version
from provisioner.planning.lifecycle.switch_drain import (
    find_carrying_ports,
    find_clean_ports,
    find_damaged_ports,
    find_losses,
    find_lost_carriers,
)
from provisioner.ports import Call, PortError
from provisioner.switches import cumulus, cumulus_drain
from provisioner.switches.cumulus_drain import Wellness

Read = Callable[[Any], Any]


class Drain:
    """One switch's drain. Methods raise `PortError` while it does not answer."""

    def __init__(self, site: Site, node: Node, api: SwitchApi) -> None:
        self._site, self._node, self._api = site, node, api

    async def begin(self) -> Blocker | None:
        """Neighbours go around, seen in the counters; else the drain is taken back."""
        refused = await self._set(on=True)
        if refused is None:
            refused = await self._moved()
        if refused is not None:
            back = await self._set(on=False)
            return refused if back is None else back
        return None

    async def end(self) -> Blocker | None:
        """Neighbours come back."""
        return await self._set(on=False)

    async def wellness(self) -> Wellness | Blocker:
        """Health, BGP sessions and EVPN as they are now."""
        found = []
        for path, read in (
            (cumulus_drain.HEALTH_PATH, cumulus_drain.read_health),
            (cumulus_drain.SESSIONS_PATH, cumulus_drain.read_sessions),
            (cumulus_drain.VNIS_PATH, cumulus_drain.read_vnis),
            (cumulus.INTERFACES_PATH, cumulus_drain.read_ports),
        ):
            value = await self._read(path, read)
            if isinstance(value, Blocker):
                return value
            found.append(value)
        health, sessions, vnis, ports = found
        return Wellness(health, sessions, vnis, frozenset(ports))

    async def well_again(self, before: dict[str, object], version: str) -> Blocker | None:
        """Wait until all that was well before is well under the new image: ASIC, ports, counters.

        The counter of broken packets must stand still between two looks on every port, which is
        seen port by port: hosts below, which are worked on, come and go.
        """
        quiet: set[str] = set()
        until = self._site.clock.now() + self._site.settings.switch_settle_limit_s
        said: tuple[str, ...] = ("it did not answer",)
        while self._site.clock.now() < until:
            try:
                seen = await self.wellness()
                if not isinstance(seen, Blocker):
                    said = find_losses(before, seen) or await self._asic(version)
                    said = said or await self._errors(quiet) or find_lost_carriers(before, quiet)
                    if not said:
                        return None
                else:
                    said = (seen.detail,)
            except PortError as error:
                said = (str(error),)
            await self._site.clock.sleep(self._site.settings.poll_s)
        return self._no(Reason.FABRIC, f"after the reboot: {said[0]}", "It stays drained: look.")

    async def _asic(self, version: str) -> tuple[str, ...]:
        answer = await self._api.call(Call("GET", cumulus_drain.FIRMWARE_PATH))
        asic = None if isinstance(answer, Blocker) else cumulus_drain.read_asic(answer)
        wrong = cumulus_drain.wrong_firmware(version, asic)
        return (wrong,) if wrong else ()

    async def _errors(self, quiet: set[str]) -> tuple[str, ...]:
        """Who counts broken packets now; ports that do not become `quiet`."""
        before = await self._counters(cumulus_drain.read_errors)
        await self._site.clock.sleep(self._site.settings.poll_s)
        after = await self._counters(cumulus_drain.read_errors)
        for read in (before, after):
            if isinstance(read, Blocker):
                return (read.detail,)
        assert not isinstance(before, Blocker)
        assert not isinstance(after, Blocker)
        broken = find_damaged_ports(before, after)
        quiet.difference_update(broken)
        quiet.update(find_clean_ports(before, after))
        return (f"{broken[0]} and {len(broken) - 1} more count broken packets",) if broken else ()

    async def _set(self, *, on: bool) -> Blocker | None:
        """Drain or undrain the switch in its turn, and in no longer a one: ports wait for it."""
        async with turn(self._node.id):
            return await self._revise(on=on)

    async def _revise(self, *, on: bool) -> Blocker | None:
        """Drained or not, as a revision that is applied, read back and saved."""
        drained = await self._read(cumulus_drain.BGP_PATH, cumulus_drain.read_drained)
        if isinstance(drained, Blocker):
            return drained
        if drained is not on:
            images = await self._api.images()
            if isinstance(images, Blocker):
                return images
            release = parse_version("cumulus", images.running) or ()
            # of a writer that died; a switch that is stuck is tried all the same
            await self._until(self._nothing_sent, wanted=True)
            revision = await self._asked(cumulus.new_revision(), cumulus.read_revision_id)
            if isinstance(revision, Blocker):
                return revision
            for ask in (
                cumulus_drain.change_drain(revision, release, on=on),
                cumulus.apply(revision),
            ):
                refused = await self._api.call(Call(ask.method, ask.path, ask.body))
                if isinstance(refused, Blocker):
                    return refused
            drained = await self._until(
                lambda: self._read(cumulus_drain.BGP_PATH, cumulus_drain.read_drained), wanted=on
            )
            if drained is not on:
                word = "drained" if on else "back in service"
                return self._no(Reason.SWITCH_REFUSED, f"revision {revision}: it is not {word}")
        save = cumulus.save()
        saved = await self._api.call(Call(save.method, save.path, save.body))
        return saved if isinstance(saved, Blocker) else None

    async def _nothing_sent(self) -> bool | Blocker:
        """Whether no revision is being applied."""
        sent = await self._read(cumulus.REVISIONS_PATH, cumulus.read_sent)
        return sent if isinstance(sent, Blocker) else not sent

    async def _until(self, look: Callable[[], Awaitable[Any]], *, wanted: bool) -> Any:
        until = self._site.clock.now() + self._site.settings.switch_apply_limit_s
        seen = await look()
        while seen is not wanted and self._site.clock.now() < until:
            await self._site.clock.sleep(self._site.settings.switch_poll_s)
            seen = await look()
        return seen

    async def _moved(self) -> Blocker | None:
        """Two looks at the counters, apart, until nothing is carried between them."""
        settings, clock = self._site.settings, self._site.clock
        until = clock.now() + settings.switch_drain_limit_s
        busy: tuple[str, ...] = ()
        before, at = await self._counters(), clock.now()
        while not isinstance(before, Blocker):
            await clock.sleep(settings.poll_s)
            after, now = await self._counters(), clock.now()
            if isinstance(after, Blocker):
                return after
            busy = find_carrying_ports(before, after, now - at, settings.switch_idle_bps)
            if not busy:
                return None
            if now >= until:
                detail = f"drained, and {busy[0]} and {len(busy) - 1} more ports carry traffic"
                return self._no(Reason.BUSY, detail, "Look for nodes with one path only.")
            before, at = after, now
        return before

    async def _counters(
        self, read: Callable[[Any], int | None] = cumulus_drain.read_bytes
    ) -> dict[str, int] | Blocker:
        ports = await self._read(cumulus.INTERFACES_PATH, cumulus_drain.read_ports)
        if isinstance(ports, Blocker):
            return ports
        if not ports:  # silence is believed of a switch without cables only
            sessions = await self._read(cumulus_drain.SESSIONS_PATH, cumulus_drain.read_sessions)
            if isinstance(sessions, Blocker):
                return sessions
            if sessions:
                return self._no(Reason.MALFORMED, "BGP sessions, and no port with carrier")
        found = {}
        for port in ports:
            count = await self._read(cumulus_drain.counters_path(port), read)
            if isinstance(count, Blocker):
                return count
            found[port] = count
        return found

    async def _read(self, path: str, read: Read) -> Any:
        return await self._asked(cumulus.Ask("GET", path), read)

    async def _asked(self, ask: cumulus.Ask, read: Read) -> Any:
        answer = await self._api.call(Call(ask.method, ask.path, ask.body))
        if isinstance(answer, Blocker):
            return answer
        found = read(answer)
        return self._no(Reason.MALFORMED, f"{ask.path}: not readable") if found is None else found

    def _no(self, reason: Reason, detail: str, unblock: str = "Look at the switch.") -> Blocker:
        return Blocker(
            reason=reason, subject=f"{self._node.id}/switch.os", detail=detail, unblock=unblock
        )
