"""ComponentIntegrity of an HGX baseboard: its roots of trust sign measurements of running firmware.

The tree and the habits are those of the recorded DGX H100 and of NVIDIA's bmcweb: a POST answers
with a task, the result stands at `<action>/data` whoever asked, a second POST meanwhile gets 503.
Measurements follow from the running versions, so that equal firmware has equal values; a root of
trust whose name is in `machine.implants` runs something else under the same version.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from functools import cache, partial

from provisioner.integrations.sim.hardware.device_authority import SimulatedDevice, find_authority
from provisioner.integrations.sim.hardware.machine import Machine
from provisioner.integrations.sim.hardware.simulated_tpm import SpdmResponder, make_values
from provisioner.integrations.sim.redfish.redfish_power import make_link
from provisioner.integrations.sim.redfish.redfish_service import RedfishService
from provisioner.integrations.sim.redfish.redfish_tree import (
    ROOT,
    Answer,
    Json,
    Request,
    make_error,
)

MEASUREMENTS = 8  # of a root of trust; genuine ones have up to 64, most without a published meaning
ANSWER_S = 20.0
BUSY_S = "300"
IMPLANTED = 3  # index of the measurement that hostile firmware changes
_NONCE = re.compile(r"[0-9a-fA-F]{64}")


@cache
def _make_device(node: str, name: str) -> SimulatedDevice:
    serial = f"{node}-{name}".replace("_", "-")  # an X.520 printable string has no underscore
    return find_authority().make_device("CEC173x EC", serial, fwid=None)


def list_measurements(machine: Machine, name: str) -> dict[int, bytes]:
    """Return the measurements of one root of trust, from the firmware that runs behind it."""
    values = measure_firmware(
        f"{re.sub(r'_[0-9]+$', '', item.id)}={item.running}"
        for item in machine.firmware.values()
        if item.bmc == "host" and item.erot == name
    )
    if name in machine.implants:
        values[IMPLANTED] = make_values("implant", IMPLANTED)[IMPLANTED]
    return values


def measure_firmware(running: Iterable[str]) -> dict[int, bytes]:
    """Return the measurements of a root of trust in front of this firmware: HGX_FW_BMC=1.2."""
    return make_values(";".join(sorted(running)), MEASUREMENTS)


class Integrity:
    """The ComponentIntegrity collection of one BMC."""

    def __init__(self, service: RedfishService) -> None:
        self.service = service
        self.machine = service.machine
        self.busy_until = 0.0
        self.last: dict[str, str] = {}  # name -> signed measurements, Base64

    def mount(self) -> None:
        """Put the collection, its members and their certificates into the tree."""
        tree = self.service.tree
        names = sorted(c for bmc, c in self.machine.copies if bmc == "host")
        tree.add_collection(
            f"{ROOT}/ComponentIntegrity",
            "ComponentIntegrityCollection",
            lambda: [n for n in names if n not in self.machine.silent_roots],
            partial=False,
        )
        for name in names:
            path = f"{ROOT}/ComponentIntegrity/{name}"
            action = f"{path}/Actions/SPDMGetSignedMeasurements"
            tree.add_live(path, partial(self._show, name, action), partial=False)
            tree.add_action(action, partial(self._ask, name, action))
            tree.add_live(f"{action}/data", partial(self._read_last, name), partial=False)
            chain = f"{ROOT}/Chassis/{name}/Certificates/CertChain"
            tree.add_live(chain, partial(self._show_chain, name), partial=False)

    def _show(self, name: str, action: str) -> Json:
        return {
            "@odata.type": "#ComponentIntegrity.v1_0_0.ComponentIntegrity",
            "Id": name,
            "Name": f"SPDM Integrity for {name}",
            "ComponentIntegrityEnabled": True,
            "ComponentIntegrityType": "SPDM",
            "ComponentIntegrityTypeVersion": "unknown",
            "TargetComponentURI": f"{ROOT}/Chassis/{name}",
            "SPDM": {
                "IdentityAuthentication": {
                    "ResponderAuthentication": {
                        "ComponentCertificate": make_link(
                            "Chassis", name, "Certificates", "CertChain"
                        )
                    }
                },
                "Requester": make_link("Managers", "HGX_BMC_0"),
            },
            "Actions": {"#ComponentIntegrity.SPDMGetSignedMeasurements": {"target": action}},
        }

    def _show_chain(self, name: str) -> Json:
        device = _make_device(self.machine.name, name)
        holders = [device.holder, *device.issuers]
        return {
            "@odata.type": "#Certificate.v1_5_0.Certificate",
            "Id": "CertChain",
            "Name": f"{name} Certificate Chain",
            "CertificateType": "PEMchain",
            "CertificateString": "".join(h.pem for h in reversed(holders)),  # root first, as HGX
            "SPDM": {"SlotId": 0},
        }

    def _ask(self, name: str, action: str, request: Request) -> Answer:
        if request.now < self.busy_until:
            headers = {"Retry-After": BUSY_S}
            return make_error(503, "ServiceTemporarilyUnavailable", BUSY_S, headers=headers)
        nonce = str((request.json or {}).get("Nonce", ""))
        if not _NONCE.fullmatch(nonce):
            return make_error(400, "ActionParameterMissing", "SPDMGetSignedMeasurements", "Nonce")
        self.busy_until = request.now + ANSWER_S
        task = self.service.tasks.add_task("SPDM measurements", request.now, action)

        def finish(at: float) -> None:
            device = _make_device(self.machine.name, name)
            values = list_measurements(self.machine, name)
            answer = SpdmResponder(device, values).answer(bytes.fromhex(nonce))
            self.last[name] = base64.b64encode(answer).decode()
            task.end_with("Completed", at)

        self.machine.schedule.plan_act(self.busy_until, finish)
        return self.service.tasks.answer_accepted(task)

    def _read_last(self, name: str) -> Json | None:
        if name not in self.last:
            return None
        return {
            "@odata.type": "#ComponentIntegrity.v1_0_0.SPDMGetSignedMeasurementsResponse",
            "SignedMeasurements": self.last[name],
            "HashingAlgorithm": "TPM_ALG_SHA_384",
            "SigningAlgorithm": "TPM_ALG_ECDSA_ECC_NIST_P384",
            "Version": "1.1.0",
        }
