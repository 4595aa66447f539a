"""SSDP discovery in a process of its own, by the redfish package's `discover_ssdp`.

A process, because that function blocks, and sets the default timeout of every socket of the process
it runs in (facts/redfish 1.1). One malformed datagram would end it: see `_Datagram`.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import io
import json
import sys
from typing import Any
from urllib.parse import urlsplit

from provisioner.ports import Malformed, Unreachable

RESPONSE_S = 3  # SSDP's MX: devices answer at a random moment within it
GRACE_S = 10.0  # for starting Python, and the two seconds that discover_ssdp adds
ANSWERS_MAX_BYTES = 1024 * 1024  # some 8,000 services; a segment holds a few hundred
HARMLESS = b"HTTP/1.1 200 OK\r\nUSN: none\r\n\r\n"


async def discover_services(
    *, interface: str = "", address: str = "", port: int = 1900, response_s: int = RESPONSE_S
) -> list[str]:
    """URLs of the Redfish services that answer a multicast, "https://10.0.0.9", sorted.

    `interface` and `address` choose where to ask. Raises Unreachable if it cannot be asked at all.
    """
    command = [sys.executable, "-m", "provisioner.adapters.redfish.ssdp", "--port", str(port)]
    command += ["--response", str(response_s), "--interface", interface, "--address", address]
    child = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert child.stdout is not None, "it was asked for"
    try:
        async with asyncio.timeout(response_s + GRACE_S):
            text = await child.stdout.read(ANSWERS_MAX_BYTES)
            code = await child.wait()
    except TimeoutError:
        raise Unreachable("SSDP: no end of answers", maybe_executed=False) from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if code != 0:
        detail = text.decode("utf-8", "replace").strip()[:200]
        raise Unreachable(f"SSDP: {detail or 'could not ask'}", maybe_executed=False)
    return read_origins(text)


def read_origins(text: bytes) -> list[str]:
    """Addresses of services from the child's answer: whatever devices claim, only URLs."""
    try:
        claims = json.loads(text)
    except ValueError as error:
        raise Malformed(f"SSDP: {error}") from None
    if not isinstance(claims, dict):
        raise Malformed("SSDP: answers are no object")
    urls = set()
    for claim in claims.values():
        try:
            place = urlsplit(claim if isinstance(claim, str) else "")
            port = f":{place.port}" if place.port else ""
        except ValueError:
            continue
        if place.scheme in ("http", "https") and place.hostname and "@" not in place.netloc:
            host = f"[{place.hostname}]" if ":" in place.hostname else place.hostname
            urls.add(f"{place.scheme}://{host}{port}")
    return sorted(urls)


class _Datagram:
    """One answer as discover_ssdp wants it; a malformed one is replaced by a harmless one."""

    def __init__(self, data: bytes) -> None:
        self._data = data if _readable(data) else HARMLESS

    def makefile(self, *_: Any, **__: Any) -> io.BytesIO:
        return io.BytesIO(self._data)


def _readable(data: bytes) -> bool:
    class Once:
        def makefile(self, *_: Any, **__: Any) -> io.BytesIO:
            return io.BytesIO(data)

    try:
        # HTTPResponse asks of its socket for makefile() alone
        answer = http.client.HTTPResponse(Once())  # type: ignore[arg-type]
        answer.begin()
        return answer.getheader("USN") is not None
    except (http.client.HTTPException, ValueError, OSError):
        return False


def main() -> int:
    """The child: ask, write one JSON object (UUID: URL); on failure one line of words."""
    from redfish.discovery import discovery

    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--response", type=int, required=True)
    parser.add_argument("--interface", default="")
    parser.add_argument("--address", default="")
    arguments = parser.parse_args()
    discovery.FakeSocket = _Datagram
    try:
        services = discovery.discover_ssdp(
            port=arguments.port,
            response_time=arguments.response,
            iface=arguments.interface or None,
            address=arguments.address or None,
        )
    except OSError as error:
        sys.stdout.write(str(error))
        return 1
    sys.stdout.write(json.dumps(services))
    return 0


if __name__ == "__main__":
    sys.exit(main())
