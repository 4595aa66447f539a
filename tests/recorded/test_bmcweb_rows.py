"""NVIDIA's own Redfish server, row by row: what the client copes with, and what the simulator does.

source: NVIDIA/bmcweb 7f3a16ae, run with real PAM and TLS.
Rows that a story of the whole watch proves are named in docs/simulator.md.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scripted_bmc import TASK, V1, bmc_of, reply, run, said

from provisioner.adapters.redfish.client import TaskRef
from provisioner.adapters.redfish.eventing.subscriptions import is_standing
from provisioner.adapters.redfish.session import LOCKED_FLOOR_S, LOCKED_WAIT_S, open_login
from provisioner.model.inventory import Inventory
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import AccountLocked, BmcAddress, Call, Reply, Secret

INVENTORY = f"{V1}/UpdateService/FirmwareInventory"


def whole(case: str, path: str) -> dict[str, Any]:
    """A recorded resource."""
    file = Path(__file__).parent / case / path.removeprefix("/") / "index.json"
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def firmware_of(answers: dict[str, Reply]) -> Inventory:
    _, client = bmc_of("tiny_dgx", answers)
    found: Inventory = run(client.read_firmware("n", "host"))
    return found


@pytest.mark.parametrize("status", [500, 503])
def test_row_6_a_5xx_with_the_resource_in_it_is_read_with_a_gap(status: int) -> None:
    """source: docs/sources/redfish.md#partial-5xx.

    One D-Bus service away answers the whole resource beside `error`.
    """
    partial = whole("tiny_dgx", INVENTORY) | said("Base.1.18.InternalError")

    found = firmware_of({f"GET {INVENTORY}": reply(status, partial)})

    assert [c.slot for c in found.of_kind("host.bmc")] == ["BMC_0"]
    assert [(g.source, g.reason) for g in found.gaps if g.source == INVENTORY] == [
        (INVENTORY, Reason.MALFORMED)
    ]


def test_row_6_a_5xx_with_another_resource_in_it_is_not_believed() -> None:
    """source: docs/sources/redfish.md#partial-5xx."""
    other = whole("tiny_dgx", f"{V1}/UpdateService")

    found = firmware_of({f"GET {INVENTORY}": reply(500, other)})

    assert not found.of_kind("host.bios")


def test_row_7_the_manager_of_a_baseboard_is_no_host_bmc() -> None:
    """source: docs/sources/redfish.md#bmcweb.

    An HGX baseboard's own manager was listed a second time.
    """
    managers = {"Members": [{"@odata.id": f"{V1}/Managers/HGX_BMC_0"}]}
    systems = {"Members": [{"@odata.id": f"{V1}/Systems/HGX_Baseboard_0"}]}
    items = {"Members": [{"@odata.id": f"{INVENTORY}/HGX_FW_BMC_0"}]}
    _, client = bmc_of(
        "tiny_dgx", {}, Managers=managers, Systems=systems, UpdateService__FirmwareInventory=items
    )

    found: Inventory = run(client.read_firmware("n", "host"))

    assert not found.of_kind("host.bmc")
    assert len(found.of_kind("hgx.bmc")) == 1


def locked(text: str) -> AccountLocked:
    async def exchange(_: BmcAddress, call: Call, __: object) -> Reply:
        if call.method == "GET":
            return reply(200, {"SessionService": {"@odata.id": f"{V1}/SessionService"}})
        return reply(401, {"error": {"message": text}})

    address = BmcAddress("https://bmc.example", "root", Secret("x"))
    with pytest.raises(AccountLocked) as caught:
        run(open_login(exchange, address))
    return caught.value


@pytest.mark.parametrize(
    ("text", "wait_s"),
    [
        ("Account temporarily locked out for 600 seconds", 600.0),
        ("Account temporarily locked out for 30 seconds", LOCKED_FLOOR_S),
        ("Account temporarily locked out", LOCKED_WAIT_S),
    ],
)
def test_row_9_a_lockout_lasts_as_long_as_the_bmc_states(text: str, wait_s: float) -> None:
    """source: docs/sources/redfish.md#bmcweb.

    AccountLockoutDuration is 600 s, and the text says so.
    """
    assert locked(text).retry_after_s == wait_s


def test_row_11_a_push_with_an_unknown_property_runs(tmp_path: Path) -> None:
    """source: docs/sources/redfish.md#bmcweb: 202 with a task and PropertyUnknown."""
    package = tmp_path / "a.fwpkg"
    package.write_bytes(b"x")
    task = {"@odata.type": "#Task.v1_4_3.Task", "@odata.id": TASK}
    answer = reply(202, task | said("Base.1.18.PropertyUnknown"))
    _, client = bmc_of("tiny_dgx", {f"POST {V1}/UpdateService/upload": answer})

    assert run(client.push("hgx.bundle", ("HGX_0",), package)) == TaskRef(path=TASK)


def test_row_13_an_image_that_no_device_takes_up_is_refused(tmp_path: Path) -> None:
    """source: docs/sources/redfish.md#bmcweb.

    The answer is held for 40 s, then 500, and the slot is free.
    """
    package = tmp_path / "a.fwpkg"
    package.write_bytes(b"x")
    answer = reply(500, said("Base.1.18.InternalError"))
    _, client = bmc_of("tiny_dgx", {f"POST {V1}/UpdateService/upload": answer})

    refused = run(client.push("hgx.bundle", ("HGX_0",), package))

    assert isinstance(refused, Blocker)
    assert refused.reason is Reason.REFUSED


SUBSCRIPTION = f"{V1}/EventService/Subscriptions/42"


@pytest.mark.parametrize(
    ("sent", "shown", "ours"),
    [
        ("https://daemon.test/v1/e/x", "https://daemon.test:443/v1/e/x", True),
        ("http://daemon.test/v1/e/x", "http://daemon.test:80/v1/e/x", True),
        ("https://daemon.test:8443/v1/e/x", "https://daemon.test:8443/v1/e/x", True),
        ("https://daemon.test/v1/e/x", "https://daemon.test:8443/v1/e/x", False),
        ("https://daemon.test/v1/e/x", "https://daemon.test:443/v1/e/y", False),
        ("https://daemon.test/v1/e/x", None, False),
    ],
)
def test_the_table_a_destination_is_ours_with_its_default_port(
    sent: str, shown: str | None, *, ours: bool
) -> None:
    """source: docs/sources/redfish.md#bmcweb.

    The Destination is read back with the default port added.
    """
    _, client = bmc_of("tiny_dgx", {f"GET {SUBSCRIPTION}": reply(200, {"Destination": shown})})

    assert run(is_standing(client.service, SUBSCRIPTION, sent)) is ours
