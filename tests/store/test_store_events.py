"""Events: one class for each kind, schemas made from them, and one writer of a node's state."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from api_document import read_document

import provisioner
from provisioner.model.events import EVENTS, EventKind, list_names, name_kind
from provisioner.model.events.fleet_events import WebhookChanged
from provisioner.model.events.node_events import StateChanged
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.planning.lifecycle.journey import describe_transition, enter_state
from provisioner.planning.watch.webhooks import TYPE_PREFIX

PRODUCT = Path(provisioner.__file__).parent
# the function that changes a state, and those that make the row of a node that was not there
WRITERS = {
    "planning/lifecycle/journey.py",
    "planning/intake/pairing.py",
    "planning/certification/regression.py",
    "planning/release/adoption.py",
}


def test_every_kind_has_one_class_and_one_webhook_schema():
    webhooks = read_document()["webhooks"]

    assert set(EVENTS) == set(EventKind)
    assert set(webhooks) == {k.value for k in EventKind}
    types = {
        w["post"]["requestBody"]["content"]["application/cloudevents+json"]["schema"]["properties"][
            "type"
        ]["const"]
        for w in webhooks.values()
    }
    assert types == {TYPE_PREFIX + k.value for k in EventKind}


def test_the_schema_of_a_kind_names_the_fields_as_they_are_stored():
    schema = read_document()["components"]["schemas"]["StateChanged"]
    event = StateChanged(
        about="n1", from_state=State.INTAKE, to_state=State.CONVERGING, why="fenced"
    )

    assert event.to_detail() == {"from": "intake", "to": "converging", "why": "fenced"}
    assert schema["required"] == ["from", "to", "why"]
    assert set(schema["properties"]) == {"from", "to", "why", "blockers", "tenant", "release"}


def test_fields_that_were_not_given_are_not_stored():
    assert WebhookChanged(webhook="billing", paused="").to_detail() == {
        "paused": "",
        "webhook": "billing",
    }


def test_rows_of_earlier_versions_keep_their_names_and_are_found_by_the_present_one():
    assert name_kind("fabric session") == EventKind.FABRIC_SESSION
    assert list_names("fabric_session") == {"fabric_session", "fabric session"}
    assert name_kind("state") == "state"
    assert list_names("") == frozenset()


def test_entering_a_state_asks_the_table():
    node = Node(id="n1", kind=NodeKind.HOST, state=State.CONVERGING, tenant="red")
    fenced = {"placement": Placement.MAINTENANCE}

    entered = enter_state(node, State.VALIDATING, "all pins are met", 7.0, fenced)

    assert (entered.state, entered.entered_at, entered.note) == (
        State.VALIDATING,
        7.0,
        "all pins are met",
    )
    event = describe_transition(node, entered)
    assert event is not None
    assert (event.about, event.why, event.tenant) == ("n1", "all pins are met", "red")
    assert describe_transition(node, node) is None
    with pytest.raises(AssertionError):
        enter_state(node, State.RELEASED, "", 7.0, fenced)
    with pytest.raises(AssertionError):  # its ports are anywhere
        enter_state(node, State.VALIDATING, "", 7.0, {"placement": Placement.MIXED})


def test_after_a_restore_a_person_may_adopt_any_row_but_a_retired_one():
    place = {"placement": Placement.CUSTOMER}
    for state in set(State) - {State.RETIRED, State.RELEASED}:
        node = Node(id="n1", kind=NodeKind.HOST, state=state)
        adopted = enter_state(node, State.RELEASED, "", 7.0, place, after_restore=True)
        assert adopted.state is State.RELEASED
    retired = Node(id="n1", kind=NodeKind.HOST, state=State.RETIRED)
    with pytest.raises(AssertionError):
        enter_state(retired, State.RELEASED, "", 7.0, place, after_restore=True)


def _writes_of_state(tree: ast.AST) -> list[int]:
    """Return lines that set `entered_at`, or copy a record with a member of `State`."""
    lines = []
    for node in ast.walk(tree):
        is_node = isinstance(node, ast.Call) and ast.unparse(node.func) == "Node"
        if is_node and any(k.arg == "entered_at" for k in node.keywords):
            lines.append(node.lineno)
        if not isinstance(node, ast.Dict):
            continue
        for key, value in zip(node.keys, node.values, strict=True):
            if not isinstance(key, ast.Constant):
                continue
            member = isinstance(value, ast.Attribute) and ast.unparse(value).startswith("State.")
            if key.value == "entered_at" or (key.value == "state" and member):
                lines.append(node.lineno)
    return lines


def test_only_one_function_changes_a_nodes_state():
    found = {}
    for file in PRODUCT.rglob("*.py"):
        name = file.relative_to(PRODUCT).as_posix()
        if name.startswith("sim/"):
            continue
        text = file.read_text(encoding="utf-8")
        if "entered_at" not in text and "State." not in text:
            continue  # to parse all modules takes seconds
        lines = _writes_of_state(ast.parse(text))
        if lines:
            found[name] = lines

    assert set(found) == WRITERS, found
    assert _writes_of_state(ast.parse('n.model_copy(update={"state": State.INTAKE})'))
