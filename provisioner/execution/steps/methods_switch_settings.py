"""Settings of a switch: written in its turn, read back, and saved.

They concern no traffic, so that nothing is drained. A change whose login or reading fails is taken
back before it is saved: a switch that restarts then has its former configuration in any case.
"""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.execution.actions.once import Act, Sent, Snapshot
from provisioner.execution.actions.work import Site, Work
from provisioner.execution.observe import switch_services
from provisioner.execution.observe.switch_api import ask, describe, open_switch, turn_of
from provisioner.execution.observe.switch_services import APPLIED
from provisioner.model.node import Node
from provisioner.model.operation import LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Step
from provisioner.model.switch import SwitchServices
from provisioner.planning.machine_settings import switch_sets
from provisioner.planning.machine_settings.pinned_sets import SWITCH
from provisioner.ports import Secret
from provisioner.ports.switch import ServiceChange, Switch, SwitchRefused

SWITCH_METHOD = "switch_settings"
KEY_USER = "tacacs"  # in the store; a key has no user


async def write_switch_settings(site: Site, node: Node, step: Step) -> Work | Blocker:
    """Return the work that writes one set."""
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
        ),
        finish=writer.finish,
    )


class _Writer:
    """One set on its way to one switch."""

    def __init__(
        self, site: Site, node: Node, switch: Switch, name: str, settings: Mapping[str, str]
    ) -> None:
        self._site = site
        self._node = node
        self._switch = switch
        self._name = name
        self._settings = settings

    async def look(self) -> Snapshot | Blocker:
        """Return the version that runs: the set's name, or "none"."""
        shown = await ask(
            self._node,
            switch_services.read_switch_settings(self._site, self._node, self._switch),
        )
        if isinstance(shown, Blocker):
            return shown
        return {"version": shown[0].version if shown else None}

    async def send(self) -> Sent | Blocker:
        """Write the set in the switch's turn, and save it once the switch shows it."""
        key: Secret | None = None
        servers = switch_sets.list_servers(self._settings, "tacacs")
        if servers and self._switch.facts.takes_tacacs_key:
            key = await switch_services.read_key(self._site)
            if key is None:
                detail = "the set has TACACS+ servers, and no file has their key"
                return _no(self._node, Reason.PRECONDITION, detail, "Set `switch_tacacs_key_file`.")
            if await switch_services.is_current_key(self._site, self._node, key):
                shown = await ask(self._node, self._switch.read_services(APPLIED))
                if isinstance(shown, Blocker):
                    return shown
                key = None if shown.tacacs_keyed and shown.tacacs == servers else key
        change = ServiceChange(
            ntp=switch_sets.list_servers(self._settings, "ntp"),
            syslog=switch_sets.list_servers(self._settings, "syslog"),
            tacacs=servers,
            logins=switch_sets.list_servers(self._settings, "login_order"),
            tacacs_key=key,
        )
        try:
            async with turn_of(self._node):
                return await self._write(change)
        except SwitchRefused as refused:
            return describe(self._node, refused)

    async def finish(self, _entry: LedgerEntry) -> Blocker | None:
        """Read the switch again."""
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
        name = switch_services.name_key(self._node)
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
        except SwitchRefused as refused:
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
