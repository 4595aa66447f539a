"""Which daemon may begin a turn with a node, as the journal of several daemons says.

A turn is begun by the daemon that took the node's operation last and is still there. Ports that the
watch of leaves found are fenced by the daemon that leads, beside the driver of their node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from handover_faults import Label
from handover_state import Size, State

if TYPE_CHECKING:
    from handover_trace import Entry

# entries that are no step of the model
DUTIES = frozenset(("taken", "ended", "leads", "started"))
FENCES = frozenset(("begin fence", "fence beside"))
BEGINNINGS = FENCES | {
    "skip fence", "erase", "certify", "converge", "begin release", "quarantine",
}  # fmt: skip
WATCHES = frozenset(("note", "take back", "withdraw", "reclaim"))  # of no daemon in the model


class Duties:
    """Drivers, leader and daemons that are gone; of one daemon alone nothing is recorded."""

    def __init__(self, size: Size) -> None:
        self._recorded = size.daemons > 1
        self._unknown = size.unknown
        self._drivers: dict[int, int | None] = {}
        self._leader: int | None = None
        self._gone: set[int] = set()

    def change(self, entry: Entry) -> bool:
        """Take one entry; return whether it may be: a driver that is there is never replaced."""
        daemon = entry.number
        match entry.kind:
            case "taken" if self._drivers.get(entry.number, entry.by) != entry.by:
                return False
            case "taken":
                self._drivers[entry.number] = entry.by
            case "ended":
                self._drivers.pop(entry.number, None)
            case "leads":
                self._leader = daemon
            case "started":
                self._gone.discard(daemon)
            case "crashed" | "expired":
                self._gone.add(daemon)
                self._leader = None if self._leader == daemon else self._leader
                for node in [n for n, driver in self._drivers.items() if driver == daemon]:
                    del self._drivers[node]
        return True

    def allow(self, label: Label, state: State) -> bool:
        """Return whether the daemon of a step may take it."""
        if not self._recorded or label[0] not in BEGINNINGS:
            return True
        daemon, number = label[1:3]
        if daemon in self._gone:
            return False
        noted = state.nodes[number].owed == self._unknown
        leads = noted and daemon == self._leader and label[0] in FENCES
        return leads or self._drivers.get(number) == daemon


def is_by(label: Label, entry: Entry) -> bool:
    """Return whether a step that writes a row is one of its writer, on its node."""
    if label[0] in WATCHES:
        by_people = label[0] == "reclaim"
        return label[1] == entry.number and (entry.by is None or by_people == (entry.by < 0))
    return label[0] != "end" and label[2] == entry.number and entry.by in (None, label[1])
