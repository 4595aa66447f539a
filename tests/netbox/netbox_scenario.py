"""A small fleet shown in a NetBox and read back: the same for the real one and the stand-in."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynetbox
import pytest
import yaml
from program import Done, run

from provisioner.daemon.data import Data, open_data
from provisioner.integrations.inventories.adoption_sources import read_listed
from provisioner.model.input_error import InputError
from provisioner.model.inventory import Inventory
from provisioner.model.location import Location, Port
from provisioner.model.node import BmcRef, Node, NodeKind, State
from provisioner.model.outcome import Reason


def host(number: int) -> Node:
    return Node(
        id=f"su0-n{number:02d}",
        kind=NodeKind.HOST,
        state=State.RELEASED,
        tenant="red",
        address=f"10.64.0.{10 + number}",
        location=Location(site="Fra 1", rack="r01", index=number),
        bmcs=(
            BmcRef(name="host", url=f"https://10.0.0.{10 + number}:443"),
            BmcRef(name="NIC_0", url=f"https://10.0.0.{20 + number}", kind="supernic"),
        ),
        ports=(
            Port(
                switch="leaf-su0-r0",
                interface=f"swp{number}s0",
                rail=0,
                nic_slot="NIC_0",
                address=f"172.0.0.{2 * number + 1}/31",
            ),
        ),
    )


NODES = (
    host(1),
    host(2),
    Node(
        id="leaf-su0-r0",
        kind=NodeKind.SWITCH,
        address="https://10.0.1.10:8765",
        location=Location(site="Fra 1", rack="r01"),
    ),
)
OURS = {"name": "provisioner", "slug": "provisioner"}
INVENTORY = Inventory(node="su0-n01", vendor="supermicro", system_serial="S1", model="SYS-821GE")


def filled(folder: Path) -> None:
    """A data directory with the fleet."""

    async def fill() -> None:
        async with open_data(folder, 1.0) as data:
            for node in NODES:
                await data.store.nodes.add(node)
            operation = await data.store.operations.open("su0-n01", "discovered", 1.0)
            assert operation is not None
            await data.store.operations.record(operation, inventory=INVENTORY, now=1.0)

    asyncio.run(fill())


def changed(folder: Path, name: str, **changes: Any) -> None:
    """Another node from now on."""

    async def change() -> None:
        async with open_data(folder, 1.0) as data:
            await save(data, name, changes)

    asyncio.run(change())


async def save(data: Data, name: str, changes: dict[str, Any]) -> None:
    node = await data.store.nodes.get(name)
    assert node is not None
    await data.store.nodes.save(node.model_copy(update=changes))


@dataclass
class Site:
    """A data directory beside a NetBox."""

    folder: Path
    url: str
    token: str

    def __post_init__(self) -> None:
        (self.folder / "token").touch(0o600)
        (self.folder / "token").write_text(self.token)
        filled(self.folder / "var")

    @property
    def api(self) -> Any:
        """NetBox as a person's own script sees it."""
        return pynetbox.api(self.url, token=self.token)

    def netbox(self, *words: str) -> Done:
        return run(["netbox", *words, "--url", self.url, "--token-file", "token"], self.folder)

    def plan(self, *words: str) -> list[dict[str, Any]]:
        done = self.netbox("plan", "--json", *words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def apply(self, *words: str) -> None:
        done = self.netbox("apply", "--yes", *words)
        assert done.returncode == 0, done.stderr


def verbs(changes: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(c["verb"], c["kind"], c["key"]) for c in changes]


def the_fleet_is_shown_once_and_followed(site: Site) -> None:
    """Everything is made by the first run, nothing by the second, and a change by the third."""
    first = site.plan()
    assert {c["verb"] for c in first} == {"create"}
    assert list(site.api.dcim.devices.all()) == []  # a plan makes nothing
    site.apply()
    assert site.plan("--prune") == []
    changed(site.folder / "var", "su0-n01", state=State.QUARANTINED, tenant="")
    (change,) = site.plan()
    assert change["wanted"] == {"status": "failed", "description": "quarantined"}
    site.apply()
    device = site.api.dcim.devices.get(name="su0-n01")
    assert (device.status.value, device.serial, device.rack.name) == ("failed", "S1", "r01")
    assert site.plan() == []


def what_others_made_is_left_alone(site: Site) -> None:
    """After the first scenario: somebody's device, rack and remark stay, pruning or not."""
    api = site.api
    own = api.dcim.devices.get(name="su0-n02")
    given = {"site": own.site.id, "role": own.role.id, "device_type": own.device_type.id}
    api.dcim.devices.create(name="console-server", **given)
    own.update({"tags": [], "description": "mine"})  # a person took it over
    gone = api.dcim.devices.create(name="su9-n99", tags=[OURS], **given)
    changed(site.folder / "var", "su0-n02", state=State.RETIRED)
    kept = verbs(site.plan())
    assert kept == [("leave", "device", "su0-n02"), ("leave", "device", "su9-n99")]
    site.apply("--prune")
    (others,) = api.dcim.devices.filter(name="console-server")
    others.delete()  # by its owner: it has no BMC, and would be none of the list for intake
    assert api.dcim.devices.get(name="su0-n02").description == "mine"
    assert api.dcim.devices.get(id=gone.id) is None


def a_cable_that_was_moved_is_followed_with_prune_only(site: Site) -> None:
    """After the others: the leaf's port is another one."""
    port = NODES[0].ports[0].model_copy(update={"interface": "swp9s0"})
    changed(site.folder / "var", "su0-n01", ports=(port,))
    waiting = [c for c in site.plan() if c["kind"] == "cable"]
    assert {c["verb"] for c in waiting} == {"leave"}
    site.apply("--prune")
    keys = [c for c in verbs(site.plan()) if c[1] != "device"]
    assert keys == []
    (cable,) = site.api.dcim.cables.filter(device="su0-n01")
    assert {str(end) for side in (cable.a_terminations, cable.b_terminations) for end in side} == {
        "NIC_0",
        "swp9s0",
    }


def the_list_for_intake_is_what_was_shown(site: Site) -> None:
    """Names, places, addresses and ports come back."""
    done = site.netbox("expected", "--site", "fra-1")
    assert done.returncode == 0, done.stderr
    told = {node["name"]: node for node in yaml.safe_load(done.stdout)["nodes"]}
    assert set(told) == {"su0-n01", "su0-n02", "leaf-su0-r0"}
    assert told["leaf-su0-r0"]["address"] == "https://10.0.1.10:8765"
    assert told["su0-n01"]["location"] == {"site": "Fra 1", "rack": "r01"}
    assert told["su0-n01"]["bmc"] == {"url": "https://10.0.0.11", "serial": "S1"}
    assert told["su0-n02"]["address"] == "10.64.0.12"
    (port,) = told["su0-n02"]["ports"]
    assert Port.model_validate(port) == NODES[1].ports[0]


def its_hosts_are_a_list_for_an_adoption(site: Site) -> None:
    """A host that serves there comes with its ports; one that does not is refused by name."""
    api = site.api
    api.dcim.devices.get(name="su0-n02").update({"status": "active", "serial": "S2"})
    api.dcim.devices.get(name="su0-n01").update({"status": "planned"})
    base = site.folder / "base.yaml"
    base.write_text("site: fra1\n")
    given = {"from_": "netbox", "source": site.url, "source_token_file": site.folder / "token"}

    merged = read_listed(base, {**given, "source_site": ["fra-1"]})

    nodes = {n.name: n for n in merged.expected.nodes}
    assert set(nodes) == {"su0-n02", "leaf-su0-r0"}
    host = nodes["su0-n02"]
    assert (host.bmc.url, host.bmc.serial) == ("https://10.0.0.12", "S2")
    assert [(p.switch, p.interface) for p in host.ports] == [("leaf-su0-r0", "swp2s0")]
    assert nodes["leaf-su0-r0"].password_env == "SWITCH_PASSWORD"
    assert [(b.reason, b.subject) for b in merged.refused] == [(Reason.PRECONDITION, "su0-n01")]
    with pytest.raises(InputError, match="--source-site"):
        read_listed(base, given)


SCENARIOS = (
    the_fleet_is_shown_once_and_followed,
    what_others_made_is_left_alone,
    a_cable_that_was_moved_is_followed_with_prune_only,
    the_list_for_intake_is_what_was_shown,
    its_hosts_are_a_list_for_an_adoption,
)
