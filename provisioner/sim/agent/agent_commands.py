"""The commands of the agent in a simulated ramdisk, their effects and how long they take.

`COMMANDS` maps a command to the function that runs it. Each returns its seconds and its effect at
the end: a result, or `Failed`. A command that is interrupted before its end is half done.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from provisioner.sim.agent.agent_steps import STEPS
from provisioner.sim.agent.agent_work import Act, Failed, Json, Ramdisk, Work
from provisioner.sim.hardware.build import parse_image
from provisioner.sim.hardware.disks import choose_disk
from provisioner.sim.hardware.machine import Machine

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
