"""The language that picks nodes, against expressions built as Python says them."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.model.input_error import InputError
from provisioner.model.location import Location, Port
from provisioner.model.node import Node, NodeKind, State
from provisioner.planning.campaigns.select_expression import (
    DEPTH_MAX,
    LENGTH_MAX,
    NODE_FIELDS,
    parse,
    read_fields,
    select,
)

NODES = (
    Node(
        id="su0-n00",
        kind=NodeKind.HOST,
        state=State.RELEASED,
        tenant="red",
        profile="hgx-h100-bf3",
        release="r1",
        location=Location(rack="su0-rack0"),
        ports=(
            Port(switch="leaf-su0-r0", interface="swp1s0", rail=0, nic_slot="NIC_0"),
            Port(switch="leaf-su0-r1", interface="swp1s0", rail=1, nic_slot="NIC_1"),
        ),
    ),
    Node(
        id="su1-n07",
        kind=NodeKind.HOST,
        state=State.CERTIFIED,
        profile="hgx-h100-bf3",
        release="r2",
        location=Location(rack="su1-rack1", scalable_unit=1),
    ),
    Node(id="leaf-su0-r0", kind=NodeKind.SWITCH, profile="sn5600", release="r1"),
)


@pytest.mark.parametrize(
    ("text", "picked"),
    [
        ("all", ["su0-n00", "su1-n07", "leaf-su0-r0"]),
        ("kind=host", ["su0-n00", "su1-n07"]),
        ("rack=su0-*", ["su0-n00"]),
        ("su=1", ["su1-n07"]),
        ("tenant=red", ["su0-n00"]),
        ('kind=host tenant=""', ["su1-n07"]),
        ("release!=r1", ["su1-n07"]),
        ("node=su0-n00,leaf-*", ["su0-n00", "leaf-su0-r0"]),
        ("state=released,certified and not profile=sn*", ["su0-n00", "su1-n07"]),
        ("kind=switch or tenant=red and su=0", ["su0-n00", "leaf-su0-r0"]),
        ("(kind=switch or tenant=red) and su=0", ["su0-n00", "leaf-su0-r0"]),
        ("not not kind=switch", ["leaf-su0-r0"]),
        ("leaf=leaf-su0-r1", ["su0-n00"]),
        ("leaf!=leaf-su0-r1", ["su1-n07", "leaf-su0-r0"]),
        ("kind=host rail!=*", []),
        ("state=Released", []),
    ],
)
def test_an_expression_picks_exactly_these(text: str, picked: list[str]) -> None:
    found = [n.id for n in select(text, NODES)]

    assert found == picked


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is empty"),
        ("tennant=red", "there is no field 'tennant'"),
        ("tenant", "= or != is expected"),
        ("tenant=", "a pattern is expected"),
        ("tenant=red,", "a pattern is expected"),
        ("(tenant=red", "closing parenthesis"),
        ("tenant=red)", "is not expected"),
        ("and tenant=red", "FIELD=PATTERN is expected"),
        ("tenant=red or", "FIELD=PATTERN is expected"),
        ("not", "FIELD=PATTERN is expected"),
        ('tenant="red', "cannot be read"),
        ("tenant!red", "cannot be read"),
        ("tenant=" + "*" * 17, "more than 16 wildcards"),
        ("(" * (DEPTH_MAX + 1) + "all" + ")" * (DEPTH_MAX + 1), "within one another"),
        ("not " * 400 + "all", "within one another"),
        ("a" * (LENGTH_MAX + 1), "longer than"),
        ("node=" + ",".join("a" for _ in range(201)), "more than 200 patterns"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        select(text, NODES)

    assert said in str(error.value)
    assert "character " in error.value.where


@given(st.text(max_size=60))
def test_any_text_is_an_expression_or_bad_input(text: str) -> None:
    try:
        told: object = parse(text, NODE_FIELDS).matches_facts(read_fields(NODES[0]))
    except InputError as error:
        told = error.problem

    assert told in (True, False) or isinstance(told, str)


TERM = st.tuples(
    st.sampled_from(["node", "tenant", "state", "rack"]),
    st.sampled_from(["=", "!="]),
    st.sampled_from(["red", "su*", "*n0?", "released", '""']),
)
TREE = st.recursive(
    TERM,
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3)),
    ),
    max_leaves=8,
)


def written(tree: tuple[object, ...]) -> str:
    """A tree as text, with every parenthesis."""
    if tree[0] == "not":
        return f"not ({written(tree[1])})"  # type: ignore[arg-type]
    if tree[0] in ("and", "or"):
        return f" {tree[0]} ".join(f"({written(t)})" for t in tree[1])  # type: ignore[attr-defined]
    return "".join(map(str, tree))


def meant(tree: tuple[object, ...], node: Node) -> bool:
    """What a tree says of a node, without the parser."""
    if tree[0] == "not":
        return not meant(tree[1], node)  # type: ignore[arg-type]
    if tree[0] in ("and", "or"):
        told = [meant(t, node) for t in tree[1]]  # type: ignore[attr-defined]
        return all(told) if tree[0] == "and" else any(told)
    values = read_fields(node)[str(tree[0])]
    pattern = str(tree[2]).strip('"')
    return any(fnmatchcase(v, pattern) for v in values) is (tree[1] == "=")


@given(TREE)
def test_an_expression_means_what_its_tree_says(tree: tuple[object, ...]) -> None:
    picked = {n.id for n in select(written(tree), NODES)} if len(written(tree)) < 500 else None

    if picked is not None:
        assert picked == {n.id for n in NODES if meant(tree, n)}
