"""`provisioner building-water watch` hears the building's leak sensors and keeps what they say."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from provisioner.integrations.building_water.signals import PAYLOAD_MAX, TOPICS, Building
from provisioner.model.input_error import InputError
from provisioner.runtime.whole_files import replace_file

WRITE_S = 5.0  # readers take a file of more than 30 s for silence
AGAIN_S = 10.0  # between two attempts to reach the broker
_PASSWORD = "PROVISIONER_MQTT_PASSWORD"  # noqa: S105 (the variable's name)

app = typer.Typer(help="The building's leak sensors of racks, over MQTT.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """The building's leak sensors of racks, over MQTT."""


@app.command()
def watch(
    host: Annotated[str, typer.Argument(help="Broker of DSX Exchange.")],
    out: Annotated[Path, typer.Option(help="File that `rack power --building` reads.")],
    port: Annotated[int, typer.Option(min=1, max=65535, help="Its port.")] = 8883,
    user: Annotated[
        str, typer.Option(help=f"User at the broker; its password is in {_PASSWORD}.")
    ] = "",
    ca: Annotated[
        Path | None, typer.Option(help="CA of the broker, where it is no public one.")
    ] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Without TLS: on this machine alone.")
    ] = False,
) -> None:
    """Hear the building's leak sensors by rack, and keep what they say in a file, until stopped.

    After a start everything is unknown until it was heard, and so is each point after 300 s of
    silence, and all of them without a broker. Needs the extra `building-water` (aiomqtt).

    Example: provisioner building-water watch bms.example --out building.json --ca ca.pem
    """
    if plain and host not in {"127.0.0.1", "::1", "localhost"}:
        raise InputError("--plain", host, "this broker is not on this machine", "Use TLS.")
    try:
        authority = None if ca is None else str(ca)
        context = None if plain else ssl.create_default_context(cafile=authority)
    except OSError as error:  # ssl.SSLError is one
        problem = f"it is no file of CAs ({error.strerror or error})"
        raise InputError("--ca", str(ca), problem, "Name a PEM file.") from None
    password = os.environ.get(_PASSWORD) or None

    def connect() -> Any:
        return open_broker(host, port, user, password, context)

    with contextlib.suppress(KeyboardInterrupt):
        try:
            asyncio.run(hear(connect, out))
        except ExceptionGroup as errors:  # of a task: --out, or a missing extra
            # no `except*`: Python 3.11.2, as Debian 12 has it, puts what it raises in a group again
            wrong = errors.subgroup(InputError)
            if wrong is None:
                raise
            raise wrong.exceptions[0] from None


@contextlib.asynccontextmanager
async def open_broker(
    host: str, port: int, user: str, password: str | None, context: ssl.SSLContext | None
) -> AsyncIterator[AsyncIterator[tuple[str, bytes]]]:
    """Yield the messages of the building's points; ends with OSError where the broker does."""
    try:
        import aiomqtt
    except ImportError:
        remedy = "Run: pip install 'gpu-provisioner[building-water]'."
        raise InputError("building-water", "", "aiomqtt is not installed", remedy) from None
    client = aiomqtt.Client(
        host, port, username=user or None, password=password, tls_context=context, timeout=10
    )
    try:
        async with client:
            for topic in TOPICS:
                await client.subscribe(topic, qos=0)

            async def messages() -> AsyncIterator[tuple[str, bytes]]:
                async for message in client.messages:
                    payload = message.payload
                    body = bytes(payload) if isinstance(payload, bytes | bytearray) else b""
                    yield str(message.topic), body[: PAYLOAD_MAX + 1]

            yield messages()
    except aiomqtt.MqttError as error:
        raise OSError(str(error)) from error


async def hear(
    connect: Callable[[], Any],
    out: Path,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float] = time.time,
) -> None:
    """Hear the broker for ever, and write the file; a broker that is gone makes all unknown."""
    building = Building()

    async def write_often() -> None:
        while True:
            write_file(out, building, clock())
            await pause(WRITE_S)

    async def hear_broker() -> None:
        while True:
            try:
                async with connect() as messages:
                    async for topic, payload in messages:
                        building.take(topic, payload, clock())
            except OSError as error:
                typer.echo(f"no broker: {error}", err=True)
            building.forget_values()
            write_file(out, building, clock())
            await pause(AGAIN_S)

    async with asyncio.TaskGroup() as group:
        group.create_task(write_often())
        group.create_task(hear_broker())


def write_file(out: Path, building: Building, now: float) -> None:
    """Write what is known now, whole or not at all. Raises InputError."""
    racks = {
        rack: {name: {"moisture": told[0], "detail": told[1]} for name, told in points.items()}
        for rack, points in building.judge(now).items()
    }
    try:
        replace_file(out, json.dumps({"at": now, "racks": racks}), mode=0o666)  # others read it
    except OSError as error:
        problem = f"it cannot be written ({error.strerror})"
        raise InputError("--out", str(out), problem, "Make room.") from None
