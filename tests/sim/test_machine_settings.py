"""The round trip of BIOS settings at every simulated vendor, and BMCs that do not behave.

Read, preview, write, pending, boot, prove. What the stand-ins do has its source in
`sim/redfish/shapes_bios.py` and `sim/redfish/sources.py`.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from typing import Any

import pytest
from bmc_wire import Wire, host_of

from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.dry_run import DryRunTransport
from provisioner.adapters.redfish.settings.bios_writes import SettingsSent, set_bios
from provisioner.adapters.redfish.settings.reading import read_host_settings
from provisioner.model.inventory import Activation, Component
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import StagedFact
from provisioner.planning.machine_settings.pinned_sets import BIOS
from provisioner.planning.machine_settings.running_sets import NONE, build_components
from provisioner.planning.path.problem import doubt_settings
from provisioner.ports import Reply

SETS = {
    "dell": {"iommu": "on", "power_profile": "performance", "c_states": "off", "secure_boot": "on"},
    "hpe": {"iommu": "on", "sr_iov": "on", "acs": "off", "secure_boot": "on"},
    "lenovo": {"iommu": "on", "smt": "off", "acs": "off", "secure_boot": "on"},
    "supermicro": {"iommu": "on", "sr_iov": "off", "relaxed_ordering": "on", "secure_boot": "on"},
    "ami_dgx": {"iommu": "on", "sr_iov": "on", "pxe_boot": "off", "inband_bmc": "off"},
}


def shown(host: Redfish, settings: dict[str, str]) -> Component:
    read = asyncio.run(read_host_settings(host.service))
    (component,) = build_components(read, {BIOS: {"set-1": settings}}, host.quirk.meanings)
    return component


def write(host: Redfish, settings: dict[str, str]) -> SettingsSent | Blocker:
    return asyncio.run(set_bios(host.service, settings))


def boot(wire: Wire) -> None:
    wire.client.machine.restart_host(wire.now())
    wire.client.later(900.0)


def refused(result: SettingsSent | Blocker) -> Blocker:
    assert isinstance(result, Blocker), result
    return result


@pytest.mark.parametrize("vendor", SETS)
def test_settings_wait_for_the_boot_and_run_after_it(vendor: str) -> None:
    wire, host, _ = host_of(vendor)
    settings = SETS[vendor]

    before = shown(host, settings)
    sent = write(host, settings)
    waiting = shown(host, settings)
    boot(wire)
    after = shown(host, settings)

    assert (before.version, before.staged) == (NONE, None)
    assert isinstance(sent, SettingsSent), sent
    assert (waiting.version, waiting.staged) == (NONE, "set-1")
    assert waiting.pending is Activation.WARM_REBOOT
    assert (after.version, after.staged) == ("set-1", None)


def test_a_service_that_shows_waiting_values_as_running_is_not_believed_before_the_boot() -> None:
    """Settings misbehaviour 2. source: libredfish 25; the ledger knows that no boot has ended."""
    wire, host, _ = host_of("supermicro")
    wire.client.machine.host.bios.shows_waiting = True
    settings = SETS["supermicro"] | {"secure_boot": "off"}
    assert isinstance(write(host, settings), SettingsSent)
    lie = shown(host, settings)
    fact = StagedFact(kind=BIOS, slot="host", version="set-1", activation=Activation.WARM_REBOOT)

    assert (lie.version, lie.staged) == ("set-1", None)
    doubted = doubt_settings(lie, fact)
    assert (doubted.version, doubted.staged) == (NONE, "set-1")
    boot(wire)
    assert doubt_settings(shown(host, settings), None).version == "set-1"


@pytest.mark.parametrize("vendor", SETS)
def test_the_preview_shows_the_same_requests_and_changes_nothing(vendor: str) -> None:
    wire, host, _ = host_of(vendor)
    dry = DryRunTransport(wire)
    preview = Redfish(dry, host.address, host.quirk, wire.sleep)

    previewed = write(preview, SETS[vendor])

    assert isinstance(previewed, SettingsSent), previewed
    assert dry.writes[0].method == "PATCH"
    assert wire.client.machine.host.bios.pending == {}
    assert previewed == write(host, SETS[vendor])


@pytest.mark.parametrize("vendor", SETS)
def test_a_second_write_of_what_waits_or_runs_sends_nothing(vendor: str) -> None:
    wire, host, _ = host_of(vendor)
    write(host, SETS[vendor])

    for _ in range(2):
        dry = DryRunTransport(wire)
        again = write(Redfish(dry, host.address, host.quirk, wire.sleep), SETS[vendor])
        assert isinstance(again, SettingsSent), again
        assert dry.writes == []
        boot(wire)


@pytest.mark.parametrize("vendor", SETS)
def test_a_value_that_a_person_changed_back_is_drift(vendor: str) -> None:
    wire, host, _ = host_of(vendor)
    write(host, SETS[vendor])
    boot(wire)
    bios = wire.client.machine.host.bios

    bios.running = dict.fromkeys(bios.running, "something else")
    drifted = shown(host, SETS[vendor])

    assert drifted.version == NONE


# --- misbehaviours


def test_a_bios_that_drops_a_value_at_the_boot_shows_it_by_the_reading() -> None:
    """Accepted, pending, and gone: only the reading after the boot tells them apart."""
    wire, host, _ = host_of("hpe")
    wire.client.machine.host.bios.dropped = {"ProcAmdIoVt"}

    sent = write(host, SETS["hpe"])
    boot(wire)

    assert isinstance(sent, SettingsSent)
    assert shown(host, SETS["hpe"]).version == NONE


def test_lenovo_drops_attributes_outside_of_custom_mode_without_an_error() -> None:
    """source: python-redfish-lenovo 174."""
    wire, host, _ = host_of("lenovo")

    sent = write(host, {"c_states": "off"})
    waiting = shown(host, {"c_states": "off"})
    boot(wire)

    assert isinstance(sent, SettingsSent)
    assert waiting.staged == "set-1"
    assert shown(host, {"c_states": "off"}).version == NONE


def test_an_idrac_with_a_committed_job_takes_no_second_change() -> None:
    """source: quads 726; the pending value of the first job is another change."""
    wire, host, _ = host_of("dell")
    write(host, {"x2apic": "on"})

    second = refused(write(host, {"smt": "off"}))

    assert second.reason is Reason.PRECONDITION
    assert "ProcX2Apic" in second.detail
    assert wire.client.machine.host.bios.pending == {"ProcX2Apic": "Enabled"}


def test_a_committed_job_is_extended_by_nothing_even_for_the_same_set() -> None:
    wire, host, _ = host_of("dell")
    write(host, {"x2apic": "on"})

    more = refused(write(host, {"x2apic": "on", "smt": "off"}))

    assert more.reason in (Reason.REFUSED, Reason.BUSY)
    assert wire.client.machine.host.bios.pending == {"ProcX2Apic": "Enabled"}


def test_pending_values_that_a_restart_of_the_bmc_lost_are_written_again() -> None:
    wire, host, _ = host_of("hpe")
    write(host, SETS["hpe"])
    wire.client.machine.host.bios.pending.clear()

    lost = shown(host, SETS["hpe"])
    again = write(host, SETS["hpe"])

    assert lost.staged is None
    assert isinstance(again, SettingsSent)
    assert again.attributes["ProcAmdIoVt"] == "Enabled"
    assert shown(host, SETS["hpe"]).staged == "set-1"


def test_names_with_another_suffix_after_a_bios_update_are_no_drift() -> None:
    wire, host, _ = host_of("supermicro")
    write(host, SETS["supermicro"])
    boot(wire)
    bios = wire.client.machine.host.bios
    bios.running = {name[:-4] + "2A07": value for name, value in bios.running.items()}

    assert shown(host, SETS["supermicro"]).version == "set-1"


def test_attributes_that_are_not_shown_have_no_version_and_are_not_written() -> None:
    wire, host, _ = host_of("ami_dgx")
    original = wire.request

    async def without(bmc: Any, call: Any) -> Any:
        reply = await original(bmc, call)
        hidden = re.sub(rb'"Attributes": ?\{[^}]*\}', b'"Attributes": null', reply.body)
        return type(reply)(reply.status, reply.headers, hidden)

    wire.request = without  # type: ignore[method-assign]

    assert shown(host, SETS["ami_dgx"]).version is None
    assert refused(write(host, SETS["ami_dgx"])).reason is Reason.VERSION_MISSING


def test_a_profile_and_the_attributes_that_it_unlocks_take_two_sets() -> None:
    wire, host, _ = host_of("dell")
    both = {"power_profile": "custom", "c_states": "off"}

    at_once = refused(write(host, both))
    write(host, {"power_profile": "custom"})
    boot(wire)
    second = write(host, both)
    boot(wire)

    assert at_once.reason is Reason.CONSTRAINT
    assert "via" in at_once.unblock
    assert isinstance(second, SettingsSent)
    assert second.attributes == {"ProcCStates": "Disabled"}
    assert shown(host, both).version == "set-1"


def test_an_idrac_carries_nothing_out_without_an_apply_time() -> None:
    """source: terraform-provider-redfish 231; our requests have it, by the quirk."""
    wire, _, _ = host_of("dell")
    settings = "/redfish/v1/Systems/System.Embedded.1/Bios/Settings"
    body = {"Attributes": {"ProcX2Apic": "Enabled"}}

    answer = wire.client.ask("PATCH", settings, body)
    boot(wire)

    assert answer.status < 300
    assert wire.client.machine.host.bios.running["ProcX2Apic"] == "Disabled"


def patched(wire: Wire, status: int, body: bytes, times: int) -> list[str]:
    """Answer the first PATCHes so, without carrying them out; return the tags of all of them."""
    original = wire.request
    tags: list[str] = []

    async def request(bmc: Any, call: Any) -> Any:
        if call.method != "PATCH":
            return await original(bmc, call)
        tags.append(call.headers.get("If-Match", ""))
        if len(tags) > times:
            return await original(bmc, call)
        return Reply(status, {}, body)

    wire.request = request  # type: ignore[method-assign]
    return tags


def test_a_bmc_that_took_the_request_and_reports_a_failure_is_a_refusal() -> None:
    wire, host, _ = host_of("hpe")
    message = {
        "MessageId": "Base.1.18.PropertyNotUpdated",
        "Message": "ProcAmdIoVt was not updated.",
        "Severity": "Warning",
    }
    patched(wire, 200, json.dumps({"@Message.ExtendedInfo": [message]}).encode(), 9)

    partly = refused(write(host, SETS["hpe"]))

    assert partly.reason is Reason.REFUSED
    assert "ProcAmdIoVt was not updated" in partly.detail


def test_of_a_set_that_a_bmc_took_in_part_the_culprit_is_named() -> None:
    """Settings misbehaviour 12: what was taken waits, so that the rest is found by reading."""
    wire, host, _ = host_of("hpe")
    original = wire.request
    message = {"MessageId": "Base.1.18.PropertyNotUpdated", "Message": "Some were not updated."}

    async def take_in_part(bmc: Any, call: Any) -> Any:
        if call.method != "PATCH":
            return await original(bmc, call)
        attributes = {k: v for k, v in call.body["Attributes"].items() if k != "ProcAmdIoVt"}
        await original(bmc, replace(call, body={**call.body, "Attributes": attributes}))
        return Reply(200, {}, json.dumps({"@Message.ExtendedInfo": [message]}).encode())

    wire.request = take_in_part  # type: ignore[method-assign]

    partly = refused(write(host, SETS["hpe"]))

    assert partly.subject == "ProcAmdIoVt"
    assert "Some were not updated" in partly.detail
    assert "ProcAmdIoVt does not wait for the boot" in partly.detail


def test_a_bmc_that_answers_fine_and_keeps_nothing_is_a_refusal_by_name() -> None:
    wire, host, _ = host_of("hpe")
    patched(wire, 200, b"", 9)

    kept = refused(write(host, {"iommu": "on"}))

    assert kept.subject == "ProcAmdIoVt"
    assert "does not wait for the boot" in kept.detail


def test_a_tag_that_never_fits_ends_after_a_few_requests() -> None:
    wire, host, _ = host_of("hpe")
    tags = patched(wire, 412, b"", 99)

    assert refused(write(host, {"iommu": "on"})).reason is Reason.PRECONDITION
    assert len(tags) <= 4
