"""`where` and `address` are inverse to each other, and say what to do about the unknown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from program import run


def told(tmp_path: Path, *words: str) -> dict:
    done = run([*words, "--json"], tmp_path)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "word",
    ["172.224.0.18", "172.32.3.1/31", "fd6e:61b4:1b7a::e0:12", "10.240.0.7", "AS4200000130",
     "vni:4009", "leaf-su0-r7/swp5s1", "su3-n31", "spine-2"],
)  # fmt: skip
def test_each_accepts_the_location_of_the_other(tmp_path, word):
    found = told(tmp_path, "where", word)

    assert told(tmp_path, "address", found["location"]) == found
    assert told(tmp_path, "where", found["location"]) == found


def test_an_address_tells_rack_node_rail_card_and_leaf_port(tmp_path):
    shown = run(["where", "172.224.0.18"], tmp_path).stdout

    for word in ("su0-rack2", "su0-n09", "NIC_7", "leaf-su0-r7", "swp5s1", "172.224.0.19/31"):
        assert word in shown


def test_a_site_has_a_plan_of_its_own(tmp_path):
    (tmp_path / "plan.yaml").write_text(
        "site: west\nrails_per_leaf: 2\nnames: {leaf: 'leaf-pod00-su{unit}-r{number}'}\n"
    )
    found = told(tmp_path, "where", "172.224.0.18", "--plan", "plan.yaml")

    assert (found["leaf"], found["leaf_port"]) == ("leaf-pod00-su0-r3", "swp10s1")
    assert found["location"].startswith("west/")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["where", "192.0.2.1"], "--plan"),
        (["where", "\x1b[31mred"], "belongs to no place"),
        (["address", "pod0/su0/n32"], "too large"),
        (["address", "pod0/su0/rack0/n09"], "rack2"),
        (["where", "172.0.0.0", "--plan", "none.yaml"], "no such file"),
    ],
)
def test_what_is_not_known_is_refused_with_a_remedy(tmp_path, words, reason):
    done = run(words, tmp_path)

    assert done.returncode == 2
    assert reason in done.stderr
