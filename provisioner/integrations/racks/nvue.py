"""NVOS over NVUE's REST API: what an NVLink switch says, and the actions of its update.

Sources: NVIDIA's NVOS user manual 25.02 (paths below each command; `nv action` is a POST on the
same resource), NVIDIA/open-nvfwupd (switch targets), NVIDIA's infra-controller, its NVUE client
(shapes of images, firmware and passwords). Everything that a switch answers is hostile until read.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from provisioner.integrations.racks.update_steps import Controller, Job, Nvos, SwitchView
from provisioner.model.outcome import Reason
from provisioner.ports import (
    AccountLocked,
    Call,
    LoginRefused,
    Malformed,
    PortError,
    Reply,
    SwitchAddress,
    SwitchTransport,
    Unreachable,
)
from provisioner.ports.switch import SwitchRefused

PREFIX = "/nvue_v1"
READ_S = 30.0
WRITE_S = 60.0
NAMES_MAX = 256  # of components, files and apps; a switch has a dozen
TEXT_MAX = 128
ISSUES_MAX = 8
_APPLIED = frozenset({"applied", "applied_and_saved"})
_LATER = frozenset({408, 429, 503})  # RFC 9110: nothing was done, ask later
_APPLY_READS = 30
_APPLY_S = 2.0
_REBOOT_WORDS = re.compile(r"power.?cycle|reboot|system is offline", re.IGNORECASE)
_HARMLESS = re.compile(r"nothing to uninstall", re.IGNORECASE)


def read_images(body: object) -> tuple[str, str, int]:
    """Return the running image, the next one, and how many partitions hold one.

    A partition is a text or an object; the selectors are its number, its name, or a build id.
    """
    if not isinstance(body, Mapping):
        return "", "", 0
    builds = {name: _build(body.get(f"partition{name}")) for name in ("1", "2")}

    def find(selector: object) -> str:
        word = _word(selector).removeprefix("partition")
        return builds.get(word, "") or (word if word in builds.values() or "." in word else "")

    return find(body.get("current")), find(body.get("next")), sum(map(bool, builds.values()))


def _build(value: object) -> str:
    return _word(value.get("build-id") if isinstance(value, Mapping) else value)


def _word(value: object) -> str:
    text = value.strip() if isinstance(value, str) else ""
    return text if len(text) <= TEXT_MAX and text.isprintable() and text != "N/A" else ""


def read_versions(body: object) -> dict[str, str]:
    """Return version by component; "actual-firmware", "version" or "Version" by release."""
    found: dict[str, str] = {}
    items = list(body.items())[:NAMES_MAX] if isinstance(body, Mapping) else []
    for name, entry in items:
        if not isinstance(entry, Mapping) or not isinstance(name, str):
            continue
        said = {_word(entry.get(key)) for key in ("actual-firmware", "version", "Version")} - {""}
        if len(said) == 1 and len(name) <= TEXT_MAX:  # two that differ are none
            found[name] = said.pop()
    return found


def read_files(body: object) -> frozenset[str]:
    """Return the names of files in a listing, whose nesting varies; four levels are read."""
    names: set[str] = set()

    def walk(value: object, depth: int) -> None:
        if depth > 4 or len(names) >= NAMES_MAX:
            return
        if isinstance(value, str):
            names.add(value)
        elif isinstance(value, Mapping):
            for key, inner in list(value.items())[:NAMES_MAX]:
                names.add(str(key)[:TEXT_MAX])
                walk(inner, depth + 1)
        elif isinstance(value, list):
            for inner in value[:NAMES_MAX]:
                walk(inner, depth + 1)

    walk(body, 0)
    return frozenset(names)


def read_job(body: object) -> tuple[Job, str]:
    """Return the state of an action, and what it said.

    An error whose text names a reboot, a power cycle or an offline system hands the matter over to
    that reboot: neither success nor failure.
    """
    if not isinstance(body, Mapping):
        return Job.UNKNOWN, ""
    state = _word(body.get("state")).lower()
    said = "; ".join(dict.fromkeys(_issues(body)))[:300]
    if state in {"start", "running", "action_running"}:
        return Job.RUNNING, said
    if state == "action_success":
        return Job.DONE, said
    if state in {"action_error", "action_failed"}:
        if _HARMLESS.search(said):
            return Job.DONE, said
        return (Job.HANDED_OVER if _REBOOT_WORDS.search(said) else Job.FAILED), said
    return Job.UNKNOWN, said


def _issues(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of a job: entries of `issue` are texts, or objects with one inside."""
    listed = body.get("issue")
    entries = list(listed.values()) if isinstance(listed, Mapping) else listed
    for one in (entries if isinstance(entries, list) else [])[:ISSUES_MAX]:
        inner = one.get("data") if isinstance(one, Mapping) else None
        said = one.get("message") if isinstance(one, Mapping) else one
        if said is None and isinstance(inner, Mapping):
            said = inner.get("msg")
        if text := _word(said):
            yield text
    for key in ("status", "detail"):
        if text := _word(body.get(key)):
            yield text


def read_controller(switch: str, tray_index: int, body: object) -> Controller:
    """Return what runs of the NVLink controller on a switch. OFFLINE and STANDBY are no primary."""
    app = body.get("nmx-controller") if isinstance(body, Mapping) else None
    if not isinstance(body, Mapping):
        return Controller(switch, tray_index, None)
    if not isinstance(app, Mapping):
        return Controller(switch, tray_index, running=False)
    info = _word(app.get("addition-info")).removeprefix("CONTROL_PLANE_STATE_")
    said = ", ".join(t for t in (_word(app.get("status")), info, _word(app.get("reason"))) if t)
    if info in {"", "OFFLINE", "STANDBY", "STOPPED"} and _word(app.get("status")) != "ok":
        return Controller(switch, tray_index, running=False, said=said)
    configured = _word(app.get("status")) == "ok" and info == "CONFIGURED"
    return Controller(switch, tray_index, running=True, configured=configured, said=said)


class NvosClient:
    """One switch's NVOS, with our password and, where a site gives it, the factory's."""

    def __init__(
        self, transport: SwitchTransport, ours: SwitchAddress, factory: SwitchAddress | None
    ) -> None:
        self._transport = transport
        self._ours = ours
        self._factory = factory

    async def read(self, job: str) -> SwitchView:
        """Return what NVOS shows now; each password is shown to it once at most."""
        try:
            images = await self._get("/system/image")
        except AccountLocked:
            return SwitchView(Nvos.RESTING)
        except LoginRefused:
            return SwitchView(await self._try_factory())
        except PortError:
            return SwitchView(Nvos.SILENT)
        current, following, count = read_images(images)
        try:
            versions = read_versions(await self._get("/platform/firmware"))
            files = read_files(await self._get("/system/image/files"))
            state = Job.UNKNOWN
            said = ""
            if job:
                state, said = read_job(await self._get(f"/action/{quote(job, safe='')}"))
        except PortError:
            return SwitchView(Nvos.SILENT)
        if current:
            versions["nvos"] = current
        return SwitchView(
            Nvos.OK,
            versions=versions,
            next_image=following,
            images=count,
            files=files,
            job=state,
            job_said=said,
        )

    async def read_part_files(self, part: str) -> frozenset[str]:
        """Return the files that a component could be written from."""
        return read_files(await self._get(f"/platform/firmware/{quote(part, safe='')}/files"))

    async def read_apps(self) -> object:
        return await self._get("/cluster/apps")

    async def read_interfaces(self, revision: str) -> object:
        """Return each interface with its type and its link's state, as a revision has them."""
        return await self._get(f"/interface?rev={revision}&include=/*/type&include=/*/link/state")

    async def _try_factory(self) -> Nvos:
        if self._factory is None:
            return Nvos.REFUSED
        try:
            await self._get("/system/image", self._factory)
        except (LoginRefused, AccountLocked):
            return Nvos.REFUSED
        except PortError:
            return Nvos.SILENT
        return Nvos.FACTORY

    async def fetch(self, part: str, url: str) -> str:
        """Begin to fetch a file; return the job."""
        where = f"/platform/firmware/{quote(part, safe='')}" if part else "/system/image"
        return await self._act(where, "@fetch", {"remote-url": url})

    async def install(self, part: str, name: str) -> str:
        """Begin to install a file that was fetched; the switch is not restarted by it."""
        file = quote(name, safe="")
        if part:
            asked = {"force": False, "skip-reboot": True}
            where = f"/platform/firmware/{quote(part, safe='')}/files/{file}"
            return await self._act(where, "@install", asked)
        where = f"/system/image/files/{file}"
        return await self._act(where, "@install", {"force": True, "reboot": False})

    async def reboot(self) -> str:
        return await self._act("/system", "@reboot", {"force": True})

    async def reset_defaults(self) -> str:
        """Have NVOS forget all of its configuration, its passwords with it; it restarts by that.

        Source: docs/sources/hardware.md#nvos.
        """
        return await self._act("/system/factory-default", "@reset", {"force": True})

    async def start_controller(self) -> str:
        return await self._act("/cluster/apps/nmx-controller", "@start", {})

    async def set_password(self, pause: Any) -> None:
        """Replace the factory's password by ours, as one revision. Raises PortError."""
        factory = self._factory
        secret = self._ours.secret
        if factory is None or secret is None:
            raise LoginRefused("no factory password is given")
        made = await self._send("POST", "/revision", {}, factory)
        names = [name for name in _parse(made) if isinstance(name, str)]
        if len(names) != 1 or len(names[0]) > TEXT_MAX:
            raise Malformed("the new revision has no name")
        revision = quote(names[0], safe="")
        hidden = base64.b64encode(secret.reveal().encode()).decode()
        user = quote(self._ours.username, safe="")
        where = f"/system/aaa/user/{user}?rev={revision}"
        await self._send("PATCH", where, {"password": hidden}, factory)
        agreed = {"state": "apply", "auto-prompt": {"ays": "ays_yes"}}
        await self._send("PATCH", f"/revision/{revision}", agreed, factory)
        for _ in range(_APPLY_READS):
            try:
                state = (await self._get(f"/revision/{revision}", factory)) or {}
            except LoginRefused:
                return  # the old password is void: the new one is in force
            if isinstance(state, Mapping) and _word(state.get("state")) in _APPLIED:
                return
            await pause(_APPLY_S)
        raise SwitchRefused(Reason.SWITCH_REFUSED, "the revision with the password is not applied")

    async def _act(self, where: str, action: str, asked: Mapping[str, Any]) -> str:
        body = {action: {"state": "start", "parameters": dict(asked)}}
        reply = await self._send("POST", where, body, self._ours)
        job = reply.body.decode("ascii", "replace").strip().strip('"')
        if not re.fullmatch(r"[0-9A-Za-z_-]{1,64}", job):
            raise Malformed(f"{where}: the answer names no job")
        return job

    async def _send(self, method: str, where: str, body: Any, login: SwitchAddress) -> Reply:
        call = Call(method, f"{PREFIX}{where}", body=body, timeout_s=WRITE_S)
        reply = await self._transport.request(login, call)
        detail = f"{method} {where.partition('?')[0]}: HTTP status {reply.status}"
        if reply.status in _LATER:
            raise Unreachable(detail, maybe_executed=False)
        if reply.status >= 500:  # a server that fails in the midst of it: the next look tells
            raise Unreachable(detail, maybe_executed=True)
        if not 200 <= reply.status < 300:
            raise SwitchRefused(Reason.SWITCH_REFUSED, detail)
        return reply

    async def _get(self, where: str, login: SwitchAddress | None = None) -> object:
        call = Call("GET", f"{PREFIX}{where}", timeout_s=READ_S)
        reply = await self._transport.request(login or self._ours, call)
        if reply.status in (401, 403):
            raise LoginRefused(f"{where}: HTTP status {reply.status}")
        if reply.status == 404:
            return None
        if reply.status != 200:
            raise Malformed(f"{where}: HTTP status {reply.status}")
        return _parse(reply)


def _parse(reply: Reply) -> Any:
    try:
        return json.loads(reply.body)
    except (ValueError, RecursionError):
        raise Malformed("the answer is no JSON") from None
