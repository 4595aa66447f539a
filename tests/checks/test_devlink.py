"""N10's command line in a shell, with a `devlink` of each iproute2 that a distribution has.

The words of usage are those of the programs; tried_by_distribution.csv has their sources.
"""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from provisioner.checks import devlink_health
from provisioner.checks.check import CheckContext
from provisioner.model.cohort import CheckResult, Evidence, Verdict

CARDS = ("0000:18:00.0", "0000:40:00.0")
LINE = devlink_health.DEVLINK_HEALTH.line
TEXT = """\
pci/{card}:
  reporter fw
    state healthy error 0 recover 0 auto_dump true
pci/{card}{port}:
  reporter tx
    state healthy error 0 recover 0 grace_period 500 auto_recover true auto_dump true
"""
SHOWN = (
    '"pci/{card}":[{{"reporter":"fw","state":"healthy","error":0,"recover":0}}],'
    '"pci/{card}{port}":[{{"reporter":"tx","state":"healthy","error":0,"recover":0}}]'
)
SHOWN_OF_CARD = '"pci/{card}":[{{"reporter":"fw","state":"healthy","error":0,"recover":0}}]'
SHOWN_OF_DEVICE = (
    '"pci/{card}":[{{"reporter":"fw","state":"healthy","error":0,"recover":0}},'
    '{{"reporter":"tx","state":"healthy","error":0,"recover":0}}]'
)
QUEUES = '{{"SQs":[{{"channel ix":0,"sqn":4236,"HW state":1,"stopped":{stopped}}}]}}'
NAME_EXPECTED = "Reporter's name is expected."  # 5.15 and 6.1, of `health show DEV`


def judge(folder: Path, *, port: str, stopped: bool = False, listed: bool = True) -> CheckResult:
    """The verdict on what the check's own line prints on a host with such a `devlink`."""
    devices = folder / "infiniband"
    for number, card in enumerate(CARDS):
        (folder / card).mkdir(parents=True)
        (devices / f"mlx5_{number}").mkdir(parents=True)
        (devices / f"mlx5_{number}" / "device").symlink_to(f"../../{card}")
    shown = SHOWN if port else SHOWN_OF_DEVICE
    if not listed:
        shown = SHOWN_OF_CARD
    document = ",".join(shown.format(card=card, port=port) for card in CARDS)
    document = f'{{"health":{{{document}}}}}'
    text = "".join(TEXT.format(card=card, port=port) for card in CARDS)
    text = text if listed else text.replace("reporter tx", "reporter fw_fatal")
    queues = QUEUES.format(stopped="true" if stopped else "false")
    tool = folder / "devlink"
    tool.write_text(
        '#!/bin/sh\ncase "$*" in\n'
        f"'-j health show') echo {shlex.quote(document)} ;;\n"
        f"'health show') printf %s {shlex.quote(text)} ;;\n"
        f"'-j health diagnose pci/'*{port}' reporter tx') echo {shlex.quote(queues)} ;;\n"
        f"*) echo {shlex.quote(NAME_EXPECTED)} >&2; exit 1 ;;\nesac\n"
    )
    tool.chmod(0o755)
    return judge_line(folder, devices)


def judge_line(folder: Path, devices: Path) -> CheckResult:
    ran = subprocess.run(
        ["sh", "-c", LINE.replace("/sys/class/infiniband", str(devices))],
        env={"PATH": f"{folder}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    evidence = Evidence(source=LINE, exit_code=ran.returncode, text=ran.stdout)
    context = CheckContext(rails=2, rail_pci=CARDS)
    return devlink_health.CHECK.judge({"devlink_health": evidence}, context)


@pytest.mark.parametrize("port", ["/1", ""], ids=["linux-5.9-and-later", "before"])
def test_the_queues_are_looked_at_where_the_listing_has_them(tmp_path: Path, port: str) -> None:
    assert judge(tmp_path, port=port).verdict is Verdict.PASS


def test_a_queue_that_is_stopped_is_named(tmp_path: Path) -> None:
    result = judge(tmp_path, port="/1", stopped=True)

    assert result.verdict is Verdict.FAIL
    assert {f.part for f in result.findings} == {f"{card} queue 4236" for card in CARDS}


def test_healthy_reporters_without_a_queue_are_no_verdict(tmp_path: Path) -> None:
    result = judge(tmp_path, port="/1", listed=False)

    assert result.verdict is Verdict.SKIPPED
    assert "no send queue of 0000:18:00.0" in result.findings[0].detail


def test_a_host_without_devlink_gets_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "0000:18:00.0").mkdir()
    device = tmp_path / "infiniband" / "mlx5_0"
    device.mkdir(parents=True)
    (device / "device").symlink_to("../../0000:18:00.0")
    (tmp_path / "devlink").write_text("#!/bin/sh\nexit 127\n")
    (tmp_path / "devlink").chmod(0o755)

    assert judge_line(tmp_path, tmp_path / "infiniband").verdict is Verdict.SKIPPED
