"""Effects of a registry's dependencies: attributes that are locked, and that change with others.

Half of the attributes of a PowerEdge are read-only under some value of another one, and a profile
writes attributes itself when it is chosen. Both are predicted from the registry's maps before
anything is sent. A map of `CurrentValue` acts when one of its attributes changes, and not at other
times: on a captured R750, 21 of 45 maps whose terms hold do not agree with the running value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from provisioner.model.machine.settings import (
    AttributeRegistry,
    Dependency,
    DependencyTerm,
    Value,
)

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
