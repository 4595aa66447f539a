"""The next step of a power shelf's act: both flashes of its controller, and one supply after the
other. Pure; the rules are those of `update_steps`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from provisioner.integrations.racks.update_log import ActLog
from provisioner.integrations.racks.update_packages import (
    FLASHES,
    SECOND_FLASH,
    Package,
    find_missed,
)
from provisioner.integrations.racks.update_steps import (
    BACK_MAX_S,
    POWER_MAX_S,
    PUSH_MAX_S,
    Do,
    Next,
    TaskSeen,
    done,
    fail,
    is_spent,
    judge_push,
    note,
    send,
    tell_silent,
    wait,
)
from provisioner.model.outcome import Reason

_UNSEEN = TaskSeen()


@dataclass(frozen=True)
class ShelfView:
    """A power shelf as it reads now, and what else its rack shows."""

    reachable: bool
    pushing: bool = False  # by its task, and nothing else was read
    part_number: str = ""
    selector: str | None = None  # None: it shows none
    apply_time: str | None = None
    push: bool = False  # it takes files
    targets: Sequence[str] | None = None  # None: it offers no choice of what is written
    versions: Mapping[str, str] = field(default_factory=dict)
    supplies_bad: Sequence[str] = ()  # of the whole rack: off, ill, or unread
    unread: Sequence[str] = ()  # shelves and hosts of the rack that gave no answer just now
    hosts_on: Sequence[str] | None = None  # of the whole rack; None: not all were read
    task: TaskSeen = _UNSEEN
    tasks: int | None = None
    running: Sequence[str] | None = None


SHELF_BACK_S = 600.0
_READING = ("unread", "read")


def decide_flash(package: Package, flash: str, view: ShelfView, log: ActLog, now: float) -> Next:
    """Return the next step of writing one flash of a shelf's controller; the other one is left.

    Whatever comes of it, the selector is put back on Primary before this ends.
    """
    if not view.reachable:
        if log.count("push") and log.since("push", now) < SHELF_BACK_S + PUSH_MAX_S:
            return wait("for its controller")
        return tell_silent() if log.noted("silent-long") else wait("for its controller")
    if log.noted("end"):
        end = fail(Reason.UPDATE_FAILED, log.note("end"))
    else:
        end = _judge_flash(package, flash, view, log, now)
    if end.do in (Do.DONE, Do.FAIL) and view.selector not in (None, "Primary"):
        if end.do is Do.FAIL and not log.noted("end"):
            return note("end", end.why)  # once the selector is back, the cause would not be seen
        if not is_spent(log, "select:Primary"):
            return send("select:Primary", "the selector goes back before anything else")
        return fail(Reason.REFUSED, f"its flash selector stays on {view.selector}")
    return end


def _judge_flash(package: Package, flash: str, view: ShelfView, log: ActLog, now: float) -> Next:
    if package.part_numbers and view.part_number not in package.part_numbers:
        known = ", ".join(package.part_numbers)
        said = view.part_number or "not said"
        return fail(Reason.NOT_EXPECTED, f"its part number is {said}; the files are for {known}")
    second = flash == "Backup"
    if second and view.selector is None:
        if SECOND_FLASH in view.versions:
            return fail(Reason.NOT_OFFERED, "it lists a second flash, and no selector")
        return done("it shows no second flash")
    own = {p: allowed for p, allowed in package.versions.items() if p != SECOND_FLASH}
    wanted = package.model_copy(update={"versions": own})
    if second:
        wanted = _narrow(package, SECOND_FLASH)
    if not any(wanted.versions.values()):
        why = f"no version of its {flash.lower()} flash is pinned: name it in the package"
        return fail(Reason.CANNOT_TELL, f"{why}'s `versions` ({', '.join(FLASHES)})")
    shown = {i: v for i, v in view.versions.items() if (i == SECOND_FLASH) == second}
    missed = list(find_missed(wanted, shown))
    if not log.count("push"):
        if not missed:
            return done("it runs already")
        return _prepare_flash(flash, view, log) or send("push")
    if (going := judge_push(view.task, view.tasks, view.running, log, now)) is not None:
        return going
    if not missed:
        return done("written")
    if log.since("push", now) < SHELF_BACK_S + PUSH_MAX_S / 4:
        return wait(f"for its version: {missed[0]}")
    return fail(Reason.NOT_ACTIVATED, missed[0])


def _narrow(package: Package, ident: str) -> Package:
    """Return a package with the versions alone that it allows for one inventory id."""
    named = package.versions.items()
    allowed = [version for each, own in named if fnmatchcase(ident, each) for version in own]
    return package.model_copy(update={"versions": {ident: tuple(allowed)}})


def _prepare_flash(flash: str, view: ShelfView, log: ActLog) -> Next | None:
    if not view.push:
        return fail(Reason.NOT_OFFERED, "it takes no files (no HttpPushUri)")
    if view.running is None:
        return wait("until its tasks can be read")
    if view.running:
        return wait(f"for the end of {view.running[0]}")
    if view.selector is not None and view.selector != flash:
        if is_spent(log, f"select:{flash}"):
            return fail(Reason.REFUSED, f"its flash selector stays on {view.selector}")
        return send(f"select:{flash}")
    if view.apply_time not in (None, "Immediate"):  # the default is OnReset; one guide prints both
        if is_spent(log, "apply-now"):
            return fail(Reason.REFUSED, f"its apply time stays {view.apply_time}")
        return send("apply-now")
    return None


def decide_supply(package: Package, number: int, view: ShelfView, log: ActLog, now: float) -> Next:
    """Return the next step of writing one supply, while no other one is out and no host is on."""
    ident = f"FW_PSU_{number}"
    wanted = _narrow(package, ident)
    if not view.reachable:
        return tell_silent() if log.noted("silent-long") else wait("for its controller")
    missed = list(find_missed(wanted, view.versions))
    if log.count("push"):
        if (going := judge_push(view.task, view.tasks, view.running, log, now)) is not None:
            return going
        if not missed and not view.supplies_bad:
            return done("it runs, and every supply of the rack gives power")
        if log.since("push", now) < SHELF_BACK_S + PUSH_MAX_S / 4:
            return wait((missed or [f"{view.supplies_bad[0]} is out"])[0])
        return fail(Reason.NOT_ACTIVATED, (missed or [f"{view.supplies_bad[0]} stays out"])[0])
    if not missed:
        return done("it runs already")
    return _clear_rack(view, log, now) or _choose_supply(ident, view, log)


def _clear_rack(view: ShelfView, log: ActLog, now: float) -> Next | None:
    """Return what has to be so before a supply goes out: all others well, and no host on."""
    if view.unread or view.hosts_on is None:
        return _await_reading(
            (*view.unread, "not every host of the rack could be read")[0], log, now
        )
    if log.last_note(_READING) == "unread":
        return note("read")
    if view.supplies_bad:
        return fail(
            Reason.PRECONDITION, f"{view.supplies_bad[0]}: no other one may go out beside it"
        )
    if view.hosts_on:  # its domain is drained: nobody uses them
        if log.count("hosts-off") and log.since("hosts-off", now) < POWER_MAX_S:
            return wait(f"for {view.hosts_on[0]} to be off")
        if not is_spent(log, "hosts-off"):  # a death in its middle leaves the others on
            return send("hosts-off")
        return fail(Reason.PRECONDITION, f"the rack is loaded: {view.hosts_on[0]} stays on")
    return None


def _await_reading(unread: str, log: ActLog, now: float) -> Next:
    """One answer that is lost ends nothing: another client may have the BMC's connections."""
    if log.last_note(_READING) != "unread":
        return note("unread", str(now))
    if now - float(log.note("unread")) < BACK_MAX_S:
        return wait(unread)
    return fail(Reason.CANNOT_TELL, unread)


def _choose_supply(ident: str, view: ShelfView, log: ActLog) -> Next:
    if view.targets is None:
        why = "it offers no choice of one supply, and nobody publishes how to write one alone"
        return fail(Reason.NOT_OFFERED, why)
    if not any(each.endswith(f"/{ident}") for each in view.targets):
        if is_spent(log, "target"):
            return fail(Reason.REFUSED, f"it does not keep {ident} as its only target")
        return send("target")
    return _prepare_flash("", ShelfView(**{**vars(view), "selector": None}), log) or send("push")
