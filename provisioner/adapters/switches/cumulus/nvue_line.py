"""Requests to one switch's NVUE API, and their refusals.

A 401 or 403 is a refused login: NVUE answers 403 to everything until the factory's password was
changed. Any other status of 300 and more is the switch's refusal, in its own text.
"""

from __future__ import annotations

from typing import Any

from provisioner.adapters.switches.cumulus.nvue_calls import Ask
from provisioner.model.outcome import Reason
from provisioner.ports import Call, Reply, SwitchAddress, SwitchTransport
from provisioner.ports.reply_words import status_words
from provisioner.ports.switch import SwitchRefused

REQUEST_S = 30.0
CONFIGURATION_S = 60.0  # the whole configuration of a full leaf is some megabytes


class NvueLine:
    """One switch's API at its address. Methods raise `PortError`, a refusal as `SwitchRefused`."""

    def __init__(self, name: str, address: SwitchAddress, transport: SwitchTransport) -> None:
        self.name = name
        self.address = address
        self._transport = transport

    async def get(self, path: str, timeout_s: float = REQUEST_S) -> Any:
        """Return the JSON at this path."""
        return await self.ask(Ask("GET", path), timeout_s=timeout_s)

    async def find(self, path: str) -> Any:
        """Return the JSON at this path; None if there is no such thing (404)."""
        return await self.ask(Ask("GET", path), missing=True)

    async def ask(self, ask: Ask, *, missing: bool = False, timeout_s: float = REQUEST_S) -> Any:
        """Send one request and return its JSON. `missing`: None for a 404."""
        reply = await self.send(ask, timeout_s)
        if reply.status in (401, 403):
            raise SwitchRefused(Reason.LOGIN_REFUSED, f"{ask.path}: status {reply.status}")
        if missing and reply.status == 404:
            return None
        if reply.status >= 300:
            detail = f"{ask.method} {ask.path}: {status_words(reply)}"
            raise SwitchRefused(Reason.SWITCH_REFUSED, detail)
        return reply.json() if reply.body else {}

    async def send(
        self, ask: Ask, timeout_s: float = REQUEST_S, size_max_bytes: int | None = None
    ) -> Reply:
        """Send one request and return its answer, whatever its status."""
        call = Call(ask.method, ask.path, ask.body, timeout_s=timeout_s)
        if size_max_bytes is not None:
            call = Call(
                ask.method,
                ask.path,
                ask.body,
                timeout_s=timeout_s,
                size_max_bytes=size_max_bytes,
            )
        return await self._transport.request(self.address, call)
