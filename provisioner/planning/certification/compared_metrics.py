"""The rules by which measurements are compared: the better direction, and the difference that
matters. Pure data.

A measurement's name ends with its unit, "busbw_gb_s/host" (`CheckResult.measured`). A name without
a rule is stored and shown, and never judged.
"""

from __future__ import annotations

from functools import lru_cache

from provisioner.model.base import Record


class MetricRule(Record):
    """The rule for one kind of measurement. `sign` +1: more is better; -1: less is better.

    A difference matters if it is larger than `relative` of the reference and than `absolute`.
    """

    sign: int
    relative: float
    absolute: float
    source: str


_Z = "a proposal, to be tuned: no source gives one"
# Ends of names. A bandwidth that differs by 3 % is a difference (robust z with an effect floor);
# SuperBench calls 5 % below its baseline defective.
RULES: dict[str, MetricRule] = {
    "_gb_s": MetricRule(sign=1, relative=0.03, absolute=0.0, source="robust z and effect: " + _Z),
    "_gbit_s": MetricRule(sign=1, relative=0.03, absolute=0.0, source="robust z and effect: " + _Z),
    "_mb_s": MetricRule(sign=1, relative=0.03, absolute=0.0, source="robust z and effect: " + _Z),
    "_gflop_s": MetricRule(
        sign=1, relative=0.05, absolute=0.0, source="a GPU within 5 % of its node's median: burn"
    ),
    "_iops": MetricRule(sign=1, relative=0.10, absolute=0.0, source="SuperBench: 10 % for random"),
    "_us": MetricRule(sign=-1, relative=0.05, absolute=0.2, source=_Z),
    "_ms": MetricRule(sign=-1, relative=0.05, absolute=0.0, source="SuperBench: latency 5 %"),
    "_per_s": MetricRule(sign=-1, relative=0.50, absolute=1.0, source=_Z),
    # other temperatures depend more on the room and on the load a minute ago than on the part
    "gpu_temperature_c": MetricRule(sign=-1, relative=0.0, absolute=15.0, source=_Z),
    "optic_temperature_c": MetricRule(sign=-1, relative=0.0, absolute=15.0, source=_Z),
    "_dbm": MetricRule(sign=1, relative=0.0, absolute=2.0, source=_Z),
}


@lru_cache(maxsize=16_384)
def rule_of(name: str) -> MetricRule | None:
    """Return the rule of "name/part", "name after load/part" or "name"; None: it is not
    compared.
    """
    metric = name.partition("/")[0].partition(" after ")[0]
    for ending in sorted(RULES, key=len, reverse=True):
        if metric.endswith(ending):
            return RULES[ending]
    return None


def is_worse(rule: MetricRule, value: float, reference: float) -> bool:
    """Return whether `value` is worse than `reference` by more than the rule's effect."""
    return rule.sign * (reference - value) > worse_by(rule, reference)


def worse_by(rule: MetricRule, reference: float) -> float:
    """Return how much worse than `reference` a value may be without significance."""
    return max(rule.relative * abs(reference), rule.absolute)
