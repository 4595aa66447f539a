"""Any small fleet, and any policy, for property tests of campaigns."""

from __future__ import annotations

from hypothesis import strategies as st

from provisioner.model.campaign import (
    HOST_DOMAINS,
    SWITCH_DOMAINS,
    Breaker,
    CampaignNode,
    Canary,
    LeafHosts,
    Limit,
    Policy,
    TenantTerms,
    Wave,
)
from provisioner.model.node import NodeKind

limits_ = st.one_of(
    st.sampled_from([1, 2, 1, 3, 0, 5]).map(lambda n: Limit(count=n)),
    st.sampled_from([0, 1, 10, 33.3, 50, 66.6, 100]).map(lambda p: Limit(percent=p)),
)


@st.composite
def fleets(draw: st.DrawFn, *, nested: bool = False, switches: bool = True) -> list[CampaignNode]:
    """Hosts in racks of three in units of two racks; leaves by rail; or anything anywhere."""
    found = []
    for number in range(draw(st.integers(1, 14))):
        rack = number // 3
        unit = rack // 2
        if not nested and draw(st.integers(0, 4)) == 0:
            unit = draw(st.integers(0, 2))
        at = (unit,) if nested or draw(st.integers(0, 4)) else (unit, draw(st.integers(0, 2)))
        found.append(
            CampaignNode(
                name=f"h{number:02d}",
                selected=draw(st.integers(0, 5)) > 0,
                rack=f"r{rack}",
                unit=f"su{unit}",
                leaves=tuple(f"l{u}-{r}" for u in sorted(set(at)) for r in range(2)),
                tenant=draw(st.sampled_from(["", "a", "b"])),
                profile=draw(st.sampled_from(["p", "q"])),
                in_service=draw(st.integers(0, 6)) > 0,
                minutes=draw(st.integers(1, 90)),
            )
        )
    for unit in range(3 if switches else 0):
        for rail in range(2):
            planes = (draw(st.integers(0, 1)),) if not nested else ()
            found.append(
                CampaignNode(
                    name=f"l{unit}-{rail}",
                    kind=NodeKind.SWITCH,
                    selected=draw(st.booleans()),
                    unit=f"su{unit}",
                    rails=(rail, *([2] if not nested and draw(st.integers(0, 3)) == 0 else [])),
                    planes=planes,
                    groups=() if nested else draw(st.sampled_from([(), ("g",), ("g", "h")])),
                    minutes=20,
                )
            )
    return found


@st.composite
def policies(draw: st.DrawFn, *, open_: bool = False) -> Policy:
    """Any policy; or one with limits only."""
    plain = open_ or draw(st.booleans())
    budget = draw(st.sampled_from([Limit(count=1), Limit(count=3), Limit(percent=50)]))
    return Policy(
        canary=Canary(size=0 if plain else draw(st.integers(0, 3)), soak_s=60, failures=99),
        waves=(Wave(),) if plain else (Wave(upto=Limit(percent=40), soak_s=30), Wave()),
        limits=draw(st.dictionaries(st.sampled_from(sorted(HOST_DOMAINS)), limits_)),
        switch_limits=draw(st.dictionaries(st.sampled_from(sorted(SWITCH_DOMAINS)), limits_)),
        failure_budget=Limit(percent=100) if open_ else budget,
        budget_strict=not open_ and draw(st.booleans()),
        breaker=Breaker(of_last=100, failures=100, same_reason=100),
        free_kept=draw(limits_),
        leaf_hosts=draw(st.sampled_from(LeafHosts)),
        tenants=TenantTerms(notice_s=0 if open_ else draw(st.sampled_from([0, 600]))),
    )
