"""ATA drives: their security and SANITIZE feature sets, by hdparm 9.65.

ACS-3, SANITIZE DEVICE (B4h): crypto scramble, block erase and overwrite run within the drive, go on
after a loss of power, and reach what no address leads to. `hdparm` starts one and returns; its end
is read by SANITIZE STATUS EXT.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from provisioner_hardware_manager.commands import Run

_SECURITY = re.compile(r"^Security:\s*$(.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
_HIDDEN_AREA = re.compile(r"HPA is (enabled|disabled)")
_STATE = re.compile(r"^\s*State:\s+SD([0-4])\b", re.MULTILINE)

# action -> its line in the drive's list of commands and feature sets
COMMANDS = {
    "crypto": "CRYPTO_SCRAMBLE_EXT command",
    "block": "BLOCK_ERASE_EXT command",
    "overwrite": "OVERWRITE_EXT command",
}
# method -> (action, options of hdparm). One pass of zeroes; without a number it would be 16.
SANITIZE = {
    "ata_sanitize_crypto": ("crypto", ("--sanitize-crypto-scramble",)),
    "ata_sanitize_block": ("block", ("--sanitize-block-erase",)),
    "ata_sanitize_overwrite": (
        "overwrite",
        ("--sanitize-overwrite-passes", "1", "--sanitize-overwrite", "hex:00000000"),
    ),
}
_FROZEN = "1"
_UNDER_WAY = "2"
_COMPLETED = "Last Sanitize Operation Completed Without Error"
# hdparm prints this where the drive gave no registers, and goes on as if it had
_NO_ANSWER = "bad/missing sense data"
POLL_S = 10.0
LIMIT_S = 48 * 3600.0  # an overwrite of a large drive; the daemon has its own, shorter limit


def read_drive(name: str, run: Run) -> dict[str, Any] | None:
    """Return the abilities of a drive; None if it does not report its security feature set."""
    answer = run("hdparm", "-I", name)
    section = _SECURITY.search(answer.text) if answer.ok else None
    if section is None:
        return None
    lines = [" ".join(line.split()) for line in section.group(1).splitlines()]
    area = run("hdparm", "-N", name)
    state = _HIDDEN_AREA.search(area.text) if area.ok else None
    return {
        # sectors that the drive hides: a host protected area (hdparm -N, version 9.65)
        "hidden_area": None if state is None else state.group(1) == "enabled",
        "supported": "supported" in lines,
        "frozen": "not frozen" not in lines,
        "enhanced": "supported: enhanced erase" in lines,
        "sanitize": _list_actions(answer.text),
    }


def _list_actions(text: str) -> list[str]:
    """Return the sanitize actions of `hdparm -I`: a star before a command says that it is there."""
    offered = {" ".join(line.split()) for line in text.splitlines()}
    if "* SANITIZE feature set" not in offered:
        return []
    return [action for action, command in COMMANDS.items() if f"* {command}" in offered]


def sanitize(name: str, method: str, run: Run, sleep: Callable[[float], None]) -> tuple[bool, str]:
    """Sanitize a drive and wait for the end; return whether the drive reports it as completed."""
    _, options = SANITIZE[method]
    state, text = _wait(name, run, sleep)  # one that a former owner began
    if state in {None, _FROZEN, _UNDER_WAY}:
        return False, f"the drive is not ready to sanitize: {text}"
    started = run("hdparm", "--yes-i-know-what-i-am-doing", *options, name)
    if not started.ok or _NO_ANSWER in started.text + started.error:
        return False, f"hdparm {options[0]}: {started.error or started.text}"
    state, text = _wait(name, run, sleep)
    if state is None or _COMPLETED not in text:
        return False, f"the drive does not report it as completed: {text}"
    return True, f"hdparm {options[0]}: the drive reports it as completed without error"


def _wait(name: str, run: Run, sleep: Callable[[float], None]) -> tuple[str | None, str]:
    """Return state and text of the drive when no sanitize is under way, or after the limit."""
    waited = 0.0
    state, text = _read_status(name, run)
    while state == _UNDER_WAY and waited < LIMIT_S:
        sleep(POLL_S)
        waited += POLL_S
        state, text = _read_status(name, run)
    return state, text


def _read_status(name: str, run: Run) -> tuple[str | None, str]:
    """Return the drive's state, SD0 to SD4 by its digit, and hdparm's text; None: no answer."""
    answer = run("hdparm", "--sanitize-status", name)
    text = " ".join((answer.text + " " + answer.error).split())
    state = _STATE.search(answer.text) if answer.ok and _NO_ANSWER not in text else None
    return (state.group(1) if state else None), text
