"""The next step of one act of a rack's update, by what the unit shows now and what was sent. Pure.

Nothing is sent twice unless the unit shows that the first one had no effect; where it cannot show
it, a person decides. A task's percentage proves nothing, nor does its disappearance: versions do.
Limits are those of NVIDIA's factory flow (NVIDIA/open-nvfwupd) and of public tools, rounded up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from provisioner.integrations.racks.update_log import ActLog
from provisioner.integrations.racks.update_packages import Package, find_missed
from provisioner.model.outcome import Reason

PUSH_MAX_S = 7200.0  # a push takes 14 minutes; a percentage of 0 for 20 minutes is seen
SETTLE_S = 120.0  # until a push whose answer was lost would show a task
COPY_MAX_S = 1800.0  # a copy takes up to 20 minutes
BUSY_MAX_S = 7200.0
BACK_MAX_S = 900.0  # a BMC needs up to 5 minutes after an aux cycle, its HMC as long again
POWER_MAX_S = 180.0
CYCLE_SEEN_S = 300.0  # in which a BMC that was cut goes silent
TRIES = 2
PUSHING = "for the end of its push"
NEVER_ARRIVED_MAX = 5  # of a push of which its BMC shows nothing: each is as good as none


class Do(StrEnum):
    """What becomes of an act in this round."""

    SEND = "send"
    NOTE = "note"  # something is over, and is remembered
    WAIT = "wait"
    DONE = "done"
    FAIL = "fail"


@dataclass(frozen=True)
class Next:
    """The next step: `what` is the write to be sent; `why` a sentence for a person."""

    do: Do
    what: str = ""
    why: str = ""
    reason: Reason = Reason.UPDATE_FAILED


@dataclass(frozen=True)
class TaskSeen:
    """A task as it reads now. `known`: it was found, and says a state that is one."""

    known: bool = False
    ended: bool = False
    failed: str = ""


@dataclass(frozen=True)
class TrayView:
    """A compute tray as it reads now; None for what was not read."""

    reachable: bool
    pushing: bool = False  # by its task, and nothing else was read
    power: str = "Unknown"
    policy: str = ""
    hmc: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)
    copying: bool | None = None
    tasks: int | None = None  # those that it lists, ended ones too, by `mark_tasks`
    running: Sequence[str] | None = None
    task: TaskSeen = TaskSeen()


def send(what: str, why: str = "") -> Next:
    return Next(Do.SEND, what, why)


def note(what: str, why: str = "") -> Next:
    return Next(Do.NOTE, what, why)


def wait(why: str) -> Next:
    return Next(Do.WAIT, why=why)


def done(why: str = "") -> Next:
    return Next(Do.DONE, why=why)


def fail(reason: Reason, why: str) -> Next:
    return Next(Do.FAIL, why=why, reason=reason)


def is_spent(log: ActLog, what: str) -> bool:
    """Return whether a write that the unit shows to have had no effect may not be sent again.

    One that was answered gets a second try; one whose answer nobody knows may never have been sent.
    """
    most = TRIES if log.told(what) is not None else NEVER_ARRIVED_MAX
    return log.count(what) >= most


def missed_of(packages: Sequence[Package], versions: Mapping[str, str]) -> list[str]:
    return [each for package in packages for each in find_missed(package, versions)]


# ------------------------------------------------------------------------------
# A compute tray: two bundles, one after the other, the copies behind them, and the power cycle.


def decide_bundle(
    package: Package, view: TrayView, log: ActLog, now: float, *, baseboard: bool
) -> Next:
    """Return the next step of writing a tray's bundle; it is staged when this is done.

    The host's bundle goes first, and its BMC is restarted behind it. Where the HMC stays away
    after that, one aux cycle may bring it back; nothing is pushed to the baseboard without it.
    """
    if not view.reachable:
        return _await_return(log, now, ("push", "bmc-reset", "ac"))
    if not log.count("push"):
        if not list(find_missed(package, view.versions)):
            return done("every version runs already")
        if baseboard and not view.hmc:
            return fail(Reason.UNREACHABLE, "its HMC does not answer, so nothing is pushed to it")
        return find_busy(view, log, now) or send("push")
    reset = log.count("bmc-reset")  # it ended before: a BMC that restarts forgets its tasks
    going = None if reset else judge_push(view.task, view.tasks, view.running, log, now)
    if going is not None:
        return going
    if baseboard:
        return done("staged")
    if not reset:
        return find_busy(view, log, now) or send("bmc-reset")
    if view.hmc:
        return done("staged")
    last = "ac" if log.count("ac") else "bmc-reset"
    if log.since(last, now) < BACK_MAX_S:
        return wait("for its HMC")
    if log.count("ac"):
        why = "its HMC did not come back after a reset of the BMC and an aux cycle"
        return fail(Reason.UNREACHABLE, why)
    return find_busy(view, log, now) or _before_cycle(view, log, now) or send("ac")


def _await_return(log: ActLog, now: float, writes: Sequence[str]) -> Next:
    """Wait for a BMC that is silent, as long as what was sent last may explain it."""
    ages = [log.since(each, now) for each in writes if log.count(each)]
    if ages and min(ages) < BACK_MAX_S:
        return wait("for its BMC")
    if not ages:
        return wait("for its BMC") if not log.noted("silent-long") else tell_silent()
    return tell_silent()


def tell_silent() -> Next:
    """Return the end of an act whose BMC says nothing."""
    return fail(Reason.UNREACHABLE, "its BMC does not answer")


def find_busy(view: TrayView, log: ActLog, now: float) -> Next | None:
    """Return why nothing may be written or cycled now: another task, or a copy of a flash."""
    if view.running is None or view.copying is None:
        return wait("until what runs on it can be read")
    if view.running:
        return wait(f"for the end of {view.running[0]}")
    if view.copying:
        begun = log.note("copy")
        if begun and now - float(begun) > COPY_MAX_S:
            return fail(Reason.BUSY, f"a copy of its firmware runs for over {COPY_MAX_S:.0f} s")
        return wait("for the copy of its firmware")
    return None


def judge_push(
    task: TaskSeen,
    tasks: int | None,
    running: Sequence[str] | None,
    log: ActLog,
    now: float,
    what: str = "push",
) -> Next | None:
    """Return what a push still needs; None: it is over, and versions have to tell the rest."""
    if task.failed:
        interrupted = log.noted("wet", what) and log.noted("cleared", what)
        if interrupted and log.count(what) <= TRIES:
            return send(what, "coolant interrupted it, and all was read again")
        return fail(Reason.UPDATE_FAILED, task.failed)
    if task.known and task.ended:
        return None
    age = log.since(what, now)
    if running is None or tasks is None:
        return wait("until its tasks can be read")
    if (task.known or running) and age < PUSH_MAX_S:
        return wait(PUSHING)
    if running:
        return fail(Reason.UPDATE_STALLED, f"its push did not end in {PUSH_MAX_S:.0f} s")
    if age < SETTLE_S:
        return wait("whether its push shows a task")
    before = log.detail(what)
    arrived = log.told(what) is not None or not before.isdigit() or tasks != int(before)
    if not arrived:  # its BMC lists the same tasks as before: it never came
        if log.count(what) > NEVER_ARRIVED_MAX:
            return fail(Reason.ATTEMPTS_EXHAUSTED, "its BMC begins no push")
        return send(what, "the first one never arrived")
    return None


def decide_copy(view: TrayView, log: ActLog, now: float) -> Next:
    """Return the next step of waiting for the copies of roots of trust."""
    if not view.reachable:
        return _await_return(log, now, ())
    return find_busy(view, log, now) or done()


def _before_cycle(view: TrayView, log: ActLog, now: float) -> Next | None:
    """Return what has to be so before standby power is cut: host off, and it stays off after it."""
    if view.policy not in ("", "AlwaysOff"):
        if is_spent(log, "policy-off"):
            return fail(Reason.REFUSED, f"its restore policy stays {view.policy}")
        return send("policy-off")
    if view.power == "Off":
        return None
    if log.count("off") and log.since("off", now) < POWER_MAX_S:
        return wait("for its host to be off")
    if is_spent(log, "off"):
        return fail(Reason.POWER, f"its host says {view.power} after it was switched off")
    return send("off")


def decide_activate(packages: Sequence[Package], view: TrayView, log: ActLog, now: float) -> Next:
    """Return the next step of a tray's power cycle, up to the proof by versions and power on."""
    if not view.reachable:
        return _await_return(log, now, ("off", "ac", "on"))
    missed = missed_of(packages, view.versions)
    cycled = log.count("ac")
    if not missed and view.hmc:
        return _bring_back(view, log, now) if cycled else done("every version runs already")
    if cycled and log.told("ac") is not None and log.told("ac") != "":
        if cycled >= TRIES:
            return fail(Reason.REFUSED, f"the aux cycle: {log.told('ac')}")
    elif cycled and not log.noted("silent", "ac"):
        if log.since("ac", now) < CYCLE_SEEN_S:
            return wait("whether it was cut")
        if log.told("ac") is not None or is_spent(log, "ac"):
            why = "the aux cycle was sent, and the BMC was never silent: nobody knows what it did"
            return fail(Reason.CANNOT_TELL, why)
    elif cycled and log.since("ac", now) < BACK_MAX_S:
        return wait(f"for its versions: {missed[0] if missed else 'its HMC is away'}")
    elif cycled >= TRIES:
        why = "; ".join(missed[:4]) or "its HMC did not come back"
        return fail(Reason.NOT_ACTIVATED, why)
    return find_busy(view, log, now) or _before_cycle(view, log, now) or send("ac")


def _bring_back(view: TrayView, log: ActLog, now: float) -> Next:
    """Return what is left after the versions are proved: the restore policy, and power."""
    if log.count("policy-off") and view.policy == "AlwaysOff":
        if is_spent(log, "policy-back"):
            return fail(Reason.REFUSED, "its restore policy stays AlwaysOff")
        return send("policy-back")
    if view.power == "On":
        return done("every version runs")
    if log.count("on") and log.since("on", now) < POWER_MAX_S:
        return wait("for its host to be on")
    if not is_spent(log, "on"):
        return send("on")
    return fail(Reason.POWER, f"its host says {view.power} after it was switched on")


# ------------------------------------------------------------------------------
# An NVLink switch: NVOS where it answers, its BMC where it does not.


class Nvos(StrEnum):
    """How NVOS answers."""

    OK = "ok"
    REFUSED = "refused"  # it does not take our password
    FACTORY = "factory"  # it takes the password that it is delivered with
    RESTING = "resting"  # ours was refused, and is not shown to it again so soon
    SILENT = "silent"


class Job(StrEnum):
    """An action of NVUE. HANDED_OVER: neither success nor failure, the reboot decides."""

    RUNNING = "running"
    DONE = "done"
    HANDED_OVER = "handed over"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class SwitchView:
    """An NVLink switch as it reads now."""

    nvos: Nvos
    versions: Mapping[str, str] = field(default_factory=dict)  # and "nvos": what runs
    next_image: str = ""
    images: int = 0  # partitions that hold one
    files: frozenset[str] = frozenset()  # on it
    job: Job = Job.UNKNOWN
    job_said: str = ""
    bmc: bool = False  # its BMC answers
    task: TaskSeen = TaskSeen()
    tasks: int | None = None
    running: Sequence[str] | None = None


NVOS_DEAD_S = 600.0
JOB_MAX_S = 1800.0
REBOOT_MAX_S = 1200.0
CONFIGURE_MAX_S = 300.0  # 180 s in public tools, rounded up


def decide_switch_files(package: Package, view: SwitchView, log: ActLog, now: float) -> Next:
    """Return the next step of writing a switch's files one after the other; none restarts it."""
    begun = any(log.count(f"{way}:{n}") for way in _WAYS for n in range(len(package.files)))
    if view.nvos is not Nvos.OK and not (begun and log.noted("bmc-way")):
        return _without_nvos(package, view, log, now)
    if not begun and view.nvos is Nvos.OK and not list(find_missed(package, view.versions)):
        return done("every version runs already")
    for number, file in enumerate(package.files):
        going = (
            _next_by_bmc(number, view, log, now)
            if log.noted("bmc-way")
            else _next_by_nvos(number, file.remote_name, view, log, now)
        )
        if going is not None:
            return going
    return done("written")


_WAYS = ("fetch", "install", "push")


def _without_nvos(package: Package, view: SwitchView, log: ActLog, now: float) -> Next:
    """NVOS is dead or refuses: its BMC writes the files, where the package has them here."""
    if view.nvos in _LOGINS:
        return _settle_login(view.nvos, log)
    begun = log.note("dead")
    if not begun or now - float(begun) < NVOS_DEAD_S:
        return wait("for its NVOS")
    if any(not file.file for file in package.files):
        return fail(Reason.UNREACHABLE, "NVOS does not answer, and there is no file for its BMC")
    if not view.bmc:
        return fail(Reason.UNREACHABLE, "neither NVOS nor its BMC answers")
    return note("bmc-way", "NVOS is dead: its BMC writes the files")


_LOGINS = frozenset({Nvos.FACTORY, Nvos.REFUSED, Nvos.RESTING})


def _settle_login(nvos: Nvos, log: ActLog) -> Next:
    """Give NVOS our password where it takes the factory's; no password is tried again and again."""
    if nvos is Nvos.RESTING:
        return wait("before our password is shown to it again")
    if nvos is Nvos.REFUSED:
        return fail(Reason.LOGIN_REFUSED, "NVOS takes neither our password nor the factory's")
    if is_spent(log, "password"):
        return fail(Reason.PASSWORD_CHANGE, "NVOS keeps the password that it is delivered with")
    return send("password", "it takes the password that it is delivered with")


def _next_by_bmc(number: int, view: SwitchView, log: ActLog, now: float) -> Next | None:
    what = f"push:{number}"
    if log.count(f"push:{number + 1}"):
        return None
    if not log.count(what):
        if view.running is None:
            return wait("until its tasks can be read")
        return wait("for another task") if view.running else send(what)
    return judge_push(view.task, view.tasks, view.running, log, now, what)


def _next_by_nvos(number: int, name: str, view: SwitchView, log: ActLog, now: float) -> Next | None:
    fetch = f"fetch:{number}"
    install = f"install:{number}"
    if log.noted(f"installed:{number}"):
        return None
    if log.count(install):
        age = log.since(install, now)
        if view.job is not Job.UNKNOWN:
            return _judge_job(view, age, f"installed:{number}")
        if age < JOB_MAX_S:  # also a job whose number was lost has ended by then
            return wait("until its job can be read, or has surely ended")
        lost = log.told(install) is None and log.count(install) < NEVER_ARRIVED_MAX
        if lost:
            return send(install, "the answer was lost, and nothing shows what was installed")
        return fail(Reason.CANNOT_TELL, "its job is not known any more")
    if name in view.files:
        return send(install)
    if not log.count(fetch):
        return send(fetch)
    if view.job in (Job.DONE, Job.HANDED_OVER):
        return fail(Reason.MISSING_ARTIFACT, f"{name} was fetched and is not listed")
    if view.job is Job.UNKNOWN:
        if log.since(fetch, now) < SETTLE_S:
            return wait("until its job can be read")
        again = log.count(fetch) < NEVER_ARRIVED_MAX
        return send(fetch) if again else fail(Reason.CANNOT_TELL, "no fetch is known of")
    return _judge_job(view, log.since(fetch, now), "")


def _judge_job(view: SwitchView, age: float, over: str) -> Next:
    if view.job is Job.FAILED:
        return fail(Reason.UPDATE_FAILED, f"NVOS: {view.job_said or 'its job failed'}")
    if view.job is Job.RUNNING:
        if age < JOB_MAX_S:
            return wait("for the end of its job")
        return fail(Reason.UPDATE_STALLED, f"its job did not end in {JOB_MAX_S:.0f} s")
    return note(over) if over else wait("for the file")


def decide_image(package: Package, wanted: str, view: SwitchView, log: ActLog, now: float) -> Next:
    """Return the next step of installing NVOS beside the running one; the reboot comes later."""
    if view.nvos is not Nvos.OK:
        if view.nvos is Nvos.SILENT:
            return fail(Reason.UNREACHABLE, "NVOS does not answer: its BMC installs no image")
        return _without_nvos(package, view, log, now)
    if wanted in (view.versions.get("nvos"), view.next_image):
        return done("it is the next image")
    if view.job is Job.FAILED and "partition" in view.job_said:
        return fail(Reason.NO_ROOM, f"NVOS: {view.job_said}; free a partition by hand")
    going = _next_by_nvos(0, package.files[0].remote_name, view, log, now)
    if going is not None:
        return going
    why = f"its next image is {view.next_image or 'not said'} after an install of {wanted}"
    return fail(Reason.NOT_ACTIVATED, why)


def decide_reboot(packages: Sequence[Package], view: SwitchView, log: ActLog, now: float) -> Next:
    """Return the next step of a switch's one restart, up to the proof by versions.

    NVOS may come back with the password that it is delivered with: it gets ours before anything
    else is asked of it. Each password is tried once a round, and a refusal of both ends it.
    """
    if not log.count("reboot"):
        if view.nvos is Nvos.OK and not missed_of(packages, view.versions):
            return done("every version runs already")
        if view.running:
            return wait(f"for the end of {view.running[0]}")
        if view.nvos is Nvos.OK or view.bmc:
            return send("reboot")
        return fail(Reason.UNREACHABLE, "neither NVOS nor its BMC answers")
    age = log.since("reboot", now)
    if view.nvos is Nvos.SILENT:
        if age < REBOOT_MAX_S:
            return wait("for its NVOS")
        return fail(Reason.UNREACHABLE, f"NVOS did not come back in {REBOOT_MAX_S:.0f} s")
    if view.nvos in _LOGINS:
        return _settle_login(view.nvos, log)
    missed = missed_of(packages, view.versions)
    if not missed:
        return done("every version runs")
    if not log.noted("silent", "reboot"):
        if age < CYCLE_SEEN_S:
            return wait("whether it restarts")
        if log.told("reboot") is None and not is_spent(log, "reboot"):
            return send("reboot", "the answer was lost, and it was never silent")
        return fail(Reason.CANNOT_TELL, "a restart was sent, and NVOS was never silent")
    if age < REBOOT_MAX_S:
        return wait(f"for its versions: {missed[0]}")
    return fail(Reason.NOT_ACTIVATED, "; ".join(missed[:4]))


@dataclass(frozen=True)
class Controller:
    """The NVLink controller on one switch, as NVUE shows it."""

    switch: str
    tray_index: int
    running: bool | None  # None: it was not read
    configured: bool = False
    said: str = ""


def decide_cluster(controllers: Sequence[Controller], log: ActLog, now: float) -> Next:
    """Return the next step of an NVLink domain's control plane: exactly one primary, CONFIGURED.

    It is the switch of the lowest index that is asked to run it, and only where none does.
    """
    unread = [one.switch for one in controllers if one.running is None]
    primaries = [one for one in controllers if one.running]
    if len(primaries) > 1:
        names = " and ".join(one.switch for one in primaries)
        return fail(Reason.DUPLICATE, f"{names} both run the controller: stop all but one")
    if unread:
        if log.noted("cluster-late"):
            return fail(Reason.UNREACHABLE, f"{unread[0]} does not say what it runs")
        return wait(f"until {unread[0]} answers")
    if not primaries:
        if not log.count("start"):
            return send("start", min(controllers, key=lambda one: one.tray_index).switch)
        if log.since("start", now) < CONFIGURE_MAX_S:
            return wait("for the controller")
        return fail(Reason.NOT_ACTIVATED, "the controller was started and runs nowhere")
    if primaries[0].configured:
        return done(f"{primaries[0].switch} is the primary, and configured")
    if log.noted("cluster-late"):
        why = f"{primaries[0].switch}: {primaries[0].said or 'no state'} for too long"
        return fail(Reason.NOT_ACTIVATED, why)
    return wait(f"for the control plane: {primaries[0].said}")
