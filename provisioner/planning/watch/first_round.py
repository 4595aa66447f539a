"""The pace of a first round: after a start every BMC is read once, whatever it reports by itself.

A budget that suits a fleet of BMCs that send events is too small for that: reading 720,896 of them
would take a day. The first round gets requests of its own beside it, as many as end it in time.
"""

from __future__ import annotations

# Of a BMC that was not read since the start: a login, the way to its system and to its event
# service, and a subscription that is looked at or made. The simulated ones take six or seven.
FIRST_REQUESTS = 8


def compute_extra_rate(bmcs: int, first_s: float, per_s: float) -> float:
    """Return the requests a second that a first round over these BMCs needs above the budget.

    It ends within `first_s` seconds; 0: whenever the budget allows.
    """
    if first_s <= 0:
        return 0.0
    return max(0.0, bmcs * FIRST_REQUESTS / first_s - per_s)
