"""Where limits cross, the preview shows what a campaign takes at once and what could be."""

from __future__ import annotations

from itertools import combinations

from campaign_worlds import campaign, counts, host, policy
from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.cli.client.campaign_views import describe_crossing
from provisioner.model.campaign import Campaign, CampaignNode, Domain, Limit, NodeProgress, Progress
from provisioner.planning.campaigns.campaign_preview import (
    Crossing,
    measure_crossing,
    preview_campaign,
)

LIMITS = {Domain.RACK: Limit(count=1), Domain.SCALABLE_UNIT: Limit(count=2)}


def place(racks: list[int], units: list[int]) -> list[CampaignNode]:
    return [
        host(n, rack=f"r{rack}", unit=f"su{unit}", leaves=())
        for n, (rack, unit) in enumerate(zip(racks, units, strict=True))
    ]


def count_largest_choice(made: Campaign, facts: list[CampaignNode]) -> int:
    """Return the size of the largest set of hosts that no limit forbids, by trying every set."""

    def fits(names: tuple[str, ...]) -> bool:
        begun = {n: NodeProgress(node=n, wave=1, state=Progress.ADMITTED) for n in names}
        return all(out <= most for out, most in counts(facts, begun, made.policy).values())

    names = [n.name for n in facts]
    sizes = range(len(names), 0, -1)
    return next((s for s in sizes if any(fits(c) for c in combinations(names, s))), 0)


def test_racks_within_units_have_nothing_to_compare():
    facts = [host(n) for n in range(16)]

    assert measure_crossing(campaign(policy(limits=LIMITS)), facts, 0.0) is None
    assert preview_campaign(campaign(policy(limits=LIMITS)), facts, 0.0).crossing is None


def test_the_preview_shows_both_figures_of_racks_that_stand_in_two_units():
    facts = [host(n, rack=f"r{(n + 2) // 4}") for n in range(16)]

    crossing = preview_campaign(campaign(policy(limits=LIMITS)), facts, 0.0).crossing

    assert crossing is not None
    assert crossing.domains == ("rack", "scalable_unit")
    # two units of two hosts each; the five racks would allow one host more
    assert (crossing.taken, crossing.at_most) == (4, 4)


def test_both_figures_are_shown_in_a_sentence():
    crossing = Crossing(taken=3, at_most=4, domains=("rack", "scalable_unit"))

    assert describe_crossing(crossing) == (
        "limits that cross (rack and scalable unit): 3 hosts fit at once, "
        "and no choice has more than 4"
    )


@settings(max_examples=60)
@given(
    racks=st.lists(st.integers(0, 3), min_size=8, max_size=8),
    units=st.lists(st.integers(0, 2), min_size=8, max_size=8),
    rack_limit=st.integers(1, 2),
    unit_limit=st.integers(1, 3),
)
def test_the_largest_choice_is_between_both_figures(
    racks: list[int], units: list[int], rack_limit: int, unit_limit: int
):
    limits = {
        Domain.RACK: Limit(count=rack_limit),
        Domain.SCALABLE_UNIT: Limit(count=unit_limit),
    }
    made = campaign(policy(limits=limits))
    facts = place(racks, units)

    crossing = measure_crossing(made, facts, 0.0)

    if crossing is not None:
        assert crossing.taken <= count_largest_choice(made, facts) <= crossing.at_most
