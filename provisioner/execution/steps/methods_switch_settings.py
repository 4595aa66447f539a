"""Settings of a switch: written in its turn, read back, and saved.

They concern no traffic, so that nothing is drained. A change whose login or reading fails is taken
back before it is saved: a switch that restarts then has its former configuration in any case.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from provisioner.execution.actions.once import Act, Sent, Snapshot
from provisioner.execution.actions.reach import turn
from provisioner.execution.actions.work import Site, Work
from provisioner.execution.observe import collector
from provisioner.execution.observe.collector import APPLIED
from provisioner.execution.observe.rotation import ask, describe, open_switch, turn_of
from provisioner.model.node import Node
from provisioner.model.operation import LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Step
from provisioner.model.switch import Counters, PortCounters, SwitchServices, Wellness
from provisioner.planning.lifecycle.admission import (
    find_carrying_ports,
    find_clean_ports,
    find_damaged_ports,
    find_losses,
    find_lost_carriers,
)
from provisioner.planning.machine_settings import running_sets
from provisioner.planning.machine_settings.pinned_sets import SWITCH
from provisioner.ports import PortError, Secret, Switch, SwitchRefused
from provisioner.ports.switch import ServiceChange
from provisioner.ports.switch import Switch as SwitchSwitch
from provisioner.ports.switch import SwitchRefused as SwitchSwitchRefused

# ------------------------------------------------------------------------------
# Take a switch out of the fabric's paths before a reboot, and put it back when it is healthy.
#
# Draining is absolute: a switch that is drained is not drained again, so a successor begins at the
# top after a crash. The drain is saved, so that the switch comes back drained and carries no
# traffic before its health was read. If the traffic does not move, the drain is taken back.


Count = Callable[[PortCounters], int | None]


class Drain:
    """One switch's drain. Methods raise `PortError` while it does not answer."""

    def __init__(self, site: Site, node: Node, switch: Switch) -> None:
        self._site = site
        self._node = node
        self._switch = switch

    async def begin(self) -> Blocker | None:
        """Drain the switch until the counters show that neighbours avoid it; otherwise take the
        drain back.
        """
        refused = await self._set(on=True)
        if refused is None:
            refused = await self._moved()
        if refused is not None:
            back = await self._set(on=False)
            return refused if back is None else back
        return None

    async def end(self) -> Blocker | None:
        """Take the drain back, so that neighbours use the switch again."""
        return await self._set(on=False)

    async def wellness(self) -> Wellness | Blocker:
        """Return the present health, BGP sessions and EVPN state."""
        return await ask(self._node, self._switch.read_wellness())

    async def well_again(self, before: dict[str, object], version: str) -> Blocker | None:
        """Wait until all that was well before is well under the new image: ASIC, ports, counters.

        The counter of broken packets must stand still between two looks on every port, which is
        seen port by port: hosts below, which are worked on, come and go.
        """
        quiet: set[str] = set()
        until = self._site.clock.now() + self._site.settings.switch_settle_limit_s
        problems: tuple[str, ...] = ("it did not answer",)
        while self._site.clock.now() < until:
            try:
                wellness = await self.wellness()
                if not isinstance(wellness, Blocker):
                    problems = find_losses(before, wellness) or await self._asic(version)
                    problems = (
                        problems or await self._errors(quiet) or find_lost_carriers(before, quiet)
                    )
                    if not problems:
                        return None
                else:
                    problems = (wellness.detail,)
            except PortError as error:
                problems = (str(error),)
            await self._site.clock.sleep(self._site.settings.poll_s)
        return self._no(
            Reason.FABRIC, f"after the reboot: {problems[0]}", "It stays drained: look."
        )

    async def _asic(self, version: str) -> tuple[str, ...]:
        wrong = await self._switch.find_wrong_firmware(version)
        return (wrong,) if wrong else ()

    async def _errors(self, quiet: set[str]) -> tuple[str, ...]:
        """Return the ports whose error counters grow now; ports that are expected to become `quiet`
        are left out.
        """
        before = await self._counters(_get_errors)
        await self._site.clock.sleep(self._site.settings.poll_s)
        after = await self._counters(_get_errors)
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
        """Apply, read back and save a change with the drain `on` or off."""
        try:
            if await self._switch.is_drained() is not on:
                change = await self._switch.set_drain(on=on)
                if not await self._until(self._switch.is_drained, wanted=on):
                    state = "drained" if on else "back in service"
                    return self._no(Reason.SWITCH_REFUSED, f"change {change}: it is not {state}")
            await self._switch.save_configuration()
        except SwitchRefused as refused:
            return self._no(refused.reason, str(refused))
        return None

    async def _until(self, look: Callable[[], Awaitable[bool]], *, wanted: bool) -> bool:
        """Poll until the reading is as wanted, at most `switch_apply_limit_s`."""
        until = self._site.clock.now() + self._site.settings.switch_apply_limit_s
        while await look() is not wanted:
            if self._site.clock.now() >= until:
                return False
            await self._site.clock.sleep(self._site.settings.switch_poll_s)
        return True

    async def _moved(self) -> Blocker | None:
        """Read the counters, twice and apart, until no traffic passes between the readings."""
        settings = self._site.settings
        clock = self._site.clock
        until = clock.now() + settings.switch_drain_limit_s
        busy: tuple[str, ...] = ()
        before = await self._counters()
        at = clock.now()
        while not isinstance(before, Blocker):
            await clock.sleep(settings.poll_s)
            after = await self._counters()
            now = clock.now()
            if isinstance(after, Blocker):
                return after
            busy = find_carrying_ports(before, after, now - at, settings.switch_idle_bps)
            if not busy:
                return None
            if now >= until:
                detail = f"drained, and {busy[0]} and {len(busy) - 1} more ports carry traffic"
                return self._no(Reason.BUSY, detail, "Look for nodes with one path only.")
            before = after
            at = now
        return before

    async def _counters(self, count_of: Count | None = None) -> Counters | Blocker:
        """Return a count of every port with carrier: bytes carried, unless `count_of` is given."""
        counts = {}
        try:
            ports = await self._switch.read_carriers()
            # silence is believed of a switch without cables only
            if not ports and await self._switch.read_sessions():
                return self._no(Reason.MALFORMED, "BGP sessions, and no port with carrier")
            for port in ports:
                count = (count_of or _get_bytes)(await self._read(port))
                if count is None:
                    return self._no(Reason.MALFORMED, f"the counters of {port}: not readable")
                counts[port] = count
        except SwitchRefused as refused:
            return self._no(refused.reason, str(refused))
        return counts

    async def _read(self, port: str) -> PortCounters:
        """Return a port's counters. A lost answer is asked for once more: among the reads of a
        hundred ports, one that is lost tells nothing about the switch.
        """
        try:
            return await self._switch.read_counters(port)
        except SwitchRefused:
            raise
        except PortError:
            return await self._switch.read_counters(port)

    def _no(self, reason: Reason, detail: str, unblock: str = "Look at the switch.") -> Blocker:
        return Blocker(
            reason=reason, subject=f"{self._node.id}/switch.os", detail=detail, unblock=unblock
        )


def _get_bytes(counters: PortCounters) -> int | None:
    return counters.carried_bytes


def _get_errors(counters: PortCounters) -> int | None:
    return counters.in_errors


SWITCH_METHOD = "switch_settings"
KEY_USER = "tacacs"  # in the store; a key has no user


async def write_switch_settings(site: Site, node: Node, step: Step) -> Work | Blocker:
    settings = site.machine_sets.get(SWITCH, {}).get(step.to_version)
    if settings is None:
        return _no(node, Reason.NOT_OFFERED, f"the matrix has no settings {step.to_version!r}")
    switch = await open_switch(site, node)
    if isinstance(switch, Blocker):
        return switch
    writer = _Writer(site, node, switch, step.to_version, settings)
    return Work(
        act=Act(
            name=f"{step.component} {step.to_version}",
            before={"step": step.model_dump(mode="json"), "slots": list(step.slots)},
            look=writer.look,
            send=writer.send,
            happened=lambda _before, now: now.get("version") == step.to_version,
            request_max_s=site.settings.switch_limit_s,
            destroys=None,
        ),
        finish=writer.finish,
    )


class _Writer:
    def __init__(
        self, site: Site, node: Node, switch: SwitchSwitch, name: str, settings: Mapping[str, str]
    ) -> None:
        self._site = site
        self._node = node
        self._switch = switch
        self._name = name
        self._settings = settings

    async def look(self) -> Snapshot | Blocker:
        """Return the version that runs: the set's name, or "none"."""
        shown = await ask(
            self._node, collector.read_switch_settings(self._site, self._node, self._switch)
        )
        if isinstance(shown, Blocker):
            return shown
        return {"version": shown[0].version if shown else None}

    async def send(self) -> Sent | Blocker:
        """Write the set in the switch's turn, and save it once the switch shows it."""
        key: Secret | None = None
        servers = running_sets.list_servers(self._settings, "tacacs")
        if servers and self._switch.facts.takes_tacacs_key:
            key = await collector.read_key(self._site)
            if key is None:
                detail = "the set has TACACS+ servers, and no file has their key"
                return _no(self._node, Reason.PRECONDITION, detail, "Set `switch_tacacs_key_file`.")
            if await collector.is_current_key(self._site, self._node, key):
                shown = await ask(self._node, self._switch.read_services(APPLIED))
                if isinstance(shown, Blocker):
                    return shown
                key = None if shown.tacacs_keyed and shown.tacacs == servers else key
        change = ServiceChange(
            ntp=running_sets.list_servers(self._settings, "ntp"),
            syslog=running_sets.list_servers(self._settings, "syslog"),
            tacacs=servers,
            logins=running_sets.list_servers(self._settings, "login_order"),
            tacacs_key=key,
        )
        try:
            async with turn_of(self._node):
                return await self._write(change)
        except SwitchSwitchRefused as refused:
            return describe(self._node, refused)

    async def finish(self, _entry: LedgerEntry) -> Blocker | None:
        now = await self.look()
        if isinstance(now, Blocker):
            return now
        if now["version"] == self._name:
            return None
        return _no(
            self._node,
            Reason.UPDATE_FAILED,
            f"the settings {self._name} were accepted, and do not show",
            "Compare the switch's configuration with the set, then retry the node.",
        )

    async def _write(self, change: ServiceChange) -> Sent | Blocker:
        before = await self._switch.read_services(APPLIED)
        name = collector.name_key(self._node)
        if change.tacacs_key is not None:
            await self._site.reach.credentials.begin(name, KEY_USER, change.tacacs_key)
        revision = await self._switch.apply_services(change)
        login = await self._switch.check_login()
        shown = await self._switch.read_services(APPLIED) if login.status == "accepted" else None
        if shown is None or not _shows(shown, change):
            lost = "the daemon's login is refused" if shown is None else "it does not show them"
            return await self._take_back(before, f"change {revision or 'none'}: {lost}")
        await self._switch.save_configuration()
        if change.tacacs_key is not None:
            await self._site.reach.credentials.confirm(name)
        return Sent()

    async def _take_back(self, before: SwitchServices, why: str) -> Blocker:
        former = ServiceChange(
            ntp=before.ntp, syslog=before.syslog, tacacs=before.tacacs, logins=before.logins
        )
        taken = "they were taken back"
        try:
            await self._switch.apply_services(former)
        except SwitchSwitchRefused as refused:
            taken = f"they could not be taken back ({refused}); a restart brings the former ones"
        return _no(
            self._node,
            Reason.SWITCH_REFUSED,
            f"{why}; {taken}, and nothing was saved",
            "Look at the switch's own log, then retry the node.",
        )


def _shows(shown: SwitchServices, change: ServiceChange) -> bool:
    pairs = (
        (change.ntp, shown.ntp),
        (change.syslog, shown.syslog),
        (change.tacacs, shown.tacacs),
        (change.logins, shown.logins),
    )
    unordered = pairs[:2]
    return all(new is None or set(new) == set(now) for new, now in unordered) and all(
        new is None or new == now for new, now in pairs[2:]
    )


def _no(node: Node, reason: Reason, detail: str, unblock: str = "") -> Blocker:
    return Blocker(
        reason=reason,
        subject=f"{node.id}/{SWITCH}",
        detail=detail,
        unblock=unblock or "Add them under machine_settings.",
    )
