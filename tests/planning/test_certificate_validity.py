"""What a certificate says, and what ends one."""

from __future__ import annotations

from typing import Any

import pytest
from certified_node import (
    BLOCKER,
    CERTIFICATE,
    CERTIFIED,
    DAY,
    INVENTORY,
    NODE,
    NOW,
    changed,
    ends,
    issued,
    report,
    validity,
)

from provisioner import checks
from provisioner.model.certificate import GateProof
from provisioner.model.cohort import Gate
from provisioner.model.inventory import Component, Device, DeviceKind
from provisioner.model.location import Location
from provisioner.model.node import NodeKind, State
from provisioner.model.outcome import Reason
from provisioner.planning.certification import certification
from provisioner.planning.certification.attested_state import NOT_REQUIRED


def test_a_certificate_names_what_was_proved_and_by_what() -> None:
    evidence = [r.model_copy(update={"evidence": "e2"}) for r in report().results[:2]]
    results = (*report().results[2:], *evidence)
    proof = GateProof(gate=Gate.A, certificate="c1", proved_at=NOW)
    given = {"report": report(results=results), "gates": (proof,), "attestation": "digest"}
    certificate = issued(**given, now=NOW + 0.7)

    assert certificate.checks == tuple(sorted(checks.list_required_results(NodeKind.HOST)))
    assert certificate.evidence == ("e2",)
    assert certificate.gates == (proof,)
    assert (certificate.attestation, CERTIFICATE.attestation) == ("digest", NOT_REQUIRED)
    assert certificate.boot_id == "boot-1"
    assert (certificate.issued_at, certificate.expires_at) == (NOW, NOW + 30 * DAY)


def test_what_gives_no_serial_and_no_version_is_certified_as_such() -> None:
    hidden = changed(
        components=(Component(kind="hgx.gpu", slot="GPU_SXM_1", version=None, source="s"),),
        devices=(*INVENTORY.devices, Device(kind=DeviceKind.NIC, slot="NIC_1", serial=None)),
    )
    certificate = issued(inventory=hidden)

    assert certificate.serials == CERTIFICATE.serials
    assert certificate.versions == (("hgx.gpu/GPU_SXM_1", ""),)


def test_a_certificate_is_bound_to_what_was_judged() -> None:
    assert CERTIFICATE.serials == ("gpu/GPU_SXM_1=G1", "system=SYS1")
    assert CERTIFICATE.versions == (
        ("hgx.gpu/GPU_SXM_1", "96.00.99.00.01"),
        ("host.driver/host", "550.144.03"),
    )
    assert CERTIFICATE.ports == ("leaf0/swp1s0",)
    assert CERTIFICATE.report_digest == report().digest()
    assert CERTIFICATE.expires_at == NOW + 30 * DAY
    assert ends() == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"signed": False}, [Reason.CERTIFICATE_INVALID]),
        ({"revoked": True}, [Reason.CERTIFICATE_INVALID]),
        ({"now": NOW + 30 * DAY}, [Reason.CERTIFICATE_EXPIRED]),
        ({"now": NOW - 1}, [Reason.CERTIFICATE_INVALID]),
        ({"now": NOW}, []),
        ({"inventory": changed(boot_id="boot-2")}, [Reason.DRIFT]),
        ({"inventory": changed(components=INVENTORY.components[:1])}, [Reason.DRIFT]),
        ({"inventory": changed(system_serial="SYS2")}, [Reason.DRIFT, Reason.DRIFT]),
        ({"inventory": changed(devices=())}, [Reason.DRIFT]),
        ({"node": CERTIFIED.model_copy(update={"ports": ()})}, [Reason.DRIFT]),
        ({"node": CERTIFIED.model_copy(update={"location": Location(rack="z")})}, [Reason.DRIFT]),
        ({"node": CERTIFIED.model_copy(update={"release": "s"})}, [Reason.DRIFT]),
        ({"node": CERTIFIED.model_copy(update={"id": "n2"})}, [Reason.CERTIFICATE_INVALID]),
    ],
)
def test_whatever_differs_ends_a_certificate(
    changes: dict[str, Any], expected: list[Reason]
) -> None:
    assert ends(**changes) == expected


def test_a_tenant_may_reboot_what_it_was_given() -> None:
    for state in State:
        held = NODE.model_copy(update={"state": state})
        free = state in (State.RELEASED, State.DRAINING)

        reasons_now = ends(node=held, inventory=changed(boot_id="boot-2"))
        assert reasons_now == ([] if free else [Reason.DRIFT])


@pytest.mark.parametrize("reason", list(Reason))
def test_a_certificate_is_lost_by_drift_and_by_a_failed_check(reason: Reason) -> None:
    losing = {Reason.DRIFT, Reason.CHECK_FAILED}  # its time is judged, never written down
    blocker = BLOCKER.model_copy(update={"reason": reason})

    assert certification.is_lost([BLOCKER, blocker]) is (reason in losing)
    assert certification.is_lost([]) is False


def test_drift_says_what_was_and_what_is() -> None:
    driver, gpu = INVENTORY.components
    now = changed(
        components=(
            driver.model_copy(update={"version": "560.28"}),
            gpu.model_copy(update={"version": None}),
            gpu.model_copy(update={"slot": "GPU_SXM_2"}),
        )
    )
    details = {b.subject: b.detail for b in validity(inventory=now)}

    assert details == {
        "host.driver/host": "550.144.03 was certified, now it is 560.28",
        "hgx.gpu/GPU_SXM_1": "96.00.99.00.01 was certified, now it is nothing",
        "hgx.gpu/GPU_SXM_2": "nothing was certified, now it is 96.00.99.00.01",
    }


def test_what_is_not_shown_may_be_left_to_the_watch() -> None:
    driver = INVENTORY.components[0].model_copy(update={"version": "560.28"})
    less = changed(components=(driver,), devices=())

    assert [b.subject for b in validity(inventory=less)] == [
        "hgx.gpu/GPU_SXM_1",
        "host.driver/host",
        "gpu/GPU_SXM_1=G1",
    ]
    assert [b.subject for b in validity(inventory=less, absence_counts=False)] == [
        "host.driver/host"
    ]


def test_a_boot_that_is_not_readable_is_one_boot_however_it_is_put() -> None:
    assert certification.identify_installation(
        changed(boot_id=None)
    ) == certification.identify_installation(changed(boot_id=""))


@pytest.mark.parametrize("kind", [DeviceKind.MEMORY, DeviceKind.STORAGE, DeviceKind.PSU])
def test_parts_that_no_earlier_release_read_are_new_only_beside_others_of_their_kind(
    kind: DeviceKind,
) -> None:
    part = Device(kind=kind, slot="1", serial="A")
    more = changed(devices=(*INVENTORY.devices, part))
    other = changed(devices=(*more.devices, part.model_copy(update={"slot": "2"})))

    assert ends(inventory=more) == []  # a certificate of an earlier release names none of them
    assert ends(inventory=other, certificate=issued(inventory=more)) == [Reason.DRIFT]
    gpu = Device(kind=DeviceKind.GPU, slot="GPU_SXM_2", serial="G2")
    assert ends(inventory=changed(devices=(*more.devices, gpu))) == [Reason.DRIFT]


def test_a_kernel_that_no_earlier_release_read_is_drift_only_once_it_was_certified() -> None:
    kernel = Component(kind="host.kernel", slot="host", version="6.8.0-57-generic", source="uname")
    more = changed(components=(*INVENTORY.components, kernel))
    newer = kernel.model_copy(update={"version": "6.8.0-60-generic"})
    other = changed(components=(*INVENTORY.components, newer))

    assert ends(inventory=more) == []
    assert ends(inventory=other, certificate=issued(inventory=more)) == [Reason.DRIFT]


def test_power_and_gaps_are_no_drift() -> None:
    assert ends(inventory=changed(power="Off")) == []
