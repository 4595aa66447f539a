"""A cold reboot of a rack: hosts off, every shelf off, silence proved, shelves on, hosts on.

Pure. Before the shelves go off, every tray has to come back with its host off (restore policy
AlwaysOff, read back): what is wet by then must get no power by itself. A wet tray stays off, and
so does what nobody can read. NVIDIA's guide (control-config) waits 3 to 5 minutes for the charge to
go; here each BMC has to be silent as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from provisioner.integrations.racks.update_log import ActLog
from provisioner.integrations.racks.update_steps import (
    BUSY_MAX_S,
    POWER_MAX_S,
    Do,
    Next,
    done,
    fail,
    is_spent,
    note,
    send,
    wait,
)
from provisioner.model.outcome import Reason

DISCHARGE_S = 300.0
SILENT_MAX_S = 900.0
BACK_MAX_S = 1200.0
_SILENCE = ("silent", "heard")


@dataclass(frozen=True)
class RackView:
    """A rack as it reads now. Names of units; what is missing in a mapping was not read."""

    trays: Sequence[str]
    shelves: Sequence[str]
    power: Mapping[str, str] = field(default_factory=dict)  # of trays and shelves
    policy: Mapping[str, str] = field(default_factory=dict)
    answering: frozenset[str] = frozenset()  # trays and switches whose BMC answers
    with_bmc: frozenset[str] = frozenset()  # those that have one
    refused: Mapping[str, str] = field(default_factory=dict)  # tray: why it gets no power
    running: Mapping[str, str] = field(default_factory=dict)  # unit: a flash, or that nobody knows
    powered: Mapping[str, str] = field(default_factory=dict)  # switch that must get none: why
    strange: Mapping[str, str] = field(default_factory=dict)  # unit that is not the planned one
    building: str = ""  # what its sensors do not say: that the rack is dry


def decide_reboot(view: RackView, log: ActLog, now: float) -> Next:
    """Return the next step; "host-off:t0" and the like name the unit that is written to."""
    if not log.noted("dark"):
        return _go_down(view, log, now)
    held = _find_powered(view)
    if held is not None and not log.noted("back"):
        return held  # the shelves stay off: they would power it
    if (step := _shelves(view, log, now, "On")) is not None:
        return step
    missing = sorted(view.with_bmc - view.answering)
    if missing and not log.noted("back"):
        if log.since(f"shelf-On:{view.shelves[-1]}", now) < BACK_MAX_S:
            return wait(f"for {missing[0]} and {len(missing) - 1} more to answer")
        return note("back", f"{', '.join(missing[:4])} did not come back")
    if not log.noted("back"):
        return note("back", "every BMC answers")
    return _bring_up(view, log, now)


def _go_down(view: RackView, log: ActLog, now: float) -> Next:
    """Hosts off with a policy that keeps them off, shelves off, and silence for long enough."""
    if not any(log.count(f"shelf-Off:{name}") for name in view.shelves):
        if (held := _find_held(view, log, now)) is not None:
            return held
        for name in view.trays:
            if (step := _rest_tray(name, view, log, now)) is not None:
                return step
    if (step := _shelves(view, log, now, "Off")) is not None:
        return step
    last = f"shelf-Off:{view.shelves[-1]}"
    if view.answering:
        if log.last_note(_SILENCE) == "silent":
            return note("heard", f"{min(view.answering)} answers again")
        if log.since(last, now) < SILENT_MAX_S:
            return wait(f"for {min(view.answering)} to be silent")
        why = f"{min(view.answering)} answers with every shelf off: something else feeds it"
        return fail(Reason.POWER, why)
    if log.last_note(_SILENCE) != "silent":
        return note("silent", str(now))
    if now - float(log.note("silent")) < DISCHARGE_S:
        return wait("for the charge to go")
    return note("dark", "every BMC was silent for long enough")


def _find_held(view: RackView, log: ActLog, now: float) -> Next | None:
    """Return what keeps the rack from going down: what would not come back, a flash, a switch."""
    for name, why in view.strange.items():
        return fail(Reason.NOT_EXPECTED, f"{name}: {why}")  # it would get no power again
    mute = [name for name in view.shelves if name not in view.power]
    why = "does not say whether it is on: nobody could tell that it went off"
    why = f"{mute[0]} {why}" if mute else ""
    if (step := _listen("", why, Reason.CANNOT_TELL, log, now)) is not None:
        return step
    if (held := _find_powered(view)) is not None:
        return held
    for unit, why in view.running.items():
        if not log.noted("busy"):
            return note("busy", str(now))
        if now - float(log.note("busy")) > BUSY_MAX_S:
            return fail(Reason.BUSY, f"{unit}: {why}")
        return wait(f"{unit}: {why}")
    return None


def _listen(who: str, why: str, reason: Reason, log: ActLog, now: float) -> Next | None:
    """Wait for what a unit did not answer, for a quarter of an hour: one answer that is lost ends
    nothing, with hosts off. `why` "": it answers.
    """
    mute = f"mute{who}"
    told = f"told{who}"
    last = log.last_note((mute, told))
    if not why:
        return note(told) if last == mute else None
    if last != mute:
        return note(mute, str(now))
    return wait(why) if now - float(log.note(mute)) < SILENT_MAX_S else fail(reason, why)


def _find_powered(view: RackView) -> Next | None:
    """Return why no shelf may come on: nobody knows how a switch is kept off while one is."""
    for name, why in view.powered.items():
        detail = f"{name} ({why}) would get power with the shelves, and has to stay off"
        return fail(Reason.LEAK, detail)
    return wait(view.building) if view.building else None


def _rest_tray(name: str, view: RackView, log: ActLog, now: float) -> Next | None:
    """Return what a tray still needs before its power may be cut."""
    read = name in view.power and name in view.policy
    why = "" if read else f"{name} was not read: it could come back on by itself"
    if (step := _listen(f":{name}", why, Reason.UNREACHABLE, log, now)) is not None:
        return step
    if view.policy[name] != "AlwaysOff":
        if is_spent(log, f"policy-off:{name}"):
            return fail(Reason.REFUSED, f"{name}: its restore policy stays {view.policy[name]}")
        return send(f"policy-off:{name}", view.policy[name])
    if view.power[name] == "Off":
        return None
    what = f"host-off:{name}"
    if log.count(what) and log.since(what, now) < POWER_MAX_S:
        return wait(f"for {name} to be off")
    if is_spent(log, what):
        return fail(Reason.POWER, f"{name} says {view.power[name]} after it was switched off")
    return send(what)


def _shelves(view: RackView, log: ActLog, now: float, wanted: str) -> Next | None:
    """Return the next shelf's step; each is read back before the next one is asked."""
    for name in view.shelves:
        what = f"shelf-{wanted}:{name}"
        if log.noted(what):
            continue
        if view.power.get(name) == wanted:
            if log.count(what):
                return note(what, f"{name} is {wanted}")
            return send(what) if wanted == "Off" else note(what, f"{name} is on")
        if not log.count(what):
            return send(what)
        if log.since(what, now) < POWER_MAX_S:
            return wait(f"for {name} to be {wanted}")
        said = view.power.get(name, "nothing")
        if said in ("On", "Off") and not is_spent(log, what):
            return send(what, f"it still says {said}")
        return fail(Reason.POWER, f"{name} says {said} and has to be {wanted}")
    return None


def _bring_up(view: RackView, log: ActLog, now: float) -> Next:
    """Hosts on, where all is dry and proved; the policies as they were. What is held is named."""
    held: list[str] = []
    for name in view.trays:
        if name in view.refused or name not in view.power:
            held.append(f"{name}: {view.refused.get(name, 'it was not read')}")
            continue
        before = log.detail(f"policy-off:{name}")
        if before and view.policy.get(name) == "AlwaysOff":
            if not is_spent(log, f"policy-back:{name}"):
                return send(f"policy-back:{name}", before)
            held.append(f"{name}: its restore policy stays AlwaysOff")
        if view.power[name] == "On":
            continue
        what = f"host-on:{name}"
        if log.count(what) and log.since(what, now) < POWER_MAX_S:
            return wait(f"for {name} to be on")
        if not is_spent(log, what):
            return send(what)
        held.append(f"{name}: it says {view.power[name]} after it was switched on")
    silent = sorted(view.with_bmc.intersection(view.trays) - view.answering) if held else []
    if silent and not log.noted("mute:up"):
        return note("mute:up", str(now))  # what is held may be an answer that was lost
    if silent and now - float(log.note("mute:up")) < SILENT_MAX_S:
        return wait(f"for {silent[0]} to answer")
    if held:
        return Next(Do.FAIL, why="; ".join(held[:6]), reason=Reason.LEAK)
    return done("every host of the rack is on")
