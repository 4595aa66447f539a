"""`inspect --json` shows the fields of a recorded tree's hardware: the share of them per tree.

The set of fields comes from the tree itself: a resource type is hardware where one of its instances
carries an identity (a serial or part number, a MAC address, a firmware version, a UUID), and then
every identity, version, address, size and health of every instance of this type counts.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from static_tree import recorded_tree, serving
from typer.testing import CliRunner

from provisioner.cli import app

OWN = Path(__file__).parents[1] / "recorded"  # reduced trees, written for these tests
SHARE_MIN = 0.98
# a resource with one of these is hardware or firmware
IDENTITY = re.compile(
    r"SerialNumber$|PartNumber$|MACAddress(es)?$|GUID$|UUID$|Firmware\w*(Version|Revision)$"
    r"|^Revision$|^Version$|^BiosVersion$|^AssociatedNetworkAddresses$"
)
# of such a resource, these count too
COUNTED = re.compile(
    IDENTITY.pattern + r"|^Manufacturer$|^Model$|^SKU$|Capacity(Bytes|MiB)|^Health|^LastState$"
    r"|^PowerState$|^LinkStatus$|^AssetTag$|^Vendor$|^Producer$"
)
# types that carry a version or serial number of something else than a part
NO_HARDWARE = {
    "Certificate": "a serial number that its issuer gave",
    "AttributeRegistry": "the version of a document",
    "MessageRegistryFile": "the version of a document",
    "ServiceConditions": "the state of the service",
    "EventDestination": "a subscription",
    "ComponentIntegrity": "evidence, read by `provisioner attest`",
}
# places below which the values of resources elsewhere are repeated
REPEATED = {
    r"/SubProcessors/": "cores and threads of a processor",
    r"/(Processors|Switches)/[^/]+/Ports/": "states of NVLink ports, read in band",
    r"/LogServices/|/JsonSchemas|/Registries": "no hardware",
}
ABOUT = ("@", "Oem", "Actions", "Links", "Redundancy")
NOTHING = re.compile(
    r"(|n/?\.?a\.?|none|unknown|null|nil|not (present|available|specified|applicable)|0{8,}|[-*.?]+"
    r"|version not available|to be filled.*|default string|invalid|cpldserialnumber"
    r"|no valid .*)",
    re.IGNORECASE,
)


def type_of(resource: dict[str, Any]) -> str:
    return str(resource.get("@odata.type", "")).lstrip("#").partition(".")[0]


def settings_of(resource: dict[str, Any]) -> str:
    """The path of the settings object that a resource names."""
    settings = resource.get("@Redfish.Settings") or {}
    return str((settings.get("SettingsObject") or {}).get("@odata.id", ""))


def leaves(value: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every value in a resource with the properties that lead to it; other resources left out."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if not name.startswith(ABOUT) and "@" not in name:
                yield from leaves(inner, (*names, name))
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner, names)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield names, str(value).strip()


def expected_fields(tree: Path) -> dict[str, list[tuple[str, str]]]:
    """Path of a resource -> the (property, value) pairs that an inventory must show."""
    resources = {}
    for file in sorted(tree.rglob("index.json")):
        path = "/" + str(file.parent.relative_to(tree))
        body = json.loads(file.read_text())
        kind = type_of(body) if isinstance(body, dict) else ""
        standard = kind and not re.match(r"Dell|AMI|Nvidia|Nm[A-Z]|Node", kind)
        repeated = any(re.search(place, path) for place in REPEATED)
        if standard and kind not in NO_HARDWARE and not repeated and "Members" not in body:
            resources[path] = body
    for path in [p for body in list(resources.values()) if (p := settings_of(body))]:
        resources.pop(path, None)  # values that wait for a restart
    hardware = {
        type_of(body)
        for body in resources.values()
        if any(
            IDENTITY.search(names[-1]) and not NOTHING.fullmatch(value)
            for names, value in leaves(body)
        )
    }
    return {
        path: [
            (names[-1], value)
            for names, value in leaves(body)
            if COUNTED.search(names[-1]) and not NOTHING.fullmatch(value)
        ]
        for path, body in resources.items()
        if type_of(body) in hardware
    }


def score(tree: Path) -> tuple[float, list[str]]:
    """The share of the expected fields that `inspect --json` shows, and those that it does not."""
    with serving(tree) as url:
        result = CliRunner().invoke(app, ["inspect", url, "--json"])
    assert result.exit_code == 0, result.output
    shown = {p["source"]: p["values"] for p in json.loads(result.stdout)["parts"]}
    expected = expected_fields(tree)
    missing = []
    for path, fields in expected.items():
        values = set((shown.get(path) or {}).items())
        own = {(re.sub(r"\.\d+$", "", name).rpartition(".")[2], value) for name, value in values}
        missing += [f"{path} {name}={value}" for name, value in fields if (name, value) not in own]
    counted = sum(len(fields) for fields in expected.values())
    assert counted, "this tree shows no field at all"
    return 1 - len(missing) / counted, missing


@pytest.mark.parametrize(
    "name", ["dell", pytest.param("nvidia_viking", marks=pytest.mark.long), "nvidia_dpu"]
)
def test_an_inspection_shows_nearly_every_field_of_the_recorded_hardware(
    name: str, tmp_path: Path
) -> None:
    share, missing = score(recorded_tree(name, tmp_path))

    assert share >= SHARE_MIN, "\n".join(missing[:40])


@pytest.mark.parametrize("name", ["dell_with_parts", "tiny_dgx", "bluefield_in_nic_mode"])
def test_an_inspection_shows_every_field_of_the_reduced_trees(name: str) -> None:
    share, missing = score(OWN / name)

    assert (share, missing) == (1.0, [])


def test_a_part_that_does_not_answer_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    shutil.copytree(OWN / "dell_with_parts", tree)
    drives = sorted(tree.glob("redfish/v1/Systems/*/Storage/*/Drives/*/index.json"))
    drives[0].unlink()
    with serving(tree) as url:
        shown = json.loads(CliRunner().invoke(app, ["inspect", url, "--json"]).stdout)

    lost = "/" + str(drives[0].parent.relative_to(tree))
    assert lost in [g["source"] for g in shown["unread_parts"]]
    assert len([p for p in shown["parts"] if p["kind"] == "Drive"]) == len(drives) - 1


def test_the_table_shows_firmware_of_drives_and_addresses_of_ports() -> None:
    with serving(OWN / "dell_with_parts") as url:
        table = CliRunner().invoke(app, ["inspect", url]).output
    expected = expected_fields(OWN / "dell_with_parts")
    values = {v for f in expected.values() for n, v in f if n in ("Revision", "SerialNumber")}

    assert values
    assert [v for v in values if v not in table] == []
