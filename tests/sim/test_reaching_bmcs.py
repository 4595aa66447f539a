"""Which BMC or switch is reached with which login, and what keeps an act from being sent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from bmc_wire import Wire
from test_leaks import Book, Now, raised

from provisioner import quirks
from provisioner.adapters.redfish.walk import ROOT_KNOWN_S
from provisioner.execution.actions.power import LeakGate
from provisioner.execution.actions.reach import Reach
from provisioner.integrations.sim.redfish.redfish_logs import DRY, WET
from provisioner.model.node import BmcRef, Node, NodeKind
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import (
    AccountLocked,
    BmcAddress,
    Call,
    Reply,
    Secret,
    SwitchAddress,
    Unreachable,
)
from provisioner.runtime.switch_systems import make_switches

HOST = BmcRef(name="host", url="https://bmc.example")
NODE = Node(id="n0", kind=NodeKind.HOST, bmcs=(HOST,))
LEAF = Node(id="leaf-0", kind=NodeKind.SWITCH, address="https://10.0.0.8", os="cumulus")
ROOT = "/redfish/v1"


class Logins:
    """Every login is stored, except those of `unknown`."""

    password = "x"

    async def current(self, name: str) -> tuple[str, Secret] | None:
        return None if name.startswith("unknown/") else ("admin", Secret(self.password))


class Bmc(Wire):
    """A BMC; `root` is the status of its service root for who presents no login."""

    def __init__(self, root: int = 200) -> None:
        super().__init__("supermicro")
        self.root = root
        self.asked: list[tuple[str, bool]] = []

    async def request(self, address: BmcAddress, call: Call) -> Reply:
        self.asked.append((call.path, bool(address.username)))
        if call.path == ROOT and self.root != 200 and not address.username:
            return Reply(self.root, {}, b"{}")
        return await super().request(address, call)


def reach_of(bmc: Bmc) -> Reach:
    nothing: Any = None
    return Reach(bmc, make_switches(nothing), Logins(), pause=bmc.sleep)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("node", "bmc", "reason"),
    [(NODE, "card", Reason.NOT_OFFERED), (NODE.model_copy(update={"id": "unknown"}), "host",
                                          Reason.LOGIN_REFUSED)],
)  # fmt: skip
def test_a_bmc_that_cannot_be_reached_is_named(node: Node, bmc: str, reason: Reason) -> None:
    refused = asyncio.run(reach_of(Bmc()).redfish(node, bmc))

    assert isinstance(refused, Blocker)
    assert (refused.reason, refused.subject) == (reason, f"{node.id}/{bmc}")


def test_a_bmc_is_asked_by_the_pin_of_its_row_and_by_a_new_one_once_that_changed() -> None:
    pins = []

    class Pinned(Bmc):
        async def request(self, address: BmcAddress, call: Call) -> Reply:
            pins.append(address.pin)
            return await super().request(address, call)

    async def main() -> None:
        reach = reach_of(Pinned())
        for pin in ("a" * 64, "b" * 64):
            row = NODE.model_copy(update={"bmcs": (HOST.model_copy(update={"pin": pin}),)})
            assert not isinstance(await reach.redfish(row, "host"), Blocker)
            assert {*pins} == {pin}
            pins.clear()

    asyncio.run(main())


def test_a_login_that_is_being_changed_is_held_by_one_and_used_by_nobody() -> None:
    reach = reach_of(Bmc())

    async def main() -> Any:
        with reach.hold_login("n0/host") as first, reach.hold_login("leaf-0/api"):
            with reach.hold_login("n0/host") as second:
                pass
            with pytest.raises(AccountLocked):  # the second one gave nothing free
                await reach.redfish(NODE, "host")
            switch = await reach.switch(LEAF)
        with reach.hold_login("n0/host") as again:
            pass
        return first, second, again, switch, await reach.redfish(NODE, "host")

    first, second, again, switch, client = asyncio.run(main())

    assert (first, second, again) == (True, False, True)
    assert (switch.reason, switch.subject) == (Reason.ACCOUNT_LOCKED, "leaf-0/api")
    assert not isinstance(client, Blocker)


@pytest.mark.parametrize("status", [401, 403])
def test_a_service_root_that_wants_a_login_is_asked_again_with_it(status: int) -> None:
    bmc = Bmc(status)
    client = asyncio.run(reach_of(bmc).redfish(NODE, "host"))

    assert not isinstance(client, Blocker)
    assert [login for path, login in bmc.asked if path == ROOT][:2] == [False, True]


@pytest.mark.parametrize("status", [400, 503])
def test_a_bmc_that_is_starting_is_given_no_vendor_and_asked_again(status: int) -> None:
    bmc = Bmc(status)
    reach = reach_of(bmc)

    async def main() -> Any:
        with pytest.raises(Unreachable) as starting:
            await reach.redfish(NODE, "host")
        assert not starting.value.maybe_executed
        assert not any(login for _, login in bmc.asked)
        bmc.root = 200
        return await reach.redfish(NODE, "host")

    assert not isinstance(asyncio.run(main()), Blocker)


def test_a_vendor_is_told_by_a_fresh_root_that_is_read_without_a_login_and_trusted_alike() -> None:
    asked = []

    class Bare(Bmc):
        async def request(self, address: BmcAddress, call: Call) -> Reply:
            asked.append((call.path, address, call.known_s))
            return await super().request(address, call)

    address = BmcAddress(HOST.url, "admin", Secret("x"), insecure=True)
    quirk = asyncio.run(reach_of(Bare()).quirk(address))

    assert quirk is quirks.ALL["supermicro"]
    assert asked == [(ROOT, BmcAddress(HOST.url, insecure=True), ROOT_KNOWN_S)]


def test_a_service_root_that_is_no_object_names_no_vendor() -> None:
    class Listing(Bmc):
        async def request(self, address: BmcAddress, call: Call) -> Reply:
            return Reply(200, {}, b"[]")

    assert asyncio.run(reach_of(Listing()).quirk(BmcAddress(HOST.url))) is quirks.UNKNOWN


def test_a_bmc_is_asked_for_its_vendor_once_and_a_new_password_is_used_at_once() -> None:
    bmc = Bmc()
    reach = reach_of(bmc)

    async def main() -> list[Any]:
        clients = [await reach.redfish(NODE, "host") for _ in range(2)]
        reach.credentials.password = "y"  # type: ignore[attr-defined]
        return [*clients, await reach.redfish(NODE, "host")]

    first, same, changed = asyncio.run(main())

    assert first is same
    assert (first.address.secret.reveal(), changed.address.secret.reveal()) == ("x", "y")
    assert bmc.asked.count((ROOT, False)) == 1


@pytest.mark.parametrize(("state", "refused"), [(DRY, False), (WET, True)])
def test_no_act_goes_to_a_wet_host_or_its_cards(state: str, refused: bool) -> None:
    bmc = Bmc()
    bmc.client.machine.leak_detectors = {"Chassis_0_LeakDetector_0_ColdPlate": state}

    blocker = asyncio.run(reach_of(bmc).refuse_wet(NODE))

    assert (blocker is not None) is refused


def test_no_client_of_a_bmc_starts_a_wet_host() -> None:
    bmc = Bmc()
    bmc.client.machine.leak_detectors = {"Chassis_0_LeakDetector_0_ColdPlate": WET}

    async def main() -> Any:
        client = await reach_of(bmc).redfish(NODE, "host")
        assert not isinstance(client, Blocker)
        return await client.reset_system("On")

    refused = asyncio.run(main())

    assert (refused.reason, refused.subject) == (Reason.LEAK, "n0")


def test_detectors_are_behind_the_bmc_of_the_host() -> None:
    bmc = Bmc()
    cards = NODE.model_copy(update={"bmcs": (HOST.model_copy(update={"name": "card"}),)})

    assert asyncio.run(reach_of(bmc).refuse_wet(cards)) is None
    assert bmc.asked == []
    assert asyncio.run(reach_of(Bmc(503)).refuse_wet(NODE)) is None  # silence decides nothing


@pytest.mark.parametrize(("state", "refused"), [(DRY, False), (WET, True)])
def test_a_card_beside_the_hosts_bmc_does_not_hide_its_detectors(state: str, refused: bool) -> None:
    bmc = Bmc()
    bmc.client.machine.leak_detectors = {"Chassis_0_LeakDetector_0_ColdPlate": state}
    both = NODE.model_copy(update={"bmcs": (HOST.model_copy(update={"name": "card"}), HOST)})

    assert (asyncio.run(reach_of(bmc).refuse_wet(both)) is not None) is refused


def test_a_host_whose_detectors_no_login_reads_gets_no_act() -> None:
    unknown = NODE.model_copy(update={"id": "unknown"})
    refused = asyncio.run(reach_of(Bmc()).refuse_wet(unknown))

    assert refused is not None
    assert refused.reason is Reason.LOGIN_REFUSED


@pytest.mark.parametrize("alert", [False, True])
def test_an_alert_of_a_leak_counts_where_the_detectors_are_dry_or_not_read(alert: bool) -> None:
    gated = reach_of(Bmc())
    book = Book(raised()) if alert else Book()
    gated.gate = LeakGate(Now(), book)  # type: ignore[arg-type]

    async def ask(reach: Reach) -> list[bool]:
        return [
            await reach.refuse_wet(NODE) is not None,
            await reach.find_recorded_leak("n0") is not None,
        ]

    assert asyncio.run(ask(gated)) == [alert, alert]
    assert asyncio.run(ask(reach_of(Bmc()))) == [False, False]


def test_a_switch_is_reached_by_its_own_pin() -> None:
    others = [BmcRef(name=name, url="https://10.0.0.8", pin=name) for name in ("bmc", "api")]
    leaf = LEAF.model_copy(update={"bmcs": tuple(others)})
    address = asyncio.run(reach_of(Bmc()).switch(leaf))

    assert isinstance(address, SwitchAddress)
    assert address.pin == "api"


def test_a_switch_without_a_stored_login_is_named() -> None:
    unknown = LEAF.model_copy(update={"id": "unknown"})
    refused = asyncio.run(reach_of(Bmc()).switch(unknown))

    assert isinstance(refused, Blocker)
    assert (refused.reason, refused.subject) == (Reason.LOGIN_REFUSED, "unknown/api")


def test_a_switch_of_a_system_that_nothing_speaks_to_is_handed_on_by_its_name() -> None:
    strange = LEAF.model_copy(update={"os": "junos"})
    address = asyncio.run(reach_of(Bmc()).switch(strange))

    assert address == SwitchAddress(LEAF.address, "admin", Secret("x"), system="junos")
