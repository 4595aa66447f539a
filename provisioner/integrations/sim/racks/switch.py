"""An NVLink switch tray: a BMC in front, NVOS with NVUE on its CPU, a controller on the primary."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

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

DEFAULT = "factory"
LOCKOUT = 4  # refused logins until the account is locked
# NVUE's names -> Redfish's (NVIDIA/open-nvfwupd); "MGX_" stands before them up to BMC 88.0060.2112,
# and 88.0060.2303 dropped it (sonic-buildimage#29631)
_LISTED = {"BMC": "BMC_0", "BIOS": "CPU_0", "FPGA": "FPGA_0", "EROT-BMC": "ERoT_BMC_0"}


@dataclass
class SwitchFaults:
    """What goes wrong with a switch."""

    offline_error: bool = False  # a job ends as action_error "system is offline"
    ignores_reset: bool = False  # it takes a factory reset, and does nothing
    default_after_reboot: bool = False
    nvos_dead: bool = False
    never_configured: bool = False
    primary_too: bool = False  # it runs a controller beside the primary's
    full: bool = False  # both partitions are used
    # what an NVUE revision shows of an interface's link instead, by "REVISION/NAME"; None: nothing
    links: dict[str, Any] = field(default_factory=dict)
    silent: str = ""  # a revision of which it lists nothing


@dataclass
class Job:
    """An action of NVUE under way."""

    end: float
    what: str
    file: str
    state: str = "running"
    said: str = ""


class Switch:
    """One NVLink switch tray."""

    def __init__(
        self,
        rack: Rack,
        name: str,
        slot: int,
        index: int,
        chassis: str,
        versions: dict[str, str],
        nvos: str,
        password: str,
    ) -> None:
        self.rack = rack
        self.name = name
        self.slot = slot
        self.index = index
        self.chassis = chassis
        self.active = dict(versions)  # by NVUE's names
        self.staged: dict[str, str] = {}
        self.images: dict[int, str] = {1: nvos}
        self.current = self.next = 1
        self.password = self.wanted = password
        self.files: dict[str, dict[str, str]] = {}  # on the switch: what is inside
        self.sources: dict[str, dict[str, str]] = {}  # by URL: what is inside
        self.jobs: dict[str, Job] = {}
        self.tasks = Tasks()
        self.faults = SwitchFaults()
        self.power = "On"
        self.prefix = "MGX_"
        self.nvos_up = 0.0
        self.bmc_up = 0.0
        self.controller_since: float | None = 0.0 if index == 0 else None
        self.refused = 0
        self.pending: dict[str, str] = {}  # a revision: the password in it
        self.revisions: dict[str, str] = {}
        self.flashed: list[tuple[float, str]] = []
        self.detectors = {f"leakage{n}": "OK" for n in range(1, 3)}
        self.shown = Shown(rack, self._build_tree)

    # --- time and power

    def settle(self) -> None:
        if self.rack.is_dark():
            self.lose_power()
            return
        for job in self.jobs.values():
            if job.state == "running" and self.rack.now >= job.end:
                self._finish(job)
        for task in self.tasks.listed.values():
            if self.rack.now >= task.end and not task.applied:
                task.applied = True
                self.staged |= task.push.inside

    def lose_power(self) -> None:
        if self.bmc_up != float("inf"):
            self.bmc_up = self.nvos_up = float("inf")
            self.staged.clear()
            self.jobs.clear()
            self.tasks.listed.clear()

    def _come_up(self) -> None:
        self.bmc_up = self.rack.now + self.rack.times.bmc_back
        self._boot(self.rack.times.nvos_cycle)

    def _boot(self, seconds: float) -> None:
        self.power = "On"
        self.nvos_up = self.rack.now + seconds
        self.jobs.clear()
        self.controller_since = self.nvos_up if self.index == 0 else None
        if self.faults.default_after_reboot and self.images[self.next] != self.images[self.current]:
            self.password = DEFAULT
        self.current = self.next

    # --- the BMC

    def handle(self, method: str, path: str, body: Any) -> Answer:
        self.settle()
        if self.rack.fed and self.bmc_up == float("inf"):
            self._come_up()
        if self.rack.now < self.bmc_up:
            raise Silence(executed=False)
        if method == "GET":
            return self.shown.answer(path)
        self.shown.change()
        if method == "POST" and path.endswith("update-multipart"):
            push: Push = body
            self.rack.note(self.name, "push by bmc", push.file_name)
            self.flashed.append((self.rack.now, push.file_name))
            task = self.tasks.begin(self.rack.now, self.rack.times.push, push)
            where = f"{ROOT}/TaskService/Tasks/{task.number}"
            return Answer(202, self.tasks.describe(task, self.rack.now), {"location": where})
        if method == "POST" and path.endswith("ComputerSystem.Reset"):
            self.rack.note(self.name, "reset", str(body["ResetType"]))
            if body["ResetType"] == "ForceOff":
                self.power = "Off"
                self.nvos_up = float("inf")
                return Answer(204)
            return self._restart()
        return Answer(405)

    def _restart(self) -> Answer:
        """Restart the tray; with firmware pending it is a power cycle, which drops its BMC too."""
        self.rack.note(self.name, "switch reboot")
        pending = bool(self.staged)
        self.active |= self.staged
        self.staged.clear()
        if pending:
            self.bmc_up = self.rack.now + self.rack.times.bmc_back
        self._boot(self.rack.times.nvos_cycle if pending else self.rack.times.nvos_boot)
        return Answer(204)

    def _build_tree(self) -> Tree:
        names = ("Systems", "Chassis", "Managers", "UpdateService")
        root = {"Vendor": "NVIDIA", "Product": "P3809", "ProtocolFeaturesSupported": EXPAND}
        tree: Tree = {ROOT: {**root, **{n: ref(n) for n in names}, "Tasks": ref("TaskService")}}
        list_members(tree, "Systems", ["System_0"])
        reset = {
            "target": f"{ROOT}/Systems/System_0/Actions/ComputerSystem.Reset",
            "ResetType@Redfish.AllowableValues": ["On", "ForceOff", "GracefulRestart"],
        }
        system = {"Id": "System_0", "PowerState": self.power, "SerialNumber": f"MT{self.name}"}
        actions = {"#ComputerSystem.Reset": reset}
        tree[f"{ROOT}/Systems/System_0"] = {**system, "Actions": actions}
        list_members(tree, "Managers", ["BMC_0"])
        tree[f"{ROOT}/Managers/BMC_0"] = {"Id": "BMC_0"}
        list_members(tree, "Chassis", ["MGX_NVSwitch_0", "MGX_NVSwitch_1", "MGX_BMC_0"])
        for n in range(2):
            one = {"Id": f"MGX_NVSwitch_{n}", "Model": "N5200_LD", "SerialNumber": f"MT{self.name}"}
            tree[f"{ROOT}/Chassis/MGX_NVSwitch_{n}"] = one
        thermal = "Chassis/MGX_BMC_0/ThermalSubsystem"
        tree[f"{ROOT}/Chassis/MGX_BMC_0"] = {"Id": "MGX_BMC_0", "ThermalSubsystem": ref(thermal)}
        tree[f"{ROOT}/{thermal}"] = {"LeakDetection": ref(f"{thermal}/LeakDetection")}
        listed = f"{thermal}/LeakDetection/LeakDetectors"
        tree[f"{ROOT}/{thermal}/LeakDetection"] = {"LeakDetectors": ref(listed)}
        list_members(tree, listed, list(self.detectors))
        for name, state in self.detectors.items():
            shown = {"Id": name, "DetectorState": state, "Status": {"State": "Enabled"}}
            tree[f"{ROOT}/{listed}/{name}"] = shown
        tree[f"{ROOT}/UpdateService"] = {
            "FirmwareInventory": ref("UpdateService/FirmwareInventory"),
            "MultipartHttpPushUri": f"{ROOT}/UpdateService/update-multipart",
        }
        shown_as = {f"{self.prefix}FW_{_LISTED[part]}": v for part, v in self.active.items()}
        list_members(tree, "UpdateService/FirmwareInventory", list(shown_as))
        for ident, version in shown_as.items():
            tree[f"{ROOT}/UpdateService/FirmwareInventory/{ident}"] = {
                "Id": ident,
                "Version": version,
                "Updateable": True,
            }
        self.tasks.add_to(tree, self.rack.now)
        add_events(tree)
        return tree

    # --- NVOS

    def handle_nvos(self, method: str, path: str, body: Any, login: str) -> Answer:
        self.settle()
        if self.rack.fed and self.bmc_up == float("inf"):
            self._come_up()
        if self.faults.nvos_dead or self.rack.now < self.nvos_up:
            raise Silence(executed=False)
        if self.refused >= LOCKOUT or login != self.password:
            self.refused += 1
            if self.refused == LOCKOUT:
                self.rack.note(self.name, "violation", "its account is locked")
            return Answer(401)
        self.refused = 0
        where = path.removeprefix("/nvue_v1").partition("?")[0]
        if method == "GET":
            found = self._list_links(path) if where == "/interface" else self._show(where)
            return Answer(404) if found is None else Answer(200, found)
        if method == "PATCH":
            return self._patch(path, where, body)
        return self._post(where, body)

    def _list_links(self, path: str) -> Any:
        """Show interfaces as NVOS' manual ("NVLink Interface") and NVUE's API have them: a link
        that nobody set has its state in force alone.
        """
        revision = path.partition("rev=")[2].partition("&")[0]
        shown: dict[str, Any] = {"eth0": {"type": "eth", "link": {"state": {"up": {}}}}}
        for name in ("acp1", "acp2", "acp3", "acp4", "fnm1", "sw1p1s1"):
            up: Any = {"up": {}} if revision == "operational" and name != "sw1p1s1" else {}
            state = self.faults.links.get(f"{revision}/{name}", up)
            if state is not None:
                shown[name] = {"type": "nvl", "link": {"state": state} if state else {}}
        return {} if self.faults.silent == revision else shown

    def _show(self, where: str) -> Any:
        if where == "/platform/chassis-location":
            place = {"chassis-sn": self.chassis, "slot-number": str(self.slot)}
            return {**place, "tray-index": str(self.index), "topology-id": "GB200 NVL72"}
        if where == "/system/image":
            images = {f"partition{n}": {"build-id": build} for n, build in self.images.items()}
            return {"current": str(self.current), "next": str(self.next), **images}
        if where == "/system/image/files":
            return {name: {} for name in self.files if name.endswith(".bin")}
        if where == "/platform/firmware":
            return {name: {"actual-firmware": v} for name, v in self.active.items()}
        if where.startswith("/platform/firmware/") and where.endswith("/files"):
            return {name: {} for name in self.files}
        if where == "/cluster/apps":
            return {"nmx-controller": self._describe_controller()}
        if where.startswith("/action/"):
            job = self.jobs.get(where.rpartition("/")[2])
            issue = [] if job is None or not job.said else [{"message": job.said}]
            return None if job is None else {"state": job.state, "status": job.said, "issue": issue}
        if where.startswith("/revision/"):
            state = self.revisions.get(unquote(where.rpartition("/")[2]))
            return None if state is None else {"state": state}
        return None

    def _describe_controller(self) -> dict[str, Any]:
        since = 0.0 if self.faults.primary_too else self.controller_since
        if since is None:
            return {
                "status": "not ok",
                "reason": "",
                "addition-info": "CONTROL_PLANE_STATE_OFFLINE",
            }
        if self.faults.never_configured or self.rack.now < since + self.rack.times.configure:
            info = "CONTROL_PLANE_STATE_UNCONFIGURED"
            return {"status": "not ok", "reason": "GFM: UNINITIALIZED", "addition-info": info}
        return {"status": "ok", "reason": "", "addition-info": "CONTROL_PLANE_STATE_CONFIGURED"}

    def _patch(self, path: str, where: str, body: Any) -> Answer:
        if where.startswith("/system/aaa/user/"):
            revision = path.rpartition("rev=")[2]
            self.pending[revision] = base64.b64decode(body["password"]).decode()
            return Answer(200, {})
        if where.startswith("/revision/") and body.get("state") == "apply":
            revision = unquote(where.rpartition("/")[2])
            self.revisions[revision] = "applied"
            self.password = self.pending.pop(revision, self.password)
            self.rack.note(self.name, "password", "ours" if self.password == self.wanted else "?")
            return Answer(200, {"state": "applied"})
        return Answer(404)

    def _post(self, where: str, body: Any) -> Answer:
        if where == "/revision":
            name = str(len(self.revisions) + 1)
            self.revisions[name] = "pending"
            return Answer(200, {name: {"state": "pending"}})
        action = next(iter(body), "")
        asked = body[action].get("parameters", {})
        if self.password != self.wanted and action in {"@fetch", "@install", "@start"}:
            self.rack.note(self.name, "violation", f"{action} under the factory's password")
        if action == "@reboot" and where == "/system":
            self._restart()
            return Answer(200, text="9999")
        if action == "@reset" and where == "/system/factory-default":
            self.rack.note(self.name, "factory reset")
            if not self.faults.ignores_reset:
                self.password = DEFAULT
                self._boot(self.rack.times.nvos_cycle)
            return Answer(200, text="9998")
        if action == "@fetch":
            return self._job(30.0, "fetch", str(asked["remote-url"]))
        if action == "@install":
            kind = "image" if where.startswith("/system/image/files/") else "firmware"
            return self._job(self.rack.times.job, kind, unquote(where.rpartition("/")[2]))
        if action == "@start" and where == "/cluster/apps/nmx-controller":
            self.controller_since = self.rack.now
            self.rack.note(self.name, "controller started")
            return self._job(5.0, "start", "")
        return Answer(404)

    def _job(self, seconds: float, what: str, file: str) -> Answer:
        if any(job.state == "running" for job in self.jobs.values()):
            self.rack.note(self.name, "violation", "two actions at one time")
        number = str(len(self.jobs) + 1)
        self.jobs[number] = Job(self.rack.now + seconds, what, file)
        self.rack.note(self.name, f"job {what}", file)
        return Answer(200, text=number)

    def _finish(self, job: Job) -> None:
        job.state = "action_success"
        if job.what == "fetch":
            inside = self.sources.get(job.file)
            if inside is None:
                job.state = "action_error"
                job.said = "cannot fetch it"
            else:
                self.files[job.file.rpartition("/")[2]] = inside
        elif job.what == "image":
            self._install(job)
        elif job.what == "firmware":
            self.staged |= self.files.get(job.file, {})
            self.flashed.append((self.rack.now, job.file))
            if self.faults.offline_error:
                job.state = "action_error"
                job.said = "system is offline"

    def _install(self, job: Job) -> None:
        inside = self.files.get(job.file)
        if inside is None or self.faults.full:
            job.state = "action_error"
            job.said = "no free partition" if self.faults.full else "no such file"
            return
        other = 2 if self.current == 1 else 1
        self.images[other] = inside["nvos"]
        self.next = other
        self.flashed.append((self.rack.now, job.file))
