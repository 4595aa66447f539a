"""The index of a port's RoCE v2 GID, found in a shell over a tree as sysfs has it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from provisioner.checks import gdr_loopback
from provisioner.checks.check import CheckContext
from provisioner.checks.readers.sysfs import FIND_GID, read_gid
from provisioner.model.cohort import Evidence, Severity, Verdict

V1, V2 = "IB/RoCE v1", "RoCE v2"
LINK_LOCAL = "fe80:0000:0000:0000:0e42:a1ff:fe5d:0c2a"
IPV4 = "0000:0000:0000:0000:0000:ffff:ac10:0001"
GLOBAL = "fd00:0016:0000:0000:0000:0000:0000:0001"


def find(folder: Path, gids: list[tuple[str, str]], layer: str = "Ethernet") -> str:
    port = folder / "mlx5_0" / "ports" / "1"
    for name in ("gid_attrs/types", "gids"):
        (port / name).mkdir(parents=True)
    (port / "link_layer").write_text(f"{layer}\n")
    for index, (kind, gid) in enumerate(gids):
        (port / "gid_attrs" / "types" / str(index)).write_text(f"{kind}\n")
        (port / "gids" / str(index)).write_text(f"{gid}\n")
    line = f"p={folder}/mlx5_0; {FIND_GID} echo $g"
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True).stdout


def pair(gid: str) -> list[tuple[str, str]]:
    return [(V1, gid), (V2, gid)]


@pytest.mark.parametrize(
    ("gids", "index"),
    [
        (pair(LINK_LOCAL) + pair(IPV4), 3),  # mlx5 with one IPv4 address
        (pair(IPV4), 1),  # no IPv6 on the interface
        (pair(LINK_LOCAL) + pair(GLOBAL), 3),  # a rail with IPv6 alone
        (pair(LINK_LOCAL) + pair(GLOBAL) + pair(IPV4), 5),
        (pair(LINK_LOCAL) * 5 + pair(IPV4), 11),  # 11 comes after 2: by number, not by text
    ],
)
def test_the_index_is_that_of_the_address(
    tmp_path: Path, gids: list[tuple[str, str]], index: int
) -> None:
    assert read_gid(find(tmp_path, gids).strip()) == index


def test_an_infiniband_port_needs_no_index(tmp_path: Path) -> None:
    assert read_gid(find(tmp_path, [(V1, LINK_LOCAL)], "InfiniBand").strip()) is None


@pytest.mark.parametrize("shown", ["", "-1", "3; reboot", "9999"])
def test_another_text_is_no_index(shown: str) -> None:
    with pytest.raises(ValueError, match="no RoCE v2 GID"):
        read_gid(shown)


def test_an_interface_without_an_address_is_named(tmp_path: Path) -> None:
    assert find(tmp_path, pair(LINK_LOCAL)) == "none\n"
    text = "== rail 0 mlx5_0\n== end mlx5_0 125\n"
    evidence = {"gdr_loopback": Evidence(source="", exit_code=0, text=text)}

    result = gdr_loopback.CHECK.judge(evidence, CheckContext(gpu_model="H100", rails=1))

    assert result.verdict is Verdict.FAIL
    assert [(f.part, f.severity) for f in result.findings] == [("rail0 mlx5_0", Severity.CONFIG)]
    assert "no RoCE v2 GID" in result.findings[0].detail
