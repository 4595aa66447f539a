"""A policy file says what it means, and a fault in it is named with its line."""

from __future__ import annotations

import pytest

from provisioner.model.campaign import Domain, Limit, Policy, Window
from provisioner.model.input_error import InputError
from provisioner.planning.campaigns.campaign_policy_text import parse_policy

FILE = """
canary: {size: 8, soak: 2h, failures: 0}
waves:
  - {upto: 5%, soak: 30m}
  - {upto: 100%}
limits: {rack: 1, scalable_unit: 25%, tenant: 12.5%, total: 40}
switch_limits: {total: 2}
failure_budget: 1%
free_kept: 2
windows: ["mon-fri 22:00-04:00 +02:00", "sat,sun 00:00-24:00"]
freezes:
  - {begins_at: "2026-12-24T00:00+01:00", ends_at: "2026-12-27T00:00+01:00", reason: holidays}
tenants:
  notice: 48h
  deferral_max: 7d
  at_deadline: retire
  windows: {acme: ["06:00-08:00"]}
leaf_hosts: keep
"""


def test_short_words_mean_the_plain_fields() -> None:
    read = parse_policy("policy.yaml", FILE)

    assert read.canary.soak_s == 7200
    assert [w.upto for w in read.waves] == [Limit(percent=5), Limit(percent=100)]
    assert read.limits[Domain.RACK] == Limit(count=1)
    assert read.limits[Domain.TENANT] == Limit(percent=12.5)
    assert read.windows[0] == Window(
        days=(0, 1, 2, 3, 4), start_min=1320, minutes=360, utc_offset_min=120
    )
    assert read.windows[1] == Window(days=(5, 6), start_min=0, minutes=1440)
    assert read.freezes[0].ends_at - read.freezes[0].begins_at == 3 * 86_400
    assert read.tenants.windows["acme"][0].minutes == 120
    assert (read.tenants.notice_s, read.tenants.deferral_max_s) == (172_800, 604_800)


def test_a_window_names_a_time_zone() -> None:
    windows = '["mon-fri 22:00-04:00 Europe/Oslo", "sat 00:00-24:00 UTC", "20:00-22:00 UTC-03:00"]'

    read = parse_policy("policy.yaml", f"windows: {windows}").windows

    assert [(w.zone, w.utc_offset_min) for w in read] == [
        ("Europe/Oslo", 0),
        ("UTC", 0),
        ("", -180),
    ]


@pytest.mark.parametrize("zone", ["Europe/Atlantis", "europe/oslo", "Europe", "a/../../etc/passwd"])
def test_a_zone_that_does_not_exist_is_refused_with_its_line(zone: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_policy("policy.yaml", f'free_kept: 1\nwindows: ["22:00-04:00 {zone}"]')

    assert "line 2" in refused.value.where
    assert "Europe/Oslo" in refused.value.remedy


def test_a_window_has_a_zone_or_an_offset() -> None:
    with pytest.raises(ValueError, match="not both"):
        Window(start_min=0, minutes=60, zone="Europe/Oslo", utc_offset_min=60)


def test_an_empty_file_is_the_default_policy() -> None:
    assert parse_policy("policy.yaml", "") == Policy()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("limits: {rack: 10 %%}", "no limit"),
        ("limits: {rail: 1}", "domain of switches"),
        ("limits: {row: 1}", "limits"),
        ("canary: {soak: 2 hours}", "no time"),
        ("canary: {colour: yellow}", "no such field"),
        ("waves: [{upto: 50%}]", "the last one goes up to 100 percent"),
        ('windows: ["whenever"]', "no window"),
        ('windows: ["mon-xyz 10:00-11:00"]', "no window"),
        ("tenants: {deferral_max: 15d}", "less than or equal"),
        ("failure_budget: 0\nbudget_strict: true", "would admit nothing"),
        ('freezes: [{begins_at: "soon", ends_at: "later", reason: x}]', "no moment"),
    ],
)
def test_a_fault_is_named_with_its_place_and_a_remedy(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        parse_policy("policy.yaml", text)

    assert caught.value.source in ("policy.yaml", "")
    assert caught.value.remedy
