"""A compute tray: a host BMC, an HMC behind it, two bundles, roots of trust, detectors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from provisioner.integrations.sim.racks.rack import (
    EXPAND,
    ROOT,
    Answer,
    Push,
    Rack,
    Shown,
    Silence,
    Tasks,
    Tree,
    add_events,
    list_members,
    ref,
)

HOST_SIDE = ("FW_BMC_0", "FW_ERoT_BMC_0", "FW_CPLD_0")
_AUX = "Chassis/BMC_0/Actions/Oem/NvidiaChassis.AuxPowerReset"
_DETECTORS = tuple(
    f"Chassis_0_LeakDetector_{n}_{k}" for n in (0, 1) for k in ("ColdPlate", "Manifold")
)


@dataclass
class TrayFaults:
    """What goes wrong with a tray; each can be switched on."""

    aux_answers_late: bool = False  # it cuts at once, and the answer is lost
    comes_on_by_itself: int = 0  # how often its host is on again before an aux cycle
    hmc_lost_after_reset: int = 0  # resets of the BMC behind which the HMC stays away
    hmc_dead: bool = False
    stages_also: dict[str, str] = field(default_factory=dict)
    not_dispatched: bool = False  # its push ends well, and nothing was written
    fails_push: str = ""  # a message, once
    ghost: bool = False  # an empty second slot says PendingActivation
    copy_never_ends: bool = False
    policy_cuts: bool = False  # its BMC forces the host off when a detector is critical


class Tray:
    """One compute tray."""

    def __init__(
        self, rack: Rack, name: str, slot: int, index: int, chassis: str, versions: dict[str, str]
    ) -> None:
        self.rack = rack
        self.name = name
        self.slot = slot
        self.index = index
        self.chassis = chassis
        self.active = dict(versions)
        self.staged: dict[str, str] = {}
        self.tasks = Tasks()
        self.faults = TrayFaults()
        self.power = "On"
        self.policy = "LastState"
        self.bmc_up = 0.0  # from when it answers
        self.hmc_up = 0.0
        self.copied = 0.0  # until when a copy runs
        self.detectors = dict.fromkeys(_DETECTORS, "OK")
        self.dead = False  # the BMC answers nothing any more
        self.flashed: list[tuple[float, str]] = []  # when which file was written
        self.off_at: float | None = None
        self.on_at: float | None = None
        self.was_on = True
        self.shown = Shown(rack, self._build_tree, self._mark)

    # --- time

    def settle(self) -> None:
        now = self.rack.now
        if self.rack.is_dark():
            self.lose_power()
            return
        if self.off_at is not None and now >= self.off_at:
            self.power = "Off"
            self.off_at = None
        if self.on_at is not None and now >= self.on_at:
            self.on_at = None
            self._energise("on")
        for task in self.tasks.listed.values():
            if now >= task.end and not task.applied:
                task.applied = True
                self._write(task.push, task.failed)
        if self.faults.policy_cuts and self.is_wet() and self.power == "On":
            self.power = "Off"
            self.rack.note(self.name, "policy cut")

    def is_wet(self) -> bool:
        return any(state in {"Critical", "LeakDetected"} for state in self.detectors.values())

    def lose_power(self) -> None:
        """Power is gone: what lives in memory is lost, what is staged is dropped."""
        if self.bmc_up != float("inf"):
            self.was_on = self.power == "On"
            self.power = "Off"
            self.staged.clear()
            self.tasks.listed.clear()
            self.bmc_up = self.hmc_up = float("inf")

    def _come_up(self) -> None:
        times = self.rack.times
        self.bmc_up = self.rack.now + times.bmc_back
        self.hmc_up = self.bmc_up + times.hmc_back
        self.tasks.listed.clear()
        if self.policy == "AlwaysOn" or (self.policy == "LastState" and self.was_on):
            self._energise("restore policy")

    def _energise(self, why: str) -> None:
        self.power = "On"
        self.rack.note(self.name, "powered", why)
        if self.is_wet():
            self.rack.note(self.name, "violation", f"power to a wet tray by {why}")

    def _write(self, push: Push, failed: str) -> None:
        if failed or self.faults.not_dispatched:
            return
        for ident, version in {**push.inside, **self.faults.stages_also}.items():
            if self.active.get(ident) != version:
                self.staged[ident] = version

    # --- requests

    def handle(self, method: str, path: str, body: Any) -> Answer:
        self.settle()
        if not self.rack.fed and not self.rack.is_dark():
            pass  # it still has charge
        elif self.rack.fed and self.bmc_up == float("inf"):
            self._come_up()
        if self.dead or self.rack.now < self.bmc_up:
            raise Silence(executed=False)
        if method == "GET":
            return self.tasks.answer_gone(path, self.rack.now) or self.shown.answer(path)
        self.shown.change()
        if method == "PATCH" and path.endswith("Systems/System_0"):
            self.policy = str(body.get("PowerRestorePolicy", self.policy))
            self.rack.note(self.name, "restore policy", self.policy)
            return Answer(204)
        if method != "POST":
            return Answer(405)
        return self._act(path, body)

    def _act(self, path: str, body: Any) -> Answer:
        if path.endswith("ComputerSystem.Reset"):
            return self._reset(str(body["ResetType"]))
        if path.endswith(_AUX):
            return self._aux(str(body["ResetType"]))
        if path.endswith("Manager.Reset"):
            return self._reset_bmc()
        if path.endswith("update-multipart"):
            return self._push(body)
        return Answer(404)

    def _reset(self, kind: str) -> Answer:
        self.rack.note(self.name, "reset", kind)
        if kind in {"ForceOff", "GracefulShutdown"}:
            self.off_at = self.rack.now + self.rack.times.power
        elif kind == "On":
            self.on_at = self.rack.now + self.rack.times.power
        else:
            return Answer(400)
        if self.tasks.running(self.rack.now):
            self.rack.note(self.name, "violation", f"{kind} during a flash")
        return Answer(204)

    def _aux(self, kind: str) -> Answer:
        now = self.rack.now
        if self.faults.comes_on_by_itself > 0:
            self.faults.comes_on_by_itself -= 1
            self.power = "On"
        if self.power != "Off":
            self.rack.note(self.name, "aux refused")
            message = {"MessageId": "OpenBMC.0.4.ChassisPowerStateOffRequired"}
            return Answer(400, {"error": {"@Message.ExtendedInfo": [message]}})
        self.rack.note(self.name, "aux", kind)
        if self.tasks.running(now):
            self.rack.note(self.name, "violation", "aux cycle during a flash")
        if now < self.copied:
            self.rack.note(self.name, "violation", "aux cycle during a copy")
        if self.staged:
            self.copied = now + self.rack.times.copy + self.rack.times.bmc_back
        self.active |= self.staged
        self.staged.clear()
        self.was_on = False
        self._come_up()
        if self.faults.hmc_dead:
            self.hmc_up = float("inf")
        if self.faults.aux_answers_late:
            raise Silence(executed=True)
        return Answer(204)

    def _reset_bmc(self) -> Answer:
        self.rack.note(self.name, "bmc reset")
        if self.tasks.running(self.rack.now):
            self.rack.note(self.name, "violation", "reset of the BMC during a flash")
        for ident in HOST_SIDE[:1]:
            if ident in self.staged:
                self.active[ident] = self.staged.pop(ident)
        self.tasks.listed.clear()
        self.bmc_up = self.rack.now + self.rack.times.bmc_back
        self.hmc_up = self.bmc_up + self.rack.times.hmc_back
        if self.faults.hmc_lost_after_reset > 0 or self.faults.hmc_dead:
            self.faults.hmc_lost_after_reset -= 1
            self.hmc_up = float("inf")
        return Answer(204)

    def _push(self, push: Push) -> Answer:
        now = self.rack.now
        if self.tasks.running(now):
            self.rack.note(self.name, "violation", "a second push during a flash")
            return Answer(400, {"error": {"code": "UpdateInProgress"}})
        if now < self.copied or self.faults.copy_never_ends:
            self.rack.note(self.name, "violation", "a push during a copy")
        baseboard = any(ident.startswith("HGX_") for ident in push.inside)
        if baseboard and now < self.hmc_up:
            self.rack.note(self.name, "violation", "a push to an absent HMC")
            return Answer(503)
        self.rack.note(self.name, "push", push.file_name)
        self.flashed.append((now, push.file_name))
        failed = self.faults.fails_push
        self.faults.fails_push = ""
        task = self.tasks.begin(now, self.rack.times.push, push, failed)
        where = f"{ROOT}/TaskService/Tasks/{task.number}"
        return Answer(
            202, {"@odata.id": where, **self.tasks.describe(task, now)}, {"location": where}
        )

    # --- the tree

    def _mark(self) -> object:
        """Return all that the tree shows and that changes."""
        now = self.rack.now
        tasks = self.tasks.listed.values()
        return (
            (self.name, self.power, self.policy, self.chassis, self.slot, self.index),
            (now >= self.hmc_up, now < self.copied, self.faults.copy_never_ends, self.faults.ghost),
            tuple(self.detectors.items()),
            tuple(self.active.items()),
            (self.tasks.reaped, *(str(self.tasks.describe(one, now)) for one in tasks)),
        )

    def _build_tree(self) -> Tree:
        hmc = self.rack.now >= self.hmc_up
        tree: Tree = {
            ROOT: {
                "Vendor": "NVIDIA",
                "Product": "GB200 NVL",
                "RedfishVersion": "1.17.0",
                "ProtocolFeaturesSupported": EXPAND,
                **{name: ref(name) for name in ("Systems", "Chassis", "Managers", "UpdateService")},
                "Tasks": ref("TaskService"),
            }
        }
        self._add_systems(tree, hmc=hmc)
        self._add_chassis(tree, hmc=hmc)
        list_members(tree, "Managers", ["BMC_0", *(["HGX_BMC_0"] if hmc else [])])
        for name in ("BMC_0", "HGX_BMC_0"):
            reset = {
                "target": f"{ROOT}/Managers/{name}/Actions/Manager.Reset",
                "ResetType@Redfish.AllowableValues": ["GracefulRestart", "ForceRestart"],
            }
            tree[f"{ROOT}/Managers/{name}"] = {"Id": name, "Actions": {"#Manager.Reset": reset}}
        self._add_firmware(tree, hmc=hmc)
        self.tasks.add_to(tree, self.rack.now)
        add_events(tree)
        return tree

    def _add_systems(self, tree: Tree, *, hmc: bool) -> None:
        list_members(tree, "Systems", ["System_0", *(["HGX_Baseboard_0"] if hmc else [])])
        reset = {
            "target": f"{ROOT}/Systems/System_0/Actions/ComputerSystem.Reset",
            "ResetType@Redfish.AllowableValues": ["On", "ForceOff", "GracefulShutdown"],
        }
        tree[f"{ROOT}/Systems/System_0"] = {
            "Id": "System_0",
            "Model": "GB200 NVL",
            "SerialNumber": f"T{self.name}",
            "PowerState": self.power,
            "PowerRestorePolicy": self.policy,
            "Actions": {"#ComputerSystem.Reset": reset},
        }
        where = "Systems/HGX_Baseboard_0"
        tree[f"{ROOT}/{where}"] = {
            "Id": "HGX_Baseboard_0",
            "Processors": ref(f"{where}/Processors"),
        }
        list_members(tree, f"{where}/Processors", [f"GPU_{n}" for n in range(4)])
        place = {
            "ChassisSerialNumber": self.chassis,
            "TraySlotNumber": self.slot,
            "TraySlotIndex": self.index,
        }
        for n in range(4):
            tree[f"{ROOT}/{where}/Processors/GPU_{n}"] = {
                "Id": f"GPU_{n}",
                "ProcessorType": "GPU",
                "Oem": {"Nvidia": {"MNNVLinkTopology": place}},
            }

    def _add_chassis(self, tree: Tree, *, hmc: bool) -> None:
        names = ["BMC_0", "Chassis_0", "CBC_0", "ERoT_BMC_0"]
        names += ["HGX_Chassis_0", "HGX_ERoT_CPU_0"] if hmc else []
        list_members(tree, "Chassis", names)
        aux = {"#NvidiaChassis.AuxPowerReset": {"target": f"{ROOT}/{_AUX}"}}
        tree[f"{ROOT}/Chassis/BMC_0"] = {"Id": "BMC_0", "Actions": {"Oem": aux}}
        tree[f"{ROOT}/Chassis/HGX_Chassis_0"] = {"Id": "HGX_Chassis_0"}
        copying = self.rack.now < self.copied or self.faults.copy_never_ends
        status = "InProgress" if copying else "Completed"
        for name in ("ERoT_BMC_0", "HGX_ERoT_CPU_0"):
            oem = {"Nvidia": {"BackgroundCopyStatus": status}}
            tree[f"{ROOT}/Chassis/{name}"] = {"Id": name, "Oem": oem}
        cartridge = {"ChassisPhysicalSlotNumber": self.slot, "ComputeTrayIndex": self.index}
        tree[f"{ROOT}/Chassis/CBC_0"] = {
            "Id": "CBC_0",
            "SerialNumber": "C77",
            "Oem": {"Nvidia": {**cartridge, "TopologyId": 128}},
        }
        thermal = "Chassis/Chassis_0/ThermalSubsystem"
        tree[f"{ROOT}/Chassis/Chassis_0"] = {"Id": "Chassis_0", "ThermalSubsystem": ref(thermal)}
        tree[f"{ROOT}/{thermal}"] = {"LeakDetection": ref(f"{thermal}/LeakDetection")}
        listed = f"{thermal}/LeakDetection/LeakDetectors"
        tree[f"{ROOT}/{thermal}/LeakDetection"] = {"LeakDetectors": ref(listed)}
        list_members(tree, listed, list(self.detectors))
        for name, state in self.detectors.items():
            status_of = {"State": "Enabled", "Health": "OK"}
            tree[f"{ROOT}/{listed}/{name}"] = {
                "Id": name,
                "DetectorState": state,
                "Status": status_of,
            }

    def _add_firmware(self, tree: Tree, *, hmc: bool) -> None:
        shown = {k: v for k, v in self.active.items() if hmc or not k.startswith("HGX_")}
        if self.faults.ghost:
            shown["FW_BMC_1"] = "    "
        tree[f"{ROOT}/UpdateService"] = {
            "Id": "UpdateService",
            "FirmwareInventory": ref("UpdateService/FirmwareInventory"),
            "MultipartHttpPushUri": f"{ROOT}/UpdateService/update-multipart",
        }
        list_members(tree, "UpdateService/FirmwareInventory", list(shown))
        for ident, version in shown.items():
            state = "PendingActivation" if ident == "FW_BMC_1" else "Enabled"
            tree[f"{ROOT}/UpdateService/FirmwareInventory/{ident}"] = {
                "Id": ident,
                "Version": version,
                "Updateable": True,
                "Status": {"State": state, "Health": "OK"},
            }
