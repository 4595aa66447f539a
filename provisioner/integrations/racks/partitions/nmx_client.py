"""The manager of NVLink partitions over REST: NMX Manager, or NetQ NVLink in its place.

Every change is asynchronous: an operation is followed, and the listing afterwards is the answer.
An operation that the manager forgot, as one that restarted does, says nothing: the listing tells.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from time import monotonic
from typing import Any
from urllib.parse import quote

from provisioner.integrations.racks.partitions.tenant_partitions import (
    ENDED,
    Gpu,
    Partition,
    PartitionAct,
    SwitchNode,
    Verb,
    is_so,
    read_gpus,
    read_partitions,
    read_running,
    read_switch_nodes,
)
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import Call, LoginRefused, Malformed, PortError, Reply, Unreachable
from provisioner.ports.wire import SwitchAddress, SwitchTransport, status_words

VARIABLE = "PROVISIONER_NMX_PASSWORD"
PREFIX = "/nmx/v1"
READ_S = 60.0
WRITE_S = 15.0
BYTES_MAX = 32 * 2**20
POLL_S = 2.0
ACT_S = 300.0  # of one operation; how long one takes is published nowhere: assumed
POLLS_MAX = 150
IDLE_S = 60.0  # for what others began; then it is tried again
IDLE_POLLS_MAX = 30
LOOKS_MAX = 5  # after an operation ended, or was forgotten


class Fate(StrEnum):
    """What is known of an act that is sent."""

    TAKEN = "taken"  # the manager says so, and nobody saw its end
    COMPLETED = "completed"  # by the manager's word; it is not listed so
    VOID = "void"  # it was refused, or failed: it changes nothing any more
    SO = "so"  # it is listed so


class Rejected(Malformed):
    """The manager refused a change, and did nothing."""


async def _note_nothing(_: Fate, __: str) -> None: ...


class NmxClient:
    """One manager."""

    def __init__(
        self,
        transport: SwitchTransport,
        address: SwitchAddress,
        pause: Callable[[float], Awaitable[None]],
        now: Callable[[], float] = monotonic,
    ) -> None:
        """`now` gives seconds that only grow: whoever waits here keeps all others waiting, and each
        answer may take READ_S.
        """
        self._transport = transport
        self._address = address
        self._pause = pause
        self.now = now
        # when a request of ours, or of a process before this one, may last have left and be on its
        # way: nothing at the manager tells
        self.unsure_at = now()

    async def look(self) -> tuple[Sequence[Gpu], Sequence[Partition]]:
        """Return GPUs and partitions as they are listed now. Raises PortError."""
        try:
            gpus = read_gpus(await self._get("/gpus"))
            return gpus, read_partitions(await self._get("/partitions"))
        except ValueError as error:
            raise Malformed(str(error)) from None

    async def look_at_switches(self) -> Sequence[SwitchNode]:
        """Return the switches as they are listed now. Raises PortError."""
        try:
            return read_switch_nodes(await self._get("/switch-nodes"))
        except ValueError as error:
            raise Malformed(str(error)) from None

    async def make(
        self, act: PartitionAct, note: Callable[[Fate, str], Awaitable[None]] = _note_nothing
    ) -> Blocker | None:
        """Send one act, follow it, and prove it by the listing; return why it is not so. `note`
        gets what becomes known of it, and its operation; nothing while nobody can tell.
        """
        until = self.now() + ACT_S
        said = operation = ""
        try:
            operation = await self._send(act)
            await note(Fate.TAKEN, operation)
            said = await self._follow(operation)
        except PortError as error:
            lost = isinstance(error, Unreachable) and error.maybe_executed
            if isinstance(error, LoginRefused | Rejected | Unreachable) and not lost:
                await note(Fate.VOID, "")
            if not lost:
                return _no(act, error.reason, str(error))
            said = str(error)
        for number in range(LOOKS_MAX):
            if number and self.now() >= until:
                break
            if number:
                await self._pause(POLL_S)
            try:
                if is_so(act, (await self.look())[1]):
                    await note(Fate.SO, operation)
                    return None
            except PortError as error:
                said = said or str(error)
        if not said:
            await note(Fate.COMPLETED, operation)
        elif said.partition(":")[0] in ENDED:
            await note(Fate.VOID, operation)
        return _no(act, Reason.CANNOT_TELL, said or "the manager does not list it so")

    async def wait_idle(self) -> Blocker | None:
        """Wait until no operation of anybody runs; return why it does not come to that.

        One whose sender died may still be carried out, and what it changes is not listed yet.
        Raises PortError.
        """
        until = self.now() + IDLE_S
        running: Sequence[str] = ()
        for number in range(IDLE_POLLS_MAX):
            if number and self.now() >= until:
                break
            if number:
                await self._pause(POLL_S)
            try:
                running = read_running(await self._get("/operations"))
            except ValueError as error:
                raise Malformed(str(error)) from None
            if not running:
                return None
        detail = f"operation {running[0]} of the manager does not end"
        unblock = "Look at the manager's operations; end it there. It is tried again by itself."
        return Blocker(
            reason=Reason.CANNOT_TELL, subject="partitions", detail=detail, unblock=unblock
        )

    async def _send(self, act: PartitionAct) -> str:
        """Return the operation. Raises PortError."""
        members = [place.encode() for place in sorted(act.members)]
        where = f"{PREFIX}/partitions/{quote(act.ident, safe='')}"
        if act.verb is Verb.CREATE:
            body = {"Name": act.name, "Members": members}
            call = Call("POST", f"{PREFIX}/partitions", body, timeout_s=WRITE_S)
        elif act.verb is Verb.SET:
            call = Call("PUT", where, {"Members": members}, timeout_s=WRITE_S)
        else:
            call = Call("DELETE", where, timeout_s=WRITE_S)
        return await self._change(call, str(act))

    async def replace_certificate(self, host: str, bundle: bytes, profile: str = "") -> str:
        """Have one managed switch take a PKCS#12 bundle, and follow it to its end; return what is
        said of one that did not succeed, "" for one that did. A handshake is the proof.

        Raises PortError.
        """
        switch = {"Address": host, **({"ProfileID": profile} if profile else {})}
        body, kind = encode_form(("CertP12", bundle), ("Switches", json.dumps(switch).encode()))
        headers = {"Content-Type": kind}
        call = Call("PUT", f"{PREFIX}/certificates/switches", body, headers)
        return await self._follow(await self._change(call, f"the certificate of {host}"))

    async def _change(self, call: Call, what: str) -> str:
        """Send what changes something; return its operation. Raises PortError."""
        try:
            reply = await self._transport.request(self._address, call)
        except BaseException:
            self.unsure_at = self.now()
            raise
        if reply.status >= 500:
            raise Unreachable(status_words(reply), maybe_executed=True)
        if not 200 <= reply.status < 300:
            raise Rejected(f"{what}: {status_words(reply)}")
        operation = _parse(reply).get("operationId")
        return operation if isinstance(operation, str) and len(operation) <= 128 else ""

    async def read_status(self, operation: str) -> str:
        """Return how an operation stands, "" where it is not shown. Raises PortError."""
        try:
            shown = await self._get(f"/operations/{quote(operation, safe='')}")
        except Malformed:
            return ""
        status = shown.get("Status") if isinstance(shown, dict) else None
        return status if isinstance(status, str) else ""

    async def _follow(self, operation: str) -> str:
        """Wait for the end of an operation; return what is said of one that did not succeed."""
        until = self.now() + ACT_S
        silent = ""
        for _ in range(POLLS_MAX if operation else 0):
            try:
                shown = await self._get(f"/operations/{quote(operation, safe='')}")
            except Malformed as error:
                return f"its operation is not shown any more: {error}"
            except PortError as error:
                shown = {}
                silent = f": {error}"
            else:
                silent = ""
            status = shown.get("Status") if isinstance(shown, dict) else None
            if status in ENDED:
                result = shown.get("Result")
                told = result.get("Details") if isinstance(result, dict) else ""
                return "" if status == "completed" else f"{status}: {told or ''}"[:300]
            if self.now() >= until:
                break
            await self._pause(POLL_S)
        return f"its operation did not end in time{silent}"[:300] if operation else ""

    async def _get(self, where: str) -> Any:
        call = Call("GET", f"{PREFIX}{where}", timeout_s=READ_S, size_max_bytes=BYTES_MAX)
        reply = await self._transport.request(self._address, call)
        if reply.status in (401, 403):
            raise LoginRefused(f"{where}: HTTP status {reply.status}")
        if reply.status >= 500:
            raise Unreachable(f"{where}: {status_words(reply)}", maybe_executed=False)
        if reply.status != 200:
            raise Malformed(f"{where}: HTTP status {reply.status}")
        return reply.json()


def encode_form(file: tuple[str, bytes], field: tuple[str, bytes]) -> tuple[bytes, str]:
    """Return a form of one file and one field as multipart/form-data, and its content type."""
    boundary = secrets.token_hex(24)
    head = 'Content-Disposition: form-data; name="{}"'
    binary = '; filename="bundle.p12"\r\nContent-Type: application/octet-stream'
    parts = [(head.format(file[0]) + binary, file[1]), (head.format(field[0]), field[1])]
    lines = [f"--{boundary}\r\n{top}\r\n\r\n".encode() + value for top, value in parts]
    body = b"\r\n".join([*lines, f"--{boundary}--\r\n".encode()])
    return body, f"multipart/form-data; boundary={boundary}"


def _parse(reply: Reply) -> dict[str, Any]:
    try:
        body = reply.json()
    except PortError:
        return {}  # it was taken; without its operation the listing tells
    return body if isinstance(body, dict) else {}


def _no(act: PartitionAct, reason: Reason, detail: str) -> Blocker:
    unblock = "Look at the manager's partitions and operations, then run it again."
    return Blocker(reason=reason, subject=str(act), detail=detail[:300], unblock=unblock)
