"""The factory defaults of a simulated BMC itself: Manager.ResetToDefaults.

source: the trees of a PowerEdge R750, a DGX H100 and a BlueField-3 (mockups) for the types and
where they are listed; DMTF Manager, ResetToDefaultsType, for what each one keeps; bmcweb for the
restart that carries it out. No source says what becomes of the certificate: a new one of its own,
or with the trouble `certificate_stays` the one that it had.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

from provisioner.sim.hardware.serve_tls import make_certificate
from provisioner.sim.redfish.redfish_answers import Answer, Json, answer_done
from provisioner.sim.redfish.redfish_power import RESET_DELAY_S
from provisioner.sim.redfish.redfish_service import RedfishService
from provisioner.sim.redfish.redfish_tree import Request, get_allowed_value

TYPES = {  # of the recorded trees
    "dell": ("ResetAll", "PreserveNetworkAndUsers"),
    "ami_dgx": ("ResetAll", "PreserveNetworkAndUsers", "PreserveNetwork"),
    "nvidia_openbmc": ("ResetAll",),
}
_IN_ACTION_INFO = ("ami_dgx",)
_KEEPS_USERS = "PreserveNetworkAndUsers"
_NAME = "Manager.ResetToDefaults"


@dataclass
class FactoryState:
    """The state that a BMC has again after its reset, as it was when the machine was built."""

    service: RedfishService

    def __post_init__(self) -> None:
        bmc = self.service.bmc
        self.accounts = {n: copy(a) for n, a in self.service.accounts.accounts.items()}
        self.protocols = dict(bmc.protocols)
        self.ntp_enabled = bmc.ntp_enabled
        self.ntp_servers = bmc.ntp_servers

    def restore(self, kind: str, now: float) -> None:
        """Carry the reset out, and restart."""
        bmc = self.service.bmc
        machine = self.service.machine
        if "defaults_dropped" not in bmc.troubles:
            machine.log_event(now, "bmc_defaults", bmc.name, kind)
            if kind != _KEEPS_USERS:
                accounts = self.service.accounts.accounts
                accounts.clear()
                accounts |= {name: copy(account) for name, account in self.accounts.items()}
            bmc.protocols = dict(self.protocols)
            bmc.ntp_enabled = self.ntp_enabled
            bmc.ntp_servers = self.ntp_servers
            if self.service.events is not None:
                self.service.events.subscriptions.clear()
            if "certificate_stays" not in bmc.troubles:
                bmc.certificate, key = make_certificate(bmc.name, "127.0.0.1")
                for present in bmc.on_certificate:
                    present(bmc.certificate, key)
        machine.bmc_reset(bmc.name, now)
        if "lost_after_defaults" in bmc.troubles:
            bmc.gone_until = float("inf")


def mount_defaults(
    service: RedfishService, manager: str, types: tuple[str, ...] | None = None
) -> Json:
    """Return the entry of `Actions`; {} for a vendor whose tree shows none."""
    offered = TYPES.get(service.shape.name, ()) if types is None else types
    if not offered:
        return {}
    state = FactoryState(service)
    target = f"{manager}/Actions/{_NAME}"

    def reset(request: Request) -> Answer:
        kind = get_allowed_value(request, _NAME, "ResetType", offered)
        if isinstance(kind, Answer):
            return kind
        due = request.now + RESET_DELAY_S
        service.machine.schedule.plan_act(due, lambda at: state.restore(kind, at))
        return answer_done()

    service.tree.add_action(target, reset)
    if service.shape.name not in _IN_ACTION_INFO:
        listed: Json = {"target": target, "ResetType@Redfish.AllowableValues": list(offered)}
        return {f"#{_NAME}": listed}
    info = f"{manager}/ResetToDefaultsActionInfo"
    parameter = {
        "Name": "ResetType",
        "Required": True,
        "DataType": "String",
        "AllowableValues": list(offered),
    }
    service.tree.add_fixed(
        info,
        {
            "@odata.type": "#ActionInfo.v1_1_2.ActionInfo",
            "Id": "ResetToDefaultAction",
            "Name": "ResetToDefaultAction",
            "Parameters": [parameter],
        },
    )
    return {f"#{_NAME}": {"target": target, "@Redfish.ActionInfo": info}}
