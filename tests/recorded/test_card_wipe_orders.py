"""Orders to wipe a BlueField's storage, on the reduced tree of a real BlueField-3."""

from __future__ import annotations

import asyncio

from settings_trees import find_pending, read_settings_tree, serve_tree
from tree_transport import ADDRESS

from provisioner import quirks
from provisioner.adapters.redfish.dry_run import DryRunTransport
from provisioner.adapters.redfish.service import Service
from provisioner.adapters.redfish.settings.bmc_writes import order_wipe, read_wipe_orders
from provisioner.model.outcome import Blocker

ORDERS = ("EmmcWipe", "NvmeWipe")


def test_both_orders_of_a_recorded_card_are_one_request() -> None:
    tree = read_settings_tree("bluefield3")
    dry = DryRunTransport(serve_tree(tree))
    service = Service(dry, ADDRESS, quirks.identify(tree["/redfish/v1"]))

    orders = asyncio.run(read_wipe_orders(service))
    refused = asyncio.run(order_wipe(service, orders))

    assert (orders.offered, orders.waiting, refused) == (ORDERS, (), None)
    (write,) = dry.writes
    assert (write.method, write.path) == ("PATCH", "/redfish/v1/Systems/Bluefield/Bios/Settings")
    assert write.body == {"Attributes": dict.fromkeys(ORDERS, True)}


def test_an_order_that_waits_is_read_and_a_foreign_change_stops_the_wipe() -> None:
    tree = read_settings_tree("bluefield3")
    find_pending(tree)["Attributes"] = {"NvmeWipe": True, "EnableSMMU": False}
    service = Service(serve_tree(tree), ADDRESS, quirks.identify(tree["/redfish/v1"]))

    orders = asyncio.run(read_wipe_orders(service))
    refused = asyncio.run(order_wipe(service, orders))

    assert orders.waiting == ("NvmeWipe",)
    assert isinstance(refused, Blocker)
    assert "EnableSMMU" in refused.detail


def test_a_host_of_another_maker_offers_none() -> None:
    tree = read_settings_tree("dell_idrac9")
    service = Service(serve_tree(tree), ADDRESS, quirks.identify(tree["/redfish/v1"]))

    assert asyncio.run(read_wipe_orders(service)).offered == ()
