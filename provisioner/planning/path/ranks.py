"""The place of each component kind in the order of flashing, and kinds that go one at a time.

Among plans of equal cost the order of tracks decides. source: as `flash_order`.
"""

from __future__ import annotations

# kinds whose slots are written one at a time: six supplies at once leave the host without power
ONE_AT_A_TIME = frozenset({"host.psu"})

# by the beginning of a kind's name; the first that fits
_RANKS = (
    ("host.bmc", 0),
    ("host.erot", 1),
    ("host.cpld", 1),
    ("host.fpga", 1),
    ("host.", 2),
    ("hgx.", 3),
    ("", 4),  # cards, software and configuration
)


def get_rank(kind: str) -> int:
    """Return the place of a kind: BMC, roots of trust, motherboard tray, GPU tray, cards."""
    return next(rank for prefix, rank in _RANKS if kind.startswith(prefix))
