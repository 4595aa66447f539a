"""Opens metrics and the receivers of integrations that the settings ask for; else `SILENCE`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from provisioner.model.input_error import InputError
from provisioner.ports import Clock, Secret
from provisioner.ports.telemetry import SILENCE, Telemetry
from provisioner.runtime.integrations import open_receivers
from provisioner.runtime.shipped import read_text
from provisioner.settings import Settings
from provisioner.store.database.data_directory import Sealing
from provisioner.store.sql_store import SqlStore
from provisioner.telemetry.logs import set_up_logging
from provisioner.telemetry.several import TelemetryFanout

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from provisioner.telemetry.serving import Queues

TOKEN_MIN = 16  # characters: shorter tokens can be guessed


@dataclass
class Measured:
    """The receivers of measurements, and the registry that scrapers read."""

    telemetry: Telemetry = SILENCE
    registry: CollectorRegistry | None = None  # None: metrics are not served
    token: Secret | None = field(default=None, repr=False)


@asynccontextmanager
async def open_telemetry(settings: Settings, clock: Clock) -> AsyncIterator[Measured]:
    """Yield the receivers that the settings ask for, and set up the log. Raises InputError."""
    set_up_logging(settings.log_format)
    parts: list[Telemetry] = []
    registry = None
    token = None
    if settings.metrics_port is not None:
        from provisioner.daemon import metrics

        token = _token(settings.metrics_token_file)
        registry, recorder = metrics.open_registry(settings, clock, token, read_version())
        parts.append(recorder)
    async with open_receivers(settings, os.environ) as receivers:
        parts.extend(receivers)
        receiver = parts[0] if len(parts) == 1 else TelemetryFanout(parts) if parts else SILENCE
        yield Measured(receiver, registry, token)


@asynccontextmanager
async def served_metrics(
    measured: Measured,
    data: Path,
    store: SqlStore,
    clock: Clock,
    settings: Settings,
    queues: Queues,
    keys: Sealing,
) -> AsyncIterator[str]:
    """Serve `/metrics` if the settings ask for it; yield its URL, or ""."""
    if measured.registry is None:
        yield ""
        return
    from provisioner.daemon import metrics

    reached = (measured.registry, measured.token, data, store, clock, settings, queues, keys)
    async with metrics.serve_registry(*reached) as url:
        yield url


def read_version() -> str:
    try:
        return version("gpu-provisioner")
    except PackageNotFoundError:  # run from a copy of its files
        return "unknown"


def _token(path: str) -> Secret | None:
    if not path:
        return None
    token = read_text(Path(path)).strip()
    if len(token) < TOKEN_MIN or not token.isascii() or not token.isprintable():
        problem = f"a token has at least {TOKEN_MIN} characters of ASCII"
        raise InputError("metrics_token_file", path, problem, "Run: openssl rand -hex 32 > FILE")
    return Secret(token)


def read_headers(setting: str, path: str) -> dict[str, str]:
    """Return a collector's headers; their values are secrets, and are never logged."""
    headers = dict[str, str]()
    if not path:
        return headers
    for number, line in enumerate(read_text(Path(path)).splitlines(), 1):
        name, colon, value = line.partition(":")
        if line.strip() and not (colon and name.strip().isascii() and value.strip()):
            problem = f"line {number} is no header"
            raise InputError(setting, path, problem, "Write lines of `Name: value`.")
        if line.strip():
            headers[name.strip()] = value.strip()
    return headers
