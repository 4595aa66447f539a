"""Judges a history: whether several daemons worked as one, by the devices' logs and the ledger.

It shares no code with what it judges, and asks for six things: that every physical act has
exactly one intent, made by its writer and within its window; that no two drivers interleave on a
node, nor two writers on a switch; that a daemon whose lease is over writes nothing, and that its
successor waits for what it had sent; that no operation is left without a driver; that a switch is
looked at by the one daemon that holds its shard, and never for long by none; and that every port
that entered a customer's VRF belongs to a node with a certificate that was valid then.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from math import inf

from history_log import History, Intent, Look, Taken, Write
from linear_check import check_calls

# Whatever left a daemon before it was ended arrives within this: the wire of the world takes 0.2 s.
ON_ITS_WAY_S = 0.5
# A request that was intended is on its way for so long, at least: the window in which it may be
# sent, and the shortest limit of one that changes something.
UNDER_WAY_S = 30.0
# A daemon that died is replaced within its lease, two looks of its peers and the sweep of the
# leader; a failover and a restart come on top.
UNDRIVEN_S = 90.0
# The interval of looks, and what a shard's successor takes as above.
UNLOOKED_S = 120.0 + UNDRIVEN_S
ACTS = frozenset({"push", "reset", "off", "image"})  # each has an intent
ABSOLUTE = frozenset({"off"})  # asking twice does nothing the second time
OF_DRIVER = ACTS | {"account", "play"}  # by the driver of the node; revisions are by turns
OF_SWITCH = frozenset({"revision", "change", "image"})


def check(history: History, window_s: float) -> list[str]:
    """Return every anomaly as a sentence; `window_s`: from an intent until its request arrives."""
    return [
        *history.violations,
        *_intents(history, window_s),
        *_drivers(history),
        *_turns(history),
        *_leases(history),
        *_successors(history),
        *_progress(history),
        *_looks(history),
        *_entries(history),
        *check_calls(history.calls),
    ]


def _fits(intent: Intent, write: Write) -> bool:
    """Whether a write is one that this intent announces."""
    action = intent.action
    if write.act == "image":
        word = "boot " if write.what in ("@boot-next", "@reboot") else "install "
        return action.startswith(word)
    if write.act in ("reset", "off"):
        return "cycle" in action or "boot" in action or "reset" in action or "power" in action
    return action.startswith("update ") and (not write.slot or write.slot in intent.slots)


def _intents(history: History, window_s: float) -> Iterator[str]:
    of_node: dict[str, list[Intent]] = defaultdict(list)
    for intent in history.intents:
        of_node[intent.node].append(intent)
    used: Counter[tuple[int, str]] = Counter()
    for write in history.writes:
        if write.act not in ACTS:
            continue
        open_ones = [
            i for i in of_node[write.device] if i.at <= write.at <= i.until and _fits(i, write)
        ]
        said = f"at {write.at:.1f} {write.writer} sent {write.what} to {write.device} {write.slot}"
        if len(open_ones) != 1:
            yield f"{said}: it has {len(open_ones)} open intents"
            continue
        [intent] = open_ones
        if intent.writer != write.writer:
            yield f"{said}: its intent is {intent.writer}'s ({intent.action})"
        if write.act == "push" and write.at - intent.at > window_s:
            yield f"{said}: {write.at - intent.at:.1f} s after its intent"
        key = (id(intent), write.what)
        used[key] += 1
        if used[key] > 1 and write.act not in ABSOLUTE:
            yield f"{said}: for the second time within one intent ({intent.action})"


def _drivers(history: History) -> Iterator[str]:
    """A write is its driver's; what a replaced driver had sent arrives before its successor's."""
    takes: dict[str, list[Taken]] = defaultdict(list)
    for taken in sorted(history.taken, key=lambda t: t.at):
        takes[taken.node].append(taken)
    wrote: dict[str, float] = {}  # node -> when its newest driver first wrote
    newest: dict[str, str] = {}
    for write in sorted(history.writes, key=lambda w: w.at):
        if write.act not in OF_DRIVER:
            continue
        mine = takes[write.device]
        number = bisect_right([t.at for t in mine], write.at)
        said = f"at {write.at:.1f} {write.writer} wrote {write.what} to {write.device}"
        if number == 0:
            yield f"{said}, which nobody drove"
            continue
        last = mine[number - 1]
        if newest.get(write.device) != f"{last.writer} {last.at}":
            newest[write.device] = f"{last.writer} {last.at}"
            wrote[write.device] = inf
        if last.writer == write.writer:
            wrote[write.device] = min(wrote[write.device], write.at)
            continue
        late = write.at - last.at > ON_ITS_WAY_S
        if late or wrote[write.device] <= write.at:
            yield f"{said}, which {last.writer} has driven since {last.at:.1f}"


def _turns(history: History) -> Iterator[str]:
    for write in history.writes:
        if write.act not in OF_SWITCH:
            continue
        said = f"at {write.at:.1f} {write.writer} wrote {write.what} to {write.device}"
        if not write.in_turn:
            yield f"{said} outside of any turn"
        gone = write.at - history.ended.get(write.writer, inf)
        if write.holder not in (write.writer, "") or (not write.holder and gone < 0):
            yield f"{said} in the turn of {write.holder or 'nobody'}"
        if write.holder == "" and gone > ON_ITS_WAY_S:
            yield f"{said} {gone:.1f} s after its end"
        if write.what == "new revision" and write.under_way:
            yield f"{said} while revision {write.under_way[0]} was being applied"


def _leases(history: History) -> Iterator[str]:
    """What a daemon's lease allowed is over with it, for every device, and for the rows."""
    for write in history.writes:
        gone = write.at - history.ended.get(write.writer, inf)
        if gone > ON_ITS_WAY_S:
            yield (
                f"at {write.at:.1f} {write.writer} wrote {write.what} to {write.device} "
                f"{gone:.1f} s after its lease had ended"
            )
    takes: dict[str, list[Taken]] = defaultdict(list)
    for taken in history.taken:
        takes[taken.node].append(taken)
    for intent in history.intents:
        last = [t for t in takes[intent.node] if t.at <= intent.at][-1:]
        if last and last[0].writer != intent.writer:
            yield (
                f"at {intent.at:.1f} {intent.writer} intended {intent.action} of {intent.node}, "
                f"which {last[0].writer} has driven since {last[0].at:.1f}"
            )


def _successors(history: History) -> Iterator[str]:
    """A successor looks at the device when nothing of its predecessor can be under way any more."""
    for settled in history.settled:
        waited = settled.at - settled.intended_at
        by_device = settled.action.startswith(("update ", "install ", "boot "))  # no playbook's run
        if by_device and settled.writer != settled.intended_by and waited < UNDER_WAY_S:
            yield (
                f"at {settled.at:.1f} {settled.writer} judged {settled.action} of {settled.node} "
                f"{waited:.1f} s after {settled.intended_by} had intended it"
            )


def _progress(history: History) -> Iterator[str]:
    for gap in history.undriven:
        if gap.until - gap.from_at > UNDRIVEN_S:
            yield (
                f"operation {gap.operation} of {gap.node} had no driver from {gap.from_at:.1f} to "
                f"{gap.until:.1f}, though a daemon could have driven it"
            )


def _looks(history: History) -> Iterator[str]:
    newest: dict[str, Look] = {}
    for look in sorted(history.looks, key=lambda one: one.at):
        over = history.ended.get(look.writer, inf)
        if look.at >= over:
            continue  # it sends nothing any more: `_leases` judges that
        said = f"at {look.at:.1f} {look.writer} looked at {look.switch}"
        if look.holder != look.writer:
            yield f"{said}, whose shard was {look.holder or 'nobody'}'s"
        if look.held_last != look.writer and look.until < over:
            yield f"{said} until its shard was {look.held_last or 'nobody'}'s"
        before = newest.get(look.switch)
        if before is not None and before.writer != look.writer:
            ended = min(before.until, history.ended.get(before.writer, inf))
            if look.at < ended:
                yield f"{said} while {before.writer} did"
        newest[look.switch] = look
    for switch, seconds in history.unlooked.items():
        if seconds > UNLOOKED_S:
            yield f"nobody looked at {switch} for {seconds:.0f} s, though a daemon could have"


def _entries(history: History) -> Iterator[str]:
    for entered in history.entered:
        held = [c for c in history.certified if c.node == entered.node]
        if not any(c.from_at <= entered.at <= c.until for c in held):
            yield (
                f"at {entered.at:.1f} {entered.port} of {entered.node or 'no node'} entered "
                f"{entered.vrf} without a valid certificate"
            )
