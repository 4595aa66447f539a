"""The effects of people's requests on a repair case, in sentences for the person who asks. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from provisioner.model.case import Case, Service
from provisioner.planning.repair.case_steps import Verb

NOT_TOUCHED = "The node is not touched."


def describe_request(verb: Verb, case: Case, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the request does to the case, its node and its tenant; () for other requests."""
    node = case.node
    match verb:
        case Verb.ACCEPT:
            away = "is out of service already" if _is_cut_off(case) else "is drained now"
            return (f"{node} {away}; it returns once it is repaired and certified again.",)
        case Verb.DEFER:
            until = datetime.fromtimestamp(float(arguments["until"]), UTC)
            return (f"{node} serves on, until {until:%Y-%m-%d %H:%M} UTC at the latest.",)
        case Verb.RETURNED:
            first = f"{node} is taken in as unknown hardware: its parts are compared with those "
            lines = (first + "before, then it is certified anew.",)
            cards = ", ".join(arguments.get("cards", ()))
            return (*lines, f"Factory logins are used for: {cards}.") if cards else lines
        case Verb.SPARE:
            return (f"The part is recorded with the case. {NOT_TOUCHED}",)
        case Verb.RMA:
            return (f"The number is recorded with the case and its ticket. {NOT_TOUCHED}",)
        case Verb.TELL:
            return (f"The ticket is sent to its system again. {NOT_TOUCHED}",)
        case Verb.CLOSE:
            ending = str(arguments["ending"]).replace("_", " ")
            lines = (f"The case ends as: {ending}. Nothing proves that {node} is well.",)
            return (*lines, f"{case.tenant} gets a notice.") if case.tenant else lines
    return ()


def _is_cut_off(case: Case) -> bool:
    return case.service is Service.CUT_OFF
