"""Location of the node, link or leaf at fault: the next tests, and the parts that are proved
faulty.

The caller passes all observations to `plan_next_round` until it returns verdicts. It keeps no state
of its own, so a crash, a test that never ran or a second driver change nothing; a `Campaign` in one
process takes them as they come.

All nodes are screened first, near (within the unit) and then far (across units). A node that failed
or sat out is tested again with partners that are proved good, a different one each time as long as
there is one, until Wald's sequential test clears or condemns it (`suspect_tests`). A culprit needs
at least three distinct good partners.
`isolation_ends` names cable or optic, and only with counters from both ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from provisioner.planning.fault_location import round_robin as rounds
from provisioner.planning.fault_location.isolation_blame import (
    EVIDENCE_MAX,
    Judgement,
    judge_trials,
)
from provisioner.planning.fault_location.isolation_trials import CountedTrials, Trials
from provisioner.planning.fault_location.isolation_words import (
    Blame,
    Cell,
    Culprit,
    Fabric,
    FabricTest,
    FabricTestKind,
    IsolationPolicy,
    Observation,
    RailOutcome,
    Round,
    Verdicts,
)
from provisioner.planning.fault_location.suspect_tests import (
    find_shared_rails,
    name_test,
    plan_tests,
)


class Campaign:
    """A campaign that is still running: its observations are counted once, as they come."""

    def __init__(self, fabric: Fabric, policy: IsolationPolicy) -> None:
        self.trials = CountedTrials(fabric, policy)
        self.seen: list[Observation] = []

    def add(self, observations: Iterable[Observation]) -> None:
        """Take these observations as well."""
        listed = tuple(observations)
        self.seen += listed
        self.trials.add(listed)

    def find_culprits(self) -> Verdicts:
        """Return the verdicts from the observations so far, even if some nodes are undecided."""
        judged = judge_trials(self.trials)
        return self._verdicts(judged, _open(self.trials, judged))

    def plan_next_round(self) -> Round | Verdicts:
        """Return the tests to run next, or the verdicts if no test can decide more."""
        trials = self.trials
        policy = trials.policy
        number = max((o.round_number for o in self.seen), default=-1) + 1
        judged = judge_trials(trials)
        needs = _open(trials, judged)
        if number < policy.screening_rounds and needs:
            tests = _screening(trials.fabric, trials, policy, number)
            why = f"screening {'across' if number % 2 else 'within'} units"
        elif needs and not judged.held and number < policy.rounds_max:
            tests = plan_tests(trials, judged, needs, number)
            why = f"{len(needs)} nodes are not cleared"
        else:
            tests = ()
            why = ""
        if not tests:
            return self._verdicts(judged, needs)
        spent = sum(policy.get_minutes(t.kind) * len(t.nodes) for t in tests)
        return Round(number=number, why=why, tests=tests, node_minutes=spent)

    def _verdicts(self, judged: Judgement, needs: dict[str, tuple[int, ...]]) -> Verdicts:
        return _verdicts(self.trials.fabric, self.seen, self.trials.policy, judged, needs)


def find_culprits(
    fabric: Fabric, observations: Iterable[Observation], policy: IsolationPolicy
) -> Verdicts:
    """Return the verdicts from the observations so far, even if some nodes are undecided."""
    campaign = Campaign(fabric, policy)
    campaign.add(observations)
    return campaign.find_culprits()


def plan_next_round(
    fabric: Fabric, observations: Iterable[Observation], policy: IsolationPolicy
) -> Round | Verdicts:
    """Return the tests to run next, or the verdicts if no test can decide more."""
    campaign = Campaign(fabric, policy)
    campaign.add(observations)
    return campaign.plan_next_round()


def _open(trials: Trials, judged: Judgement) -> dict[str, tuple[int, ...]]:
    """Return node -> rails that are neither cleared nor explained."""
    open_rails = {}
    cut = judged.cut
    leaf_of = trials.fabric.leaf_of
    leaves_of_rail = trials.fabric.leaves_of_rail
    reachable = {rail for rail, leaves in leaves_of_rail.items() if len(leaves - cut) > 1}
    for name, rails in trials.fabric.rails_of.items():
        undecided = tuple(
            rail
            for rail in rails
            if (name, rail) not in judged.explained
            and (
                (name, rail) in judged.suspicious
                or not judged.clearance.is_clear(
                    (name, rail), far=rail in reachable and leaf_of[name, rail] not in cut
                )
            )
        )
        if undecided:
            open_rails[name] = undecided
    return open_rails


def _screening(
    fabric: Fabric, trials: Trials, policy: IsolationPolicy, number: int
) -> tuple[FabricTest, ...]:
    """Return one test for every node: in pairs by the circle method, or in groups."""
    units: dict[tuple[str, ...], list[str]] = {}
    for node in fabric.nodes:
        if node.links:
            units.setdefault(fabric.group_of[node.name], []).append(node.name)
    groups = list(units.values())
    if policy.group_size > 2:
        bunches = rounds.split_into_groups(groups, policy.group_size, number)
        return tuple(
            name_test(number, i, FabricTestKind.GROUP, bunch, find_shared_rails(trials, bunch))
            for i, bunch in enumerate(bunches)
        )
    pairs = rounds.pair_across(groups, number) if number % 2 else rounds.pair_within(groups, number)
    tests = []
    for i, pair in enumerate(pairs):
        rails = find_shared_rails(trials, pair)
        if rails:
            tests.append(name_test(number, i, FabricTestKind.PAIR, pair, rails))
    return tuple(tests)


def _verdicts(
    fabric: Fabric,
    seen: Sequence[Observation],
    policy: IsolationPolicy,
    judged: Judgement,
    needs: dict[str, tuple[int, ...]],
) -> Verdicts:
    """Return the verdicts; open cells are undecided, and so is blame that is held back."""
    tests = {o.test.name: o for o in seen}
    opened = sum(len(rails) for rails in needs.values())
    cleared = len(fabric.leaf_of) - len(judged.explained) - opened
    untested = tuple(sorted(n for n in needs if not _ran(n, tests.values())))
    suspects = tuple(
        _suspect(judged.remaining, (name, rail))
        for name, rails in sorted(needs.items())
        if name not in untested
        for rail in rails
    )
    return Verdicts(
        condemned=() if judged.held else judged.blames,
        undecided=(*(judged.blames if judged.held else ()), *judged.doubtful, *suspects),
        held=judged.held,
        cleared=cleared,
        rate_missed=policy.rate_min if cleared else 0.0,
        untested=untested,
        rounds=len({o.round_number for o in seen}),
        node_minutes=sum(
            policy.get_minutes(o.test.kind) * len(o.test.nodes) for o in tests.values()
        ),
    )


def _ran(name: str, observations: Iterable[Observation]) -> bool:
    return any(
        name in o.test.nodes and any(r.shown is not RailOutcome.NOT_RUN for r in o.results)
        for o in observations
    )


def _suspect(trials: Trials, cell: Cell) -> Blame:
    """Return an undecided blame for a link that is neither cleared nor condemned."""
    failures, passes = trials.count_against(cell)
    names = sorted({t.get_far_end(cell)[0] for t in failures})
    return Blame(
        culprit=Culprit.LINK,
        node=cell[0],
        rail=cell[1],
        leaf=trials.fabric.leaf_of[cell],
        confidence=0.0,
        reason=f"not decided: {len(failures)} failures with good partners, {passes} passes",
        partners=tuple(names[:EVIDENCE_MAX]),
        tests=tuple(sorted(t.test for t in failures)[:EVIDENCE_MAX]),
    )
