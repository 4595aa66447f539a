"""What the agent in a simulated ramdisk does when it is commanded, and how long that takes.

`COMMANDS` maps a command to what carries it out. Each returns its seconds and what happens at the
end: a result, or `Failed`. What is interrupted before its end has half happened.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from provisioner.sim.disks import NVME_METHODS, Disk, chosen
from provisioner.sim.images import parse_image
from provisioner.sim.machine import Machine

Json = dict[str, Any]
Fetch = Callable[[str, Callable[[bytes | None], None]], None]  # url, called with what came
VERSIONS = {"ProvisionerHardwareManager": "1", "generic_hardware_manager": "1.2"}
WRITE_BYTES_S = 300e6  # an image streamed over the management network
IMAGE_S = 20.0  # to begin and to end one
METADATA_S = 5.0


class Failed(Exception):
    """A command ends FAILED with {type, code, message, details} (the agent's errors.py)."""

    def __init__(self, kind: str, message: str, details: str, code: int = 500) -> None:
        super().__init__(details)
        self.error = {"type": kind, "code": code, "message": message, "details": details}


class Work(NamedTuple):
    """A command that was taken on."""

    takes_s: float
    finish: Callable[[float], Any]  # called with the time; its result, or raises Failed
    sync: bool = False  # answered when it is done
    begin: Callable[[float], None] = lambda _now: None


@dataclass
class Ramdisk:
    """What the commands of one boot work on."""

    machine: Machine
    fetch: Fetch
    node: Json = field(default_factory=dict)  # as the last command that named it
    jobs: dict[str, Json] = field(default_factory=dict)  # erasures that were done, by job


def _instant(finish: Callable[[float], Any], takes_s: float = 0.5) -> Work:
    return Work(takes_s, finish, sync=True)


def hardware_info(ramdisk: Ramdisk, _params: Mapping[str, Any]) -> Work:
    """poll.get_hardware_info."""
    return _instant(lambda _now: inventory(ramdisk.machine), 3.0)


def inventory(machine: Machine) -> Json:
    """hardware.py, list_hardware_info."""
    host = machine.host
    cards = [d for d in machine.devices.values() if d.mac and d.present]
    nics = [
        {"name": f"eth{n}", "mac_address": d.mac, "has_carrier": not d.traits.get("link_down"),
         "ipv4_address": None, "ipv6_address": None, "lldp": None, "vendor": "0x15b3",
         "product": "0xa2dc", "client_id": None, "biosdevname": None, "speed_mbps": 400000,
         "pci_address": d.pci, "driver": "mlx5_core"}
        for n, d in enumerate(cards)
    ]  # fmt: skip
    disks = [d for d in machine.disks.values() if d.device.present]
    memory = sum(d.kind == "memory" and d.present for d in machine.devices.values()) * 64
    return {
        "interfaces": nics,
        "cpu": {"model_name": "simulated", "frequency": 2000, "count": 224,
                "architecture": "x86_64", "flags": [], "socket_count": 2},
        "disks": [d.block_device() for d in disks],
        "memory": {"total": memory << 30, "physical_mb": memory << 10},
        "bmc_address": None, "bmc_v6address": None,
        "system_vendor": {"product_name": "simulated", "serial_number": host.serial,
                          "manufacturer": "simulated", "firmware": None},
        "boot": {"current_boot_mode": "uefi", "pxe_interface": None},
        "hostname": "ramdisk",
    }  # fmt: skip


def clean_steps(ramdisk: Ramdisk, params: Mapping[str, Any]) -> Work:
    """clean.get_clean_steps."""
    ramdisk.node = dict(params.get("node") or {})
    steps = [
        {"step": name, "priority": 0, "interface": "deploy", "reboot_requested": False,
         "abortable": True, "argsinfo": {}}
        for name in STEPS
    ]  # fmt: skip
    listed = {"ProvisionerHardwareManager": steps}
    return _instant(
        lambda _now: {"clean_steps": listed, "hardware_manager_version": dict(VERSIONS)}
    )


def clean_step(ramdisk: Ramdisk, params: Mapping[str, Any]) -> Work:
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


# --- steps


def _erase_devices(ramdisk: Ramdisk, _args: Mapping[str, Any]) -> Work:
    disks = [d for d in ramdisk.machine.disks.values() if d.device.present]

    def finish(now: float) -> Json:
        for disk in disks:
            _erase(ramdisk, disk, "erase_devices", now)
        return {d.name: None for d in disks}

    return Work(NVME_METHODS["nvme_format_user_data"] * len(disks), finish)


def _erase_metadata(ramdisk: Ramdisk, _args: Mapping[str, Any]) -> Work:
    def finish(now: float) -> None:
        for slot, disk in ramdisk.machine.disks.items():
            disk.content, disk.bootable = b"", False
            ramdisk.machine.note(now, "erase", slot, "metadata")

    return Work(METADATA_S, finish)


def _disks(ramdisk: Ramdisk, _args: Mapping[str, Any]) -> Work:
    machine = ramdisk.machine

    def finish(_now: float) -> Json:
        told = [d.described() for d in machine.disks.values() if d.device.present]
        if "erase_unsupported" in machine.faults:
            told[0]["nvme"] = {"sanicap": 0, "oacs": 0, "fna": 0}
        return {"disks": told}

    return Work(1.0, finish)


def _erase_device(ramdisk: Ramdisk, args: Mapping[str, Any]) -> Work:
    machine, method = ramdisk.machine, str(args.get("method"))
    told = {k: str(args.get(k)) for k in ("device", "serial", "method")}
    disk = next((d for d in machine.disks.values() if d.name == args.get("device")), None)

    job = str(args.get("job") or "")
    if job in ramdisk.jobs:  # done once in a boot
        answer = ramdisk.jobs[job]
        return Work(1.0, lambda _now: answer)

    def no(result: str, detail: str) -> Work:
        return Work(1.0, lambda _now: {**told, "result": result, "detail": detail})

    if disk is None or not disk.device.present:
        return no("not_done", "there is no such device")
    if disk.device.serial != told["serial"]:
        return no("not_done", f"its serial is {disk.device.serial}")
    first = next(iter(machine.disks.values())) is disk
    if method not in NVME_METHODS or ("erase_unsupported" in machine.faults and first):
        return no("unsupported", "the device does not offer it")
    if "erase_fails" in machine.faults and first:
        return no("not_done", "NVMe status: Internal Error (0x6)")

    def finish(now: float) -> Json:
        if disk.device.serial != told["serial"]:
            return {**told, "result": "not_done", "detail": "the disk changed meanwhile"}
        _erase(ramdisk, disk, method, now)
        done = {**told, "result": "done", "detail": ""}
        if job:
            ramdisk.jobs[job] = done
        return done

    return Work(NVME_METHODS[method], finish)


def _erase(ramdisk: Ramdisk, disk: Disk, method: str, now: float) -> None:
    disk.erase()
    ramdisk.machine.note(now, "erase", disk.device.slot, method)


def _read_disk(ramdisk: Ramdisk, args: Mapping[str, Any]) -> Work:
    def finish(_now: float) -> Json:
        disks = [
            d
            for d in ramdisk.machine.disks.values()
            if d.device.serial == args.get("serial") and d.device.present
        ]
        if len(disks) != 1:
            raise Failed("CleaningError", "Clean step failed", "there is no such disk")
        offset, count = args.get("offset", 0), args.get("bytes")
        try:
            digest = disks[0].digest(int(offset), int(count or 0))
        except (TypeError, ValueError) as error:
            raise Failed("CleaningError", "Clean step failed", str(error)) from None
        told = {"serial": disks[0].device.serial, "offset": offset, "bytes": count}
        return {**told, "sha256": digest}

    return Work(2.0, finish)


def _clear_tpm(ramdisk: Ramdisk, _args: Mapping[str, Any]) -> Work:
    def finish(now: float) -> Json:
        ramdisk.machine.note(now, "tpm_clear", "host")
        return {"result": "done", "detail": ""}

    return Work(1.0, finish)


# --- images and power


def prepare_image(ramdisk: Ramdisk, params: Mapping[str, Any]) -> Work:
    """standby.prepare_image: streamed onto the disk, and verified when it is there."""
    info = params.get("image_info")
    if not isinstance(info, dict) or not info.get("urls") or not info.get("os_hash_value"):
        raise Failed("InvalidCommandParamsError", "Invalid command parameters", "image_info", 400)
    machine, came = ramdisk.machine, list[bytes | None]()
    found = {**(ramdisk.node.get("properties") or {}), **(ramdisk.node.get("instance_info") or {})}
    disk = chosen(machine.disks, found.get("root_device") or {})
    if disk is None:
        message = "Error finding the disk or partition device to deploy the image onto"
        details = "No suitable device was found for deployment using these hints"
        raise Failed("DeviceNotFound", message, details, 404)
    ramdisk.fetch(str(info["urls"][0]), came.append)

    def begin(now: float) -> None:
        disk.begin()
        machine.note(now, "image_start", disk.device.slot, str(info.get("id")))

    def finish(now: float) -> Json:
        data = came[0] if came else None
        if data is None:
            details = f"Download of image {info.get('id')} failed: 404"
            raise Failed("ImageDownloadError", "Error downloading image", details)
        if "image_digest_wrong" in machine.faults:
            data += b"?"
        digest = hashlib.new(str(info.get("os_hash_algo")), data).hexdigest()
        whole = digest == info["os_hash_value"]
        disk.write(data, whole=whole)
        machine.note(now, "image", disk.device.slot, f"{info.get('id')} {digest}")
        if not whole:
            details = f"image checksum: {info['os_hash_value']}; verification checksum: {digest}"
            raise Failed("ImageChecksumError", "Error verifying image checksum", details)
        return {"result": f"prepare_image: image ({info.get('id')}) written to device {disk.name}"}

    return Work(IMAGE_S + len((came and came[0]) or b"") / WRITE_BYTES_S, finish, begin=begin)


def deploy_step(ramdisk: Ramdisk, params: Mapping[str, Any]) -> Work:
    """deploy.execute_deploy_step, of which `write_image` is known (hardware.py, write_image)."""
    step = params.get("step")
    if not isinstance(step, dict) or step.get("step") != "write_image":
        details = f"Could not find method: {step!r:.60}"
        message = "No HardwareManager found to handle method"
        raise Failed("HardwareManagerMethodNotFound", message, details)
    ramdisk.node = dict(params.get("node") or {})
    given = dict(step.get("args") or {})
    work = prepare_image(ramdisk, given)

    def finish(now: float) -> Json:
        told = work.finish(now)
        disk = chosen(ramdisk.machine.disks, ramdisk.node["properties"]["root_device"])
        assert disk is not None
        told_at_boot = _first_boot(str(given.get("configdrive") or ""))
        disk.system, disk.booted = told_at_boot, False
        image = parse_image(disk.content)
        disk.packages = dict(image.contents) if image is not None else {}
        return {"deploy_result": told["result"], "deploy_step": step}

    return work._replace(finish=finish)


def _first_boot(drive: str) -> str:
    """The stamp that cloud-init is told to write, out of a configuration drive; "" if none."""
    volume = gzip.decompress(base64.b64decode(drive))
    if b"cidata" not in volume:
        return ""
    start = volume.find(b"#cloud-config\n")
    config = json.loads(volume[start:].partition(b"\n")[2].partition(b"\0")[0])
    wanted = [f for f in config.get("write_files", ()) if f["path"] == "/etc/provisioner-release"]
    return str(wanted[0]["content"]) if wanted else ""


def sync(_ramdisk: Ramdisk, _params: Mapping[str, Any]) -> Work:
    """standby.sync."""
    return _instant(lambda _now: None, 2.0)


def power_off(ramdisk: Ramdisk, _params: Mapping[str, Any]) -> Work:
    """standby.power_off."""
    return Work(2.0, lambda now: ramdisk.machine.power_off(now, graceful=True))


def run_image(ramdisk: Ramdisk, _params: Mapping[str, Any]) -> Work:
    """standby.run_image: a reboot."""
    return Work(2.0, ramdisk.machine.restart)


Act = Callable[[Ramdisk, Mapping[str, Any]], Work]
STEPS: dict[str, Act] = {
    "erase_devices": _erase_devices,
    "erase_devices_metadata": _erase_metadata,
    "provisioner_disks": _disks,
    "provisioner_erase_device": _erase_device,
    "provisioner_read_disk": _read_disk,
    "provisioner_clear_tpm": _clear_tpm,
}
COMMANDS: dict[str, Act] = {
    "poll.get_hardware_info": hardware_info,
    "clean.get_clean_steps": clean_steps,
    "clean.execute_clean_step": clean_step,
    "deploy.execute_deploy_step": deploy_step,
    "standby.prepare_image": prepare_image,
    "standby.sync": sync,
    "standby.power_off": power_off,
    "standby.run_image": run_image,
}
