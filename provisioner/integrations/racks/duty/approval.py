"""A person's word that the daemon may carry a campaign over racks out, and how far it is: files.

A campaign is a folder `campaigns/NAME` in the racks' folder: campaign.yaml with its packages,
approved.json with who allowed it, journal, and state.json, which the daemon writes. Beside it
stands MARK.vouched.json, with a person's word for nodes that one approval left unproved.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from itertools import islice
from pathlib import Path

from pydantic import Field

from provisioner.integrations.racks.hand_journals import find_content, make_folder
from provisioner.integrations.racks.plan import NAME, Name, list_files, read_record
from provisioner.model.base import Record
from provisioner.model.input_error import InputError
from provisioner.model.times.instant import Instant
from provisioner.runtime.whole_files import replace_file

CAMPAIGNS = "campaigns"
CAMPAIGNS_MAX = 256  # of a site; the others are not looked at
TEXT_MAX = 400  # characters of a sentence that is kept
LINES_MAX = 16


class Approval(Record):
    """Who allowed what. Another content of campaign.yaml is another campaign."""

    campaign_sha256: str = Field(pattern="^[0-9a-f]{64}$")
    racks: tuple[Name, ...] = Field(min_length=1, max_length=4096)
    who: str = Field(min_length=1, max_length=200)
    why: str = Field(min_length=1, max_length=TEXT_MAX)
    at: float
    user: str = Field(default="", max_length=64)  # at BMCs of which the daemon has no login
    nvos_user: str = Field(default="", max_length=64)
    grace_h: float = Field(default=24.0, ge=0, le=24 * 90)
    halted: str = Field(default="", max_length=TEXT_MAX)  # by whom and why: nothing new is begun
    withdrawn: str = Field(default="", max_length=TEXT_MAX)  # the same, for good


class Vouched(Record):
    """Who vouches for nodes whose versions nobody proved, and why: a sentence for each node.

    `journal`: of a person's command, as it was then: no word is about what is written later.
    """

    journal: str = Field(default="", max_length=64)
    nodes: Mapping[str, str] = Field(default={}, max_length=1 << 16)


class RackCampaignState(StrEnum):
    """How a campaign over racks stands."""

    WAITS = "waits"  # nothing could be begun; `says` has the reason
    RUNNING = "running"
    HELD = "held"  # an act failed, or a tenant stayed: a person looks
    HALTED = "halted"
    DONE = "done"
    WITHDRAWN = "withdrawn"


OVER = frozenset({RackCampaignState.DONE, RackCampaignState.WITHDRAWN})


class RackCampaign(Record):
    """A firmware campaign over racks, as the daemon last carried it on."""

    name: str = Field(description="Name of its folder.")
    state: RackCampaignState = Field(description="How it stands.")
    racks: tuple[str, ...] = Field(description="Racks that it was approved for.")
    domains: tuple[str, ...] = Field(default=(), description="NVLink domains that are out now.")
    done: int = Field(default=0, description="Acts that were seen to be done.")
    left: int = Field(default=0, description="Acts that are not done.")
    begun: int = Field(default=0, description="Writes that its journal had begun.")
    says: tuple[str, ...] = Field(
        default=(), description="What runs, or what it waits for, and why; at most 16 sentences."
    )
    approved_by: str = Field(description="Who allowed it.")
    because: str = Field(description="Why.")
    at: Instant = Field(description="When this was written.")

    @property
    def tells_of_acts(self) -> bool:
        """Return whether a journal has to be there: a domain was out, or something was begun."""
        return bool(self.domains or self.done or self.begun)


def digest_campaign(folder: Path) -> str:
    """Return the digest of a campaign's file. Raises InputError."""
    try:
        return hashlib.sha256((folder / "campaign.yaml").read_bytes()).hexdigest()
    except OSError as error:
        problem = f"campaign.yaml cannot be read ({error.strerror})"
        raise InputError(str(folder), "", problem, "See docs/racks.md#the-daemon.") from None


def build_mark(name: str, approval: Approval) -> str:
    """Return what a hold knows an approval by, NAME.DIGEST: a folder's name may be used again."""
    told = f"{approval.campaign_sha256} {approval.at!r}".encode()
    return f"{name}.{hashlib.sha256(told).hexdigest()[:8]}"


def list_campaigns(folder: Path, count: int = CAMPAIGNS_MAX) -> Iterator[Path]:
    """Yield the folder of each approved campaign, in the order of names, `count` at most.

    Raises InputError.
    """
    yield from islice(filter(_may_be_approved, list_files(folder / CAMPAIGNS)), count)


def _may_be_approved(campaign: Path) -> bool:
    """Return whether an approval is there, or nobody can tell: then reading it says why."""
    try:
        return (campaign / "approved.json").exists()
    except OSError:
        return True


def read_approval(campaign: Path) -> Approval:
    """Return who allowed a campaign. Raises InputError."""
    return read_record(campaign / "approved.json", Approval)


def keep_approval(campaign: Path, approval: Approval) -> None:
    """Write it, on disk when this returns. Raises InputError."""
    _write(campaign / "approved.json", approval)


def read_state(campaign: Path) -> RackCampaign | None:
    """Return how a campaign stands; None before its first turn. Raises InputError."""
    file = campaign / "state.json"
    return read_record(file, RackCampaign) if file.exists() else None


def keep_state(campaign: Path, state: RackCampaign) -> None:
    """Write it. Raises InputError."""
    _write(campaign / "state.json", state)


def read_vouched(folder: Path, mark: str, journal: str = "") -> Mapping[str, str]:
    """Return for which nodes of an approval a person vouches, of its journal as it is now.

    Raises InputError.
    """
    read = _read_word(folder, mark)
    return read.nodes if read.journal == journal else {}


def take_word(folder: Path, mark: str, journal: str) -> Mapping[str, str]:
    """Return for which nodes a person vouches, of a command's journal as it is now.

    A word on any other content of it is void from now on, on disk when this returns: an old copy
    of that content may come back. Raises InputError.
    """
    read = _read_word(folder, mark)
    if read.journal == journal:
        return read.nodes
    # unless it was given just now, on what was written since
    if read.nodes and find_content(folder, mark) == journal:
        keep_vouched(folder, mark, Vouched(journal=read.journal))
    return {}


def _read_word(folder: Path, mark: str) -> Vouched:
    file = folder / CAMPAIGNS / f"{mark}.vouched.json"
    return read_record(file, Vouched) if file.exists() else Vouched()


def keep_vouched(folder: Path, mark: str, vouched: Vouched) -> None:
    """Write it, on disk when this returns. Raises InputError."""
    file = folder / CAMPAIGNS / f"{mark}.vouched.json"
    try:
        make_folder(folder, CAMPAIGNS)
    except OSError as error:
        raise _refuse(file, error) from None
    _write(file, vouched)


def find_campaign(folder: Path, name: str) -> Path:
    """Return the folder of a campaign. Raises InputError where there is none."""
    found = folder / CAMPAIGNS / name
    if not re.fullmatch(NAME, name) or not (found / "campaign.yaml").is_file():
        problem = f"{folder / CAMPAIGNS} has no such campaign"
        raise InputError("NAME", name, problem, "Make its folder, with campaign.yaml in it.")
    return found


def _write(file: Path, record: Record) -> None:
    try:
        replace_file(file, record.model_dump_json(indent=2) + "\n", mode=0o666, lasting=True)
    except OSError as error:
        raise _refuse(file, error) from None


def _refuse(file: Path, error: OSError) -> InputError:
    problem = f"it cannot be written ({error.strerror})"
    return InputError(str(file), "", problem, "Make room, or correct its owner.")
