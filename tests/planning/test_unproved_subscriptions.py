"""Event subscriptions that deliver nothing are named, once they had time to be tried."""

from __future__ import annotations

from provisioner.integrations.site_examination.judging import PROVING_S, Standing, find_unproved
from provisioner.model.alert import Subscription

NOW = 10_000.0


def subscription(node: str, *, delivers: bool = False, age_s: float = 2 * PROVING_S):
    return Subscription(
        id=node, node=node, bmc="host", context="0" * 64, destination="https://d/e",
        delivers=delivers,
        made_at=NOW - age_s,
    )  # fmt: skip


def test_only_a_subscription_that_delivers_nothing_for_long_is_named() -> None:
    rows = (
        subscription("n1"),
        subscription("n2", delivers=True),
        subscription("n3", age_s=PROVING_S),
    )
    (one,) = find_unproved(rows, NOW)

    assert (one.area, one.subject, one.standing) == ("events", "n1/host", Standing.WARNING)
    assert one.remedy
