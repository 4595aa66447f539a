"""A transport that reads for real, and records each request that changes something.

Nothing is sent but reads (and the session's login and logout). A recorded request is answered as
the documentation says that a service answers when it accepts, and later reads show the change, so
that the calling code continues exactly as it would with the device.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from provisioner.adapters.redfish.exchange import SAFE
from provisioner.adapters.redfish.messages import read_document
from provisioner.adapters.redfish.parsing import Json, as_object, link, path_of
from provisioner.adapters.redfish.service import list_actions, target_of
from provisioner.model.base import Record
from provisioner.ports import BmcAddress, BmcTransport, Call, Malformed, Reply, Upload

HIDDEN = "***"
_TASK = "/redfish/v1/TaskService/Tasks/dry-run"
_POWER = {"On": "On", "ForceOn": "On", "ForceOff": "Off", "GracefulShutdown": "Off"}


class UploadRecord(Record):
    """The file of an upload, and the parts of its form in the order of sending."""

    name: str
    size: int | None  # None: the file is not at hand
    sha256: str
    parts: tuple[dict[str, Any], ...]


class Write(Record):
    """One request that changes something, without secrets."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any = None
    upload: UploadRecord | None = None


class StandingClock:
    """A clock that only its own sleeping moves: nothing is waited for in a dry run."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        """Return the seconds slept so far."""
        return self._now

    async def sleep(self, seconds: float) -> None:
        self._now += seconds


class DryRunTransport:
    """`BmcTransport` over another one, which only reads. `writes` is in the order of sending."""

    def __init__(self, inner: BmcTransport) -> None:
        self._inner = inner
        self._changed: dict[str, dict[str, Any]] = {}  # path -> what later reads show
        self._made: dict[str, Json] = {}  # resources that an action makes appear
        self._actions: dict[str, tuple[str, str]] = {}  # target -> resource, name of the action
        self._resources: dict[str, Json] = {}
        self.writes: list[Write] = []

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        """Read for real, and record everything else."""
        if call.method not in SAFE:
            self.writes.append(await _record(call))
            return self._accept(call)
        path = call.path.split("?")[0]
        if path in self._made:
            return Reply(200, {}, json.dumps(self._show(dict(self._made[path]), path)).encode())
        reply = await self._inner.request(bmc, call)
        try:
            body = read_document(reply) if reply.status == 200 else None
        except Malformed:
            return reply
        if not isinstance(body, dict):
            return reply
        return replace(reply, body=json.dumps(self._show(body, path)).encode())

    async def fingerprint(self, bmc: BmcAddress) -> str:
        """Return the certificate's fingerprint, as the inner transport does."""
        return await self._inner.fingerprint(bmc)

    async def password_change(self, bmc: BmcAddress) -> str | None:
        """Return the account whose password must change, as the inner transport does."""
        return await self._inner.password_change(bmc)

    async def forget(self, bmc: BmcAddress) -> None:
        await self._inner.forget(bmc)

    async def close(self) -> None:
        await self._inner.close()

    # --- the resources that a device would show afterwards

    def _show(self, body: dict[str, Any], path: str) -> dict[str, Any]:
        """Return a resource, or an expanded collection, with the recorded changes in it.

        BlueField's Oem/Nvidia has no @odata.id of its own: `path` is the one that was asked.
        """
        members = body.get("Members")
        if isinstance(members, list):
            made = [p for p in self._made if p.rpartition("/")[0] == path.rstrip("/")]
            listed = members + [{"@odata.id": p} for p in made]
            body = body | {
                "Members": [self._show_member(m) for m in listed],
                "Members@odata.count": len(listed),
            }
        if path and len(body) > 1:
            self._resources[path] = body
            for name, action in list_actions(body):
                if (target := target_of(action)) is not None:
                    self._actions[target] = (path, name)
        return _merged(body, self._changed[path]) if path in self._changed else body

    def _show_member(self, member: Any) -> Any:
        path = path_of(member)
        return self._show(member, path) if isinstance(member, dict) and path else member

    def _change(self, path: str, change: Mapping[str, Any]) -> None:
        self._changed[path] = _merged(self._changed.get(path, {}), change)

    def _accept(self, call: Call) -> Reply:
        """Answer as a service that accepts the request, and keep the change."""
        if isinstance(call.body, Upload):
            return Reply(202, {"location": _TASK}, b"")
        body = as_object(call.body)
        if call.method == "PATCH":
            self._change(call.path, body)
            return Reply(204, {}, b"")
        if call.method != "POST":
            return Reply(204, {}, b"")
        if call.path not in self._actions:
            return Reply(201, {"location": f"{call.path.rstrip('/')}/dry-run"}, b"")
        owner, name = self._actions[call.path]
        self._act(owner, name, body)
        if name.endswith(("SimpleUpdate", "StartUpdate")):
            return Reply(202, {"location": _TASK}, b"")
        return Reply(204, {}, b"")

    def _act(self, owner: str, name: str, body: Json) -> None:
        """Keep the documented effect of an action on the resource that lists it."""
        if name.endswith("ComputerSystem.Reset"):
            if (power := _POWER.get(str(body.get("ResetType")))) is not None:
                self._change(owner, {"PowerState": power})
        elif name.endswith("VirtualMedia.InsertMedia"):
            self._change(owner, {"Image": body.get("Image"), "Inserted": True})
        elif name.endswith("VirtualMedia.EjectMedia"):
            self._change(owner, {"Image": None, "Inserted": False})
        elif name.endswith("HostRshim.Set"):
            self._change(owner, dict(body))
        elif name.endswith("AMIVirtualMedia.EnableRMedia"):
            self._show_drives(owner)

    def _show_drives(self, manager: str) -> None:
        """The drives of AMI appear as CD1 and following, each with both actions.

        source: EnableRMediaActionInfo of a DGX H100, and public readings of AMI BMCs with media
        enabled (Managers/Self/VirtualMedia/CD1)
        """
        collection = link(self._resources.get(manager), "VirtualMedia")
        if collection is None:
            return
        drive = f"{collection.rstrip('/')}/CD1"
        actions = {
            f"#VirtualMedia.{verb}": {"target": f"{drive}/Actions/VirtualMedia.{verb}"}
            for verb in ("InsertMedia", "EjectMedia")
        }
        self._made[drive] = {
            "@odata.id": drive,
            "@odata.type": "#VirtualMedia.v1_3_0.VirtualMedia",
            "Id": "CD1",
            "MediaTypes": ["CD", "DVD"],
            "Inserted": False,
            "Image": None,
            "Actions": actions,
        }


def _merged(resource: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Return the resource as a PATCH leaves it: objects are merged, anything else is replaced."""
    result = dict(resource)
    for key, value in change.items():
        below = result.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            result[key] = _merged(below, value)
        else:
            result[key] = value
    return result


async def _record(call: Call) -> Write:
    headers = {"Content-Type": "application/json", **call.headers}
    if call.body is None:
        del headers["Content-Type"]
    if not isinstance(call.body, Upload):
        body = json.loads(json.dumps(call.body))
        return Write(method=call.method, path=call.path, headers=headers, body=body)
    upload = call.body
    headers["Content-Type"] = "multipart/form-data"
    parts: list[dict[str, Any]] = []
    if upload.session_part:
        headers["Cookie"] = f"{upload.session_part}={HIDDEN}"
        parts.append({"name": upload.session_part, "body": HIDDEN})
    for name, content_type, content in upload.parts:
        value = json.loads(content) if content_type == "application/json" else content.decode()
        parts.append({"name": name, "content_type": content_type, "body": value})
    parts.append(
        {
            "name": upload.file_part,
            "content_type": "application/octet-stream",
            "file_name": upload.file_name,
        }
    )
    size, sha256 = await asyncio.to_thread(_digest, upload.file)
    record = UploadRecord(name=upload.file_name, size=size, sha256=sha256, parts=tuple(parts))
    return Write(method=call.method, path=call.path, headers=headers, upload=record)


def _digest(file: Path) -> tuple[int, str]:
    with file.open("rb") as image:
        return file.stat().st_size, hashlib.file_digest(image, "sha256").hexdigest()
