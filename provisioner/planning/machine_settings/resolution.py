"""From a set of settings to the attributes of one machine, and what refuses them.

A set names meanings ("iommu": "on") and raw attributes ("attribute:NAME": value). Each is resolved
against the attributes that this machine shows and its registry, so that a renamed attribute is
found again and nothing is sent that the BIOS would drop. All changes of a boot are one request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from provisioner.model.base import Record
from provisioner.model.machine.settings import (
    HIDDEN,
    AttributeRegistry,
    AttributeRule,
    BiosSettings,
    Dependency,
    DependencyTerm,
    Value,
)
from provisioner.model.outcome import Blocker, Reason
from provisioner.quirks.meaning import ATTRIBUTE_GROUPS, VOCABULARY, Row

# ------------------------------------------------------------------------------
# Effects of a registry's dependencies: attributes that are locked, and that change with others.
#
# Half of the attributes of a PowerEdge are read-only under some value of another one, and a profile
# writes attributes itself when it is chosen. Both are predicted from the registry's maps before
# anything is sent. A map of `CurrentValue` acts when one of its attributes changes, and not at
# other times: on a captured R750, 21 of 45 maps whose terms hold do not agree with the running
# value.


_LOCKS = ("ReadOnly", "GrayOut")
_ROUNDS_MAX = 16  # maps that set one another in a circle end here; the deepest chain in hand has 3
Values = Mapping[str, Value]


def find_lock(registry: AttributeRegistry, name: str, values: Values) -> str | None:
    """Return why an attribute cannot be written while these values run; None if it can.

    An attribute with maps is locked while one of them holds. Where an attribute of the terms is not
    shown, the registry's own flag decides.
    """
    rule = registry.rules.get(name)
    if rule is None:
        return None
    if rule.immutable:
        return "it is a fact of the machine and cannot be written"
    maps = [
        d
        for d in registry.dependencies
        if d.attribute == name and d.affects in _LOCKS and is_true(d.value)
    ]
    states = [(holds(one, values), one) for one in maps]
    active = next((one for state, one in states if state), None)
    if active is not None:
        return f"it is read-only while {describe_terms(active, values)}"
    decided = maps and all(state is False for state, _ in states)
    if rule.read_only and not decided:
        return "the registry lists it as read-only"
    return None


def predict(registry: AttributeRegistry, values: Values, changes: Values) -> dict[str, Value]:
    """Return all values after these changes, with those that the registry's maps make."""
    result = dict(values) | dict(changes)
    changed = {name for name, value in changes.items() if values.get(name) != value}
    for _ in range(_ROUNDS_MAX):
        following = set[str]()
        for one in registry.dependencies:
            touched = any(term.attribute in changed for term in one.terms)
            if one.affects != "CurrentValue" or not touched or not holds(one, result):
                continue
            if result.get(one.attribute) != one.value:
                result[one.attribute] = one.value
                following.add(one.attribute)
        if not following:
            break
        changed = following
    return result


def find_writer(
    registry: AttributeRegistry, name: str, values: Values, changes: Values
) -> str | None:
    """Return the change that sets an attribute by a map; None if no single one does."""
    for attribute, value in changes.items():
        alone = predict(registry, values, {attribute: value})
        if attribute != name and alone.get(name) != values.get(name):
            return f"{attribute} = {value}"
    return None


def holds(dependency: Dependency, values: Values) -> bool | None:
    """Return whether the terms of a map hold; None if an attribute that decides is not shown."""
    states = [_term_holds(term, values) for term in dependency.terms]
    if dependency.every:
        return False if False in states else None if None in states else True
    return True if True in states else None if None in states else False


def describe_terms(dependency: Dependency, values: Values) -> str:
    """Return the terms that hold, as text: "SysProfile is PerfOptimized"."""
    active = [t for t in dependency.terms if _term_holds(t, values)]
    return " and ".join(
        dict.fromkeys(f"{term.attribute} is {values.get(term.attribute)}" for term in active[:4])
    )


def is_true(value: Value) -> bool:
    """Return whether a map's value is a true boolean, spelled in either way."""
    return value is True or (isinstance(value, str) and value.lower() == "true")


_ORDERS: dict[str, Callable[[float, float], bool]] = {
    "GTR": lambda a, b: a > b,
    "GEQ": lambda a, b: a >= b,
    "LSS": lambda a, b: a < b,
    "LEQ": lambda a, b: a <= b,
}


def _term_holds(term: DependencyTerm, values: Values) -> bool | None:
    if term.attribute not in values:
        return None
    value = values[term.attribute]
    if term.condition == "EQU":
        return value == term.value
    if term.condition == "NEQ":
        return value != term.value
    order = _ORDERS.get(term.condition)
    if order is None or isinstance(value, bool) or isinstance(term.value, bool):
        return None
    if not isinstance(value, int | float) or not isinstance(term.value, int | float):
        return None
    return order(value, term.value)


ATTRIBUTE = "attribute:"
Settings = Mapping[str, str]


class Resolution(Record):
    """The attributes of a set on one machine.

    `target`: all of them; `changes`: those to send, the others run or follow by themselves.
    """

    target: dict[str, Value]
    changes: dict[str, Value]
    refused: tuple[Blocker, ...] = ()


def resolve(settings: Settings, bios: BiosSettings, rows: Sequence[Row]) -> Resolution:
    """Return the attributes and values of a set, and every reason why one cannot be set."""
    if bios.current is None:
        unread = _refuse(
            Reason.VERSION_MISSING,
            "BIOS",
            "this machine shows no BIOS attributes",
            "Let the host boot once to its end, then retry.",
        )
        return Resolution(target={}, changes={}, refused=(unread,))
    target: dict[str, Value] = {}
    refused: list[Blocker] = []
    for name, value in settings.items():
        if not is_attribute(name):
            continue
        resolved = _resolve_one(name, value, bios, rows)
        if isinstance(resolved, Blocker):
            refused.append(resolved)
            continue
        for attribute, spelled in resolved.items():
            if attribute in target and target[attribute] != spelled:
                refused.append(_refuse_doubled(name, attribute, target[attribute], spelled))
            target[attribute] = spelled
    changes, locked = _order(bios, target)
    return Resolution(target=target, changes=changes, refused=(*refused, *locked))


def is_in_force(settings: Settings, bios: BiosSettings, rows: Sequence[Row]) -> bool | None:
    """Return whether every setting of a set runs; None if that cannot be read here."""
    resolution = resolve_values(settings, bios, rows)
    if resolution is None or bios.current is None:
        return None
    return all(is_same(bios.current.get(name), value) for name, value in resolution.items())


def resolve_values(
    settings: Settings, bios: BiosSettings, rows: Sequence[Row]
) -> dict[str, Value] | None:
    """Return the attributes of a set with their values; None if one has no meaning here."""
    values: dict[str, Value] = {}
    for name, value in settings.items():
        if not is_attribute(name):
            continue
        resolved = _resolve_one(name, value, bios, rows)
        if isinstance(resolved, Blocker):
            return None
        values |= resolved
    return values


def is_attribute(name: str) -> bool:
    """Return whether a setting is one of a system's BIOS attributes."""
    return name not in VOCABULARY or VOCABULARY[name].group in ATTRIBUTE_GROUPS


def is_same(current: Value, value: Value) -> bool:
    """Return whether two values are equal, numbers and booleans also where one is text."""
    if current is None or value is None:
        return current is value
    if type(current) is type(value):
        return current == value
    return str(current).strip().lower() == str(value).strip().lower()


def _resolve_one(
    name: str, value: str, bios: BiosSettings, rows: Sequence[Row]
) -> dict[str, Value] | Blocker:
    if name.startswith(ATTRIBUTE):
        attribute = name.removeprefix(ATTRIBUTE)
        spelled = _spell_raw(attribute, value, bios)
        return spelled if isinstance(spelled, Blocker) else {attribute: spelled}
    shown = bios.current or {}
    fitting = [
        (row, attribute)
        for row in rows
        if row.meaning == name
        for attribute in shown
        if re.fullmatch(row.attribute, attribute)
    ]
    if not fitting:
        declared = any(row.meaning == name for row in rows)
        return _refuse(
            Reason.NOT_OFFERED,
            name,
            "this machine shows no attribute of it"
            if declared
            else "no attribute of this vendor is declared for it",
            f"Pin the raw attribute as `{ATTRIBUTE}NAME`, or leave {name} out of this profile's "
            "set; `provisioner inspect --settings` lists the attributes.",
        )
    result: dict[str, Value] = {}
    for row, attribute in fitting:
        spelled = _spell_meaning(row, attribute, value, bios)
        if isinstance(spelled, Blocker):
            return spelled
        result[attribute] = spelled
    return result


def _spell_meaning(row: Row, attribute: str, value: str, bios: BiosSettings) -> Value | Blocker:
    """Return the vendor's spelling of our value: the registry's, else the one that shows now."""
    spellings = row.values.get(value)
    if spellings is None:
        values = ", ".join(row.values)
        return _refuse(
            Reason.NOT_OFFERED,
            row.meaning,
            f"{value} is not declared for {attribute}; declared are {values} ({row.source})",
            f"Pin one of {values}, or the raw attribute as `{ATTRIBUTE}{attribute}`.",
        )
    rule = _rule_of(attribute, bios)
    if rule is not None and rule.kind == "Enumeration":
        for one in spellings:
            if isinstance(one, str) and (spelled := _spell_in(rule, one, bios)) is not None:
                return spelled
        return _refuse_value(row.meaning, attribute, value, rule)
    current = (bios.current or {}).get(attribute)
    for style in range(max(len(options) for options in row.values.values())):
        of_style = [o[style] for o in row.values.values() if len(o) > style]
        if any(type(current) is type(one) and current == one for one in of_style):
            return spellings[style] if len(spellings) > style else spellings[0]
    return _refuse(
        Reason.VERSION_MISSING,
        row.meaning,
        f"{attribute} is {current}, which is no declared value, and the registry cannot be read",
        "Read the machine's registry, and declare the value with its source.",
    )


def _spell_raw(attribute: str, value: str, bios: BiosSettings) -> Value | Blocker:
    """Return the value of a raw attribute in the type that the registry or the machine gives."""
    subject = f"{ATTRIBUTE}{attribute}"
    current = bios.current or {}
    rule = _rule_of(attribute, bios)
    if attribute not in current:
        return _refuse(
            Reason.NOT_OFFERED,
            subject,
            "this machine shows no such attribute",
            "`provisioner inspect --settings` lists the attributes; check the spelling.",
        )
    if current.get(attribute) == HIDDEN or (rule is not None and rule.kind == "Password"):
        return _refuse(
            Reason.METHOD_FORBIDDEN, subject, "it holds a secret", "Secrets are never pinned."
        )
    now = current.get(attribute)
    kind = rule.kind if rule is not None and rule.kind else _kind_of(now)
    if kind == "Enumeration" and rule is not None:
        spelled = _spell_in(rule, value, bios)
        return spelled if spelled is not None else _refuse_value(subject, attribute, value, rule)
    if kind == "Boolean":
        truth = {"true": True, "false": False}.get(value.lower())
        return truth if truth is not None else _refuse_type(subject, value, "true or false")
    if kind == "Integer":
        return _spell_number(subject, value, rule)
    if rule is None:
        return (
            now
            if is_same(now, value)
            else _refuse(
                Reason.NOT_OFFERED,
                subject,
                f"the registry cannot be read, so that it is unknown whether {value} is a value",
                "Pin it when the registry can be read.",
            )
        )
    if not (rule.length_min or 0) <= len(value) <= (rule.length_max or len(value)):
        return _refuse_type(subject, value, f"{rule.length_min} to {rule.length_max} characters")
    return value


def _spell_number(subject: str, value: str, rule: AttributeRule | None) -> Value | Blocker:
    if not re.fullmatch(r"-?\d{1,15}", value):
        return _refuse_type(subject, value, "a whole number")
    number = int(value)
    lower = rule.lower if rule is not None else None
    upper = rule.upper if rule is not None else None
    if (lower is not None and number < lower) or (upper is not None and number > upper):
        return _refuse_type(subject, value, f"a number from {lower:g} to {upper:g}")
    step = rule.increment if rule is not None else None
    if step and (number - (lower or 0)) % step:
        return _refuse_type(subject, value, f"a multiple of {step:g}")
    return number


def _spell_in(rule: AttributeRule, value: str, bios: BiosSettings) -> str | None:
    """Return an enumeration's value by its name or label, as this service shows values.

    Supermicro's registry names values "0" and "1", and its attributes show the labels.
    """
    position = next(
        (i for names in (rule.values, rule.labels) for i, n in enumerate(names) if n == value), None
    )
    if position is None:
        return None
    current = (bios.current or {}).get(rule.name)
    by_label = current in rule.labels and current not in rule.values
    return rule.labels[position] if by_label else rule.values[position]


def _order(
    bios: BiosSettings, target: Mapping[str, Value]
) -> tuple[dict[str, Value], tuple[Blocker, ...]]:
    """Return the changes of one request, and why others cannot be among them."""
    current = bios.current or {}
    changes = {n: v for n, v in target.items() if not is_same(current.get(n), v)}
    registry = bios.registry
    if registry is None:
        return changes, ()
    locks = {n: lock for n in changes if (lock := find_lock(registry, n, current)) is not None}
    free = {n: v for n, v in changes.items() if n not in locks}
    after = predict(registry, current, free)
    refused = []
    for name, value in target.items():
        if is_same(after.get(name), value):
            continue
        if name in locks:
            refused.append(_refuse_locked(registry, name, locks[name], after))
        elif (writer := find_writer(registry, name, current, free)) is not None:
            refused.append(_refuse_written(name, value, after.get(name), writer))
    return free, tuple(refused)


def _refuse_locked(
    registry: AttributeRegistry, name: str, lock: str, after: Mapping[str, Value]
) -> Blocker:
    freed = find_lock(registry, name, after) is None
    remedy = (
        "It can be written after the boot that applies the others: put those in a set of their "
        "own, and name it under `via` of the edge to this one."
        if freed
        else "Pin the value that it waits for too, or leave it out of the set."
    )
    return _refuse(Reason.CONSTRAINT, name, lock, remedy)


def _refuse_written(name: str, value: Value, after: Value, writer: str) -> Blocker:
    return _refuse(
        Reason.CONSTRAINT,
        name,
        f"{writer} sets it to {after}, and the set has {value}",
        "Leave one of the two out of the set.",
    )


def _refuse_doubled(name: str, attribute: str, first: Value, second: Value) -> Blocker:
    return _refuse(
        Reason.CONSTRAINT,
        name,
        f"it sets {attribute} to {second}, and another setting of the set to {first}",
        "Leave one of the two out of the set.",
    )


def _refuse_value(subject: str, attribute: str, value: str, rule: AttributeRule) -> Blocker:
    listed = ", ".join(rule.labels[:16] or rule.values[:16])
    return _refuse(
        Reason.NOT_OFFERED,
        subject,
        f"{value} is no value of {attribute}; this machine has {listed}",
        "Pin one of these values.",
    )


def _refuse_type(subject: str, value: str, expected: str) -> Blocker:
    return _refuse(
        Reason.NOT_OFFERED, subject, f"{value[:60]} is not {expected}", f"Pin {expected}."
    )


def _refuse(reason: Reason, subject: str, detail: str, unblock: str) -> Blocker:
    return Blocker(reason=reason, subject=subject, detail=detail, unblock=unblock)


def _rule_of(attribute: str, bios: BiosSettings) -> AttributeRule | None:
    return bios.registry.rules.get(attribute) if bios.registry is not None else None


def _kind_of(value: Value) -> str:
    if isinstance(value, bool):
        return "Boolean"
    return "Integer" if isinstance(value, int | float) else "String"
