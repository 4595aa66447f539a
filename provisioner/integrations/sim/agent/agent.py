"""The agents of a simulated site: each host that booted a ramdisk looks itself up and obeys.

An agent cannot open a connection here: `calls` lists the requests that agents have for the daemon
by now, and `answered` passes the daemon's answers to them; `request` carries a request of the
daemon to an agent. All of it is plain data, so that it crosses a socket as well as a function call.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import random
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from provisioner.integrations.sim.agent.agent_steps import (
    STEPS,
    Act,
    Failed,
    Fetch,
    Json,
    Ramdisk,
    Work,
)
from provisioner.integrations.sim.hardware.build import parse_image
from provisioner.integrations.sim.hardware.clock import make_certificate
from provisioner.integrations.sim.hardware.disks import choose_disk
from provisioner.integrations.sim.hardware.machine import Machine

# ------------------------------------------------------------------------------
# Named faults of maintenance agents: name, number in the catalogue, meaning.


ALL = (
    ("agent_silent", "M1", "the ramdisk boots, its agent never calls"),
    ("agent_wrong_mac", "M2", "the agent looks itself up by an address of no node"),
    ("agent_wrong_token", "M3", "the agent calls with a token that it was not given"),
    ("agent_dies", "M4", "the agent dies in the middle of its next command"),
    ("erase_fails", "M5", "a disk fails every erasure"),
    ("erase_unsupported", "M6", "a disk offers no erasure"),
    ("image_digest_wrong", "M7", "an image arrives with a byte too much"),
    ("image_truncated", "M8", "an image arrives without its last byte"),
    ("disk_unseen", "M9", "the host does not see its last disk, which its BMC lists"),
    ("disks_change", "M10", "every look of the agent shows another first disk"),
    ("sanitize_fails", "M11", "a disk fails to sanitize, and can be formatted"),
    ("read_back_wrong", "M12", "a disk gives other bytes than were written to it"),
    ("boot_entry_refused", "M14", "the firmware accepts no boot entry for the written disk"),
    ("root_on_other_disk", "M15", "the written system runs from another disk than it is on"),
    ("owner_key_enrolled", "M16", "shim trusts a key that a tenant enrolled"),
    ("steps_garbled", "M13", "the agent's answers about disks are nonsense"),
)


# ------------------------------------------------------------------------------
# The commands of the agent in a simulated ramdisk, their effects and how long they take.
#
# `COMMANDS` maps a command to the function that runs it. Each returns its seconds and its effect
# at
# the end: a result, or `Failed`. A command that is interrupted before its end is half done.


# ------------------------------------------------------------------------------
# Images on the disks of a simulated host: streamed, verified, configured for the first boot.


WRITE_BYTES_S = 300e6  # an image streamed over the management network
IMAGE_S = 20.0  # to begin and to end one


def prepare_image(ramdisk: Ramdisk, params: Mapping[str, Any]) -> Work:
    """standby.prepare_image: stream the image onto the disk, then verify it."""
    info = params.get("image_info")
    if not isinstance(info, dict) or not info.get("urls") or not info.get("os_hash_value"):
        raise Failed("InvalidCommandParamsError", "Invalid command parameters", "image_info", 400)
    machine = ramdisk.machine
    came = list[bytes | None]()
    image_info = {
        **(ramdisk.node.get("properties") or {}),
        **(ramdisk.node.get("instance_info") or {}),
    }
    disk = choose_disk(machine.disks, image_info.get("root_device") or {})
    if disk is None:
        message = "Error finding the disk or partition device to deploy the image onto"
        details = "No suitable device was found for deployment using these hints"
        raise Failed("DeviceNotFound", message, details, 404)
    ramdisk.fetch(str(info["urls"][0]), came.append)

    def begin_write(now: float) -> None:
        disk.begin_image()
        machine.log_event(now, "image_start", disk.device.slot, str(info.get("id")))

    def finish(now: float) -> Json:
        data = came[0] if came else None
        if data is None:
            details = f"Download of image {info.get('id')} failed: 404"
            raise Failed("ImageDownloadError", "Error downloading image", details)
        if "image_digest_wrong" in machine.faults:
            data += b"?"
        if "image_truncated" in machine.faults:
            data = data[:-1]
        digest = hashlib.new(str(info.get("os_hash_algo")), data).hexdigest()
        whole = digest == info["os_hash_value"]
        disk.write(data, whole=whole)
        machine.log_event(now, "image", disk.device.slot, f"{info.get('id')} {digest}")
        if not whole:
            details = f"image checksum: {info['os_hash_value']}; verification checksum: {digest}"
            raise Failed("ImageChecksumError", "Error verifying image checksum", details)
        return {"result": f"prepare_image: image ({info.get('id')}) written to device {disk.name}"}

    takes_s = IMAGE_S + len((came and came[0]) or b"") / WRITE_BYTES_S
    return Work(takes_s, finish, begin=begin_write, is_pending=lambda: not came)


def deploy_step(ramdisk: Ramdisk, params: Mapping[str, Any]) -> Work:
    """deploy.execute_deploy_step; only `write_image` exists here (hardware.py, write_image)."""
    step = params.get("step")
    if not isinstance(step, dict) or step.get("step") != "write_image":
        details = f"Could not find method: {step!r:.60}"
        message = "No HardwareManager found to handle method"
        raise Failed("HardwareManagerMethodNotFound", message, details)
    ramdisk.node = dict(params.get("node") or {})
    args = dict(step.get("args") or {})
    work = prepare_image(ramdisk, args)

    def finish(now: float) -> Json:
        result = work.finish(now)
        disk = choose_disk(ramdisk.machine.disks, ramdisk.node["properties"]["root_device"])
        assert disk is not None
        disk.drive = str(args.get("configdrive") or "")
        disk.system = _first_boot(disk.drive)
        disk.booted = False
        image = parse_image(disk.content)
        disk.packages = dict(image.contents) if image is not None else {}
        return {"deploy_result": result["result"], "deploy_step": step}

    return work._replace(finish=finish)


def _first_boot(drive: str) -> str:
    """The stamp that a configuration drive makes cloud-init write; "" if there is none."""
    volume = gzip.decompress(base64.b64decode(drive))
    if b"cidata" not in volume:
        return ""
    start = volume.find(b"#cloud-config\n")
    config = json.loads(volume[start:].partition(b"\n")[2].partition(b"\0")[0])
    files = [f for f in config.get("write_files", ()) if f["path"] == "/etc/provisioner-release"]
    return str(files[0]["content"]) if files else ""


VERSIONS = {"ProvisionerHardwareManager": "1", "generic_hardware_manager": "1.2"}


def _instant(finish: Callable[[float], Any], takes_s: float = 0.5) -> Work:
    return Work(takes_s, finish, sync=True)


def get_hardware_info(ramdisk: Ramdisk, _params: Mapping[str, Any]) -> Work:
    """poll.get_hardware_info."""
    return _instant(lambda _now: list_inventory(ramdisk.machine), 3.0)


def list_inventory(machine: Machine) -> Json:
    """hardware.py, list_hardware_info."""
    host = machine.host
    cards = [d for d in machine.devices.values() if d.mac and d.present]
    nics = [
        {
            "name": f"eth{n}",
            "mac_address": d.mac,
            "has_carrier": not d.traits.get("link_down"),
            "ipv4_address": None,
            "ipv6_address": None,
            "lldp": None,
            "vendor": "0x15b3",
            "product": "0xa2dc",
            "client_id": None,
            "biosdevname": None,
            "speed_mbps": 400000,
            "pci_address": d.pci,
            "driver": "mlx5_core",
        }
        for n, d in enumerate(cards)
    ]
    disks = [d for d in machine.disks.values() if d.device.present]
    memory = sum(d.kind == "memory" and d.present for d in machine.devices.values()) * 64
    return {
        "interfaces": nics,
        "cpu": {
            "model_name": "simulated",
            "frequency": 2000,
            "count": 224,
            "architecture": "x86_64",
            "flags": [],
            "socket_count": 2,
        },
        "disks": [d.list_block_device() for d in disks],
        "memory": {"total": memory << 30, "physical_mb": memory << 10},
        "bmc_address": None,
        "bmc_v6address": None,
        "system_vendor": {
            "product_name": "simulated",
            "serial_number": host.serial,
            "manufacturer": "simulated",
            "firmware": None,
        },
        "boot": {"current_boot_mode": "uefi", "pxe_interface": None},
        "hostname": "ramdisk",
    }


def get_clean_steps(ramdisk: Ramdisk, params: Mapping[str, Any]) -> Work:
    """clean.get_clean_steps."""
    ramdisk.node = dict(params.get("node") or {})
    steps = [
        {
            "step": name,
            "priority": 0,
            "interface": "deploy",
            "reboot_requested": False,
            "abortable": True,
            "argsinfo": {},
        }
        for name in STEPS
    ]
    listed = {"ProvisionerHardwareManager": steps}
    return _instant(
        lambda _now: {"clean_steps": listed, "hardware_manager_version": dict(VERSIONS)}
    )


def execute_clean_step(ramdisk: Ramdisk, params: Mapping[str, Any]) -> Work:
    """clean.execute_clean_step."""
    step = params.get("step")
    if not isinstance(step, dict) or "step" not in step:
        raise Failed("CommandExecutionError", "Command execution failed", "no step")
    ramdisk.node = dict(params.get("node") or {})
    act = STEPS.get(str(step["step"]))
    if act is None:
        details = f"Could not find method: {step['step']}"
        message = "No HardwareManager found to handle method"
        raise Failed("HardwareManagerMethodNotFound", message, details)
    work = act(ramdisk, step.get("args") or {})

    def finish(now: float) -> Json:
        return {"clean_result": work.finish(now), "clean_step": step}

    return work._replace(finish=finish, sync=False)


def sync(_ramdisk: Ramdisk, _params: Mapping[str, Any]) -> Work:
    """standby.sync."""
    return _instant(lambda _now: None, 2.0)


def power_off(ramdisk: Ramdisk, _params: Mapping[str, Any]) -> Work:
    """standby.power_off."""
    return Work(2.0, lambda now: ramdisk.machine.power_off(now, graceful=True))


def run_image(ramdisk: Ramdisk, _params: Mapping[str, Any]) -> Work:
    """standby.run_image: a reboot."""
    return Work(2.0, ramdisk.machine.restart_host)


COMMANDS: dict[str, Act] = {
    "poll.get_hardware_info": get_hardware_info,
    "clean.get_clean_steps": get_clean_steps,
    "clean.execute_clean_step": execute_clean_step,
    "deploy.execute_deploy_step": deploy_step,
    "standby.prepare_image": prepare_image,
    "standby.sync": sync,
    "standby.power_off": power_off,
    "standby.run_image": run_image,
}


RAMDISKS = frozenset({"cd", "http", "pxe"})  # boot sources other than a disk
PORT = 9999
VERSION = "13.0.0"
HIDDEN = "******"
# exponential (ironic_api_client.py, lookup_node)
SECOND_LOOKUP_S = 3.0
LOOKUP_MAX_S = 60.0
REQUEST_S = 30.0  # its http_request_timeout (config.py)
PENDING_S = 5.0  # until a command that goes on is looked at again
RETRY_S = (5.0, 10.0)  # after a refused heartbeat (agent.py, IronicPythonAgentHeartbeat)
JITTER = (0.3, 0.6)  # of the heartbeat timeout
FOREIGN_MAC = "02:00:00:00:de:ad"


@dataclass
class Entry:
    """One command in an agent's list."""

    id: str
    name: str
    status: str = "RUNNING"
    result: Any = None
    error: Json | None = None

    def serialize(self) -> Json:
        """The command as the agent serializes it (extensions/base.py, BaseCommandResult)."""
        return {
            "id": self.id,
            "command_name": self.name,
            "command_status": self.status,
            "command_error": self.error,
            "command_result": self.result,
        }


@dataclass
class Agent:
    """The agent of one boot."""

    machine: Machine
    boot_id: str
    address: str
    ramdisk: Ramdisk
    rng: random.Random
    due: float  # when it calls next
    certificate: str = ""
    node_uuid: str = ""
    token: str = ""
    heartbeat_s: float = 0.0
    wait_s: float = SECOND_LOOKUP_S
    dead: bool = False
    commands: list[Entry] = field(default_factory=list)

    @property
    def lives(self) -> bool:
        """Whether this boot continues and its agent has not died."""
        return not self.dead and self.machine.host.boot_id == self.boot_id

    # --- its calls

    def build_call(self, now: float) -> Json:
        """The call that is due now; the agent repeats it until it is answered."""
        self.due = now + REQUEST_S
        if not self.node_uuid:
            macs = [d.mac for d in self.machine.devices.values() if d.mac and d.present]
            if "agent_wrong_mac" in self.machine.faults:
                macs = [FOREIGN_MAC]
            return self._asking("GET", "/v1/lookup", {"addresses": ",".join(macs)})
        token = "stolen" if "agent_wrong_token" in self.machine.faults else self.token
        body = {
            "callback_url": f"https://{self.address}:{PORT}",
            "agent_token": token,
            "agent_version": VERSION,
            "agent_verify_ca": self.certificate,
        }
        return self._asking("POST", f"/v1/heartbeat/{self.node_uuid}", {}, json.dumps(body))

    def _asking(self, method: str, path: str, query: Json, body: str = "") -> Json:
        return {
            "node": self.machine.name,
            "boot_id": self.boot_id,
            "method": method,
            "path": path,
            "query": query,
            "body": body,
            "peer": self.address,
        }

    def accept_answer(self, status: int, body: Any, now: float) -> None:
        """Update the agent's state from the daemon's answer to its call."""
        if self.node_uuid:
            taken = status == 202
            wait = [self.heartbeat_s * j for j in JITTER] if taken else RETRY_S
            self.due = now + self.rng.uniform(*wait)
            return
        if status != 200:
            self.due = now + self.wait_s * self.rng.uniform(0.5, 1.0)
            self.wait_s = min(2 * self.wait_s, LOOKUP_MAX_S)
            return
        config = body["config"]
        if config["agent_token"] == HIDDEN:  # it locks itself down
            self.dead = True
            return
        self.node_uuid = body["node"]["uuid"]
        self.token = config["agent_token"]
        self.heartbeat_s = float(config["heartbeat_timeout"])
        self.due = now

    # --- requests to it

    def handle_request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: str,
        now: float,
    ) -> tuple[int, Any, float]:
        """Answer the daemon: status, JSON, seconds until the answer."""
        if path == "/v1/status":
            return 200, {"started_at": now, "version": VERSION}, 0.1
        if not self.token or query.get("agent_token") != self.token:
            return 401, _fault("401 Unauthorized: Token invalid."), 0.1
        if method == "GET" and path == "/v1/commands/":
            return 200, {"commands": [c.serialize() for c in self.commands]}, 0.1
        if method == "GET" and path.startswith("/v1/commands/"):
            matches = [c for c in self.commands if c.id == path.rpartition("/")[2]]
            return (
                (200, matches[0].serialize(), 0.1) if matches else (404, _fault("Not found"), 0.1)
            )
        if method == "POST" and path == "/v1/commands/":
            return self._command(json.loads(body), now)
        return 404, _fault("Not found"), 0.1

    def _command(self, body: Json, now: float) -> tuple[int, Any, float]:
        name = str(body.get("name"))
        params = body.get("params")
        if not isinstance(params, dict):
            return 400, _fault("Missing or invalid name or params"), 0.1
        if self.commands and self.commands[-1].status == "RUNNING":
            busy = f"Agent is busy: executing command {self.commands[-1].name}"
            return 409, _fault(busy), 0.1
        act = COMMANDS.get(name)
        if act is None:
            return 404, _fault(f"Extension with id {name.partition('.')[0]} not found."), 0.1
        identifier = str(uuid.UUID(int=self.rng.getrandbits(128), version=4))
        entry = Entry(identifier, name.partition(".")[2])
        self.commands.append(entry)
        try:
            work = act(self.ramdisk, params)
        except Failed as failure:
            entry.name = name
            entry.status = "FAILED"
            entry.error = failure.error
            return 200, entry.serialize(), 0.1
        if work.sync:
            self._end(entry, work, now)
            return 200, entry.serialize(), self.machine.add_jitter(work.takes_s)
        self._begin(entry, work, now)
        return 200, entry.serialize(), 0.1

    def _begin(self, entry: Entry, work: Work, now: float) -> None:
        work.begin(now)
        takes_s = self.machine.add_jitter(work.takes_s)

        def die(_at: float) -> None:
            self.dead = True

        def end(at: float) -> None:
            if self.lives and work.is_pending():
                self.machine.schedule.plan_act(at + PENDING_S, end)
            elif self.lives:
                self._end(entry, work, at)
                self.due = min(self.due, at + RETRY_S[0])  # the agent calls when a command ends

        if "agent_dies" in self.machine.faults:
            self.machine.schedule.plan_act(now + takes_s / 2, die)
        self.machine.schedule.plan_act(now + takes_s, end)

    @staticmethod
    def _end(entry: Entry, work: Work, now: float) -> None:
        try:
            result = work.finish(now)
        except Failed as failure:
            entry.status = "FAILED"
            entry.error = failure.error
            return
        entry.status = "SUCCEEDED"
        entry.result = result


class Agents:
    """All agents of a site. `fetch` downloads images for them."""

    def __init__(self, machines: Mapping[str, Machine], addresses: Mapping[str, str]) -> None:
        self._machines = machines
        self._addresses = addresses
        self._agents: dict[str, Agent] = {}
        self.fetch: Fetch = lambda _url, back: back(None)
        self.calls_made = 0

    def list_calls(self, now: float) -> list[Json]:
        """The requests that agents have for the daemon by now."""
        calls = []
        for name in self._machines:
            agent = self._agent(name, now)
            if agent is None or agent.due > now:
                continue
            if "agent_silent" not in agent.machine.faults:
                calls.append(agent.build_call(now))
        self.calls_made += len(calls)
        return calls

    def accept_answer(self, call: Json, status: int, body: Any, now: float) -> None:
        """Pass the daemon's answer to the agent that made the call."""
        agent = self._agents.get(str(call["node"]))
        if agent is not None and agent.boot_id == call["boot_id"] and agent.lives:
            agent.accept_answer(status, body, now)

    def send_request(
        self, url: str, method: str, path: str, query: Mapping[str, str], body: str, now: float
    ) -> Json | None:
        """The answer of the agent at `url`; None if nothing listens there."""
        for name in self._machines:
            agent = self._agent(name, now)
            if agent is not None and url == f"https://{agent.address}:{PORT}":
                status, answer, takes_s = agent.handle_request(method, path, query, body, now)
                shown = {"certificate": agent.certificate, "takes_s": takes_s}
                return {"status": status, "body": answer, **shown}
        return None

    def _agent(self, name: str, now: float) -> Agent | None:
        """The agent that runs in this host now."""
        machine = self._machines[name]
        agent = self._agents.get(name)
        host = machine.host
        if agent is not None and not agent.lives:
            return None if agent.boot_id == host.boot_id else self._boot(machine, now)
        return agent if agent is not None else self._boot(machine, now)

    def _boot(self, machine: Machine, now: float) -> Agent | None:
        host = machine.host
        self._agents.pop(machine.name, None)
        if host.phase != "up" or host.boot_id is None or host.os not in RAMDISKS:
            return None
        rng = random.Random(host.boot_id)
        address = self._addresses[machine.name]
        agent = Agent(machine, host.boot_id, address, Ramdisk(machine, self.fetch), rng, now)
        agent.certificate = make_certificate(f"agent {host.boot_id[:8]}", address)[0].decode()
        self._agents[machine.name] = agent
        return agent


def _fault(text: str) -> Json:
    return {"faultcode": "Client", "faultstring": text}
