"""What the scratch hardware does with images: the agent's own writer on files that act like disks.

The steps are those of docs/erasure.md that a deployment asks for. Every act is a line in "acts",
so that a test counts what was truly done. The rule: `write_image` is the agent's own, from the
choice of the disk by its hints to the digest; only the partition of the configuration drive, for
which it would need `sgdisk` and a block device, is a file beside the disk.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ironic_python_agent import device_hints, errors, hardware, partition_utils
from ironic_python_agent.extensions import standby

STATE = Path("/run/state")
CHUNK_BYTES = 512 << 10
LISTS = STATE / "lists.json"  # [[serial, ...], ...]: what each look shows; the last one stays
at_work = threading.Lock()


def prepare(chunk_s: float) -> None:
    """Make the agent's writer treat files as disks, `chunk_s` seconds slower for each chunk."""

    def as_disk(path: str, mode: str) -> Any:
        # a disk is not cut short by opening it for writing
        return Path(path).open("rb+" if "w" in mode else mode)

    own = standby.ImageDownload.__iter__

    def slowly(download: Any) -> Iterator[bytes]:
        for chunk in own(download):
            time.sleep(chunk_s)
            yield chunk

    standby.open = as_disk
    standby.IMAGE_CHUNK_SIZE = CHUNK_BYTES
    standby.ImageDownload.__iter__ = slowly
    partition_utils.create_config_drive_partition = keep_drive


def keep_drive(_node: str, device: str, drive: str) -> None:
    Path(f"{device.replace('disk', 'drive')}").write_text(drive)


def note(act: str, **more: Any) -> None:
    with (STATE / "acts").open("a") as file:
        file.write(json.dumps({"act": act, "at": time.time(), **more}) + "\n")


class WritingHardware(hardware.HardwareManager):
    """To be mixed in where `list_block_devices` is."""

    def named(self, serial: str) -> Any:
        found = [d for d in self.list_block_devices() if d.serial == serial]
        if len(found) != 1:
            raise errors.CleaningError(f"{len(found)} disks have the serial {serial}")
        return found[0]

    def by_hints(self, hints: dict[str, str]) -> str:
        """As the generic manager (hardware.py, get_os_install_device)."""
        listed = [d.serialize() for d in self.list_block_devices()]
        found = device_hints.match_root_device_hints(listed, hints)
        if not found:
            raise errors.DeviceNotFound(f"No suitable device was found using these hints {hints}")
        return str(found["name"])

    def provisioner_disks(self, _node: Any, _ports: Any) -> dict[str, Any]:
        listed = [
            {"name": f"/dev/{Path(d.name).name}", "serial": d.serial, "size": d.size}
            for d in self.list_block_devices()
        ]
        if LISTS.exists():
            now, *later = json.loads(LISTS.read_text())
            listed = [{**listed[n], "serial": serial} for n, serial in enumerate(now)]
            if later:
                LISTS.write_text(json.dumps(later))
        note("disks")
        return {"disks": listed}

    def provisioner_read_disk(
        self,
        _node: Any,
        _ports: Any,
        serial: str = "",
        offset: int = 0,
        bytes: int = 0,  # noqa: A002
    ) -> dict[str, Any]:
        with Path(self.named(serial).name).open("rb") as file:
            file.seek(offset)
            digest = hashlib.sha256(file.read(bytes)).hexdigest()
        note("read", sha256=digest)
        return {"serial": serial, "offset": offset, "bytes": bytes, "sha256": digest}

    def write_image(
        self, node: Any, ports: Any, image_info: dict[str, Any], configdrive: str | None = None
    ) -> Any:
        alone = at_work.acquire(blocking=False)
        note("write", image=image_info["id"], alone=alone)
        try:
            written = hardware.GenericHardwareManager.write_image(
                self, node, ports, image_info, configdrive
            )
            note("written", image=image_info["id"])
            return written
        except BaseException as error:
            note("broken", image=image_info["id"], error=str(error))
            raise
        finally:
            if alone:
                at_work.release()
