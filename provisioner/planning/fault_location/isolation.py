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

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from itertools import islice, zip_longest

from provisioner.planning.fault_location import round_robin
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
from provisioner.planning.fault_location.rate_fit import tell_by_test

# ------------------------------------------------------------------------------
# Tests of nodes that are still open: each with the partner that tells most. Pure.
#
# Where two explanations of the same results are in doubt, tests are chosen by how far their chances
# to fail differ between the two. A cell that is not cleared yet is tested with a partner that is
# good on its open rails, a different one each time as long as there is one.


CANDIDATES_MAX = 64  # partners that are considered for one suspect, of each kind
_TELLING_MIN = 0.002  # the square of a difference of chances below which a test tells nothing


def plan_tests(
    trials: Trials, judged: Judgement, needs: dict[str, tuple[int, ...]], number: int
) -> tuple[FabricTest, ...]:
    """Return tests of open nodes: first those that decide doubts, then the other nodes'."""
    bad = {b.node for b in judged.blames if b.culprit is Culprit.NODE}
    idle: dict[tuple[str, ...], list[str]] = {}
    for name in trials.fabric.rails_of:
        if name not in needs and name not in bad:
            idle.setdefault(trials.fabric.group_of[name], []).append(name)
    for names in idle.values():
        names.sort(key=lambda n: (trials.tested.get(n, 0), n))
    order = sorted(needs, key=lambda n: (-len(needs[n]), trials.tested.get(n, 0), n))
    tests_max = _limit_tests(trials.policy, judged.clearance.noise)
    fresh = [n for n in order if n not in bad and trials.tested.get(n, 0) < tests_max]
    pairs = _pair_telling(trials, judged, needs, fresh)
    used = {name for pair in pairs for name in pair}
    for name in fresh:
        if name in used or not _is_unclear(judged, name, needs[name]):
            continue
        partner = _find_partner(trials, judged, needs, name, idle, used, order)
        if partner is not None:
            used |= {name, partner}
            pairs.append((name, partner))
    tests: list[FabricTest] = []
    for name, partner in pairs:
        rails = tuple(sorted({*needs[name], *needs.get(partner, ())}))
        shared = find_shared_rails(trials, (name, partner))
        rails = tuple(r for r in rails if r in shared)
        kind = FabricTestKind.RAIL if 2 * len(rails) <= len(shared) else FabricTestKind.PAIR
        measured = rails if kind is FabricTestKind.RAIL else shared
        tests.append(name_test(number, len(tests), kind, (name, partner), measured))
    return tuple(tests)


def _limit_tests(policy: IsolationPolicy, noise: float) -> float:
    """Return the tests of one node after which it stays undecided: more, the less a test tells."""
    assumed = tell_by_test(policy.noise, policy.rate_min)
    return policy.tests_max * assumed / tell_by_test(noise, policy.rate_min)


def _is_unclear(judged: Judgement, name: str, rails: Sequence[int]) -> bool:
    """Return whether a node is open not only because it decides between two explanations."""
    return any(
        (name, rail) not in judged.in_doubt
        or not judged.clearance.is_clear((name, rail), far=False)
        for rail in rails
    )


def _pair_telling(
    trials: Trials, judged: Judgement, needs: dict[str, tuple[int, ...]], names: Sequence[str]
) -> list[tuple[str, str]]:
    """Return the pairs whose tests decide between explanations in doubt, the best first."""
    every = trials.fabric.rails_of
    rated = []
    for name in names:
        worth, partner = _find_telling(trials, judged, needs[name], name, every)
        if worth > 0.0:
            rated.append((worth, name, partner))
    pairs: list[tuple[str, str]] = []
    used: set[str] = set()
    for worth, name, partner in sorted(rated, key=lambda r: (-r[0], r[1])):
        if name in used:
            continue
        if partner in used:
            free = [n for n in every if n not in used]
            worth, partner = _find_telling(trials, judged, needs[name], name, free)
        if worth > 0.0:
            used |= {name, partner}
            pairs.append((name, partner))
    return pairs


def _find_telling(
    trials: Trials, judged: Judgement, rails: Sequence[int], name: str, free: Collection[str]
) -> tuple[float, str]:
    """Return what the best test tells about what is in doubt, and its partner; 0: nothing.

    A test tells more, the further its chances to fail differ between the two explanations.
    """
    cells = {(name, rail) for rail in rails}
    doubts = [d for d in judged.doubts if d.has_rivals and not d.cells.isdisjoint(cells)]
    best = (0.0, "")
    if not doubts:
        return best
    fabric = trials.fabric
    meetings = trials.partners.get(name, Counter())
    group = fabric.group_of[name]
    near = (n for n in free if fabric.group_of[n] == group and n != name)
    far = _spread(fabric, (n for n in free if fabric.group_of[n] != group))
    for partner in (*islice(near, CANDIDATES_MAX), *islice(far, CANDIDATES_MAX)):
        shared = [rail for rail in rails if (partner, rail) in fabric.leaf_of]
        ways = [fabric.find_way((name, rail), (partner, rail)) for rail in shared]
        difference = sum(d.find_difference(way) ** 2 for d in doubts for way in ways)
        worth = round(difference / (1 + meetings[partner]), 6)
        if difference > _TELLING_MIN and worth > best[0]:
            best = (worth, partner)
    return best


def _spread(fabric: Fabric, names: Iterable[str]) -> Iterator[str]:
    """Return the nodes of all pods in turn: to tell pods apart takes partners in several."""
    if len(fabric.pods) < 2:
        return iter(names)
    by_pod: dict[str, list[str]] = {}
    for name in names:
        by_pod.setdefault(fabric.pod_of_node[name], []).append(name)
    turns = zip_longest(*by_pod.values())
    return (name for turn in turns for name in turn if name is not None)


def _find_partner(
    trials: Trials,
    judged: Judgement,
    needs: dict[str, tuple[int, ...]],
    name: str,
    idle: dict[tuple[str, ...], list[str]],
    used: set[str],
    order: Sequence[str],
) -> str | None:
    """A partner for a node that is still open; one that it met before only after all others."""
    free = [n for n in trials.fabric.rails_of if n != name and n not in used]
    meetings = trials.partners.get(name, Counter())
    for most in sorted({meetings[n] for n in free}):
        met = used | {n for n, times in meetings.items() if times > most}
        partner = _find_unmet(trials, judged, needs, name, idle, met, order)
        if partner is not None:
            return partner
    return None


def _find_unmet(
    trials: Trials,
    judged: Judgement,
    needs: dict[str, tuple[int, ...]],
    name: str,
    idle: dict[tuple[str, ...], list[str]],
    met: set[str],
    order: Sequence[str],
) -> str | None:
    """Return an unmet partner: a suspect that is good where this one is not, or a cleared node.

    Near partners come first until the suspect failed or passed with one on its own leaf, because
    the path between leaves cannot cause a failure on one leaf.
    """
    remaining = judged.remaining
    free = (n for n in order if n != name and n not in met)
    for candidate in islice(free, CANDIDATES_MAX):
        apart = not set(needs[candidate]) & set(needs[name])
        if (
            apart
            and _good(remaining, candidate, needs[name])
            and _good(remaining, name, needs[candidate])
        ):
            return candidate
    group = trials.fabric.group_of[name]
    cut = judged.cut
    leaves = {trials.fabric.leaf_of[name, r] for r in needs[name]}
    near = [n for n in idle.get(group, ()) if n not in met]
    far = (
        n
        for g, names in idle.items()
        if g != group
        for n in names
        if n not in met
        and not _behind(trials, n, needs[name], cut)
        and not _is_apart(trials.fabric, judged.apart, name, n)
    )
    was_near = any(t.local for r in needs[name] for t in remaining.by_cell.get((name, r), ()))
    candidates = [] if leaves & cut else [*islice(far, CANDIDATES_MAX)]
    candidates = [*candidates, *near] if was_near else [*near, *candidates]
    mates = (n for n in order if n not in met and n != name)
    mates = (n for n in mates if trials.fabric.group_of[n] == group)
    alone = not was_near and not any(_good(remaining, n, needs[name]) for n in near)
    if alone and trials.tested.get(name, 0) >= 2 and (mate := next(mates, None)) is not None:
        # no good neighbour: whether the open ones fail with each other separates leaf from uplink
        return mate
    for candidate in candidates:
        if _good(remaining, candidate, needs[name]):
            return candidate
    # no node is proved good there: a partner not met yet still adds information
    unmet = [n for n in order if n != name and n not in met]
    if was_near and not leaves & cut:
        unmet.sort(key=lambda n: trials.fabric.group_of[n] == group)
    return unmet[0] if unmet else None


def _behind(trials: Trials, name: str, rails: Sequence[int], cut: Set[str]) -> bool:
    """Return whether a node is, on one of these rails, on a leaf without a usable path out."""
    return any(trials.fabric.leaf_of.get((name, r), "") in cut for r in rails)


def _is_apart(fabric: Fabric, apart: Set[str], name: str, other: str) -> bool:
    """Return whether two nodes are in different pods, one of them without a usable path out."""
    pods = {fabric.pod_of_node[name], fabric.pod_of_node[other]}
    return len(pods) > 1 and not apart.isdisjoint(pods)


def _good(trials: Trials, name: str, rails: Sequence[int]) -> bool:
    no_nodes: frozenset[str] = frozenset()
    leaf_of = trials.fabric.leaf_of
    return all((name, r) in leaf_of and trials.is_good((name, r), no_nodes) for r in rails)


def find_shared_rails(trials: Trials, names: Sequence[str]) -> tuple[int, ...]:
    rails = set(trials.fabric.rails_of[names[0]])
    for name in names[1:]:
        rails &= set(trials.fabric.rails_of[name])
    return tuple(sorted(rails))


def name_test(
    number: int, index: int, kind: FabricTestKind, nodes: Sequence[str], rails: tuple[int, ...]
) -> FabricTest:
    """Return a test with its name, which is unique in a campaign."""
    return FabricTest(name=f"r{number}t{index}", kind=kind, nodes=tuple(nodes), rails=rails)


class Campaign:
    """A campaign that is still running: its observations are counted once, as they come."""

    def __init__(self, fabric: Fabric, policy: IsolationPolicy) -> None:
        self.trials = CountedTrials(fabric, policy)
        self.seen: list[Observation] = []

    def add(self, observations: Iterable[Observation]) -> None:
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
    fabric = trials.fabric
    reachable = {rail: _list_reachable(fabric, rail, judged) for rail in fabric.leaves_of_rail}
    for name, rails in fabric.rails_of.items():
        undecided = tuple(
            rail
            for rail in rails
            if (name, rail) not in judged.explained
            and (
                (name, rail) in judged.suspicious
                or not judged.clearance.is_clear(
                    (name, rail), far=fabric.leaf_of[name, rail] in reachable[rail]
                )
            )
        )
        if undecided:
            open_rails[name] = undecided
    return open_rails


def _list_reachable(fabric: Fabric, rail: int, judged: Judgement) -> frozenset[str]:
    """Return the leaves of a rail that have a usable way to another one of it."""
    open_leaves = [leaf for leaf in fabric.leaves_of_rail[rail] if leaf not in judged.cut]
    leaves_in = Counter(fabric.pod_of_leaf[leaf] for leaf in open_leaves)
    meeting = leaves_in.keys() - judged.apart
    return frozenset(
        leaf
        for leaf in open_leaves
        if leaves_in[pod := fabric.pod_of_leaf[leaf]] > 1 or (pod in meeting and len(meeting) > 1)
    )


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
        bunches = round_robin.split_into_groups(groups, policy.group_size, number)
        return tuple(
            name_test(number, i, FabricTestKind.GROUP, bunch, find_shared_rails(trials, bunch))
            for i, bunch in enumerate(bunches)
        )
    pairs = (
        round_robin.pair_across(groups, number)
        if number % 2
        else round_robin.pair_within(groups, number)
    )
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
