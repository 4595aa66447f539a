"""A power shelf: supplies, and a PMC with two flashes (Delta), or LiteOn's dialect."""

from __future__ import annotations

from dataclasses import dataclass
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
    list_members,
    ref,
)

_SERVICE = f"{ROOT}/UpdateService"
_MANAGER = f"{ROOT}/Managers/PMC_0"
PMC_BACK_S = 90.0


@dataclass
class ShelfFaults:
    """What goes wrong with a shelf."""

    selector_sticks: bool = False  # it takes the PATCH and stays where it is
    reads_apply_onreset: bool = False
    wrong_flash: bool = False  # a push lands in the flash that runs
    silent: bool = False
    half: bool = False  # every second supply is listed and answers 404


class Shelf:
    """One power shelf."""

    def __init__(
        self, rack: Rack, name: str, dialect: str, part: str, pmc: str, psu: str, supplies: int = 2
    ) -> None:
        self.rack = rack
        self.name = name
        self.delta = dialect == "delta"
        self.part = part
        self.flash = {"Primary": pmc, "Backup": pmc}
        self.supplies = dict.fromkeys(range(1, supplies + 1), psu)
        self.power = dict.fromkeys(self.supplies, "On")
        self.health = dict.fromkeys(self.supplies, "OK")
        self.selector = "Primary"
        self.apply = "OnReset"
        self.targets: list[str] = []
        self.waiting: list[tuple[str, Push]] = []  # written, and run at the next start of the PMC
        self.tasks = Tasks()
        self.faults = ShelfFaults()
        self.pmc_up = 0.0
        self.flashed: list[tuple[float, str]] = []
        self.shown = Shown(rack, self._build_tree)

    def settle(self) -> None:
        for task in self.tasks.listed.values():
            if self.rack.now >= task.end and not task.applied:
                task.applied = True
                self._write(task.push)

    def lose_power(self) -> None:
        """A shelf has its own feed: it stays."""

    def _write(self, push: Push) -> None:
        if self.targets:
            for target in self.targets:
                number = int(target.rpartition("_")[2])
                self.supplies[number] = push.inside["psu"]
                self.power[number] = "On"
            self.targets = []
            return
        where = push.targets[0]
        if self.apply == "Immediate":
            self.flash[where] = push.inside["pmc"]
            self.pmc_up = self.rack.now + PMC_BACK_S
        else:
            self.waiting.append((where, push))

    def handle(self, method: str, path: str, body: Any) -> Answer:
        self.settle()
        if self.faults.silent or self.rack.now < self.pmc_up:
            raise Silence(executed=False)
        if method == "GET":
            return self.shown.answer(path)
        self.shown.change()
        path = path.partition("?")[0].rstrip("/")
        if method == "PATCH":
            return self._patch(path, body)
        if isinstance(body, Push):
            return self._push(body)
        if path.endswith(("Chassis.Reset", "Chassis.On", "Chassis.ForceOff")):
            kind = str((body or {}).get("ResetType", "")) or path.rpartition(".")[2]
            return self._reset(kind)
        return Answer(404)

    def _patch(self, path: str, body: Any) -> Answer:
        if path == _MANAGER and self.delta:
            wanted = body["Oem"]["deltaenergysystems"]["FlashSelector"]
            if not self.faults.selector_sticks:
                self.selector = str(wanted)
            self.rack.note(self.name, "selector", str(wanted))
            return Answer(204)
        if path == _SERVICE:
            options = body.get("HttpPushUriOptions", {})
            apply = options.get("HttpPushUriApplyTime", {}).get("ApplyTime")
            if apply and not self.faults.reads_apply_onreset:
                self.apply = apply
            if "HttpPushUriTargets" in body:
                self.targets = list(body["HttpPushUriTargets"])
            return Answer(204)
        return Answer(404)

    def _push(self, push: Push) -> Answer:
        now = self.rack.now
        if self.tasks.running(now):
            self.rack.note(self.name, "violation", "a second push during a flash")
        self.rack.note(self.name, "push", f"{push.file_name} {self.selector} {self.targets}")
        self.flashed.append((now, push.file_name))
        if self.targets:
            others = [unit for unit in self.rack.units.values() if isinstance(unit, Shelf)]
            out = sum(p != "On" for unit in others for p in unit.power.values())
            if out:
                self.rack.note(self.name, "violation", "a supply goes out beside another one")
            for target in self.targets:
                self.power[int(target.rpartition("_")[2])] = "Off"
        where = "Primary" if self.faults.wrong_flash else self.selector
        inside = Push((where,), push.file_name, push.inside)
        task = self.tasks.begin(now, self.rack.times.shelf_push, inside)
        at = f"{ROOT}/TaskService/Tasks/{task.number}"
        return Answer(202, self.tasks.describe(task, now), {"location": at})

    def _reset(self, kind: str) -> Answer:
        state = {"On": "On", "ForceOff": "Off", "GracefulShutdown": "Off"}.get(kind)
        if state is None:
            return Answer(400)
        self.rack.note(self.name, "shelf", state)
        self.power = dict.fromkeys(self.power, state)
        shelves = [unit for unit in self.rack.units.values() if isinstance(unit, Shelf)]
        live = any(p == "On" for shelf in shelves for p in shelf.power.values())
        (self.rack.feed if live else self.rack.cut)()
        return Answer(204)

    # --- the tree

    def _build_tree(self) -> Tree:
        version = "1.17.0" if self.delta else "1.9.0"
        links = {"Chassis": ref("Chassis"), "Managers": ref("Managers")}
        root = {"RedfishVersion": version, **links, "UpdateService": ref("UpdateService")}
        tree: Tree = {ROOT: {**root, "Tasks": ref("TaskService")}}
        if self.delta:
            expand = {"ProtocolFeaturesSupported": EXPAND}
            tree[ROOT] |= {"PowerEquipment": ref("PowerEquipment"), "Vendor": "Delta", **expand}
        names = ["PowerShelf_0"] if self.delta else ["PowerShelf_0", "powershelf"]
        list_members(tree, "Chassis", names)
        for name in names:
            self._add_chassis(tree, name)
        self._add_manager(tree)
        self._add_updates(tree)
        self.tasks.add_to(tree, self.rack.now)
        return tree

    def _add_chassis(self, tree: Tree, name: str) -> None:
        where = f"Chassis/{name}/Actions"
        if self.delta:
            allowed = {"ResetType@Redfish.AllowableValues": ["On", "ForceOff"]}
            actions = {"#Chassis.Reset": {"target": f"{ROOT}/{where}/Chassis.Reset", **allowed}}
        else:
            actions = {
                f"#Chassis.{kind}": {"target": f"{ROOT}/{where}/Chassis.{kind}"}
                for kind in ("On", "ForceOff")
            }
        tree[f"{ROOT}/Chassis/{name}"] = {
            "Id": name,
            "Manufacturer": "DELTA" if self.delta else "LITE-ON TECHNOLOGY CORP.",
            "Model": "AHE50V660A33KWR" if self.delta else "PF-1333-7RB",
            "SerialNumber": f"P{self.name}",
            "Actions": actions,
            "PowerSubsystem": ref(f"Chassis/{name}/PowerSubsystem"),
        }
        listed = f"Chassis/{name}/PowerSubsystem/PowerSupplies"
        tree[f"{ROOT}/Chassis/{name}/PowerSubsystem"] = {"PowerSupplies": ref(listed)}
        first = 1 if self.delta else 0
        list_members(tree, listed, [str(n - 1 + first) for n in self.supplies])
        for n in self.supplies:
            if self.faults.half and n % 2 == 0:
                continue
            on = self.power[n] == "On"
            state = {"PowerState": on} if not self.delta else {}
            oem = {"Oem": {"deltaenergysystems": {"Power": on}}} if self.delta else {}
            tree[f"{ROOT}/{listed}/{n - 1 + first}"] = {
                "Id": str(n - 1 + first),
                "Status": {"State": "Enabled", "Health": self.health[n]},
                **state,
                **oem,
            }

    def _add_manager(self, tree: Tree) -> None:
        name = "PMC_0" if self.delta else "bmc"
        list_members(tree, "Managers", [name])
        body: dict[str, Any] = {"Id": name, "PartNumber": self.part}
        if self.delta:
            body["Oem"] = {"deltaenergysystems": {"FlashSelector": self.selector}}
        tree[f"{ROOT}/Managers/{name}"] = body

    def _add_updates(self, tree: Tree) -> None:
        shown = {"PMC": self.flash["Primary"]}
        if self.delta:
            shown = {"FW_PMC_primary": self.flash["Primary"], "FW_PMC_alt": self.flash["Backup"]}
        shown |= {f"FW_PSU_{n}": version for n, version in self.supplies.items()}
        options = {"HttpPushUriApplyTime": {"ApplyTime": self.apply}}
        tree[_SERVICE] = {
            "FirmwareInventory": ref("UpdateService/FirmwareInventory"),
            "HttpPushUri": f"{ROOT}/UpdateService/update",
            "HttpPushUriOptions": options,
            "HttpPushUriTargets": self.targets,
        }
        list_members(tree, "UpdateService/FirmwareInventory", list(shown))
        for ident, version in shown.items():
            body = {"Id": ident, "Version": version, "Updateable": True}
            tree[f"{_SERVICE}/FirmwareInventory/{ident}"] = body
