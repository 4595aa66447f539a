"""A host with coolant at a detector gets no power, no boot and no image; nothing else is held.

source: LambdaLabs/redfish_exporter, collector/testdata (detectors of a GB200 tray).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from bmc_wire import Wire, host_of

from provisioner.adapters.redfish.client import Redfish
from provisioner.execution.actions.power import LeakGate, Pace, cycle_standby, switch_off, switch_on
from provisioner.execution.steps.agent_steps import boot_disk, boot_image
from provisioner.integrations.sim.redfish.redfish_logs import DRY, WET
from provisioner.model.alert import Alert, Signal
from provisioner.model.inventory import LeakDetector, Moisture
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.watch import alerts as rules
from provisioner.planning.watch.leaks import ALERT, find_refusal, list_signals, read_moisture
from provisioner.ports import Unreachable

PLATE, MANIFOLD = "Chassis_0_LeakDetector_0_ColdPlate", "Chassis_0_LeakDetector_1_Manifold"
Act = Callable[[Redfish, Pace, Path], Awaitable[object]]
ENERGISING: dict[str, Act] = {
    "power on": lambda host, pace, _: switch_on(host, pace),
    "power cycle": lambda host, *_: host.reset_system("PowerCycle"),
    "restart": lambda host, *_: host.reset_system("ForceRestart"),
    "boot of the image": lambda host, pace, _: boot_image(
        host, pace, "http://192.0.2.9/a.iso", "pxe"
    ),
    "boot of the disk": lambda host, pace, _: boot_disk(host, pace),
    "virtual CD": lambda host, *_: host.boot_virtual_cd(),
    "push": lambda host, _, file: host.push("host.bios", (), file),
    "pull": lambda host, *_: host.simple_update("http://192.0.2.9/a.bin", "host.bios"),
    "AC cycle": lambda host, pace, _: cycle_standby(host, pace, _returned),
}


async def _returned() -> Blocker | None:
    return None


def wet_host(**states: str | None) -> tuple[Wire, Redfish, Pace]:
    wire, host, pace = host_of("supermicro")
    wire.client.machine.leak_detectors = {PLATE: DRY, MANIFOLD: WET, **states}
    return wire, host, pace


@pytest.mark.parametrize("name", ENERGISING)
def test_a_wet_host_is_sent_nothing_that_energises_it(name: str, tmp_path: Path) -> None:
    wire, host, pace = wet_host()
    wire.client.machine.host.power = "Off" if name == "power on" else "On"
    file = tmp_path / "bios.bin"
    file.write_bytes(b"image")

    refused = asyncio.run(ENERGISING[name](host, pace, file))  # type: ignore[arg-type]

    assert isinstance(refused, Blocker)
    assert refused.reason is Reason.LEAK
    assert MANIFOLD in refused.detail
    assert PLATE not in refused.detail
    assert "alert clear" in refused.unblock
    assert [e for e in wire.client.machine.log if e.kind == "power"] == []


def test_a_wet_host_can_be_switched_off() -> None:
    wire, host, pace = wet_host()

    assert asyncio.run(switch_off(host, pace)) is None
    assert wire.client.machine.host.power == "Off"


def test_a_dry_host_is_switched_on() -> None:
    wire, host, pace = wet_host(**{MANIFOLD: DRY})
    asyncio.run(switch_off(host, pace))

    assert asyncio.run(switch_on(host, pace)) is None
    assert wire.client.machine.host.power == "On"


def test_a_detector_that_reports_no_state_counts_as_a_leak() -> None:
    _, host, _ = wet_host(**{MANIFOLD: None})

    refused = asyncio.run(host.reset_system("PowerCycle"))

    assert isinstance(refused, Blocker)
    assert "cannot be read" in refused.detail


def test_an_inventory_names_every_detector() -> None:
    _, host, _ = wet_host(Chassis_0_LeakDetector_2=None)

    seen = asyncio.run(host.collect("n0", "host"))

    assert {d.slot.partition("/")[2]: d.moisture for d in seen.leaks} == {
        "LeakDetection": Moisture.WET,  # what its groups say of all of them
        PLATE: Moisture.DRY,
        MANIFOLD: Moisture.WET,
        "Chassis_0_LeakDetector_2": Moisture.UNREADABLE,
    }


def test_a_detector_that_appears_is_heard_of_within_the_hour() -> None:
    """The places of detectors are remembered for an hour, their readings never."""
    wire, host, _ = wet_host(**{MANIFOLD: DRY})

    async def look_twice() -> list[list[Moisture]]:
        before = [d.moisture for d in await host.read_leak_detectors()]
        wire.client.machine.leak_detectors[PLATE] = WET
        return [before, [d.moisture for d in await host.read_leak_detectors()]]

    before, after = asyncio.run(look_twice())

    assert set(before) == {Moisture.DRY}
    assert Moisture.WET in after
    assert len(before) == len(after) == 3  # two detectors, and what their group says


def test_a_bmc_that_is_starting_says_nothing_about_its_detectors() -> None:
    wire, host, _ = wet_host()
    asyncio.run(host.reset_bmc())
    wire.client.later(1.0)

    with pytest.raises(Unreachable):
        asyncio.run(host.read_leak_detectors())

    assert wire.client.machine.host.power == "On"


# --- readings


@pytest.mark.parametrize(
    ("state", "health", "enabled", "reading"),
    [
        ("OK", "OK", "Enabled", Moisture.DRY),
        ("OK", None, None, Moisture.DRY),
        ("Warning", "OK", "Enabled", Moisture.WET),
        ("Critical", "Critical", "Enabled", Moisture.WET),
        ("LeakDetected", "Critical", "Enabled", Moisture.WET),  # a tray of a GB200
        ("OK", "Critical", "Enabled", Moisture.WET),
        ("Unavailable", "OK", "Enabled", Moisture.UNREADABLE),
        (None, "OK", "Enabled", Moisture.UNREADABLE),
        ("OK", "OK", "Disabled", Moisture.UNREADABLE),
        ("Absent", None, None, None),
        ("OK", "OK", "Absent", None),
    ],
)
def test_a_reading_is_dry_only_if_the_detector_works_and_says_so(
    state: str | None, health: str | None, enabled: str | None, reading: Moisture | None
) -> None:
    assert read_moisture(state, health, enabled) is reading


# --- alerts, which a person ends

WET_ONE = LeakDetector(slot="1/plate", moisture=Moisture.WET, detail="state Critical", source="")
DRY_ONE = WET_ONE.model_copy(update={"moisture": Moisture.DRY})


def raised(at: float = 10.0) -> Alert:
    (signal,) = list_signals("n0", [WET_ONE], "leaks/host", at)
    alert = rules.apply_signal(None, signal)
    assert alert is not None
    return alert


def test_dry_detectors_are_not_enough_until_a_person_clears_the_alert() -> None:
    alert = raised()

    waiting = find_refusal("n0", [DRY_ONE], [alert])
    cleared = rules.clear_alert(alert, 20.0, "operator: dried, hose replaced")

    assert waiting is not None
    assert (waiting.reason, "1/plate" in waiting.detail) == (Reason.LEAK, True)
    assert cleared is not None
    assert find_refusal("n0", [DRY_ONE], [cleared]) is None
    assert find_refusal("n0", [WET_ONE], [cleared]) is not None


def test_no_report_proof_or_level_ends_a_leak() -> None:
    alert = raised()
    over = Signal(node="n0", id=ALERT, target="1/plate", source="leaks/host", at=30.0, active=False)

    assert rules.apply_signal(alert, over) is None
    assert rules.supersede_alert(alert, 30.0, 40.0) is None
    assert rules.level_source([alert], "leaks/host", [], 40.0) == ()
    assert rules.is_held([alert], [], 40.0)


class Book:
    """The alerts of one node, as the store returns them."""

    def __init__(self, *alerts: Alert) -> None:
        self.alerts = alerts

    async def list(self, _: str = "") -> tuple[Alert, ...]:
        return self.alerts


class Now:
    def now(self) -> float:
        return 50.0

    async def sleep(self, _: float) -> None:
        return


def test_the_gate_raises_the_alert_at_once_and_reads_the_store_at_each_act() -> None:
    book, reports = Book(), list[Signal]()

    async def report(_: str, signals: object) -> None:
        reports.extend(signals)  # type: ignore[arg-type]

    gate = LeakGate(Now(), book, report=report)  # type: ignore[arg-type]

    async def acts() -> list[Blocker | None]:
        first = await gate.admit_act("n0", [WET_ONE])
        book.alerts = (raised(),)
        second = await gate.admit_act("n0", [DRY_ONE])
        book.alerts = ()
        return [first, second, await gate.admit_act("n0", [DRY_ONE])]

    first, second, third = asyncio.run(acts())

    assert first is not None
    assert second is not None
    assert third is None
    assert [(s.id, s.target) for s in reports] == [(ALERT, "1/plate")]
