"""Compare a running version with its pin, in one way for planner, drift, API and console.

Versions are compared by the component's own grammar, never as text: 32.44.1036 and 32.44.1036.0 may
be one version, and devices print versions in many forms. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from provisioner import components
from provisioner.model.matrix import Pin
from provisioner.model.versions import is_same_version


@dataclass(frozen=True)
class PinVerdict:
    """The result of a comparison.

    `met` is None if nothing can be compared, and `why` gives the cause.
    """

    met: bool | None
    why: str = ""


def grammar_of(kind: str) -> str:
    """Return the name of the grammar of a component's versions."""
    declared = components.ALL.get(kind)
    return "opaque" if declared is None else declared.grammar


def is_pinned(grammar: str, version: str, pin: Pin) -> bool:
    """Return whether a version is the pinned one or another that the pin approves."""
    return any(is_same_version(grammar, version, name) for name in (pin.version, *pin.also))


def judge_pin(kind: str, version: str | None, pin: Pin | None) -> PinVerdict:
    """Return whether the running version meets the pin, or why the two cannot be compared."""
    if pin is None:
        return PinVerdict(None, "not pinned")
    if not pin.known:
        return PinVerdict(None, "the pin is unknown: nobody publishes the version")
    if not version:
        return PinVerdict(None, "the device gives no version")
    return PinVerdict(is_pinned(grammar_of(kind), version, pin))
