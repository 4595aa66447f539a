"""The plug-in as ironic-python-agent calls it, and the log that its token must not reach."""

from __future__ import annotations

import inspect
import logging
from typing import Any

import pytest
from hardware_machine import Machine
from ironic_python_agent import hardware
from provisioner_hardware_manager import plugin, redaction, tpm
from provisioner_hardware_manager.commands import Output, shorten
from provisioner_hardware_manager.plugin import ARGUMENTS, ProvisionerHardwareManager


def test_the_tokens_of_requests_never_reach_a_handler(caplog):
    before = logging.getLogRecordFactory()
    try:
        redaction.install()
        redaction.install()
        log = logging.getLogger("ironic_python_agent.api")
        with caplog.at_level(logging.INFO):
            log.info("%(ip)s - POST %(path)s - 200", {"ip": "192.0.2.1",
                     "path": "/v1/commands/?wait=true&agent_token=s3cret&x=1"})  # fmt: skip
            log.info("body %s", {"agent_token": "s3cret", "callback_url": "https://192.0.2.9"})
    finally:
        logging.setLogRecordFactory(before)

    assert "s3cret" not in caplog.text
    assert "agent_token=***&x=1" in caplog.text
    assert "callback_url" in caplog.text


def test_a_tpm_that_refuses_is_asked_for_through_the_firmware(tmp_path):
    machine, present = Machine(), tmp_path / "tpmrm0"
    present.touch()
    request = tmp_path / "request"
    (tmp_path / "tcg_operations").write_text("5 4: User not required\n")

    unsupported = tpm.clear(machine.run, device=tmp_path / "none", request=request)
    refused = tpm.clear(machine.run, device=present, request=request)
    machine.says["tpm2_clear"] = Output(0, "")
    done = tpm.clear(machine.run, device=present, request=request)

    assert [r["result"] for r in (unsupported, refused, done)] == [
        "unsupported",
        "not_done",
        "done",
    ]
    assert request.read_text() == "5"


@pytest.mark.parametrize(
    ("operations", "named"),
    [
        ("4 4: User not required\n5 3: User required\n", "User required"),
        ("5 2: Blocked for OS by system firmware\n", "Blocked for OS"),
        ("5 0: Not implemented\n", "Not implemented"),
        ("4 4: User not required\n15 4: User not required\n", "does not list"),
        (None, "unknown"),
    ],
)
def test_a_firmware_that_would_wait_at_its_console_for_a_key_is_not_asked(
    tmp_path, operations, named
):
    """Settings misbehaviour 19: the host would hang at its next boot, for ever."""
    machine, present = Machine(), tmp_path / "tpmrm0"
    present.touch()
    request = tmp_path / "request"
    if operations is not None:
        (tmp_path / "tcg_operations").write_text(operations)

    answer = tpm.clear(machine.run, device=present, request=request)

    assert answer["result"] == "not_done"
    assert named in answer["detail"]
    assert not request.exists()


def test_every_step_is_a_method_and_none_runs_by_itself():
    manager = ProvisionerHardwareManager()
    steps = manager.get_clean_steps({}, [])

    assert {s["step"] for s in steps} == set(ARGUMENTS)
    assert all(s["priority"] == 0 and callable(getattr(manager, s["step"])) for s in steps)
    assert "provisioner_erase_device" not in {s["step"] for s in manager.get_deploy_steps({}, [])}


@pytest.mark.parametrize("step", sorted(ARGUMENTS))
def test_no_argument_of_a_step_is_one_of_the_agents_own(step):
    """`execute_clean_step` passes them on as keywords, beside those of its dispatcher."""
    own = set(inspect.signature(hardware.dispatch_to_managers).parameters)

    assert not own & set(ARGUMENTS[step])
    assert set(ARGUMENTS[step]) <= set(
        inspect.signature(getattr(ProvisionerHardwareManager, step)).parameters
    )


def test_a_job_that_was_done_is_not_done_twice(monkeypatch):
    asked = []

    def once(device: str, serial: str, method: str, *, agent: Any) -> dict[str, str]:
        asked.append(serial)
        return {"result": "done" if len(asked) > 1 else "not_done", "serial": serial}

    monkeypatch.setattr(plugin.erasure, "erase", once)
    manager = ProvisionerHardwareManager()

    answers = [
        manager.provisioner_erase_device({}, [], "/dev/sda", "S", "overwrite", job="j")["result"]
        for _ in range(3)
    ]

    assert answers == ["not_done", "done", "done"]
    assert asked == ["S", "S"]


def test_the_agent_finds_the_plug_in_before_its_generic_one():
    before = logging.getLogRecordFactory()
    try:
        support = ProvisionerHardwareManager().evaluate_hardware_support()
    finally:
        logging.setLogRecordFactory(before)

    assert support > hardware.HardwareSupport.GENERIC


def test_words_are_one_printable_line():
    assert shorten("a\n\x1b[2Jb\t" + "x" * 999).startswith("a ?[2Jb xxx")
    assert len(shorten("y" * 999)) == 300
