"""Parts of the operator: definitions and records agree, conditions, moves, the process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from typing import Any, get_args

import pytest
import yaml
from cluster import DEFINITIONS, check_part
from pydantic.fields import FieldInfo

from delivery.chart import CHART
from delivery.sources import ROOT
from provisioner.integrations.kubernetes.campaign_reconciliation import PAUSED_HERE, choose_move
from provisioner.integrations.kubernetes.conditions import (
    Refusal,
    build_status,
    read_refusal,
    refuse,
    report_unknown,
    wait,
    write_camel,
)
from provisioner.integrations.kubernetes.operator import FINALIZER
from provisioner.integrations.kubernetes.specs import (
    GROUP,
    SPECS,
    VERSION,
    BadSpec,
    CampaignSpec,
    SpecRecord,
    TenantSpec,
    read_spec,
)
from provisioner.model.outcome import Reason


def list_fields(record: type[SpecRecord], schema: Mapping[str, Any], place: str) -> list[str]:
    """Return the differences between a record and a schema."""
    ours = {f.alias or name: f for name, f in record.model_fields.items()}
    wrong = [f"{place}.{n}" for n in set(ours) ^ set(schema["properties"])]
    needed = {name for name, field in ours.items() if field.is_required()}
    if needed != set(schema.get("required", ())):
        wrong.append(f"{place}: required")
    for name in set(ours) & set(schema["properties"]):
        theirs = schema["properties"][name]
        for limit, word in (("ge", "minimum"), ("le", "maximum"), ("max_length", "maxLength")):
            if find_limit(ours[name], limit) != theirs.get(word):
                wrong.append(f"{place}.{name}: {word}")
        for inner in find_records(ours[name].annotation):
            part = theirs.get("items", theirs)
            wrong += list_fields(inner, part, f"{place}.{name}")
    return wrong


def find_limit(field: FieldInfo, name: str) -> Any:
    values = [getattr(m, name) for m in field.metadata if hasattr(m, name)]
    return values[0] if values else None


def find_records(annotation: Any) -> list[type[SpecRecord]]:
    if isinstance(annotation, type) and issubclass(annotation, SpecRecord):
        return [annotation]
    return [r for inner in get_args(annotation) for r in find_records(inner)]


@pytest.mark.parametrize("plural", sorted(SPECS))
def test_definitions_say_the_same_as_the_records(plural: str) -> None:
    definition = DEFINITIONS[plural]
    [version] = definition["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]

    assert list_fields(SPECS[plural], schema, plural) == []
    assert definition["metadata"]["name"] == f"{plural}.{GROUP}"
    assert (definition["spec"]["group"], version["name"]) == (GROUP, VERSION)
    assert version["subresources"] == {"status": {}}
    for name, field in schema["properties"].items():
        if "enum" in field:  # the record takes each value, and no other
            base = {"release": "r", "select": "s", "tenant": "t", "nodes": 1}
            known = {k: v for k, v in base.items() if k in schema["properties"]}
            for value in field["enum"]:
                read_spec(SPECS[plural], {**known, name: value})
            with pytest.raises(BadSpec, match=name):
                read_spec(SPECS[plural], {**known, name: "Other"})


def test_the_examples_of_the_page_are_valid() -> None:
    page = (ROOT / "docs" / "integrations" / "kubernetes.md").read_text()
    text = page.split("```yaml\n", 1)[1].split("```", 1)[0]
    objects = list(yaml.safe_load_all(text))

    assert {o["kind"] for o in objects} == {"Tenant", "NodeClaim", "Campaign"}
    kinds = {d["spec"]["names"]["kind"]: plural for plural, d in DEFINITIONS.items()}
    for one in objects:
        check_part(kinds[one["kind"]], "spec", one["spec"])
        read_spec(SPECS[kinds[one["kind"]]], one["spec"])


def test_the_rights_are_those_that_the_operator_uses() -> None:
    text = (CHART / "templates" / "operator.yaml").read_text()
    rules = yaml.safe_load(text.split("rules:\n", 1)[1].split("---", 1)[0])
    ours = {r: set(x["verbs"]) for x in rules if x["apiGroups"] == [GROUP] for r in x["resources"]}

    assert {r for r in ours if "/" not in r} == set(SPECS)
    assert all(ours[p] == {"get", "list", "watch", "patch"} for p in SPECS)
    assert all(ours[f"{p}/status"] == {"patch"} for p in SPECS)
    others = {v for x in rules if x["apiGroups"] != [GROUP] for v in x["verbs"]}
    assert others == {"get", "list", "watch"}
    assert FINALIZER.startswith(f"{GROUP}/")


def test_a_condition_keeps_its_time_until_its_status_changes_and_nothing_new_is_written() -> None:
    first = build_status({}, wait("Making", "a"), 1, "t1")
    assert {c["lastTransitionTime"] for c in first["conditions"]} == {"t1"}
    assert "blockers" not in first
    assert build_status(first, wait("Making", "a"), 1, "t2") == {}
    later = build_status(first, wait("ShortOfNodes", "b"), 2, "t2")
    assert {c["lastTransitionTime"] for c in later["conditions"]} == {"t1"}
    unknown = build_status(first, report_unknown("no answer."), 1, "t3")
    assert [(c["type"], c["status"]) for c in unknown["conditions"]] == [
        ("Accepted", "True"),
        ("Ready", "Unknown"),
    ]


def test_each_reason_of_the_daemon_is_one_of_a_condition() -> None:
    for reason in Reason:
        camel = write_camel(reason.value)
        assert camel.isalnum()
        assert camel[0].isupper()
    assert write_camel("no_path") == "NoPath"
    assert write_camel("409 !") == "Refused"


def test_a_problem_without_blockers_is_a_refusal_too() -> None:
    problem = {
        "type": "urn:provisioner:problem:unauthorized", "title": "No token", "unblock": "Sign in."
    }  # fmt: skip
    assert read_refusal(problem) == Refusal("unauthorized", "No token", "Sign in.")
    blocked = {"blockers": [{"reason": "quota", "subject": "red", "detail": "d", "unblock": "u"}]}
    outcome = refuse(read_refusal(blocked))
    assert outcome.conditions[0].reason == "Quota"
    assert outcome.conditions[0].message == "red: d. Unblock: u"


@pytest.mark.parametrize(
    ("state", "reason", "run", "move"),
    [
        ("draft", "", "Draft", None),
        ("draft", "", "Running", "start"),
        ("draft", "", "Aborted", "abort"),
        ("started", "", "Running", None),
        ("started", "", "Paused", "pause"),
        ("started", "", "Draft", "pause"),
        ("paused", PAUSED_HERE, "Running", "resume"),
        ("paused", "lunch", "Running", "Paused"),
        ("paused", "lunch", "Paused", None),
        ("stopped", "two failed", "Running", "Stopped"),
        ("stopped", "two failed", "Aborted", "abort"),
        ("done", "", "Aborted", None),
        ("rolling_back", "", "Paused", None),
        ("rolling_back", "", "Aborted", None),
    ],
)
def test_moves_of_a_campaign(state: str, reason: str, run: str, move: str | None) -> None:
    campaign = {"state": state, "reason": reason, "going_back": state == "rolling_back"}
    spec = read_spec(CampaignSpec, {"release": "r", "select": "s", "run": run})
    chosen = choose_move(campaign, spec)

    if isinstance(chosen, Refusal):
        assert chosen.reason == move
        assert "a person" in chosen.unblock or "resume" in chosen.unblock
    else:
        assert (chosen[0] if chosen else None) == move


def test_a_bad_field_is_named() -> None:
    with pytest.raises(BadSpec, match=r"spec\.quota\.nodes"):
        read_spec(TenantSpec, {"quota": {"nodes": -1}})


@pytest.mark.parametrize(
    ("environment", "problem"),
    [
        ({}, "PROVISIONER_TOKEN_FILE: it is not set"),
        (
            {"PROVISIONER_TOKEN_FILE": "t", "PROVISIONER_SERVER": "http://a"},
            "not an https address",
        ),
    ],
)
def test_the_process_says_which_setting_it_lacks(environment: dict[str, str], problem: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "provisioner.integrations.kubernetes"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (2, "")
    assert problem in ran.stderr
