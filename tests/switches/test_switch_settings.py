"""Sets of settings on a switch: read, written in one change, read back, saved; keys never shown.

Cumulus is the simulator's switch, whose objects by release are from NVIDIA's NVUE reference; SONiC
is the stand-in of its commands.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_site import SmallSite
from sonic_standin import SonicSwitch
from virtual_time import VirtualClock, run

from provisioner.execution.actions.reach import Reach
from provisioner.execution.observe.collector import read_switch_settings
from provisioner.execution.observe.rotation import open_switch
from provisioner.execution.steps.methods_switch_settings import write_switch_settings
from provisioner.integrations.cumulus.services import read_services
from provisioner.integrations.cumulus.system import SYSTEM as CUMULUS
from provisioner.integrations.sim.switches.nvue_schema import find_violation, take_over
from provisioner.integrations.sonic import services as sonic_services
from provisioner.integrations.sonic.system import SYSTEM as SONIC
from provisioner.model.inventory import Activation
from provisioner.model.node import Node, NodeKind
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Disruption, Step, StepKind
from provisioner.ports import Secret
from provisioner.ports.switch import ServiceChange
from provisioner.runtime.switch_systems import SwitchSystems, Wires
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.repositories.vault import Vault
from provisioner.store.sql_store import open_store

KEY = "a-key-of-the-site"
SETS = {
    "switch-1": {
        "ntp": "10.0.0.1,10.0.0.2",
        "syslog": "10.0.0.3",
        "tacacs": "10.0.0.5,10.0.0.4",
        "login_order": "tacacs,local",
    },
    "switch-0": {"ntp": "off", "syslog": "off", "tacacs": "off", "login_order": "local"},
    "time-only": {"ntp": "10.0.0.1"},
}
RELEASES = ("5.11.0", "5.12.1", "5.13.0", "5.15.0", "5.16.0")


class Rig:
    """A switch behind the whole step; `site` is one of Cumulus, `sonic` the other system."""

    def __init__(self, folder: Path, version: str = "") -> None:
        self.site = SmallSite()
        self.sonic = SonicSwitch([("Ethernet0", "172.16.0.3/31")])
        self.leaf = self.site.switches["leaf-0"]
        if version:
            self.leaf.partitions[1] = version
            for tree in (self.leaf.applied, self.leaf.startup, self.leaf.operational):
                tree.update(take_over(version, tree))
        self.vault = Vault(open_store(":memory:", inline=True), MasterKey.generate())
        self.key = folder / "key"
        self.key.write_text(f"{KEY}\n")
        self.key.chmod(0o600)
        settings = self.site.settings.model_copy(update={"switch_tacacs_key_file": str(self.key)})
        systems = [CUMULUS, SONIC]
        switches = SwitchSystems(Wires(self.site.transport, self.sonic), systems)
        self.effects = replace(
            self.site.effects,
            settings=settings,
            reach=Reach(None, switches, self.vault),  # type: ignore[arg-type]  # no BMCs
            machine_sets={"switch.settings": SETS},
        )
        address = "https://leaf-0" if version else "ssh://leaf-0"
        self.node = Node(id="leaf-0", kind=NodeKind.SWITCH, address=address)

    async def write(self, name: str) -> Blocker | None:
        """Carry out the step of one set."""
        step = Step(
            kind=StepKind.UPDATE,
            component="switch.settings",
            slots=("switch",),
            to_version=name,
            method="switch_settings",
            activation=Activation.NONE,
            disruption=Disruption.NONE,
            duration_s=60,
            expected=(),
            reason="a test",
        )
        work = await write_switch_settings(self.effects, self.node, step)
        if isinstance(work, Blocker):
            return work
        before = await work.act.look()
        assert not isinstance(before, Blocker)
        sent = await work.act.send()
        if isinstance(sent, Blocker):
            return sent
        entry = LedgerEntry(
            operation="o",
            node="leaf-0",
            action=work.act.name,
            attempt=1,
            status=ActionStatus.CONFIRMED,
            intended_at=0.0,
            before={},
        )
        return await work.finish(entry)

    async def read(self) -> str | None:
        """Return the set that runs."""
        switch = await open_switch(self.effects, self.node)
        assert not isinstance(switch, Blocker)
        (component,) = await read_switch_settings(self.effects, self.node, switch)
        return component.version


def lived(rig: Rig, story: Callable[[Rig], Awaitable[Any]]) -> Any:
    async def live() -> Any:
        await rig.vault.put("leaf-0/api", "cumulus", Secret("cumulus"))
        return await story(rig)

    return run(live())


async def exchange(rig: Rig) -> Any:
    names = [await rig.read()]
    for name in ("switch-1", "time-only", "switch-0", "switch-1"):
        assert await rig.write(name) is None
        names.append(await rig.read())
    return names


@pytest.mark.parametrize("version", RELEASES)
def test_a_set_is_written_read_back_and_saved_on_every_dialect(
    tmp_path: Path, version: str
) -> None:
    rig = Rig(tmp_path, version)

    assert lived(rig, exchange) == ["switch-0", "switch-1", "time-only", "switch-0", "switch-1"]
    assert rig.leaf.startup == rig.leaf.applied, "it survives a restart"


def test_a_set_is_written_read_back_and_saved_on_sonic(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.sonic.config["TACPLUS"] = {"global": {"passkey": "of-the-site"}}

    assert lived(rig, exchange) == ["switch-0", "switch-1", "time-only", "switch-0", "switch-1"]
    tables = rig.sonic.startup
    assert set(tables["NTP_SERVER"]) == {"10.0.0.1", "10.0.0.2"}
    ranks = {name: row["priority"] for name, row in tables["TACPLUS_SERVER"].items()}
    assert ranks == {"10.0.0.5": "2", "10.0.0.4": "1"}, "the higher one is asked first"
    assert tables["AAA"] == {"authentication": {"login": "tacacs+,local"}}


@pytest.mark.parametrize("version", RELEASES)
def test_the_key_is_in_one_request_alone_and_nowhere_else(tmp_path: Path, version: str) -> None:
    rig = Rig(tmp_path, version)

    async def story(rig: Rig) -> list[str]:
        assert await rig.write("switch-1") is None
        first = [json.dumps(a.body) for a in rig.site.transport.asked if KEY in json.dumps(a.body)]
        assert len(first) == 1
        rig.site.transport.asked.clear()
        assert await rig.write("switch-1") is None
        switch = await open_switch(rig.effects, rig.node)
        assert not isinstance(switch, Blocker)
        shown = await switch.read_services("applied")
        assert KEY not in str(shown)
        return [a.line for a in rig.site.transport.asked if KEY in json.dumps(a.body)]

    assert lived(rig, story) == [], "a switch that has the key is not given it again"


def test_another_key_of_the_site_is_drift_and_is_written(tmp_path: Path) -> None:
    async def story(rig: Rig) -> Any:
        assert await rig.write("switch-1") is None
        rig.key.write_text("another-key")
        drifted = await rig.read()
        assert await rig.write("switch-1") is None
        servers = rig.leaf.startup["system"]["aaa"]["tacacs"]["server"]
        return drifted, await rig.read(), {entry["secret"] for entry in servers.values()}

    assert lived(Rig(tmp_path, "5.15.0"), story) == ("none", "switch-1", {"another-key"})


def test_tacacs_without_a_key_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    async def story(rig: Rig) -> Any:
        rig.key.unlink()
        refused = await rig.write("switch-1")
        assert isinstance(refused, Blocker)
        sent = [a.line for a in rig.site.transport.asked if a.method != "GET"]
        return refused.reason, refused.unblock, sent

    assert lived(Rig(tmp_path, "5.12.1"), story) == (
        Reason.PRECONDITION,
        "Set `switch_tacacs_key_file`.",
        [],
    )


def test_a_sonic_switch_gets_no_key_since_it_would_log_it(tmp_path: Path) -> None:
    rig = Rig(tmp_path)

    async def story(rig: Rig) -> Any:
        refused = await rig.write("switch-1")
        assert isinstance(refused, Blocker)
        assert "config tacacs passkey" in refused.detail
        return refused.reason

    assert lived(rig, story) is Reason.NOT_OFFERED
    assert not any("apply-patch" in line or KEY in line for line in rig.sonic.calls)


def test_a_change_that_does_not_show_is_taken_back_and_not_saved(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "5.15.0")

    async def story(rig: Rig) -> Any:
        assert await rig.write("time-only") is None
        saved = json.dumps(rig.leaf.startup)
        switch = rig.leaf
        build = switch.build_tree

        def drop_syslog(revision: Any) -> Any:
            tree = build(revision)
            tree["system"].pop("syslog", None)
            return tree

        switch.build_tree = drop_syslog  # type: ignore[method-assign]
        refused = await rig.write("switch-1")
        assert isinstance(refused, Blocker)
        assert "taken back" in refused.detail
        switch.build_tree = build  # type: ignore[method-assign]
        return await rig.read(), json.dumps(rig.leaf.startup) == saved

    assert lived(rig, story) == ("time-only", True)


def test_a_configuration_that_is_not_saved_is_drift(tmp_path: Path) -> None:
    async def story(rig: Rig) -> Any:
        switch = await open_switch(rig.effects, rig.node)
        assert not isinstance(switch, Blocker)
        await switch.apply_services(ServiceChange(ntp=("10.0.0.1",)))
        before = await rig.read()
        assert await rig.write("time-only") is None
        return before, await rig.read(), rig.leaf.startup == rig.leaf.applied

    assert lived(Rig(tmp_path, "5.15.0"), story) == ("none", "time-only", True)


def test_an_account_that_tacacs_would_be_asked_about_first_is_not_locked_out(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path, "5.15.0")
    rig.leaf.username = "provisioner"

    async def story(rig: Rig) -> Any:
        await rig.vault.put("leaf-0/api", "provisioner", Secret("cumulus"))
        switch = rig.effects.reach.switches.open(
            "leaf-0",
            await rig.effects.reach.switch(rig.node),  # type: ignore[arg-type]
            VirtualClock(),
            rig.effects.settings,
        )
        try:
            await switch.apply_services(ServiceChange(logins=("tacacs", "local")))
        except Exception as error:
            return str(error)
        return ""

    assert "login_order: local,tacacs" in lived(rig, story)


@pytest.mark.parametrize(
    ("version", "body"),
    [
        ("5.14.0", {"system": {"ntp": {"server": {"10.0.0.1": {}}}}}),
        ("5.15.0", {"service": {"ntp": {"mgmt": {"server": {"10.0.0.1": {}}}}}}),
        ("5.12.0", {"system": {"syslog": {"server": {"10.0.0.1": {}}}}}),
        ("5.13.0", {"service": {"syslog": {"mgmt": {"server": {"10.0.0.1": {}}}}}}),
        ("5.12.0", {"system": {"aaa": {"tacacs": {"server": {"1": {"host": "10.0.0.1"}}}}}}),
        ("5.11.0", {"system": {"aaa": {"tacacs": {"server": {"10.0.0.1": {"priority": 1}}}}}}),
    ],
)
def test_the_stand_in_refuses_objects_of_another_release(version: str, body: Any) -> None:
    assert find_violation(version, (), body)


@pytest.mark.parametrize("odd", [None, 7, [], {"server": 7}, {"server": {"x": 7}}, {"mgmt": 1}])
def test_trees_of_another_form_show_no_servers(odd: Any) -> None:
    tree = odd if isinstance(odd, dict) else {}
    shown = read_services({"ntp": tree, "syslog": tree, "aaa": {"tacacs": odd}}, (5, 12))
    assert shown.tacacs in ((), ("x",))
    rows = {"NTP_SERVER": odd, "AAA": odd, "TACPLUS_SERVER": odd, "TACPLUS": odd}
    assert sonic_services.read_services(rows).logins == ("local",)
