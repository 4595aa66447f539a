"""Compare a running version with its pin, in one way for planner, drift, API and console.

Versions are compared by the component's own grammar, never as text: 32.44.1036 and 32.44.1036.0 may
be one version, and devices print versions in many forms. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from provisioner import components
from provisioner.model.machine.drive_firmware import NVME_FIRMWARE, have_same_model, split_version
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


def select_target(kind: str, version: str | None, pin: Pin) -> str:
    """Return the pinned version that a part running `version` must have.

    A pin of drives has one for each model; "" if it has none for the model of this drive.
    """
    if kind != NVME_FIRMWARE or not pin.known:
        return pin.version
    names = (pin.version, *pin.also)
    return next((name for name in names if have_same_model(name, version or "")), "")


def judge_pin(kind: str, version: str | None, pin: Pin | None) -> PinVerdict:
    """Return whether the running version meets the pin, or why the two cannot be compared."""
    if pin is None:
        return PinVerdict(None, "not pinned")
    if not pin.known:
        return PinVerdict(None, "the pin is unknown: nobody publishes the version")
    if not version:
        return PinVerdict(None, "the device gives no version")
    if not select_target(kind, version, pin):
        model = split_version(version)[0] or version
        return PinVerdict(None, f"no firmware is pinned for drives of the model {model}")
    return PinVerdict(is_pinned(grammar_of(kind), version, pin))
