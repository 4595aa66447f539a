"""BIOS attributes and their registry out of a device's JSON. Pure, bounded, and never raising.

source: DMTF AttributeRegistry 1.3 and Bios 1.2; captured registry of a PowerEdge R750, whose
dependencies name several terms without `MapTerms`: one of them is enough (198 of the 198 read-only
attributes whose terms all name shown attributes are read-only by that reading alone).
"""

from __future__ import annotations

import math
import re
from typing import Any

from provisioner.adapters.redfish.parsing import Json, as_object, at, number, objects, truth
from provisioner.model.machine.settings import (
    HIDDEN,
    AttributeRegistry,
    AttributeRule,
    Dependency,
    DependencyTerm,
    Value,
)

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
