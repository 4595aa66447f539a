"""What a person's command writes to racks, where a daemon may know of it: its journal's folder.

`rack update` and `rack cold-reboot` take a journal in `by-hand` of the racks' folder where that
folder is a daemon's. The daemon holds what such a journal began and did not end, as it does for
its own campaigns. A word frees it, or the same command's end: the daemon proves no such journal.
"""

from __future__ import annotations

import fcntl
import hashlib
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from provisioner.integrations.racks.campaign import ActKind, group_units
from provisioner.integrations.racks.campaign_run import Step
from provisioner.integrations.racks.cold_reboot_run import COLD_REBOOT, OVER
from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.plan import NAME, RackPlan, list_files
from provisioner.integrations.racks.update_log import UpdateLog, read_log
from provisioner.integrations.racks.update_start import find_unproved
from provisioner.model.input_error import InputError

HANDS = "by-hand"
CAMPAIGNS = "campaigns"  # a folder of racks that has one, or HANDS, is a daemon's
SUFFIX = ".journal"
JOURNALS_MAX = 256


@dataclass(frozen=True)
class HandJournal:
    """What one journal tells. `mark`: what holds know it by; its name may be used again."""

    mark: str
    content: str  # its digest: a person's word is about this, and nothing later
    runs: bool  # the command is at work
    unproved: Mapping[str, Sequence[str]]  # trays, by job
    proved: frozenset[str]  # trays of jobs whose end it tells


def check_hand_journal(journal: Path, *files: Path) -> int:
    """Return a journal's file mode; refuse one elsewhere where one of the other files is in a
    daemon's folder. Raises InputError.
    """
    mode = 0o600
    for folder in {file.resolve().parent for file in files}:
        if not any((folder / name).is_dir() for name in (CAMPAIGNS, HANDS)):
            continue
        wanted = folder / HANDS
        if journal.parent.resolve() != wanted or not _is_named(journal):
            problem = f"a daemon has {folder}, and would not know what is written"
            remedy = f"Name {wanted}/NAME{SUFFIX}, or let the daemon do it: `rack approve`."
            raise InputError("--journal", str(journal), problem, remedy)
        try:
            make_folder(folder)
        except OSError as error:
            raise _refuse(wanted, error) from None
        mode = 0o644
    return mode


def make_folder(folder: Path, name: str = HANDS) -> None:
    """Make the journals' folder of a racks' folder, by which commands know it as a daemon's, or
    that of campaigns. Raises OSError.
    """
    made = folder / name
    if not made.is_dir():
        try:
            made.mkdir()
        except FileExistsError:
            if made.is_dir():  # another one was faster
                return
            raise
        # whatever the umask: who writes beside it writes there, and the daemon reads it
        made.chmod(0o755 | stat.S_IMODE(folder.stat().st_mode))


def _is_named(journal: Path) -> bool:
    """Return whether a journal's name may stand in a hold's mark."""
    name = journal.name.removesuffix(SUFFIX)
    return bool(re.fullmatch(NAME, name)) and name + SUFFIX == journal.name and len(name) <= 63


def list_hand_journals(folder: Path) -> Sequence[Path]:
    """Return the journals of a racks' folder, one more than are looked at if there are so many.

    Raises InputError.
    """
    listed = [
        one
        for one in list_files(folder / HANDS)
        if one.name.endswith(SUFFIX) and not one.name.startswith(".")  # "._x", as copies leave
    ]
    return listed[: JOURNALS_MAX + 1]


def read_hand_journal(file: Path, plan: RackPlan, *, runs: bool) -> HandJournal | None:
    """Return what a journal tells; None where nothing was written yet. Raises InputError.

    `runs`: what `is_at_work` said before: what ends in between is in the journal.
    """
    if not _is_named(file):
        problem = "its name is none of a journal: small letters, digits, dots and dashes"
        raise InputError("journal", str(file), problem, "Rename it.")
    mark, content = read_digest(file)  # before the rest: of what is written meanwhile is no word
    log = read_log(file)
    if not log.list_keys():
        return None
    return HandJournal(mark, content, runs, *_find_trays(plan, log, runs=runs))


def find_content(folder: Path, mark: str) -> str:
    """Return the digest of the journal that has a mark, "" for none. Raises InputError."""
    file = folder / HANDS / f"{mark.rpartition('.')[0]}{SUFFIX}"
    known, content = read_digest(file)
    return content if known == mark else ""


def read_digest(file: Path) -> tuple[str, str]:
    """Return a journal's mark and the digest of all of it; "" where there is none."""
    try:
        with file.open("rb") as opened:
            first = hashlib.sha256(opened.readline(1 << 24)).hexdigest()
            opened.seek(0)
            content = hashlib.file_digest(opened, "sha256").hexdigest()
    except FileNotFoundError as error:
        if file.is_symlink():  # what it names may be back: a disk that is not there now
            raise _refuse(file, error) from None
        return "", ""
    except OSError as error:
        raise _refuse(file, error) from None
    return f"{file.name.removesuffix(SUFFIX)}.{first[:8]}", content


def _find_trays(
    plan: RackPlan, log: UpdateLog, *, runs: bool
) -> tuple[Mapping[str, Sequence[str]], frozenset[str]]:
    """Return the trays of each job that was begun, of a command at work also of one that is only
    drained, and those of jobs of which nothing is open. Of a journal that lost its end, neither.
    """
    found = dict(find_unproved(plan, log))
    ended: list[str] = []
    last = dict(log.steps())
    for job, units in group_units(plan).items():
        trays = [unit.name for _, unit in units if unit.kind is Kind.COMPUTE_TRAY]
        reboots = [log.of(f"{name}/{COLD_REBOOT}") for name in {rack.name for rack, _ in units}]
        cut = any(one.has_begun() and not one.noted(OVER) for one in reboots)
        proved = last.get(f"{job}/{ActKind.PROVE}") == Step.DONE
        if cut or (runs and f"{job}/{ActKind.DRAIN}" in last and not proved):
            found[job] = trays
        elif job not in found and (proved or any(one.noted(OVER) for one in reboots)):
            ended += trays
    return found, frozenset(ended)


def is_at_work(file: Path) -> bool:
    """Return whether a command holds a journal. Raises InputError."""
    try:
        with file.open("rb") as opened:
            fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:  # moved away since it was listed
        return False
    except OSError as error:
        raise _refuse(file, error) from None
    return False


def _refuse(file: Path, error: OSError) -> InputError:
    problem = f"it cannot be read ({error.strerror})"
    return InputError("journal", str(file), problem, "Check its permissions, and what it links to.")
