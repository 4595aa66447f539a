"""Jobs on campaigns, cases and alerts by the generated client; `daily_jobs.py` names each."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from generated_calls import SITE, ask, propose, save

NEWER, RELEASE = SITE["newer"], SITE["release"]
SELECT = "su=2 and kind=host"
METRIC = "busbw_gb_s"
IN_CAMPAIGN = "su2-n09"  # the node of each campaign


def read_clock(hours: float = 0.0) -> datetime.datetime:
    """Return the time so many hours from now."""
    return datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=hours)


def after(hours: float) -> str:
    """Return the time so many hours from now, as RFC 3339."""
    return read_clock(hours).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def see_difference(_: Any) -> None:
    runs = {node.release for node in ask("list_nodes", where=SELECT).items} - {NEWER}
    assert RELEASE in runs
    assert ask("show_moves", RELEASE, NEWER).older == RELEASE


def draft(_: Any) -> None:
    window = {"days": [5, 6], "start_min": 60, "minutes": 240, "zone": "Europe/Berlin"}
    policy = {"canary": {"size": 2}, "windows": [window]}
    body = {"release": NEWER, "select": SELECT, "name": "weekend", "policy": policy}
    propose("create_campaign", body=body)
    assert ask("preview_campaign", "weekend").waves
    assert ask("show_campaign", "weekend").campaign.state.value == "draft"


def see_preview(_: Any) -> None:
    shown = ask("preview_campaign", "c0002")
    assert shown.waves
    assert shown.bound_by


def start(name: str) -> None:
    one_way = list(ask("preview_campaign", name).to_confirm or ())
    propose("start_campaign", name, body={"confirm": one_way})
    expect(name, "started")


def expect(name: str, state: str) -> None:
    """Look at a campaign's state."""
    assert ask("show_campaign", name).campaign.state.value == state


def change(verb: str, state: str, **body: Any) -> Callable[[str], None]:
    """A job that makes one request on a campaign."""

    def do(name: str) -> None:
        propose(verb, name, body=body or None)
        expect(name, state)

    return do


def roll_back(name: str) -> None:
    assert ask("preview_campaign_rollback", name).baseline == SITE["earlier"]
    change("rollback_campaign", "rolling_back")(name)


def rehearse(name: str) -> None:
    operation = ask("rehearse_campaign", name, body={"nodes": 2}).id
    while (now := ask("show_operation", operation)).state.value == "running":
        pass
    assert now.result["report"]["states"] == {"done": 2}


def accept_metric(name: str) -> None:
    report = ask("show_campaign_report", name)
    assert METRIC in [line.metric for line in report.comparisons]
    propose("accept_campaign_metric", name, body={"metric": METRIC})
    assert ask("show_campaign", name).campaign.accepted == [METRIC]


def change_node(verb: str, state: str, body: Callable[[], Any] = lambda: None) -> Any:
    """A job that makes one request on a node of a campaign."""

    def do(name: str) -> None:
        propose(verb, name, IN_CAMPAIGN, body=body())
        (node,) = ask("show_campaign", name).nodes
        assert node.state.value == state

    return do


def see_case(_: Any) -> None:
    shown = ask("show_case", "su1-n05-c0001")
    assert shown.next_step
    assert shown.case.suspects[0].confidence == 0.82
    assert shown.case.ticket.id == "HW-4711"


def act(verb: str, holds: Callable[[Any], Any], body: Callable[[], Any] = lambda: None) -> Any:
    """A job that makes one request on a case; `holds` looks at the case afterwards."""

    def do(case: str) -> None:
        propose(verb, case, body=body())
        shown = ask("show_case", case)
        assert holds(shown.case or shown.line), shown  # a tenant sees its line alone

    return do


def replace_host(case: str) -> None:
    propose("replace_case", case, body={"why": "its board was dead"})
    assert ask("show_case", case).case.ending.value == "replaced"
    assert ask("show_node", "case-n81").state.value == "discovered"


def save_evidence(case: str) -> None:
    assert save("show_case_bundle", f"/v1/cases/{case}/bundle").startswith(b"\x1f\x8b")  # gzip


def find_work(case: str) -> None:
    assert ask("list_cases", serial="NONE-SUCH").items == []
    assert [line.id for line in ask("list_cases", serial="1652923900078").items] == [case]


def report_at_rack(case: str) -> None:
    (line,) = ask("list_cases", serial="1652923900079").items
    assert line.id == case
    propose("returned_case", line.id, body={"work": "Replaced. (new serial NEW-79)"})


def see_waiting_case(_: Any) -> None:
    (case,) = [c.case for c in ask("show_home").cases if c.case == "su1-n05-c0001"]
    assert ask("show_case", case).next_step


def report_fault(name: str) -> None:
    case = ask("open_case", name, body={"reason": "its jobs hang"}).result["case"]
    assert ask("show_case", case).line.node == name


def suspend_alert(_: Any) -> None:
    body = {"id": "FanFailed", "hours": 24, "why": "a fan is ordered"}
    propose("override_alert", "su0-n01", body=body)


def clear_alert(_: Any) -> None:
    assert "su0-n03" in [a.node for a in ask("list_alerts").items]
    propose("clear_alert", "su0-n03", body={"id": "FanFailed", "why": "it was replaced"})
