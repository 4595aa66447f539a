"""The policy of a campaign: canaries, waves, limits, budget, windows, and terms for tenants.

Times are seconds of the daemon's clock (Unix time) unless the name says otherwise. The file that
people write is read by `planning/campaigns/campaign_policy_text.py`; docs/campaigns.md explains
each field.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from provisioner.model.base import Record
from provisioner.model.times.instant import Instant
from provisioner.model.times.time_zone import read_zone

DEFERRAL_MAX_S = 14 * 86_400  # the longest time for which a tenant may defer an upgrade
DAY_S = 86_400


class Domain(StrEnum):
    """A set of nodes that one fault or one outage can take away together."""

    RACK = "rack"
    SCALABLE_UNIT = "scalable_unit"
    LEAF = "leaf"
    RAIL = "rail"  # a rail's leaves
    PLANE = "plane"  # a plane's switches
    TENANT = "tenant"
    TOTAL = "total"


HOST_DOMAINS = frozenset(Domain) - {Domain.RAIL, Domain.PLANE}
SWITCH_DOMAINS = frozenset(Domain) - {Domain.LEAF, Domain.TENANT}


class Limit(Record):
    """How many of a domain's members may be out of service at once: a number, or a share.

    A share is of all members of the domain in the fleet, rounded down, but at least 1 if the
    share is above 0. 0 closes the domain.
    """

    count: int | None = Field(default=None, ge=0)
    percent: float | None = Field(default=None, ge=0, le=100)

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.count is None) == (self.percent is None):
            raise ValueError("a limit has either `count` or `percent`")
        return self


class Canary(Record):
    """The first nodes of a campaign, and how long they are observed before others follow."""

    # spread over profiles, revisions, racks, rails; fewer than five cannot show a regression
    size: int = Field(default=5, ge=0)
    soak_s: int = Field(default=3600, ge=0)
    failures: int = Field(default=0, ge=0)  # more canaries that fail stop the campaign


class Wave(Record):
    """A part of the campaign's nodes: everything up to this share, soaked before the next."""

    upto: Limit = Limit(percent=100)
    soak_s: int = Field(default=0, ge=0)


class Window(Record):
    """A change window: days of the week, and the time of day when work may begin and must be over.

    The time is that of `zone`, an IANA name, with its summer time; without a zone it is UTC plus an
    offset, the same all year. `minutes` is counted on the zone's clock: 22:00-04:00 also ends at
    04:00 in the nights in which the clock changes.
    """

    days: tuple[int, ...] = Field(default=(0, 1, 2, 3, 4, 5, 6), min_length=1)  # 0 is Monday
    start_min: int = Field(ge=0, lt=1440)  # minutes after midnight
    minutes: int = Field(ge=1, le=7 * 1440)
    utc_offset_min: int = Field(default=0, ge=-720, le=840)
    zone: str = ""

    @model_validator(mode="after")
    def _zone_exists(self) -> Self:
        if self.zone:
            read_zone(self.zone)
            if self.utc_offset_min:
                raise ValueError("a window has a time zone or an offset, not both")
        return self

    @model_validator(mode="after")
    def _days_of_a_week(self) -> Self:
        if not all(0 <= d <= 6 for d in self.days):
            raise ValueError("days are numbers from 0 (Monday) to 6")
        return self


class Freeze(Record):
    """A span of time in which no work begins or runs, regardless of the windows."""

    begins_at: Instant
    ends_at: Instant
    reason: str


class AtDeadline(StrEnum):
    """The consequence when a tenant has used up its deferral."""

    PROCEED = "proceed"  # the node is upgraded without further questions
    RETIRE = "retire"  # it is taken from the tenant for good, upgraded, and idle afterwards
    SKIP = "skip"  # it stays as it is, and the report says so


class TenantTerms(Record):
    """The notice, deferrals and windows that tenants get before one of their nodes is touched."""

    notice_s: int = Field(default=DAY_S, ge=0)
    waves_ahead: int = Field(default=1, ge=0)  # waves after the open one that already get notice
    deferral_max_s: int = Field(default=DEFERRAL_MAX_S, ge=0, le=DEFERRAL_MAX_S)
    at_deadline: AtDeadline = AtDeadline.PROCEED
    windows: Mapping[str, tuple[Window, ...]] = {}  # by tenant; not listed: at any time


class Breaker(Record):
    """When a campaign stops itself before its failure budget is used up."""

    of_last: int = Field(default=10, ge=1)  # nodes that finished last
    failures: int = Field(default=3, ge=1)  # so many failures among them
    same_reason: int = Field(default=2, ge=1)  # so many of one reason and subject among them


class LeafHosts(StrEnum):
    """How tenants' hosts below a leaf are treated when the leaf goes down."""

    DRAIN = "drain"  # they leave service for that time and count in the limits of hosts
    KEEP = "keep"  # they continue with one rail less; their tenants still get notice


class Policy(Record):
    """The precautions of a campaign. The defaults are proposals."""

    canary: Canary = Canary()
    waves: tuple[Wave, ...] = Field(
        default=(Wave(upto=Limit(percent=10), soak_s=1800), Wave()), min_length=1, max_length=32
    )
    limits: Mapping[Domain, Limit] = {  # hosts: rack, scalable_unit, leaf, tenant, total
        Domain.RACK: Limit(percent=50),
        Domain.SCALABLE_UNIT: Limit(percent=25),
        Domain.TENANT: Limit(percent=10),
        Domain.TOTAL: Limit(percent=10),
    }
    switch_limits: Mapping[Domain, Limit] = {  # switches: rail, plane, scalable_unit, rack, total
        Domain.SCALABLE_UNIT: Limit(count=1),
        Domain.TOTAL: Limit(percent=10),
    }
    failure_budget: Limit = Limit(percent=2)  # of the campaign's nodes; more failures stop it
    # True: at most as many nodes are under way as the budget has left, so that it holds even if all
    # fail
    budget_strict: bool = False
    breaker: Breaker = Breaker()
    windows: tuple[Window, ...] = ()  # change windows of the site; (): at any time
    freezes: tuple[Freeze, ...] = ()
    tenants: TenantTerms = TenantTerms()
    free_kept: Limit = Limit(count=0)  # of each profile's idle hosts; a share is rounded up
    leaf_hosts: LeafHosts = LeafHosts.DRAIN
    # a campaign that waits for nodes which it does not move ends, or stops, after so long
    standstill_max_s: int = Field(default=DAY_S, ge=0)
    allow_irreversible: bool = False  # admit nodes that could not be rolled back

    @property
    def names_zones(self) -> bool:
        """Return whether a window names a time zone, so that the edition of the zone data
        matters.
        """
        windows = [*self.windows, *(w for ws in self.tenants.windows.values() for w in ws)]
        return any(w.zone for w in windows)

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if odd := sorted(set(self.limits) - HOST_DOMAINS):
            raise ValueError(f"limits: {odd[0]} is a domain of switches, see switch_limits")
        if odd := sorted(set(self.switch_limits) - SWITCH_DOMAINS):
            raise ValueError(f"switch_limits: {odd[0]} is a domain of hosts, see limits")
        if self.waves[-1].upto != Limit(percent=100):
            raise ValueError("waves: the last one goes up to 100 percent")
        if self.budget_strict and 0 in (self.failure_budget.count, self.failure_budget.percent):
            raise ValueError("failure_budget: a strict budget of 0 would admit nothing")
        return self


NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,62}$"


class NamedPolicy(Record):
    """A policy that people keep under a name. A campaign has a copy, which no change reaches."""

    name: str = Field(pattern=NAME_PATTERN, description="Name that the client chose.")
    policy: Policy = Field(description="The precautions of a campaign that names it.")
    note: str = Field("", max_length=300, description="What it is for, in a sentence.")
    by: str = Field("", description="Person or program that changed it last.")
    at: Instant = Field(description="Time of the last change.")
    generation: int = Field(1, ge=1, description="Number of the change, from 1.")
