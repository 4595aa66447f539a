"""A whole cohort judged at once says of each node what judging it alone says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from provisioner.model.cohort import Sample
from provisioner.planning.certification.cohort import Policy, judge_cohort, judge_node

METRICS = (
    "busbw_gb_s/host",
    "optic_temperature_c/rail 3",
    *(f"lat_us/GPU {n}" for n in range(1, 5)),
    "memory_gib/host",
)


@st.composite
def cohorts(draw: st.DrawFn) -> list[Sample]:
    """Up to fourteen nodes, most of them alike, some far out, some unsound."""
    level = st.sampled_from([100.0, 100.5, 99.0, 101.0, 60.0, 160.0])
    count = draw(st.integers(min_value=1, max_value=14))
    return [
        Sample(
            node=f"n{n}",
            rack="r",
            profile="hgx",
            versions="v",
            measured={name: draw(level) for name in METRICS if draw(st.booleans())},
            sound=draw(st.sampled_from([True, True, True, False])),
        )
        for n in range(count)
    ]


@given(cohorts())
def test_at_once_is_as_one_by_one(members: list[Sample]) -> None:
    policy = Policy(members_min=3)
    alone = {m.node: judge_node(m, members, policy) for m in members}

    assert judge_cohort(members, policy) == {node: worst for node, worst in alone.items() if worst}
