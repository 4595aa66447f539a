"""A BMC that got another address is followed if certificate, login and serial prove it there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from rig import World
from served import Served, run

from provisioner.integrations.twin.wires import MemoryBmcs
from provisioner.model.node import BmcRef, Node
from provisioner.ports import BmcAddress, Secret
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.repositories.vault import Vault

NODE = "su0-n01"
PATH = f"/nodes/{NODE}/bmc-address"
NEW = "https://10.0.1.77"
PASSWORD = "Of-this-site-1"
PIN = "ab" * 32


class PinnedBmcs(MemoryBmcs):
    """Simulated BMCs, each with a certificate of its own, wherever it is."""

    def __init__(self, world: World, pins: dict[str, str]) -> None:
        super().__init__(world.services, world.wire)
        self.pins = pins

    async def fingerprint(self, bmc: BmcAddress) -> str:
        return self.pins.get(bmc.url, "00" * 32)


@dataclass
class Moved:
    """A served node whose BMC the simulator has at another address."""

    world: World
    served: Served
    old: str
    bmcs: PinnedBmcs

    async def read(self) -> Node:
        node = await self.served.store.nodes.get(NODE)
        assert node is not None
        return node

    async def change(self, **changes: str) -> None:
        """Change the row of the BMC."""
        node = await self.read()
        bmcs = (node.bmcs[0].model_copy(update=changes),)
        await self.served.store.nodes.save(node.model_copy(update={"bmcs": bmcs}))


async def move(served: Served, directory: Path) -> Moved:
    world = World(directory, 2, 3)
    old = world.site.urls[f"{NODE}/host"]
    service = world.services.pop(old)
    world.services[NEW] = service
    for account in service.accounts.accounts.values():
        account.password = PASSWORD
        account.change_required = False
    machine = world.site.machines[NODE]
    vault = Vault(served.store, MasterKey.generate())
    await vault.put(f"{NODE}/host", machine.bmcs["host"].username, Secret(PASSWORD))
    bmcs = PinnedBmcs(world, {NEW: PIN})
    for name, value in {"transport": bmcs, "vault": vault}.items():
        object.__setattr__(served.parts, name, value)
    moved = Moved(world, served, old, bmcs)
    node = await moved.read()
    ref = BmcRef(name="host", url=old, pin=PIN, serial=machine.host.serial)
    await served.store.nodes.save(node.model_copy(update={"bmcs": (ref,)}))
    return moved


def test_a_proved_address_enters_the_row_and_nothing_is_changed_on_the_bmc(tmp_path: Path) -> None:
    async def scenario(served: Served) -> None:
        moved = await move(served, tmp_path)
        before = len(moved.world.site.machines[NODE].log)
        _, dry = await served.ask("operator", "POST", f"{PATH}?dry_run=true", {"url": NEW})
        assert "certificate, login and serial agree" in dry["result"]["lines"][0]
        assert (await moved.read()).bmcs[0].url == moved.old

        status, done = await served.ask("operator", "POST", PATH, {"url": NEW + "/"})

        assert (status, done["state"], done["kind"]) == (200, "done", "node.bmc_address")
        ref = (await moved.read()).bmcs[0]
        assert (ref.url, ref.pin) == (NEW, PIN)
        rows = await served.store.journal.list(0, 1000)
        (event,) = [r["detail"] for r in rows if r["detail"].get("request") == "bmc_address"]
        assert event["why"] == f"host: {moved.old} -> {NEW}"
        assert len(moved.world.site.machines[NODE].log) == before
        status, twice = await served.ask("operator", "POST", PATH, {"url": NEW})
        assert (status, twice["blockers"][0]["detail"]) == (409, "its row has this address already")

    run(scenario)


def test_a_bmc_whose_certificate_is_being_exchanged_is_followed_by_either(tmp_path: Path) -> None:
    async def scenario(served: Served) -> None:
        moved = await move(served, tmp_path)
        await moved.change(pin=f"{'cd' * 32},{PIN}")

        status, done = await served.ask("operator", "POST", PATH, {"url": NEW})

        assert (status, done["state"]) == (200, "done"), done
        ref = (await moved.read()).bmcs[0]
        assert (ref.url, ref.pin) == (NEW, f"{'cd' * 32},{PIN}")

    run(scenario)


async def other_certificate(moved: Moved) -> None:
    moved.bmcs.pins.clear()


async def other_serial(moved: Moved) -> None:
    await moved.change(serial="ANOTHER")


async def no_serial(moved: Moved) -> None:
    await moved.change(serial="")


async def no_pin(moved: Moved) -> None:
    await moved.change(pin="")


async def other_password(moved: Moved) -> None:
    for account in moved.world.services[NEW].accounts.accounts.values():
        account.password = "Another-1"


async def owned(moved: Moved) -> None:
    other = await moved.served.store.nodes.get("su0-n02")
    assert other is not None
    ref = BmcRef(name="host", url=NEW)
    await moved.served.store.nodes.save(other.model_copy(update={"bmcs": (ref,)}))


async def busy(moved: Moved) -> None:
    await moved.served.store.operations.open(NODE, "bmc time", 1.0)


@pytest.mark.parametrize(
    ("prepare", "status", "reason", "detail"),
    [
        (other_certificate, 503, "certificate_changed", "another certificate"),
        (other_serial, 409, "pairing_failed", "the row has ANOTHER"),
        (no_serial, 409, "precondition", "no serial"),
        (no_pin, 409, "precondition", "no pinned certificate"),
        (other_password, 503, "login_refused", ""),
        (owned, 409, "precondition", "is the address of su0-n02"),
        (busy, 409, "precondition", "an operation of it is under way: bmc time"),
    ],
)
def test_an_address_that_is_not_proved_is_refused(
    tmp_path: Path,
    prepare: Callable[[Moved], Awaitable[None]],
    status: int,
    reason: str,
    detail: str,
) -> None:
    async def scenario(served: Served) -> None:
        moved = await move(served, tmp_path)
        await prepare(moved)
        code, refused = await served.ask("operator", "POST", PATH, {"url": NEW})

        assert code == status  # 503: the device did not answer as it has to
        assert refused["blockers"][0]["reason"] == reason
        assert detail in refused["blockers"][0]["detail"]
        assert (await moved.read()).bmcs[0].url == moved.old

    run(scenario)


@pytest.mark.parametrize(
    ("path", "body", "status", "detail"),
    [
        (PATH, {"url": NEW, "bmc": "DPU_9"}, 409, "it has no BMC DPU_9"),
        ("/nodes/leaf-su0-r0/bmc-address", {"url": NEW}, 409, "it has no BMC"),
        (PATH, {"url": "ftp://10.0.1.7"}, 400, ""),
        (PATH, {"url": "https://root:secret@10.0.1.7"}, 400, ""),
    ],
)
def test_a_wrong_request_is_refused(
    tmp_path: Path, path: str, body: dict[str, str], status: int, detail: str
) -> None:
    async def scenario(served: Served) -> None:
        await move(served, tmp_path)
        code, refused = await served.ask("operator", "POST", path, body)

        assert code == status
        assert detail in str(refused)

    run(scenario)
