"""DMTF's service validator judges every resource of the simulated BMCs by DMTF's schemas.

`make conformance SCHEMAS=DIR`: DIR holds the CSDL files of DMTF's publication DSP8010. They are on
no package registry and none is kept here, so the tests are skipped without them.
"""

from __future__ import annotations

import os
import re
import ssl
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from simulated import Served, served
from test_validators_on_simulator import change_factory_password

TOOL = Path(sys.executable).parent / "rf_service_validator"
SCHEMAS = os.environ.get("PROVISIONER_REDFISH_SCHEMAS", "")
FAILURES = Path(__file__).parent / "validator_failures.toml"
BMCS = [
    "supermicro su0-n00/host",
    "ami_dgx su0-n00/host",
    "dell su0-n00/host",
    "hpe su0-n00/host",
    "lenovo su0-n00/host",
    "supermicro su0-n00/DPU_0",
]
MADE = Path(__file__).parents[2] / "Makefile"
TRIAL = """
FAIL - /Allocation  (null): Unknown Property Error: The property is not defined.
"""


def list_explained(bmc: str) -> list[tuple[str, str]]:
    """The URI and the property of every fault that stays."""
    table = tomllib.loads(FAILURES.read_text())["failure"]
    assert all(len(one["reason"]) > 20 for one in table)
    return [(one["uri"], one["fault"]) for one in table if one["bmc"] == bmc]


def read_faults(log: str) -> Iterator[tuple[str, str]]:
    """The URI and the property of every fault in the validator's log."""
    uri = ""
    for line in log.splitlines():
        if begun := re.search(r"Validating (\S+)\.\.\.$", line):
            uri = begun[1]
        elif fault := re.search(r"FAIL - (.*?)(?: \([^)]*\))?: ", line):
            yield uri, fault[1]


def run_validator(site: Served, bmc: str, where: Path) -> str:
    """Run the validator on one BMC; its log."""
    name = bmc.partition(" ")[2]
    if name.endswith("DPU_0"):
        change_factory_password(site, name, "Changed-at-once-1")
    account, url = site.bmc(name), site.url(name)
    host, _, port = url.removeprefix("https://").partition(":")
    trusted = where / "ca.pem"
    trusted.write_text(ssl.get_server_certificate((host, int(port))))
    done = subprocess.run(
        [
            TOOL,
            "-r",
            url,
            "-u",
            account.username,
            "-p",
            account.password,
            "--authtype",
            "Basic",
            "--schema_directory",
            SCHEMAS,
            "--skipschema",
            "--nooemcheck",
            "--logdir",
            where,
        ],
        cwd=where,
        env={"REQUESTS_CA_BUNDLE": str(trusted), "HOME": str(where)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )
    assert "Traceback" not in done.stdout, done.stdout[-3000:]
    return next(where.glob("**/*Debug*.log")).read_text()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("bmc", BMCS)
def test_the_service_validator_faults_only_what_the_captured_tree_shows_too(
    bmc: str, tmp_path: Path
) -> None:
    if not SCHEMAS:
        pytest.skip("DMTF's schema files are on no registry: make conformance SCHEMAS=DIR")
    with served(vendor=bmc.partition(" ")[0]) as site:
        log = run_validator(site, bmc, tmp_path)
    faults, explained = set(read_faults(log)), list_explained(bmc)

    unexplained = [f for f in sorted(faults) if not _fits(f, explained)]
    unused = [e for e in explained if not any(_fits(f, [e]) for f in faults)]
    assert log.count("Validating /redfish/v1/") > 40
    assert (unexplained, unused) == ([], [])


def _fits(fault: tuple[str, str], explained: list[tuple[str, str]]) -> bool:
    return any(fnmatchcase(fault[0], uri) and fault[1] == what for uri, what in explained)


def test_a_fault_in_the_log_is_read_with_its_uri_and_property() -> None:
    log = "x - INFO - Validating /redfish/v1/Chassis/C...\nx - ERROR - " + TRIAL.strip()

    assert list(read_faults(log)) == [("/redfish/v1/Chassis/C", "/Allocation ")]


def test_without_a_folder_of_schemas_the_target_says_where_they_are_to_be_had() -> None:
    done = subprocess.run(
        ["make", "-f", MADE, "conformance"],
        cwd=MADE.parent,
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "SCHEMAS")},
        timeout=60,
        check=False,
    )

    assert done.returncode != 0
    assert "SCHEMAS=DIR" in done.stderr + done.stdout
    assert "DSP8010" in done.stderr + done.stdout


def test_the_validator_is_installed_with_the_tests_tools() -> None:
    done = subprocess.run([TOOL, "--help"], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0
    assert "--schema_directory" in done.stdout
