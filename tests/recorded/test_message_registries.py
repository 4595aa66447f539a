"""How bad a message is, and what it ends, comes from the registry that its BMC serves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from scripted_bmc import V1, bmc_of

from provisioner.adapters.redfish.eventing import registries
from provisioner.adapters.redfish.eventing.events import (
    find_signals,
    list_unlisted,
    read_document,
)
from provisioner.adapters.redfish.eventing.registries import (
    RegistryShelf,
    fetch_registry,
    read_registry,
)
from provisioner.model.alert import Classification

NOW = 1_790_000_000.0
BODY: dict[str, Any] = {  # as DSP8011 writes StorageDevice and Environmental
    "@odata.type": "#MessageRegistry.v1_6_2.MessageRegistry",
    "RegistryPrefix": "Vendor",
    "Messages": {
        "PumpLost": {"Message": "%1", "MessageSeverity": "Critical"},
        "PumpSlow": {"Message": "%1", "Severity": "Warning"},
        "PumpBack": {
            "MessageSeverity": "OK",
            "ClearingLogic": {
                "ClearsIf": "SameOriginOfCondition",
                "ClearsMessage": ["PumpLost", "PumpSlow"],
            },
        },
        "AllBack": {"MessageSeverity": "OK", "ClearingLogic": {"ClearsAll": True}},
        "RedundancyRestored": {"MessageSeverity": "OK"},
        "Note": {"MessageSeverity": "OK"},
    },
}
VENDOR = read_registry(BODY)


def told(
    key: str, severity: str = "", registry: str = "Vendor"
) -> list[tuple[str, bool, set[Classification]]]:
    record = {"MessageId": f"{registry}.1.2.{key}", "MessageArgs": ["Pump_1"]}
    record |= {"MessageSeverity": severity} if severity else {}
    document = read_document({"Events": [record]})
    found = find_signals(document, "n1", "host", NOW, {registry: VENDOR})
    assert all(signal.target == "Pump_1" for signal in found)
    return [(s.id, s.active, set(s.classifications)) for s in found]


@pytest.mark.parametrize(
    ("key", "severity", "wanted"),
    [
        ("PumpLost", "", [("Vendor.PumpLost", True, {Classification.HARDWARE})]),
        ("PumpSlow", "", [("Vendor.PumpSlow", True, {Classification.SENSOR_WARNING})]),
        (
            "PumpSlow",
            "Critical",
            [("Vendor.PumpSlow", True, {Classification.HARDWARE})],
        ),  # DSP0268: its own
        ("PumpLost", "OK", []),
        ("Note", "", []),
        ("PumpBack", "OK", [("Vendor.PumpLost", False, set()), ("Vendor.PumpSlow", False, set())]),
        ("RedundancyRestored", "OK", []),  # it ends nothing by the name of its key
        ("NotListed", "Critical", [("Vendor.NotListed", True, {Classification.HARDWARE})]),
    ],
)
def test_an_event_is_judged_by_the_registry_of_its_bmc(
    key: str, severity: str, wanted: list[Any]
) -> None:
    assert told(key, severity) == wanted


def test_a_message_that_clears_all_ends_every_other_of_its_registry() -> None:
    assert {(name, active) for name, active, _ in told("AllBack", "OK")} == {
        (f"Vendor.{key}", False) for key in BODY["Messages"] if key != "AllBack"
    }


def test_a_registry_makes_no_fault_of_a_login() -> None:
    assert told("LoginFailed", "Critical") == []


def test_registries_are_asked_for_unless_the_event_is_judged_without() -> None:
    keys = ("Vendor.1.0.X", "Vendor.1.1.Y", "IDRAC.2.8.PSU0003", "Base.1.0.Success", "Bare")
    keys += ("ResourceEvent.1.0.ResourceChanged", "Security.1.0.LoginFailure")
    document = read_document({"Events": [{"MessageId": key, "Severity": "OK"} for key in keys]})

    assert list_unlisted(document) == ("Vendor", "IDRAC")


def tree(served: Any = BODY, name: str = "Vendor.1.2") -> dict[str, Any]:
    files = f"{V1}/Registries"
    uri = f"{files}/Files/vendor.json"
    languages = [{"Language": "de", "Uri": f"{files}/de"}, {"Language": "en", "Uri": uri}]
    return {
        "": {"Registries": {"@odata.id": files}},
        "Registries": {"Members": [{"@odata.id": f"{files}/{n}"} for n in ("Base.1.0", "v")]},
        "Registries__Base.1.0": {"Registry": "Base.1.0"},
        "Registries__v": {"Registry": name, "Location": languages},
        "Registries__Files__vendor.json": served,
    }


@pytest.mark.parametrize("name", ["Vendor.1.2", "Vendor.1.2.0", "vendor"])
def test_a_registry_is_fetched_from_the_bmc_that_lists_it(name: str) -> None:
    _, client = bmc_of("tiny_dgx", {}, **tree(name=name))

    assert asyncio.run(fetch_registry(client.service.walk(), "Vendor")) == VENDOR
    assert asyncio.run(fetch_registry(client.service.walk(), "Other")) == {}


@pytest.mark.parametrize(
    "served",
    [
        {},
        {"Messages": []},
        {"Messages": {"X": 7}},
        {"Messages": {"X" * 500: {"Severity": "OK"}}},
    ],
)
def test_a_registry_that_is_nonsense_is_none(served: dict[str, Any]) -> None:
    assert read_registry(served) == {}


def test_what_one_bmc_serves_holds_for_others_after_a_second_node_served_the_same() -> None:
    lie = {key: m.model_copy(update={"severity": "OK"}) for key, m in VENDOR.items()}
    shelf = RegistryShelf()
    shelf.keep("n1", "n1/host", "Vendor", lie)
    shelf.keep("n1", "n1/card", "Vendor", lie)  # the same node proves nothing more

    assert shelf.find("n1/host", "Vendor") == lie
    assert shelf.find("n2/host", "Vendor") is None

    shelf.keep("n2", "n2/host", "Vendor", VENDOR)
    shelf.keep("n3", "n3/host", "Vendor", VENDOR)

    assert shelf.find("n4/host", "Vendor") == VENDOR
    assert shelf.find("n1/host", "Vendor") == lie


def test_the_shelf_is_bounded_and_asks_for_nothing_twice() -> None:
    shelf = RegistryShelf()
    for number in range(registries.PER_BMC_MAX):
        shelf.keep("n1", "n1/host", f"R{number}", {})

    assert not shelf.has_room("n1/host")
    assert shelf.find("n1/host", "R0") == {}

    for number in range(registries.KEPT_MAX + 5):
        key = f"K{number}"
        shelf.keep("n2", f"n2/{number}", "V", {key: VENDOR["Note"]})
    assert shelf.find("n2/0", "V") is None
    assert shelf.find(f"n2/{registries.KEPT_MAX + 4}", "V") is not None


def test_the_messages_of_a_registry_are_bounded() -> None:
    many = {f"K{n}": {"Severity": "OK"} for n in range(registries.MESSAGES_MAX + 10)}

    assert len(read_registry({"Messages": many})) == registries.MESSAGES_MAX
