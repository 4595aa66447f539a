"""Settings of machines as reduced real trees of seven vendors show them."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from settings_trees import TREES, find_bios, find_pending, read_all, read_settings_tree

from provisioner.adapters.redfish.parsing import parse_fields, unpack
from provisioner.adapters.redfish.settings.reading import parse_attributes, parse_registry
from provisioner.integrations.recordings.inspect_commands import list_attributes
from provisioner.model.machine.settings import HIDDEN, BiosSettings
from provisioner.model.outcome import Reason

# trees whose registry is recorded
READ = {"dell_idrac9", "gb200", "hpe_ilo5", "lenovo_xcc", "supermicro_x13"}


def only_bios(tree: dict[str, Any]) -> BiosSettings:
    (bios,) = read_all(tree).bios
    return bios


@pytest.mark.parametrize("name", TREES)
def test_every_attribute_of_the_tree_is_listed_with_its_value(name: str) -> None:
    tree = read_settings_tree(name)
    shown = find_bios(tree)["Attributes"]

    bios = only_bios(tree)

    assert bios.current is not None
    assert set(bios.current) == set(shown)
    hidden = {attribute for attribute, value in bios.current.items() if value == HIDDEN}
    assert all("Password" in attribute for attribute in hidden)
    assert {k: v for k, v in bios.current.items() if k not in hidden} == {
        k: v for k, v in shown.items() if k not in hidden
    }
    assert {row["name"] for row in list_attributes(bios)} >= set(shown)


@pytest.mark.parametrize("name", TREES)
def test_nothing_waits_though_some_trees_repeat_all_attributes(name: str) -> None:
    assert only_bios(read_settings_tree(name)).pending == {}


@pytest.mark.parametrize("name", TREES)
def test_a_value_that_waits_is_pending_and_not_current(name: str) -> None:
    tree = read_settings_tree(name)
    attribute, value = next(
        (k, v) for k, v in find_bios(tree)["Attributes"].items() if v in ("Enabled", "Enable", True)
    )
    find_pending(tree)["Attributes"][attribute] = "another"

    bios = only_bios(tree)

    assert bios.pending == {attribute: "another"}
    assert bios.current is not None
    assert bios.current[attribute] == value


@pytest.mark.parametrize("name", TREES)
def test_the_registry_is_read_where_a_tree_has_it_and_else_a_gap_says_so(name: str) -> None:
    settings = read_all(read_settings_tree(name))
    (bios,) = settings.bios

    assert (bios.registry is not None) is (name in READ)
    if bios.registry is not None:
        assert all(rule.kind for rule in bios.registry.rules.values())
    else:
        assert any("registry" in gap.detail for gap in settings.gaps)


def test_types_values_and_dependencies_come_from_the_registry() -> None:
    bios = only_bios(read_settings_tree("dell_idrac9"))
    assert bios.registry is not None

    rule = bios.registry.rules["SysProfile"]

    assert rule.kind == "Enumeration"
    assert rule.values[-1] == "Custom"
    assert rule.reset_required is True
    locked = [d for d in bios.registry.dependencies if d.attribute == "ProcCStates"]
    assert {d.affects for d in locked} == {"CurrentValue", "ReadOnly"}


def test_supermicro_shows_the_labels_of_values_that_its_registry_numbers() -> None:
    bios = only_bios(read_settings_tree("supermicro_x13"))
    assert bios.registry is not None
    assert bios.current is not None

    rule = bios.registry.rules["IntelVTforDirectedI_O_VT_d__1E32"]

    assert rule.values == ("1", "0")
    assert rule.labels == ("Enable", "Disable")
    assert bios.current[rule.name] == "Enable"


@pytest.mark.parametrize("name", TREES)
def test_secure_boot_and_the_bmcs_settings_are_read(name: str) -> None:
    settings = read_all(read_settings_tree(name))

    (secure,) = settings.secure_boot
    values = {k: v for bmc in settings.bmcs for k, v in bmc.values.items()}
    assert (secure.enabled, secure.running) == (False, False)
    assert secure.mode is not None
    assert "SSH.ProtocolEnabled" in values
    assert "NTP.NTPServers" in values or name == "hpe_ilo5"


def test_attributes_that_are_not_shown_yet_are_unknown_and_not_empty() -> None:
    tree = read_settings_tree("dgx_h100")
    find_bios(tree)["Attributes"] = None

    assert only_bios(tree).current is None


def test_a_registry_packed_by_gzip_is_read() -> None:
    body = {"RegistryEntries": {"Attributes": [{"AttributeName": "A", "Type": "Integer"}]}}

    packed = gzip.compress(json.dumps(body).encode())
    registry = parse_registry(parse_fields(unpack(packed))[0], "/r")

    assert registry is not None
    assert registry.rules["A"].kind == "Integer"
    with pytest.raises(ValueError, match="damaged"):
        unpack(b"\x1f\x8bcut")
    with pytest.raises(ValueError, match="damaged"):
        unpack(gzip.compress(b"x" * 500)[:-9])


def test_a_registry_that_is_a_page_of_html_leaves_a_gap() -> None:
    tree = read_settings_tree("dell_idrac9")
    path = next(p for p in tree if p.endswith("/BiosRegistry"))
    tree[path] = "<html>please log in</html>"

    settings = read_all(tree)

    assert settings.bios[0].registry is None
    assert [g.reason for g in settings.gaps if g.source == path] == [Reason.MALFORMED]


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("UefiPassword", "", HIDDEN),
        ("SetupPassword_0117", "x", HIDDEN),
        ("Users.2.SHA256PasswordSalt", "7F", HIDDEN),
        ("Users.2.IPMIKey", "A9", HIDDEN),
        ("IPMILan.1.CommunityName", "public", HIDDEN),
        ("DefaultPasswordPolicy", True, True),
        ("Security.1.PasswordMinimumLength", 0, 0),
        ("AcpiSpcrFlowControl", "None", "None"),
    ],
)
def test_secrets_are_hidden_and_nothing_else_is(name: str, value: object, shown: object) -> None:
    assert parse_attributes({"Attributes": {name: value}}) == {name: shown}
