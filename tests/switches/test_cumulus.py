"""What a switch answers is read, or it is unreadable: never a traceback, never a guess."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.integrations.cumulus import nvue_calls as cumulus
from provisioner.model.switch import Images, Move, PortChange

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner),
    max_leaves=12,
)
READERS = (
    cumulus.read_revision_id,
    cumulus.read_revision,
    cumulus.read_vrf,
    cumulus.read_names,
    cumulus.read_routes,
    cumulus.read_images,
    cumulus.read_job_id,
    cumulus.read_job,
)


@pytest.mark.parametrize("read", READERS, ids=lambda r: r.__name__)
@given(answer=JSON)
def test_no_answer_raises(read: Any, answer: Any) -> None:
    read(answer)


@given(
    st.dictionaries(st.sampled_from(["state", "transition", "ip", "current", "partition1"]), JSON)
)
def test_no_answer_with_the_right_keys_raises(answer: dict[str, Any]) -> None:
    for read in READERS:
        read(answer)


def test_the_vrf_of_a_port_is_read_from_its_operational_state() -> None:
    assert cumulus.read_vrf({"ip": {"vrf": "RED"}}) == "RED"
    assert cumulus.read_vrf({"ip": {}}) == ""
    assert cumulus.read_vrf({"ip": {"vrf": ["RED"]}}) is None
    assert cumulus.read_vrf(None) is None
    assert cumulus.interface_path("swp1s0").endswith("?rev=operational")


def test_a_move_names_only_what_it_moves() -> None:
    ask = cumulus.move_ports(
        "changeset/cumulus/1",
        PortChange((Move("swp1s0", "RED", "172.0.0.1/31"), Move("swp2s0", "RED"))),
    )

    assert (ask.method, ask.path) == ("PATCH", "/nvue_v1/?rev=changeset%2Fcumulus%2F1")
    assert ask.body == {
        "vrf": {"RED": {}},
        "interface": {
            "swp1s0": {"ip": {"vrf": "RED", "address": {"172.0.0.1/31": {}}}},
            "swp2s0": {"ip": {"vrf": "RED"}},
        },
    }


def test_a_filter_is_set_without_a_word_on_the_ports_vrf() -> None:
    ask = cumulus.move_ports("1", PortChange((Move("swp1s0", "RED", "172.0.0.1/31", denied=True),)))

    both = {"inbound": {}, "outbound": {}}
    filters = {"provisioner_deny4": both, "provisioner_deny6": both}
    assert ask.body["interface"] == {"swp1s0": {"acl": filters}}
    assert "vrf" not in ask.body
    assert {k: v["type"] for k, v in ask.body["acl"].items()} == {
        "provisioner_deny4": "ipv4",
        "provisioner_deny6": "ipv6",
    }


@pytest.mark.parametrize(
    ("state", "applied", "under_way"),
    [
        ("applied", True, False),
        ("applied_and_saved", True, False),
        ("pending", False, True),
        ("verifying", False, True),
        ("invalid", False, False),
        ("ays_fail", False, False),
        ("something new", False, False),
    ],
)
def test_only_two_states_of_a_revision_are_applied(
    state: str, *, applied: bool, under_way: bool
) -> None:
    read = cumulus.read_revision(
        {"state": state, "transition": {"issue": {"0": {"code": "x", "message": "no such vrf"}}}}
    )

    assert read is not None
    assert (read.applied, read.under_way) == (applied, under_way)
    assert read.issue == "no such vrf"


def test_both_image_partitions_are_read() -> None:
    images = cumulus.read_images(
        {
            "current": "1",
            "next": "2",
            "partition1": {"build-id": "5.11.0.0026"},
            "partition2": {"build-id": "5.12.1.100"},
        }
    )

    assert images == Images(
        running="5.11.0.0026", next="5.12.1.100", versions=("5.11.0.0026", "5.12.1.100")
    )
    assert isinstance(cumulus.read_images({"current": "2", "partition1": {}}), str)


def test_an_unreadable_prefix_makes_the_whole_table_unreadable() -> None:
    assert cumulus.read_routes({"172.0.0.0/31": {}}) == ("172.0.0.0/31",)
    assert cumulus.read_routes({"172.0.0.0/31": {}, "x": {}}) is None
    assert cumulus.read_routes([]) is None
