"""`provisioner building-water watch` hears the building's leak sensors and keeps what they say."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from provisioner.integrations.building_water import isolation
from provisioner.integrations.building_water.isolation import Isolation, Request, RequestFile
from provisioner.integrations.building_water.signals import PAYLOAD_MAX, TOPICS, Building
from provisioner.model.input_error import InputError
from provisioner.runtime.shipped import read_text
from provisioner.runtime.whole_files import replace_file

WRITE_S = 5.0  # readers take a file of more than 30 s for silence
AGAIN_S = 10.0  # between two attempts to reach the broker
REQUESTS_MAX_BYTES = 1 << 20
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
    requests: Annotated[
        Path | None,
        typer.Option(help="What `rack isolate` writes: its requests are sent to the building."),
    ] = None,
    integration: Annotated[
        str, typer.Option(help="Our name in the building's metadata; needed with --requests.")
    ] = "",
) -> None:
    """Hear the building's leak sensors by rack, and keep what they say in a file, until stopped.

    After a start everything is unknown until it was heard, and so is each point after 300 s of
    silence, and all of them without a broker. Needs the extra `building-water` (aiomqtt).

    Nothing is sent without --requests. With it a request for isolation is repeated each 100 s, at
    the points whose metadata name --integration; only the building says that a rack is isolated.

    Example: provisioner building-water watch bms.example --out building.json --ca ca.pem
    """
    if plain and host not in {"127.0.0.1", "::1", "localhost"}:
        raise InputError("--plain", host, "this broker is not on this machine", "Use TLS.")
    if (requests is None) is not (integration == ""):
        problem = "one is given without the other"
        raise InputError("--requests", str(requests or ""), problem, "Give --integration too.")
    if not all(c.isalnum() or c in "-_." for c in integration) or len(integration) > 64:
        problem = "it is one level of a topic: letters, digits, - _ and ."
        raise InputError("--integration", integration, problem, "Take the name in the metadata.")
    asking = None if requests is None else Asking(requests, Isolation(integration))
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
            asyncio.run(hear(connect, out, asking=asking))
        except ExceptionGroup as errors:  # of a task: --out, or a missing extra
            # no `except*`: Python 3.11.2, as Debian 12 has it, puts what it raises in a group again
            wrong = errors.subgroup(InputError)
            if wrong is None:
                raise
            raise wrong.exceptions[0] from None


@dataclass(frozen=True)
class Channel:
    """A broker's messages, and how one is sent to it: `send` raises OSError."""

    messages: AsyncIterator[tuple[str, bytes]]
    send: Callable[[str, bytes], Awaitable[None]]


@dataclass
class Asking:
    """Requests for isolation: the file that holds them, and the points that they are sent to."""

    file: Path
    points: Isolation
    wanted: Mapping[str, Request] = field(default_factory=dict)
    told: str = ""

    def read(self) -> None:
        """Read the file; one that cannot be read asks for nothing more, and takes nothing back."""
        try:
            self.wanted = RequestFile.model_validate_json(
                read_text(self.file, REQUESTS_MAX_BYTES)
            ).racks
            self.told = ""
        except (InputError, ValidationError) as error:
            if not self.told:
                typer.echo(f"no request is sent: {self.file}: {error}"[:400], err=True)
            self.told = str(error)
            self.wanted = {}


@contextlib.asynccontextmanager
async def open_broker(
    host: str, port: int, user: str, password: str | None, context: ssl.SSLContext | None
) -> AsyncIterator[Channel]:
    """Yield a channel to the building's points; ends with OSError where the broker does."""
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
            for topic in (*TOPICS, *isolation.TOPICS):
                await client.subscribe(topic, qos=0)

            async def messages() -> AsyncIterator[tuple[str, bytes]]:
                async for message in client.messages:
                    payload = message.payload
                    body = bytes(payload) if isinstance(payload, bytes | bytearray) else b""
                    yield str(message.topic), body[: PAYLOAD_MAX + 1]

            async def send(topic: str, payload: bytes) -> None:
                try:
                    await client.publish(topic, payload, qos=1, retain=False)
                except aiomqtt.MqttError as error:
                    raise OSError(str(error)) from error

            yield Channel(messages(), send)
    except aiomqtt.MqttError as error:
        raise OSError(str(error)) from error


async def hear(
    connect: Callable[[], Any],
    out: Path,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float] = time.time,
    asking: Asking | None = None,
) -> None:
    """Hear the broker for ever, and write the file; a broker that is gone makes all unknown."""
    building = Building()
    open_channels: list[Channel] = []

    async def send_due() -> None:
        if asking is None:
            return
        asking.read()
        for channel in open_channels:
            for topic, payload in asking.points.list_due(asking.wanted, clock()):
                try:
                    await channel.send(topic, payload)
                except OSError as error:
                    asking.points.forget()  # nobody knows which of them arrived
                    typer.echo(f"a request was not sent: {error}", err=True)
                    return

    async def write_often() -> None:
        while True:
            await send_due()
            write_file(out, building, clock(), asking)
            await pause(WRITE_S)

    async def hear_broker() -> None:
        while True:
            try:
                async with connect() as channel:
                    open_channels.append(channel)
                    async for topic, payload in channel.messages:
                        now = clock()
                        if asking is None or not asking.points.take(topic, payload, now):
                            building.take(topic, payload, now)
            except OSError as error:
                typer.echo(f"no broker: {error}", err=True)
            open_channels.clear()
            building.forget_values()
            if asking is not None:
                asking.points.forget()
            write_file(out, building, clock(), asking)
            await pause(AGAIN_S)

    async with asyncio.TaskGroup() as group:
        group.create_task(write_often())
        group.create_task(hear_broker())


def write_file(out: Path, building: Building, now: float, asking: Asking | None = None) -> None:
    """Write what is known now, whole or not at all. Raises InputError."""
    racks = {
        rack: {name: {"moisture": told[0], "detail": told[1]} for name, told in points.items()}
        for rack, points in building.judge(now).items()
    }
    written: dict[str, Any] = {"at": now, "racks": racks}
    if asking is not None:
        told = asking.points.judge(asking.wanted, now)
        written["isolation"] = {
            rack: {"isolated": asking.points.is_isolated(rack, now), "told": said}
            for rack, said in told.items()
        }
    try:
        replace_file(out, json.dumps(written), mode=0o666)  # others read it
    except OSError as error:
        problem = f"it cannot be written ({error.strerror})"
        raise InputError("--out", str(out), problem, "Make room.") from None
