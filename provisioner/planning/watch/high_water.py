"""Detection of lost writes in a database, after a restored backup or a failover. Pure.

An unexplained difference makes the daemon read-only, because a daemon that acts on old rows gives
one customer's disks to another.
"""

from __future__ import annotations

from provisioner.model.base import Record
from provisioner.model.recovery import DatabasePosition, HighWater


class Standing(Record):
    """The permitted use of a database. Both empty: no restriction."""

    refused: str = ""  # why it must not even be opened
    look_only: tuple[str, ...] = ()  # why no device may be written to


def judge(
    kept: HighWater | None, look: DatabasePosition, *, requested: bool = False, restored: str = ""
) -> Standing:
    """Judge the database by the data directory's record of it.

    `requested`: a person asked for read-only. `restored`: the note that `provisioner restore` left.
    """
    if not requested and kept is not None and (refusal := _refusal(kept, look)):
        return Standing(refused=refusal)
    reasons = ["a person asked for it (--restored)"] if requested else []
    reasons += [restored] if restored else []
    reasons += [look.look_only] if look.look_only else []
    reasons += _lost(kept, look) if kept is not None else _unknown(look)
    if not reasons and kept is not None and waits_for_others(kept, look):
        reasons.append(
            f"the server was promoted (timeline {look.timeline}), commits did not wait for a "
            f"standby, and {len(look.unconfirmed)} other daemons have not found their writes again"
        )
    if look.recorded_server and look.server != look.recorded_server:
        reasons.append(
            f"the database was restored onto another server: its rows name {look.recorded_server}, "
            f"this one is {look.server or 'a file'}"
        )
    return Standing(look_only=tuple(dict.fromkeys(reasons)))


def waits_for_others(kept: HighWater, look: DatabasePosition) -> bool:
    """Return whether a failover may have lost writes of other daemons that are not recorded here.

    Each daemon records only its own writes. Where commits waited for a standby none can be lost.
    """
    promoted = bool(look.recorded_timeline) and look.timeline > look.recorded_timeline
    return promoted and not kept.synchronous and bool(look.unconfirmed)


def _refusal(kept: HighWater, look: DatabasePosition) -> str:
    if look.site and look.site != kept.site:
        return (
            f"this data directory belongs to the database {kept.site[:12]}, "
            f"and this one is {look.site[:12]}"
        )
    if kept.server and look.server == kept.server and look.timeline < kept.timeline:
        return (
            f"the server is on timeline {look.timeline}, and this daemon has used timeline "
            f"{kept.timeline}: it is a former primary, which was replaced"
        )
    return ""


def _lost(kept: HighWater, look: DatabasePosition) -> list[str]:
    if not look.site:
        return ["the database is from before the time that this data directory remembers"]
    if look.count is None:
        return ["the database has no row of this data directory, which has written to it"]
    reasons = []
    if look.count < kept.count:
        missing = kept.count - look.count
        reasons.append(f"the database lacks the last {missing} transactions of this daemon")
    if look.head != kept.journal_head:
        reasons.append(
            f"row {kept.journal_rows} of the journal is not the one that this daemon knows "
            f"(the journal has {look.journal_rows} rows)"
        )
    return reasons


def _unknown(look: DatabasePosition) -> list[str]:
    if not look.server and look.site and look.other_places:
        return ["the database was served from another data directory, and this one knows nothing"]
    if look.recorded_timeline and look.timeline != look.recorded_timeline:
        promoted = f"timeline {look.timeline}, the rows name {look.recorded_timeline}"
        return [f"the server was promoted ({promoted}), and this data directory is new"]
    return []
