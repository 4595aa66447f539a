"""Rules for histories of Xids and SXids that ask for more than the last event does. Pure data.

Each rule has its source. No rule condemns a part by itself: RMA means "collect the evidence and ask
the vendor", as the catalogue's CONTACT_SUPPORT and RUN_FIELDDIAG do.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from provisioner.checks.xid.error_codes import Family
from provisioner.model.base import Record

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
BURST_S = 180.0  # NVSentinel merges events within 3 minutes into one


class Step(StrEnum):
    """The next step, from none to returning the part; a later one includes the earlier."""

    IGNORE = "ignore"
    MONITOR = "monitor"  # the application's fault, or to be observed further
    RESET = "reset"  # drain, reset the GPU, judge again
    RESTART = "restart"  # drain, restart the node, judge again
    DIAGNOSE = "diagnose"  # DCGM's extended diagnosis, then the vendor's field diagnosis
    RMA = "rma"  # evidence to the vendor: a candidate for return


class Occurrence(Record):
    """One Xid or SXid of a node. `part` is a serial or a slot, which does not change."""

    at: float  # Unix seconds
    family: Family = Family.XID
    code: int
    part: str
    link: int = -1
    place: str = ""  # "GPC 8, TPC 5"
    words: str = ""


class Remedy(Record):
    """A remedy that was carried out on a part, or on the node ("")."""

    at: float
    part: str = ""
    step: Literal["reset", "restart"]


Same = Literal["part", "link", "place"]


class Rule(Record):
    """A rule: so many bursts of these codes within a window, on the same object, ask for a step.

    `codes` empty: every code that asks for a reset or more by itself (a fatal one). `alone`: no
    other GPU of the node has as many; otherwise the application is at fault. `beside`: the part had
    one of these within `BURST_S` too. `after_remedy`: only events that recurred after one of these
    remedies count, with at least `remedies_min` remedies within the window.
    """

    name: str
    family: Family = Family.XID
    codes: tuple[int, ...] = ()
    count: int = Field(default=1, ge=1)
    window_s: float
    same: Same = "part"
    beside: tuple[int, ...] = ()
    after_remedy: tuple[Literal["reset", "restart"], ...] = ()
    remedies_min: int = Field(default=1, ge=1)
    alone: bool = False
    step: Step
    why: str
    source: str


_CATALOGUE = "NVIDIA Xid catalogue"
_OURS = "our rule"
RULES: tuple[Rule, ...] = (
    Rule(
        name="48 with remapping",
        codes=(48,),
        beside=(63, 64),
        window_s=DAY_S,
        step=Step.RESET,
        why="an uncorrectable error whose row is remapped takes effect with a reset",
        source=f"{_CATALOGUE}, WORKFLOW_XID_48",
    ),
    Rule(
        name="48 alone",
        codes=(48,),
        window_s=DAY_S,
        step=Step.DIAGNOSE,
        why="an uncorrectable error without a remapping",
        source=f"{_CATALOGUE}, WORKFLOW_XID_48: solo RUN_FIELDDIAG",
    ),
    Rule(
        name="memory again after a reset",
        codes=(48, 94, 95, 140, 171, 172),
        window_s=7 * DAY_S,
        after_remedy=("reset", "restart"),
        step=Step.RMA,
        why="memory errors came again although the GPU was reset",
        source=f"{_OURS}, from WORKFLOW_XID_48 and NVSentinel's repeated remediation",
    ),
    Rule(
        name="contained errors again and again",
        codes=(94,),
        count=3,
        window_s=DAY_S,
        step=Step.DIAGNOSE,
        why="contained memory errors are harmless once",
        source=_OURS,
    ),
    Rule(
        name="remapping again and again",
        codes=(63,),
        count=5,
        window_s=7 * DAY_S,
        step=Step.DIAGNOSE,
        why="rows are used up quickly",
        source=_OURS,
    ),
    Rule(
        name="remapping failed",
        codes=(64,),
        window_s=365 * DAY_S,
        step=Step.RMA,
        why="there is no spare row left where one is needed",
        source=f"{_CATALOGUE}: 64 CONTACT_SUPPORT; NVIDIA on row remapping failures",
    ),
    Rule(
        name="off the bus again",
        codes=(79,),
        window_s=7 * DAY_S,
        after_remedy=("restart",),
        step=Step.RMA,
        why="it fell off the bus although the node was restarted",
        source=f"{_CATALOGUE}: 79 CONTACT_SUPPORT; gpud: hardware inspection after two reboots",
    ),
    Rule(
        name="graphics exceptions in one place",
        codes=(13,),
        count=2,
        window_s=DAY_S,
        same="place",
        step=Step.DIAGNOSE,
        why="an application's fault would not come from one GPC and TPC each time",
        source=f"{_CATALOGUE}, WORKFLOW_XID_13: RUN_DCGMEUD, then RUN_FIELDDIAGS",
    ),
    Rule(
        name="page faults on one GPU",
        codes=(31,),
        count=3,
        window_s=DAY_S,
        alone=True,
        step=Step.DIAGNOSE,
        why="an application's fault would not come to one GPU each time",
        source=f"{_CATALOGUE}, WORKFLOW_XID_31: RUN_DCGMEUD, then RUN_FIELDDIAGS",
    ),
    Rule(
        name="one NVLink again",
        codes=(74,),
        count=3,
        window_s=7 * DAY_S,
        same="link",
        step=Step.RMA,
        why="more than twice on one link is hardware",
        source=f"{_CATALOGUE}, WORKFLOW_NVLINK_ERR",
    ),
    Rule(
        name="one NVLink 5 link down again",
        codes=(149,),
        count=2,
        window_s=DAY_S,
        same="link",
        step=Step.DIAGNOSE,
        why="more than once a day is to be reported",
        source=f"{_CATALOGUE}, sheet XID 144-150 Decode: REPORT_ISSUE if seen more than once a day",
    ),
    Rule(
        name="fatal five times a day",
        count=5,
        window_s=DAY_S,
        step=Step.RMA,
        why="five fatal bursts within a day",
        source="NVSentinel: fatal Xid five times in 24 h, bursts of 3 minutes merged",
    ),
    Rule(
        name="fatal after two remedies",
        window_s=7 * DAY_S,
        after_remedy=("reset", "restart"),
        remedies_min=2,
        step=Step.RMA,
        why="it came again although it was remedied twice",
        source="NVSentinel: more than one remediation in 7 days",
    ),
    Rule(
        name="switch errors again after a restart",
        family=Family.SXID,
        window_s=7 * DAY_S,
        after_remedy=("restart",),
        step=Step.RMA,
        why="a fatal NVSwitch error came again although the node was restarted",
        source="gpud: reboot, then hardware inspection",
    ),
)
