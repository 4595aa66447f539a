"""Images on the disks of a simulated host: streamed, verified, configured for the first boot."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from provisioner.sim.agent.agent_work import Failed, Json, Ramdisk, Work
from provisioner.sim.hardware.disks import choose_disk
from provisioner.sim.hardware.images import parse_image

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
