"""Seals and opens the master key at an OpenBao or Vault server: its transit engine.

Four requests of the HTTP API that both servers have (openbao.org/api-docs): `auth/MOUNT/login` of
AppRole, `MOUNT/encrypt/KEY`, `MOUNT/decrypt/KEY`, and `auth/token/revoke-self`, so that no token of
ours outlives its use. A client library would bring two more packages for these four.
"""

from __future__ import annotations

import base64
import binascii
import json
import ssl
from collections.abc import Mapping
from pathlib import Path

import aiohttp

from provisioner.adapters.bounded_http import (
    FAILURES,
    error_words,
    open_session,
    open_trust,
    time_limit,
)
from provisioner.model.input_error import InputError
from provisioner.model.integrations.wrapped_key import KeyService
from provisioner.ports import Secret

TIMEOUT_S = 15.0
ANSWER_MAX = 64 * 1024
FILE_MAX = 8192
SEALED = 503  # openbao.org/api-docs/#http-status-codes: sealed, or down for maintenance
REACH = "Check its address, its certificate authority (--ca-file), and that it runs."
GRANT = "Its policy has to let this login update MOUNT/encrypt/KEY and MOUNT/decrypt/KEY."


class TransitService:
    """`ports.KeyWrapping` at one server. Raises InputError with the server's own reason."""

    def __init__(self, service: KeyService) -> None:
        self._service = service

    async def wrap(self, key: Secret) -> str:
        plain = base64.b64encode(key.reveal().encode()).decode()
        return await self._use("encrypt", {"plaintext": plain}, "ciphertext")

    async def unwrap(self, ciphertext: str) -> Secret:
        plain = await self._use("decrypt", {"ciphertext": ciphertext}, "plaintext")
        try:
            return Secret(base64.b64decode(plain, validate=True).decode())
        except (binascii.Error, ValueError):
            raise self._refusal("its answer is no text", REACH) from None

    async def _use(self, verb: str, body: Mapping[str, str], field: str) -> str:
        """Log in, use the key once, and log out again."""
        s = self._service
        async with open_session(per_host=1, keep_alive=True) as session:
            own = bool(s.role_id_file)
            token = await self._log_in(session) if own else _read_secret(s.token_file)
            try:
                path = f"{s.mount}/{verb}/{s.key}"
                answer = await self._post(session, path, body, token)
                return self._take(answer, "data", field)
            finally:
                if own:
                    await self._log_out(session, token)

    async def _log_in(self, session: aiohttp.ClientSession) -> str:
        s = self._service
        login = {
            "role_id": _read_secret(s.role_id_file),
            "secret_id": _read_secret(s.secret_id_file),
        }
        answer = await self._post(session, f"auth/{s.approle_mount}/login", login, "")
        return self._take(answer, "auth", "client_token")

    async def _log_out(self, session: aiohttp.ClientSession, token: str) -> None:
        """End our token. If it cannot be ended now, its lifetime ends it."""
        try:
            await self._post(session, "auth/token/revoke-self", {}, token)
        except InputError:
            return

    async def _post(
        self, session: aiohttp.ClientSession, path: str, body: Mapping[str, str], token: str
    ) -> bytes:
        s = self._service
        headers = {"X-Vault-Request": "true"}
        if token:
            headers["X-Vault-Token"] = token
        if s.namespace:
            headers["X-Vault-Namespace"] = s.namespace
        try:
            async with session.post(
                f"{s.address}/v1/{path}",
                json=body,
                headers=headers,
                ssl=open_trust("--ca-file", s.ca_file),
                allow_redirects=False,
                timeout=time_limit(TIMEOUT_S),
            ) as answer:
                content = await answer.content.read(ANSWER_MAX)
                status = answer.status
                answer.close()
        except (*FAILURES, ssl.SSLError) as error:
            raise self._refusal(f"it cannot be reached: {error_words(error)}", REACH) from None
        if status == SEALED:
            raise self._refusal("it is sealed, or down", "Unseal it: bao operator unseal.")
        if status not in (200, 204):
            reason = read_errors(content)
            raise self._refusal(f"it refused {path} (HTTP {status}: {reason})", GRANT)
        return content

    def _take(self, content: bytes, *names: str) -> str:
        text = read_field(content, names)
        if not text:
            raise self._refusal(f"its answer has no {'.'.join(names)}", "Is it OpenBao or Vault?")
        return text

    def _refusal(self, problem: str, remedy: str) -> InputError:
        return InputError(self._service.address, "", f"the key service: {problem}", remedy)


def read_field(content: bytes, names: tuple[str, ...]) -> str:
    """Return a text within a JSON document, by its names; "" if there is none."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return ""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) and value.isascii() and value.isprintable() else ""


def read_errors(content: bytes) -> str:
    """Return the server's reasons on one short line."""
    try:
        errors = json.loads(content).get("errors") or []
        text = "; ".join(str(each) for each in errors)
    except (ValueError, AttributeError, TypeError, RecursionError):
        return "no reason given"
    line = " ".join(text.split())
    return "".join(c for c in line if c.isprintable())[:300] or "no reason given"


def _read_secret(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            text = file.read(FILE_MAX).decode("ascii").strip()
    except (OSError, ValueError) as error:
        problem = f"it cannot be read ({error.__class__.__name__})"
        raise InputError(path, "", problem, "Check the path and its owner.") from None
    if not text or not text.isprintable():
        raise InputError(path, "", "it has no secret on one line", "Write it anew.")
    return text
