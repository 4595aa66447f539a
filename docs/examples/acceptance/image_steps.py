"""Steps about images in the artifact store: uploaded, read, listed, described and removed."""

from __future__ import annotations

import hashlib
from typing import Any

from daemon_client import Daemon, mark

UPLOADED = "acceptance-uploaded.raw"  # stays until the teardown
MANAGED = "acceptance-managed.raw"  # is made and removed by one step
DISK_BYTES = 4 * 1024 * 1024
SECTOR = 512
Answer = dict[str, Any]


def _build_disk(label: bytes) -> bytes:
    """Return the bytes of a raw disk that begins with a boot sector and its signature."""
    sector = label.ljust(SECTOR - 2, b"\0") + b"\x55\xaa"
    return sector.ljust(DISK_BYTES, b"\0")


def _find_row(daemon: Daemon, name: str) -> Answer:
    """Return an image of the list; empty if the list has none of this name."""
    return dict(next((i for i in daemon.get("/images")["items"] if i["name"] == name), {}))


def upload_image(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Upload a disk, and read back the digest that the daemon computed of the stored bytes."""
    disk = _build_disk(b"acceptance: uploaded")
    digest = hashlib.sha256(disk).hexdigest()
    daemon.upload(f"/images/{UPLOADED}", disk, digest, "acceptance")
    image = daemon.get(f"/images/{UPLOADED}")
    stored = image["present"] and (image["sha256"], image["size_bytes"]) == (digest, len(disk))
    return {
        "success": stored and _find_row(daemon, UPLOADED) != {},
        "image_id": image["sha256"],
        "storage_bucket": f"{daemon.url}/v1/images",  # the collection that lists it
        "disk_ids": [image["name"]] if image["format"] == "raw" else [],
    }


def crud_image(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Upload an image, read it, find it in the list, describe it, and remove it."""
    disk = _build_disk(b"acceptance: managed")
    digest = hashlib.sha256(disk).hexdigest()
    path = f"/images/{MANAGED}"
    absent = daemon.find(path) is None
    daemon.upload(path, disk, digest, "acceptance")
    made = daemon.get(path)
    listed = _find_row(daemon, MANAGED)
    daemon.change("PATCH", path, {"note": "acceptance: described anew"})
    changed = daemon.get(path)
    daemon.change("DELETE", path)
    return {
        "image_id": made["sha256"],
        **mark(
            create=absent and made["present"],
            get=made["sha256"] == digest,
            list=listed.get("sha256") == digest,
            update=changed["note"] == "acceptance: described anew",
            delete=daemon.find(path) is None and not _find_row(daemon, MANAGED),
        ),
    }


def teardown_image(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Remove the uploaded disk."""
    if daemon.find(f"/images/{UPLOADED}") is not None:
        daemon.change("DELETE", f"/images/{UPLOADED}")
    return {"resources_deleted": [UPLOADED], "success": not _find_row(daemon, UPLOADED)}


STEPS = {
    "upload_image": upload_image,
    "crud_image": crud_image,
    "teardown_image": teardown_image,
}
