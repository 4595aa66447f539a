"""The hosts of a NICo as a list for `provisioner adopt`, from its stand-in to the merged list."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nico_standin
import pytest
from nico_standin import ORG, TOKEN, Records, serve_nico

from provisioner.cli.client.preparing import read_adoption
from provisioner.integrations.inventories.adoption_sources import read_listed
from provisioner.model.input_error import InputError
from provisioner.model.outcome import Reason

SWITCHES = "".join(
    f"- {{name: leaf{n}, kind: switch, address: 'https://10.0.9.{n}:8765'}}\n" for n in range(2)
)
CABLES = "name,ports\nn1,leaf0/swp1=NIC_0 leaf1/swp1=NIC_1\nn3,leaf0/swp3=NIC_0\n"


def write_base(folder: Path) -> dict[str, Any]:
    """Write the site's own list, the cables and the token; return the options."""
    (folder / "base.yaml").write_text(f"site: fra1\nnodes:\n{SWITCHES}")
    (folder / "cables.csv").write_text(CABLES)
    (folder / "jwt").touch(0o600)
    (folder / "jwt").write_text(TOKEN)
    return {
        "from_": "nico",
        "source_org": ORG,
        "source_token_file": folder / "jwt",
        "source_site": ["fra1"],
        "ports": folder / "cables.csv",
    }


def test_a_host_that_serves_is_listed_and_every_other_is_refused_by_name(tmp_path: Path) -> None:
    given = write_base(tmp_path)
    machines = [
        nico_standin.machine(1, "InUse"),
        nico_standin.machine(2, "Maintenance", maintenanceMessage="RMA 17"),
        nico_standin.machine(3, "Ready"),
        nico_standin.machine(4, "InUse"),  # nothing says where it is cabled
    ]
    names = {m["id"]: f"n{number}" for number, m in enumerate(machines, 1)}
    with serve_nico(Records(machines, names=names)) as served:
        given["source"] = served.url
        merged = read_listed(tmp_path / "base.yaml", {**given, "tenant": ["red=crimson"]})
        methods = {method for method, _ in served.log}

    assert methods == {"GET"}
    hosts = [n for n in merged.expected.nodes if n.kind == "host"]
    assert [(h.name, h.bmc.url, h.bmc.serial) for h in hosts] == [("n1", "https://10.0.0.1", "S1")]
    assert [(p.switch, p.interface) for p in hosts[0].ports] == [
        ("leaf0", "swp1"),
        ("leaf1", "swp1"),
    ]
    assert merged.tenants == {"n1": "crimson"}
    assert {b.subject: b.reason for b in merged.refused} == {
        "n2": Reason.BUSY,
        "n3": Reason.PRECONDITION,
        "n4": Reason.PRECONDITION,
    }


@pytest.mark.parametrize(
    ("changes", "subject"),
    [
        ({"source_org": "../other"}, "--source-org"),
        ({"source_token_file": None}, "--source-token-file"),
        ({"source_site": ["elsewhere"]}, "--source-site"),
        ({"tenant": ["red"]}, "--tenant"),
        ({"from_": "foreman"}, "--from"),
    ],
)
def test_a_wrong_option_is_named(tmp_path: Path, changes: dict[str, Any], subject: str) -> None:
    given = write_base(tmp_path)
    with serve_nico(Records([nico_standin.machine(1, "InUse")])) as served:
        given["source"] = served.url
        with pytest.raises(InputError, match=subject):
            read_listed(tmp_path / "base.yaml", {**given, **changes})


@pytest.mark.parametrize(
    ("field", "value"), [("source", "x.csv"), ("apply", True), ("tenant", ["a=b"])]
)
def test_options_of_another_system_without_its_name_are_refused(
    tmp_path: Path, field: str, value: Any
) -> None:
    write_base(tmp_path)
    with pytest.raises(InputError, match=f"--{field}: it needs --from"):
        read_adoption({"expected": str(tmp_path / "base.yaml"), "from_": "", field: value})
