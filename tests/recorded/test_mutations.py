"""However a tree is broken, reading it raises nothing but a port's error, and the reader ends."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tree_transport import ADDRESS, TreeTransport, tree_of

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.model.inventory import Inventory
from provisioner.ports import PortError

HERE = Path(__file__).parent
TREES = {
    case: tree_of(HERE / case)
    for case in ("tiny_dgx", "bluefield_in_nic_mode", "dell_with_pages", "unknown_and_odd")
}
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.just(10**400),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["N/A", "\ud800", "0000-00-00T00:00:00Z", "/redfish/v1", "//x/y", "-*", "%n"]),
    st.lists(st.none(), max_size=2),
    st.just([[[[]]]]),
    st.dictionaries(st.sampled_from(["@odata.id", "Id", "Members"]), st.text(max_size=4)),
)


@st.composite
def broken_trees(draw: st.DrawFn) -> dict[str, Any]:
    """A small tree with one to six wounds."""
    texts = TREES[draw(st.sampled_from(sorted(TREES)))]
    tree: dict[str, Any] = {path: _json(text) for path, text in texts.items()}
    for _ in range(draw(st.integers(1, 6))):
        path = draw(st.sampled_from(sorted(tree)))
        wound = draw(st.sampled_from(["gone", "odd", "cut", "field", "field", "field", "loop"]))
        if wound == "gone":
            tree[path] = ""
        elif wound == "odd":
            tree[path] = draw(ODD)
        elif wound == "cut":
            whole = json.dumps(tree[path])
            tree[path] = whole[: draw(st.integers(0, len(whole)))]
        elif wound == "loop" and isinstance(tree[path], dict):
            tree[path]["Members@odata.nextLink"] = draw(st.sampled_from(sorted(tree)))
        elif isinstance(tree[path], dict) and tree[path]:
            tree[path][draw(st.sampled_from(sorted(tree[path])))] = draw(ODD)
    return tree


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(broken_trees(), st.sampled_from(sorted(quirks.ALL)))
def test_a_broken_tree_gives_an_inventory_with_gaps_or_a_port_error(
    tree: dict[str, Any], quirk: str
) -> None:
    transport = TreeTransport(tree)
    client = Redfish(transport, ADDRESS, quirks.ALL[quirk])
    try:
        found = asyncio.run(client.collect("node", "host"))
    except PortError:
        return

    places = [(c.kind, c.slot) for c in found.components]
    gaps = {g.source for g in found.gaps}
    assert len(set(places)) == len(places)
    assert {c.source for c in found.components if c.version is None} <= gaps
    assert len(transport.asked) < 200
    assert Inventory.model_validate_json(found.model_dump_json()) == found


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(broken_trees())
def test_the_verbs_of_a_broken_bmc_answer_with_values_or_a_port_error(tree: dict[str, Any]) -> None:
    client = Redfish(TreeTransport(tree), ADDRESS, quirks.ALL["nvidia_openbmc"])

    async def ask() -> list[object]:
        answers: list[object] = []
        for verb in (
            lambda: client.power(),
            lambda: client.read_identity(),
            lambda: client.reset_system("On"),
            lambda: client.reset_bmc(),
            lambda: client.ac_cycle(),
            lambda: client.boot_override("Pxe"),
            lambda: client.insert_media("https://images.example/ipa.iso"),
            lambda: client.simple_update("http://images.example/a.bfb", "bluefield.bundle"),
            lambda: client.read_tasks(),
            lambda: client.subscribe("https://provisioner.example/events", "c"),
        ):
            try:
                answers.append(await verb())
            except PortError as error:
                answers.append(error)
        return answers

    assert len(asyncio.run(ask())) == 10
