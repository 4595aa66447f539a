"""What the sockets would do for a drill: exchanges with a simulated BMC through its front door."""

from __future__ import annotations

import asyncio
import base64
import json
from urllib.parse import parse_qsl, urlsplit

from provisioner.adapters.redfish.session import Login
from provisioner.integrations.sim.site.serve import Front
from provisioner.integrations.twin.wires import encode_multipart
from provisioner.ports import BmcAddress, Call, Reply, TooLarge, Unreachable, Upload

NODE, NAME = "su0-n00", "su0-n00/host"
URL, CARD_URL = "https://bmc.test", "https://card.test"


class MemoryExchange:
    """What the sockets would do: one exchange with the simulated BMC, within its limits."""

    def __init__(self, front: Front) -> None:
        self.front = front
        self.asked: list[tuple[str, str]] = []
        self.basic = 0  # requests that carried the password itself

    async def send(
        self, bmc: BmcAddress, call: Call, login: Login | None, coding: str, *, keep_alive: bool
    ) -> Reply:
        parts = urlsplit(call.path)
        headers = {"accept-encoding": coding, **{k.lower(): v for k, v in call.headers.items()}}
        if login is not None and login.token is not None:
            headers["x-auth-token"] = login.token.reveal()
        elif login is not None:
            pair = f"{login.username}:{login.secret.reveal()}".encode()
            headers["authorization"] = f"Basic {base64.b64encode(pair).decode()}"
            self.basic += 1
        body = b""
        if isinstance(call.body, Upload):
            headers["content-type"], body = encode_multipart(call.body)
        elif call.body is not None:
            headers["content-type"], body = "application/json", json.dumps(call.body).encode()
        headers["content-length"] = str(len(body))
        self.asked.append((call.method, parts.path))
        told = self.front.handle(
            NAME if bmc.url == URL else f"{NODE}/DPU_0",
            call.method,
            parts.path,
            dict(parse_qsl(parts.query)),
            headers,
            body,
            "test",
        )
        unsafe = call.method != "GET"
        await asyncio.sleep(min(told.delay_s, call.timeout_s))
        if told.delay_s > call.timeout_s or told.status == 0 or told.cut >= 0:
            raise Unreachable("the answer did not come, or not whole", maybe_executed=unsafe)
        if len(told.body) > call.size_max_bytes:
            raise TooLarge(f"{len(told.body)} bytes")
        return Reply(told.status, {k.lower(): v for k, v in told.headers.items()}, told.body)

    async def close(self) -> None:
        return None
