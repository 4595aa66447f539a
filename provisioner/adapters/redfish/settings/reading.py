"""All settings that a service shows: BIOS attributes, Secure Boot, and the BMCs' own.

Only links are followed. The registry is taken from the service's `Registries`, in English where
there is a choice, or from below the Bios resource where a vendor keeps it (quirk `bios_registry`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from provisioner.adapters.redfish.parsing import (
    Json,
    as_object,
    at,
    link,
    name_of,
    number,
    objects,
    path_of,
    text,
    truth,
)
from provisioner.adapters.redfish.parts import of_type
from provisioner.adapters.redfish.service import Service, raise_unread
from provisioner.adapters.redfish.settings.syslog import read_syslog
from provisioner.adapters.redfish.walk import ROOT, Resource, Walk
from provisioner.model.machine.settings import (
    CARD_MODE,
    HIDDEN,
    HOST_RSHIM,
    SYSLOG,
    AttributeRegistry,
    AttributeRule,
    BiosSettings,
    BmcSettings,
    Dependency,
    DependencyTerm,
    MachineSettings,
    SecureBootState,
    Value,
)
from provisioner.model.outcome import Gap, Reason

# ------------------------------------------------------------------------------
# BIOS attributes and their registry out of a device's JSON. Pure, bounded, and never raising.
#
# source: DMTF AttributeRegistry 1.3 and Bios 1.2; captured registry of a PowerEdge R750, whose
# dependencies name several terms without `MapTerms`: one of them is enough (198 of the 198
# read-only attributes whose terms all name shown attributes are read-only by that reading alone).


ATTRIBUTES_MAX = 4096  # the largest registry in hand has 682
_DEPENDENCIES_MAX = 8192
_TERMS_MAX = 64
_VALUES_MAX = 256
_NAME_MAX = 256
_VALUE_MAX = 16_384  # an AMI system lists its menus in one attribute of 4 KiB
_NUMBER_MAX = 1e15
# attributes that hold a secret, where no registry gives them another type
# source: names in the captured trees of an R750 (Users.2.IPMIKey, Users.2.SHA256PasswordSalt,
# IPMILan.1.CommunityName), a DGX H100 (AdminPassword) and a BlueField-3 (UefiPassword)
_SECRET = re.compile(
    r"(passw(or)?d|passphrase|pwd|salt|secret|token|key|psk|community(name)?)(_[0-9A-F]{4})?$",
    re.IGNORECASE,
)


def parse_attributes(body: Json, registry: AttributeRegistry | None = None) -> dict[str, Value]:
    """Return the attributes of a Bios resource, or of its settings object; secrets are hidden."""
    attributes: dict[str, Value] = {}
    for name, value in list(as_object(body.get("Attributes")).items())[:ATTRIBUTES_MAX]:
        if not _is_name(name):
            continue
        rule = registry.rules.get(name) if registry is not None else None
        if _holds_secret(name, rule, value):
            attributes[name] = HIDDEN
        elif (scalar := parse_value(value)) is not None or value is None:
            attributes[name] = scalar
    return attributes


def parse_registry(body: Json, source: str) -> AttributeRegistry | None:
    """Return the attributes and dependencies of a registry; None if it lists no attribute."""
    listed = at(body, "RegistryEntries", "Attributes")
    if not isinstance(listed, list):
        return None
    rules = {rule.name: rule for one in objects(listed, ATTRIBUTES_MAX) if (rule := _rule(one))}
    if not rules:
        return None
    mapped = at(body, "RegistryEntries", "Dependencies")
    dependencies = objects(mapped if isinstance(mapped, list) else [], _DEPENDENCIES_MAX)
    maps = tuple(parsed for one in dependencies if (parsed := _dependency(one)) is not None)
    return AttributeRegistry(source=source, rules=rules, dependencies=maps)


def parse_value(value: Any) -> Value:
    """Return a scalar as it is; None for anything else, and for text that nothing can show."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return value if math.isfinite(value) and abs(value) < _NUMBER_MAX else None
    if not isinstance(value, str) or len(value) > _VALUE_MAX:
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return None
    return value if value.isprintable() else None


def _holds_secret(name: str, rule: AttributeRule | None, value: Any) -> bool:
    if rule is not None and rule.kind:
        return rule.kind == "Password"
    return not isinstance(value, bool | int | float) and bool(_SECRET.search(name))


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _NAME_MAX and parse_value(value) == value


def _rule(entry: Json) -> AttributeRule | None:
    name = entry.get("AttributeName")
    if not isinstance(name, str) or not _is_name(name):
        return None
    kind = entry.get("Type")
    listed = entry.get("Value")
    named = objects(listed if isinstance(listed, list) else [], _VALUES_MAX)
    pairs = [
        (name_of_value, parse_value(one.get("ValueDisplayName")))
        for one in named
        if isinstance(name_of_value := parse_value(one.get("ValueName")), str)
    ]
    return AttributeRule(
        name=name,
        kind=kind if isinstance(kind, str) and _is_name(kind) else "",
        values=tuple(value for value, _ in pairs),
        labels=tuple(label if isinstance(label, str) else value for value, label in pairs),
        lower=number(entry.get("LowerBound")),
        upper=number(entry.get("UpperBound")),
        increment=number(entry.get("ScalarIncrement")),
        length_min=_count(entry.get("MinLength")),
        length_max=_count(entry.get("MaxLength")),
        read_only=bool(truth(entry.get("ReadOnly"))),
        hidden=bool(truth(entry.get("Hidden"))),
        immutable=bool(truth(entry.get("Immutable"))),
        reset_required=truth(entry.get("ResetRequired")),
    )


def _count(value: Any) -> int | None:
    counted = number(value)
    return None if counted is None else int(counted)


def _dependency(entry: Json) -> Dependency | None:
    mapped = as_object(entry.get("Dependency"))
    attribute = mapped.get("MapToAttribute")
    affects = mapped.get("MapToProperty")
    listed = mapped.get("MapFrom")
    if not isinstance(attribute, str) or not isinstance(affects, str):
        return None
    if not _is_name(attribute) or not _is_name(affects) or not isinstance(listed, list):
        return None
    sources = list(objects(listed, _TERMS_MAX))
    terms = [term for one in sources if (term := _term(one)) is not None]
    if not terms or len(terms) != len(listed):  # half of a condition is none
        return None
    every = any(one.get("MapTerms") == "AND" for one in sources)
    value = parse_value(mapped.get("MapToValue"))
    return Dependency(
        attribute=attribute, affects=affects, value=value, terms=tuple(terms), every=every
    )


def _term(entry: Json) -> DependencyTerm | None:
    """Return a condition on a current value; None for one on another property of an attribute."""
    attribute = entry.get("MapFromAttribute")
    condition = entry.get("MapFromCondition")
    if not isinstance(attribute, str) or not isinstance(condition, str):
        return None
    if entry.get("MapFromProperty") != "CurrentValue":
        return None
    if not _is_name(attribute) or not _is_name(condition):
        return None
    value = parse_value(entry.get("MapFromValue"))
    return DependencyTerm(attribute=attribute, condition=condition, value=value)


_SYSTEMS_MAX = 16
_USUAL = "BiosAttributeRegistry"  # the name that most services use
_POLICIES = (
    "AccountLockoutThreshold",
    "AccountLockoutDuration",
    "AccountLockoutCounterResetAfter",
    "MinPasswordLength",
)


async def read_machine_settings(service: Service) -> MachineSettings:
    """Return all settings; what could not be read is a gap. Raises `PortError` for silence."""
    walk = service.walk()
    root = await walk.read_root()
    systems = of_type(await walk.read_linked(root, "Systems"), "ComputerSystem")[:_SYSTEMS_MAX]
    bios = [await read_bios(service, walk, root, system.data) for system in systems]
    secure = [await _read_secure_boot(walk, system.data) for system in systems]
    managers = of_type(await walk.read_linked(root, "Managers"), "Manager")[:_SYSTEMS_MAX]
    bmcs = [await _read_bmc(service, walk, manager) for manager in managers]
    return MachineSettings(
        vendor=service.quirk.name,
        bios=tuple(one for one in bios if one is not None),
        secure_boot=tuple(one for one in secure if one is not None),
        bmcs=tuple(
            one
            for one in (
                *bmcs,
                await _read_accounts(walk, root),
                *[await _read_card(walk, system) for system in systems],
                *_list_power_policies(systems),
            )
            if one is not None and one.values
        ),
        gaps=tuple(dict.fromkeys(walk.gaps)),
    )


async def read_host_settings(service: Service) -> MachineSettings:
    """Return the settings that sets are compared with: of the host and its own BMC, no registry."""
    walk = service.walk()
    root = await walk.read_root()
    system = await service.read_system()
    manager = await service.read_manager()
    if system is None:
        return MachineSettings(vendor=service.quirk.name)
    bios = await read_bios(service, walk, root, system.data, registry=False)
    secure = await _read_secure_boot(walk, system.data)
    bmcs = [
        None if manager is None else await _read_bmc(service, walk, manager, whole=False),
        await _read_accounts(walk, root),
        await _read_card(walk, system),
        *_list_power_policies([system]),
    ]
    return MachineSettings(
        vendor=service.quirk.name,
        bios=() if bios is None else (bios,),
        secure_boot=() if secure is None else (secure,),
        bmcs=tuple(one for one in bmcs if one is not None),
        gaps=tuple(dict.fromkeys(walk.gaps)),
    )


async def read_bmc_settings(service: Service) -> tuple[BmcSettings, ...]:
    """Return the settings of the BMC itself, without the vendor's own attributes."""
    walk = service.walk()
    manager = await service.read_manager()
    read = (
        None if manager is None else await _read_bmc(service, walk, manager, whole=False),
        await _read_accounts(walk, await walk.read_root()),
    )
    return tuple(one for one in read if one is not None)


def raise_unread_bios(walk: Walk, bios: BiosSettings | None) -> None:
    """Raise `PortError` if this reading of the BIOS leaves open what runs or what waits.

    Its registry may be unread: values are judged without one too.
    """
    places = {bios.source, bios.target} if bios is not None else set()
    raise_unread([gap for gap in walk.unread if gap.source in places])


async def read_bios(
    service: Service, walk: Walk, root: Json, system: Json, *, registry: bool = True
) -> BiosSettings | None:
    """Return the BIOS attributes of a system, with its registry if it is asked for.

    It is read too where values wait: they may write others at the boot.
    """
    path = link(system, "Bios")
    if path is None:
        return None
    body = (await walk.read(path)).data
    if not body:
        return BiosSettings(source=path)
    name = text(body.get("AttributeRegistry"))
    target = link(body, "@Redfish.Settings", "SettingsObject")
    later = (await walk.read(target)).data if target is not None else {}
    listed = body.get("Attributes")
    rules = None
    if registry or _find_pending(listed, later):
        rules = await _read_registry(service, walk, root, path, name)
    current = parse_attributes(body, rules) if isinstance(listed, dict) else None
    pending = {
        attribute: value
        for attribute, value in parse_attributes(later, rules).items()
        if current is None or attribute not in current or current[attribute] != value
    }
    times = at(body, "@Redfish.Settings", "SupportedApplyTimes")
    if not isinstance(times, list):
        times = []
    return BiosSettings(
        source=path,
        target=target or "",
        apply_times=tuple(one for one in (text(t) for t in times[:8]) if one),
        current=current,
        pending=pending,
        registry_name=name,
        registry=rules,
    )


def _find_pending(listed: Any, later: Json) -> bool:
    running = as_object(listed)
    waiting = as_object(later.get("Attributes"))
    return any(running.get(name) != value for name, value in waiting.items())


async def _read_registry(
    service: Service, walk: Walk, root: Json, bios: str, name: str | None
) -> AttributeRegistry | None:
    """Return the registry; without one, a gap says why nothing can be checked against it."""
    path = await _find_registry(walk, root, name)
    if path is None and service.quirk.bios_registry:
        path = f"{bios.rstrip('/')}/{service.quirk.bios_registry}"
    if path is None:
        detail = f"the attribute registry {name or '(unnamed)'} is not served"
        walk.gaps.append(Gap(reason=Reason.NOT_OFFERED, source=bios, detail=detail[:200]))
        return None
    body = (await walk.read(path)).data
    registry = parse_registry(body, path)
    if registry is None and body:
        detail = "the attribute registry lists no attribute"
        walk.gaps.append(Gap(reason=Reason.MALFORMED, source=path, detail=detail))
    return registry


async def _find_registry(walk: Walk, root: Json, name: str | None) -> str | None:
    """Return the address of the BIOS's registry, from the service's list of registries.

    Its Id is the name that Bios gives (Dell, HPE, Lenovo), or that name without its version
    (Supermicro); GB200 gives no name, and lists a BiosAttributeRegistry.
    """
    collection = link(root, "Registries")
    if collection is None:
        return None
    paths = await walk.read_links(collection)
    for choice in dict.fromkeys((name, (name or _USUAL).partition(".")[0])):
        for path in paths:
            if choice is not None and name_of(path) == choice:
                return _find_location((await walk.read(path)).data)
    return None


def _find_location(file: Json) -> str | None:
    """Return where the registry is, in English where there is a choice of languages."""
    locations = list(objects(file.get("Location") or [], 32))
    english = [one for one in locations if str(one.get("Language", "")).lower().startswith("en")]
    return next((p for one in (*english, *locations) if (p := path_of(one.get("Uri")))), None)


async def _read_secure_boot(walk: Walk, system: Json) -> SecureBootState | None:
    path = link(system, "SecureBoot")
    body = (await walk.read(path)).data if path is not None else {}
    if path is None or not body:
        return None
    running = {"Enabled": True, "Disabled": False}.get(str(body.get("SecureBootCurrentBoot")))
    return SecureBootState(
        source=path,
        enabled=truth(body.get("SecureBootEnable")),
        running=running,
        mode=text(body.get("SecureBootMode")),
    )


async def _read_bmc(
    service: Service, walk: Walk, manager: Resource, *, whole: bool = True
) -> BmcSettings | None:
    """Return the settings of one BMC; `whole`: with the vendor's own attributes."""
    values: dict[str, Value] = {}
    network = link(manager.data, "NetworkProtocol")
    if network is not None:
        values |= dict(_list_protocols((await walk.read(network)).data))
    interfaces = link(manager.data, "HostInterfaces")
    if interfaces is not None:
        for one in await walk.read_members(interfaces):
            if (enabled := truth(one.data.get("InterfaceEnabled"))) is not None:
                values[f"HostInterfaces.{name_of(one.path)}.InterfaceEnabled"] = enabled
    if (logs := await read_syslog(walk, service.quirk, manager.data)) is not None:
        values[SYSLOG] = logs[1]
    own_links = service.quirk.bmc_attributes if whole else ()
    for linked in objects(at(manager.data, *own_links) or []) if own_links else ():
        path = path_of(linked)
        if path is not None:
            own = parse_attributes((await walk.read(path)).data)
            values |= {f"{name_of(path)}/{name}": value for name, value in own.items()}
    return BmcSettings(source=manager.path, values=values)


def _list_protocols(network: Json) -> Iterator[tuple[str, Value]]:
    """Yield each protocol's switch and port, and the servers of NTP."""
    for name, value in list(network.items())[:64]:
        protocol = as_object(value)
        for inner in ("ProtocolEnabled", "Port"):
            if inner in protocol:
                yield f"{name}.{inner}", parse_value(protocol[inner])
        servers: Any = protocol.get("NTPServers")
        if isinstance(servers, list):
            named = [text(one) for one in servers[:8]]
            yield f"{name}.NTPServers", ",".join(one for one in named if one)


async def _read_accounts(walk: Walk, root: Json) -> BmcSettings | None:
    path = link(root, "AccountService")
    if path is None:
        return None
    body = (await walk.read(path)).data
    values = {name: parse_value(body[name]) for name in _POLICIES if name in body}
    return BmcSettings(source=path, values=values)


async def _read_card(walk: Walk, system: Resource) -> BmcSettings | None:
    """Return a BlueField's mode, and whether its host has its rshim (captured BlueField-3)."""
    path = link(system.data, "Oem", "Nvidia")
    shown = (await walk.read(path)).data if path is not None else {}
    values: dict[str, Value] = {
        name: state for name in (HOST_RSHIM, CARD_MODE) if (state := text(shown.get(name)))
    }
    return BmcSettings(source=path, values=values) if path is not None and values else None


def _list_power_policies(systems: list[Resource]) -> Iterator[BmcSettings]:
    for system in systems:
        if (policy := text(system.data.get("PowerRestorePolicy"))) is not None:
            values: dict[str, Value] = {"PowerRestorePolicy": policy}
            yield BmcSettings(source=system.path or ROOT, values=values)
