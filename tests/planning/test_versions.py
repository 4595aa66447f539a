"""Versions compare by their component's grammar; what cannot be told is None."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner import components
from provisioner.model.versions import GRAMMARS, compare, is_same_version
from provisioner.planning.path import conditions

OLDER_THEN_NEWER = [
    ("dotted", "32.43.1014", "32.44.1036"),
    ("dotted", "9.10", "10.2"),
    ("dotted", "35_2014_4652", "35.2015.1"),
    ("dotted_hex", "96.00.89.00.01", "96.00.A5.00.01"),
    ("dotted_hex", "2.2C", "2.53"),
    ("erot", "00.02.0134.0000_n00", "00.02.0182.0000_n00"),
    ("erot", "00.02.0195.0000_n00", "00.02.0195.0000_n02"),
    ("bfb", "bf-bundle-2.9.0-90_24.10_ubuntu-22.04_prod", "2.10.0-147_25.01"),
    ("bluefield_bmc", "BF-24.10-10", "BF-25.01-4"),
    ("bluefield_bmc", "BF-25.10-3", "25.10-LTSU2"),
    ("hgx_bmc", "HGX-22.10-1-rc57", "HGX-22.10-1-rc67"),
    ("hgx_bmc", "HGX-22.10-1-rc67", "HGX-22.10-1"),
    ("hgx_bundle", "HGX-H100x8_0002_221216.1.0", "DGX-HGX-H100x8_0002_230705.1.1"),
    ("cumulus", "5.11.0.0026", "5.12.1.100"),
    ("doca", "2.9.0-0.4.7", "2.10.0-0.5.3"),
    ("doca", "2.9.0072-1", "2.10"),
    ("driver", "535.129.03", "570.133.20-1"),
    ("nic", "28.37.10.14", "28.44.1036"),
    ("bfb", "DOCA_2.5.0_BSP_4.5.0_Ubuntu_22.04-1.23-10.prod", "2.5.0-1"),
    ("bfb", "2.2.1-8", "DOCA_2.5.0_BSP_4.5.0_Ubuntu_22.04-1.23-10.prod"),
    ("host_bmc", "42S-2.83", "3.1"),
    ("host_bmc", "2.72 Sep 04 2022", "iLO 5 v2.99"),
    ("host_bmc", "GH200-24.05-2", "GH200-24.12-1-rc3"),
    ("host_bmc", "23.11.20", "23.11.21"),
]

SAME = [
    ("bfb", "2.9.0-90", "bf-bundle-2.9.0-90_24.10_ubuntu-22.04_prod"),
    ("erot", "00.02.0134", "00.02.0134.0000_n00"),
    ("dotted", "2.07.19", "2.7.19"),
    ("dotted", "1.2", "1.2.0"),
    ("driver", "535.129.03", "535.129.03-1"),
    ("nic", "28.44.10.36", "28.44.1036"),  # a Supermicro's list, and the card's own tool
    ("nic", "28.44.10.06", "28.44.1006"),
    ("nic", "24.41.10.0", "24.41.1000"),
    ("host_bmc", "42S-2.83", "TGBT42S 2.83 2023-07-05"),  # one Lenovo, in two places
    ("host_bmc", "2.72 Sep 04 2022", "iLO 5 v2.72"),  # one HPE, in two places
    ("host_bmc", "11.01.01", "11.1.1"),
]

CANNOT_TELL = [
    ("dotted", "32.44", "RA1.3"),
    ("opaque", "1", "2"),
    ("no such grammar", "1", "2"),
    ("hgx_bundle", "HGX-H100x8_0002_221216.1.0", "HGX-B100-B200x8_250114.1.0"),
    ("dotted", "1." * 200 + "1", "2"),
    ("dotted", "\u0661.\u0662", "2"),
    ("dotted", "9" * 100, "2"),
    ("dotted", "", "2"),
    ("nic", "28.44.10.36-rc1", "28.44.1036"),
    ("host_bmc", "GH200-24.05-2", "GB200Nvl-24.12-8"),
    ("host_bmc", "GB200Nvl-24.12-8", "24.12.8"),
    ("host_bmc", "BMC", "2.83"),
    ("host_bmc", "GB200Nvl-25.06-A", "GB200Nvl-25.06-2"),  # published, but not their order
    ("hgx_bmc", "GB200Nvl-25.06-A", "GB200Nvl-25.08-B"),
    ("hgx_bmc", "GB200Nvl-25.06-A", "HGX-22.10-1-rc57"),
]


@pytest.mark.parametrize(("grammar", "older", "newer"), OLDER_THEN_NEWER)
def test_the_older_is_older_and_the_newer_newer(grammar: str, older: str, newer: str) -> None:
    assert (compare(grammar, older, newer), compare(grammar, newer, older)) == (-1, 1)


@pytest.mark.parametrize(("grammar", "a", "b"), SAME)
def test_decoration_does_not_make_another_version(grammar: str, a: str, b: str) -> None:
    assert compare(grammar, a, b) == 0
    assert is_same_version(grammar, b, a)


@pytest.mark.parametrize(("grammar", "a", "b"), CANNOT_TELL)
def test_what_cannot_be_told_is_none_and_never_newer(grammar: str, a: str, b: str) -> None:
    assert (compare(grammar, a, b), compare(grammar, b, a)) == (None, None)


def test_every_component_kind_names_a_grammar_that_exists() -> None:
    assert {kind.grammar for kind in components.ALL.values()} <= GRAMMARS.keys()


_NUMBER = st.integers(0, 300)
_LIKE = {
    "dotted": st.lists(_NUMBER, min_size=1, max_size=4).map(lambda n: ".".join(map(str, n))),
    "dotted_hex": st.lists(_NUMBER, min_size=1, max_size=4).map(
        lambda n: ".".join(f"{i:02X}" for i in n)
    ),
    "erot": st.builds("{:02}.{:02}.{:04}.{:04}_n{:02}".format, *[_NUMBER] * 5)
    | st.builds("{:02}.{:02}.{:04}".format, *[_NUMBER] * 3),
    "bfb": st.builds("bf-bundle-{}.{}.{}-{}_24.10_prod".format, *[_NUMBER] * 4)
    | st.builds("{}.{}.{}-{}".format, *[_NUMBER] * 4),
    "bluefield_bmc": st.builds("BF-{}.{}-{}".format, *[_NUMBER] * 3)
    | st.builds("{}.{}-LTSU{}".format, *[_NUMBER] * 3),
    "hgx_bmc": st.builds("HGX-{}.{}-{}-rc{}".format, *[_NUMBER] * 4)
    | st.builds("HGX-{}.{}-{}".format, *[_NUMBER] * 3),
    "cumulus": st.builds("{}.{}.{}.{:04}".format, *[_NUMBER] * 4),
    "doca": st.builds("{}.{}.{}-{}.{}.{}".format, *[_NUMBER] * 6)
    | st.builds("{}.{}".format, *[_NUMBER] * 2),
    "nic": st.builds("{}.{}.{}.{}".format, *[_NUMBER] * 4)
    | st.builds("{}.{}.{:04}".format, *[_NUMBER] * 3),
    "host_bmc": st.builds("{}.{}.{}".format, *[_NUMBER] * 3)
    | st.builds("iLO 6 v{}.{}".format, *[_NUMBER] * 2),
    "driver": st.builds("{}.{}.{:02}-1".format, *[_NUMBER] * 3),
    "hgx_bundle": st.builds("HGX-H100x8_0002_{}.{}.{}".format, *[_NUMBER] * 3),
}


@given(st.data(), st.sampled_from(sorted(_LIKE)))
def test_each_grammar_orders_its_versions_totally(data: st.DataObject, grammar: str) -> None:
    a, b, c = (data.draw(_LIKE[grammar]) for _ in range(3))
    ab, ba, bc, ac = (compare(grammar, *p) for p in ((a, b), (b, a), (b, c), (a, c)))

    assert None not in (ab, ba, bc, ac)
    assert ab == -ba
    assert (ab == 0) == is_same_version(grammar, a, b)
    if ab <= 0 and bc <= 0:
        assert ac <= 0
    if ab == 0:
        assert ac == bc


@given(st.sampled_from(sorted(GRAMMARS)), st.text(max_size=40), st.text(max_size=40))
def test_no_text_makes_a_comparison_raise(grammar: str, a: str, b: str) -> None:
    assert compare(grammar, a, b) in (-1, 0, 1, None)


def test_conditions_hold_for_all_or_are_not_told() -> None:
    running = {"nic.cx7": ["28.43.1", "28.44.2"], "host.driver": ["570.1"], "x.y": ["odd"]}.get
    grammars = {"nic.cx7": "dotted", "host.driver": "dotted", "x.y": "dotted"}

    asked = [
        (">=28.43", "nic.cx7"),
        (">=28.44", "nic.cx7"),
        ("<29,>=28", "nic.cx7"),
        ("=host.driver", "host.driver"),
        ("=host.driver", "nic.cx7"),
        (">=1", "x.y"),
        ("==odd", "x.y"),
        (">=1", "not.here"),
    ]
    actual = [
        conditions.all_versions_satisfy(text, kind, grammars, running) for text, kind in asked
    ]

    assert actual == [True, False, True, True, False, None, True, False]
    assert conditions.any_version_satisfies(">=28.44", "nic.cx7", grammars, running) is True


@pytest.mark.parametrize("text", ["", ">=", "= 1.2", "=1.2", "1 2", ">=1,,<2"])
def test_a_malformed_condition_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"condition|must name"):
        conditions.parse_terms(text)
