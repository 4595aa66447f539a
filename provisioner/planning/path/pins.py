"""Whether a running version is the pinned one: one answer for planner, drift, API and console.

Versions are compared by the component's own grammar, never as text: 32.44.1036 and 32.44.1036.0 may
be one version, and a device prints what it likes. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from provisioner import components
from provisioner.model.matrix import Pin
from provisioner.model.versions import equal


@dataclass(frozen=True)
class PinVerdict:
    """`met` is None where nothing can be compared; `why` says then what is missing."""

    met: bool | None
    why: str = ""


def grammar_of(kind: str) -> str:
    """Return the name of the grammar of a component's versions."""
    declared = components.ALL.get(kind)
    return "opaque" if declared is None else declared.grammar


def is_pinned(grammar: str, version: str, pin: Pin) -> bool:
    """Return whether a version is the pinned one or another that the pin approves."""
    return any(equal(grammar, version, name) for name in (pin.version, *pin.also))


def judge_pin(kind: str, version: str | None, pin: Pin | None) -> PinVerdict:
    """Return whether what runs is what the pin asks for."""
    if pin is None:
        return PinVerdict(None, "not pinned")
    if not pin.known:
        return PinVerdict(None, "the pin is unknown: nobody publishes the version")
    if not version:
        return PinVerdict(None, "the device gives no version")
    return PinVerdict(is_pinned(grammar_of(kind), version, pin))
