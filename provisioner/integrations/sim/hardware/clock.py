"""The simulator's time: one clock, and one schedule of future acts.

Nothing in the simulator sleeps. Every caller first calls `Schedule.advance(now)`, which runs
everything that became due in between, in order. So the same machine behaves alike under virtual
time, under a wall clock and under a wall clock that runs fast.
"""

from __future__ import annotations

import heapq
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple, Protocol

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

# ------------------------------------------------------------------------------
# The cable plan of a rail-optimised Spectrum-X site: names, ports and addresses.
#
# One scalable unit is 32 nodes and one leaf per rail; the addresses of a cable follow from its
# place (NVIDIA's reference layout, one /31 per cable: 172.(32 rail).(unit).(2 node)).


NODES_PER_UNIT = 32
RAILS = 8
SPINES = 4
NODES_PER_RACK = 4
FIRST_UPLINK = 33  # lower leaf ports connect nodes, two per breakout cable


class Place(NamedTuple):
    """A node's position. Numbers start at 0."""

    unit: int
    number: int  # in its unit

    @property
    def node(self) -> str:
        return f"su{self.unit}-n{self.number:02d}"

    @property
    def rack(self) -> str:
        return f"su{self.unit}-rack{self.number // NODES_PER_RACK}"

    def name_leaf(self, rail: int) -> str:
        """Name of the leaf that serves a rail here."""
        return f"leaf-su{self.unit}-r{rail}"

    @property
    def interface(self) -> str:
        """The port on each of its leaves: "swp1s0", "swp1s1", "swp2s0", ..."""
        return f"swp{self.number // 2 + 1}s{self.number % 2}"

    def get_addresses(self, rail: int) -> tuple[str, str]:
        """(host end, leaf end) of a rail's cable, each with its prefix length."""
        prefix = f"172.{32 * rail}.{self.unit}."
        return f"{prefix}{2 * self.number}/31", f"{prefix}{2 * self.number + 1}/31"


def list_places(nodes: int) -> Iterator[Place]:
    """The first `nodes` places, unit by unit."""
    for number in range(nodes):
        yield Place(number // NODES_PER_UNIT, number % NODES_PER_UNIT)


def count_units(nodes: int) -> int:
    """The number of scalable units for this many nodes."""
    return -(-nodes // NODES_PER_UNIT)


# ------------------------------------------------------------------------------
# Certificates of simulated BMCs: each its own, self-signed, as delivered by the factory.


VALID_DAYS = 3650


def make_certificate(name: str, host: str) -> tuple[bytes, bytes]:
    """A new P-256 certificate and key in PEM (P-256: half the handshake cost of RSA-2048)."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    now = datetime.now(UTC)
    cert = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=VALID_DAYS))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address(host))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return cert.public_bytes(pem), key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def server_context(name: str, host: str) -> ssl.SSLContext:
    """A TLS server context with its own certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificate(context, *make_certificate(name, host))
    return context


def load_certificate(context: ssl.SSLContext, cert: bytes, key: bytes) -> None:
    """Present this certificate from the next handshake on. `ssl` reads keys from files only."""
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:  # mode 0600
        Path(file.name).write_bytes(key + cert)
        context.load_cert_chain(file.name)


class SimClock(Protocol):
    """Seconds since the epoch in the simulated site."""

    def now(self) -> float: ...


class FastClock:
    """The wall clock, accelerated by `speed` from the moment of its creation."""

    def __init__(self, speed: float = 1.0, start: float | None = None) -> None:
        self.speed = speed
        self._began = time.monotonic()
        self._start = time.time() if start is None else start

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._start + (time.monotonic() - self._began) * self.speed


class HandClock:
    """A clock that a test advances."""

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self.time = start

    def now(self) -> float:
        """Seconds since the epoch."""
        return self.time

    def move(self, seconds: float) -> float:
        """Advance the clock; return the new time."""
        self.time += seconds
        return self.time


Act = Callable[[float], None]  # called with its due time


class Schedule:
    """Future acts in order of time, then of planning. One per simulated site."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Act]] = []
        self._planned = 0
        self.next_due = float("inf")

    def plan_act(self, due: float, act: Act) -> None:
        """Plan `act` for the time `due` (seconds since the epoch)."""
        heapq.heappush(self._due, (due, self._planned, act))
        self._planned += 1
        self.next_due = self._due[0][0]

    def advance(self, now: float) -> None:
        """Run everything that is due; an act may plan further acts, also for the past."""
        while self.next_due <= now:
            due, _, act = heapq.heappop(self._due)
            self.next_due = self._due[0][0] if self._due else float("inf")
            act(due)

    def __len__(self) -> int:
        return len(self._due)
