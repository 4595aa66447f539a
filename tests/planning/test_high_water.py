"""What a data directory's memory says of the database that it meets at a start."""

from __future__ import annotations

import pytest

from provisioner.model.recovery import DatabasePosition, HighWater
from provisioner.planning.watch.high_water import judge

KEPT = HighWater(site="s1", place="p1", count=100, journal_rows=40, journal_head="h40")
SAME = DatabasePosition(site="s1", count=100, head="h40", journal_rows=44)
SERVER = KEPT.model_copy(update={"server": "7/1", "timeline": 2})
ON_SERVER = SAME.model_copy(
    update={"server": "7/1", "recorded_server": "7/1", "timeline": 2, "recorded_timeline": 2}
)


def changed(look: DatabasePosition, **fields: object) -> DatabasePosition:
    return look.model_copy(update=fields)


GOOD = {
    "nothing is known of either": (None, DatabasePosition()),
    "the same database": (KEPT, SAME),
    "a crash between the commit and the file": (KEPT, changed(SAME, count=101)),
    "another directory joins on a server": (None, changed(ON_SERVER, count=None, other_places=2)),
    "a failover that lost nothing of ours": (SERVER, changed(ON_SERVER, timeline=3)),
}


@pytest.mark.parametrize("case", GOOD)
def test_a_database_with_everything_that_was_written_is_acted_upon(case: str) -> None:
    assert judge(*GOOD[case]).model_dump() == {"refused": "", "look_only": ()}


PROMOTED = changed(ON_SERVER, timeline=3, unconfirmed=("p2",))


def test_a_failover_waits_for_the_other_daemons_unless_commits_waited_for_a_standby() -> None:
    waited = SERVER.model_copy(update={"synchronous": True})

    assert judge(waited, PROMOTED).look_only == ()
    assert judge(SERVER, changed(PROMOTED, unconfirmed=())).look_only == ()
    assert "1 other daemons have not found" in judge(SERVER, PROMOTED).look_only[0]


LOST = {
    "an older copy": (KEPT, changed(SAME, count=97), "lacks the last 3 transactions"),
    "a journal that others went on with": (KEPT, changed(SAME, head="x"), "row 40 of the journal"),
    "a journal that ends before": (KEPT, changed(SAME, head=""), "row 40 of the journal"),
    "a copy from before we ever wrote": (KEPT, changed(SAME, count=None), "no row of this data"),
    "a copy of an older version": (KEPT, DatabasePosition(), "from before the time"),
    "a file that was moved here": (
        None,
        changed(SAME, count=None, other_places=1),
        "served from another data directory",
    ),
    "a dump on another server": (
        None,
        changed(ON_SERVER, count=None, server="8/1"),
        "onto another server",
    ),
    "a promotion that nobody here remembers from before": (
        None,
        changed(ON_SERVER, count=None, timeline=3),
        "was promoted",
    ),
    "a failover that lost writes": (SERVER, changed(ON_SERVER, timeline=3, count=99), "lacks"),
    "an earlier start saw it": (KEPT, changed(SAME, look_only="it was restored"), "was restored"),
}


@pytest.mark.parametrize("case", LOST)
def test_a_database_that_lost_writes_is_looked_at_only(case: str) -> None:
    kept, look, words = LOST[case]

    standing = judge(kept, look)

    assert standing.refused == ""
    assert words in " ".join(standing.look_only)


REFUSED = {
    "another database": (KEPT, changed(SAME, site="s2"), "belongs to the database s1"),
    "a former primary": (SERVER, changed(ON_SERVER, timeline=1), "former primary"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_database_that_is_another_or_an_older_one_is_refused_unless_a_person_asks(
    case: str,
) -> None:
    kept, look, words = REFUSED[case]

    assert words in judge(kept, look).refused
    asked = judge(kept, look, requested=True)
    assert asked.refused == ""
    assert "--restored" in asked.look_only[0]


def test_what_restore_left_behind_is_a_reason() -> None:
    assert judge(None, DatabasePosition(), restored="the backup of monday").look_only == (
        "the backup of monday",
    )
