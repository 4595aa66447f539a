"""Opens metrics and the receivers of integrations that the settings ask for; else `SILENCE`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from provisioner.model.input_error import InputError
from provisioner.ports import Clock, Secret
from provisioner.ports.telemetry import SILENCE, Metrics, Telemetry
from provisioner.runtime.integrations import open_metrics, open_receivers
from provisioner.runtime.shipped import read_text
from provisioner.settings import Settings
from provisioner.store.database.data_directory import Sealing
from provisioner.store.sql_store import SqlStore
from provisioner.telemetry.logs import set_up_logging
from provisioner.telemetry.several import TelemetryFanout

Queues = Callable[[], Mapping[str, tuple[float, float]]]  # name -> (length, limit; 0: none)
TOKEN_MIN = 16  # characters: shorter tokens can be guessed


@dataclass
class Measured:
    """The receivers of measurements, and what serves them to scrapers."""

    telemetry: Telemetry = SILENCE
    metrics: Metrics | None = None  # None: not served


@asynccontextmanager
async def open_telemetry(settings: Settings, clock: Clock) -> AsyncIterator[Measured]:
    """Yield the receivers that the settings ask for, and set up the log. Raises InputError."""
    set_up_logging(settings.log_format)
    parts: list[Telemetry] = []
    token = None if settings.metrics_port is None else _token(settings.metrics_token_file)
    metrics = open_metrics(settings, clock, token, read_version())
    if metrics is not None:
        parts.append(metrics.recorder)
    async with open_receivers(settings, os.environ) as receivers:
        parts.extend(receivers)
        receiver = parts[0] if len(parts) == 1 else TelemetryFanout(parts) if parts else SILENCE
        yield Measured(receiver, metrics)


def served_metrics(
    measured: Measured, data: Path, store: SqlStore, queues: Queues, keys: Sealing
) -> AbstractAsyncContextManager[str]:
    """Serve `/metrics` if the settings ask for it, while entered; it gives its URL, or ""."""
    if measured.metrics is None:
        return nullcontext("")
    return measured.metrics.serve(data, store, queues, keys)


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
