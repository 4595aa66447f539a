"""A device's pins as one text: the fingerprint of its certificate, or of each that it may present.

More than one is stored only while the certificate is exchanged: the first one was in force before.
"""

from __future__ import annotations

PINS_MAX = 6  # attempts at an exchange whose outcome stayed open, and the one in force before


def split_pins(text: str) -> tuple[str, ...]:
    """Return the fingerprints, in lowercase hex without colons."""
    return tuple(pin.strip().replace(":", "").lower() for pin in text.split(",") if pin.strip())


def add_pin(text: str, new: str) -> str:
    """Return the pins with one more; of too many, the oldest behind the first is given up."""
    pins = [pin for pin in split_pins(text) if pin != new]
    if len(pins) >= PINS_MAX:
        del pins[1]
    return ",".join((*pins, new))
