"""Values of the labels of metrics and of the attributes of traces, each from a closed list."""

from __future__ import annotations

from provisioner import components
from provisioner.model.plan import Plan, Step, StepKind


def name_component(step: Step) -> str:
    """Return the component kind of an update, the reset of an activation, or "other"."""
    if step.kind is StepKind.ACTIVATE:
        return step.activation.value
    return step.component if step.component in components.ALL else "other"


def name_outcome(plan: Plan) -> str:
    """Return the outcome of a plan in one word."""
    if plan.blockers:
        return "blocked"
    if plan.in_flight:
        return "in_flight"
    return "steps" if plan.steps else "done"
