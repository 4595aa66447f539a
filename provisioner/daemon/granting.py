"""The composition of a daemon that acts: every port that can change a device is behind the gate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Protocol, TypeVar

from provisioner.adapters.granted.hosts import (
    GrantedAgents,
    GrantedBmcs,
    GrantedMembership,
    GrantedPartitions,
    GrantedPdu,
    GrantedRunner,
    GrantedShell,
    GrantedSpaces,
)
from provisioner.adapters.granted.switches import GrantedSwitches, GrantedSwitchPasswords
from provisioner.control.context import Context
from provisioner.control.fabric.fabric_standing import Fabrics
from provisioner.ports import (
    Agents,
    BmcTransport,
    Clock,
    HostShell,
    PlaybookRunner,
    Switches,
    SwitchPasswords,
)
from provisioner.ports.isolation import Pdu
from provisioner.ports.telemetry import Telemetry
from provisioner.runtime.permit import CapabilityGate
from provisioner.settings import Settings
from provisioner.store.sql_store import SqlStore


class ActingParts(Protocol):
    """The parts that a daemon's context is made of, and its ports that can change a device."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def store(self) -> SqlStore: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def telemetry(self) -> Telemetry: ...

    @property
    def transport(self) -> BmcTransport: ...

    @property
    def switches(self) -> Switches: ...

    @property
    def runner(self) -> PlaybookRunner: ...

    @property
    def shell(self) -> HostShell: ...

    @property
    def agents(self) -> Agents: ...

    @property
    def passwords(self) -> SwitchPasswords | None: ...

    @property
    def fabrics(self) -> Fabrics | None: ...

    @property
    def pdus(self) -> Mapping[str, Pdu]: ...


P = TypeVar("P", bound=ActingParts)


def guard_parts(parts: P, gate: CapabilityGate) -> P:
    """Return parts whose every port that can change a device is behind the gate."""
    passwords = parts.passwords
    return replace(
        parts,
        transport=GrantedBmcs(parts.transport, gate),
        switches=GrantedSwitches(parts.switches, gate),
        runner=GrantedRunner(parts.runner, gate),
        shell=GrantedShell(parts.shell, gate),
        agents=GrantedAgents(parts.agents, gate),
        passwords=None if passwords is None else GrantedSwitchPasswords(passwords, gate),
        pdus={name: GrantedPdu(name, pdu, gate) for name, pdu in parts.pdus.items()},
        fabrics=None
        if parts.fabrics is None
        else guard_fabrics(parts.fabrics, gate, parts.settings),
    )


def guard_fabrics(fabrics: Fabrics, gate: CapabilityGate, settings: Settings) -> Fabrics:
    """Return fabrics behind the gate; leaves are so by their switches."""
    partitions = fabrics.partitions
    spaces = fabrics.spaces
    guarded = None
    if spaces is not None:
        assert settings.storage is not None
        guarded = GrantedSpaces(spaces, gate, settings.storage.name_space)
    return replace(
        fabrics,
        partitions=None if partitions is None else GrantedPartitions(partitions, gate),
        spaces=guarded,
        memberships=[GrantedMembership(one, gate) for one in fabrics.memberships],
    )


def build_context(parts: ActingParts) -> Context:
    """Return the context of a daemon's controllers, with its gate of capabilities."""
    gate = CapabilityGate(parts.store, parts.clock)
    return Context(parts.store, parts.clock, parts.settings, parts.telemetry, gate)
