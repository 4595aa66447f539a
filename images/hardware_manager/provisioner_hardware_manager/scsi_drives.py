"""SCSI SANITIZE of SAS drives, by sg3-utils 1.46.

SBC-4, 5.35 "SANITIZE command": service actions 01h overwrite, 02h block erase, 03h cryptographic
erase. `sg_opcodes` asks the drive for each (SPC-5, REPORT SUPPORTED OPERATION CODES).
"""

from __future__ import annotations

from provisioner_hardware_manager.commands import Run

ACTIONS = {"crypto": 3, "block": 2, "overwrite": 1}
# method -> (action, options of sg_sanitize). `--zero`: the pattern of an overwrite.
SANITIZE = {
    "scsi_sanitize_crypto": ("crypto", ("--crypto",)),
    "scsi_sanitize_block": ("block", ("--block",)),
    "scsi_sanitize_overwrite": ("overwrite", ("--overwrite", "--zero")),
}
# An overwrite of the largest drives takes more than a day; the daemon has its own, shorter limit.
SANITIZE_LIMIT_S = 48 * 3600.0
_SUPPORTED = "supported [conforming to SCSI standard]"


def read_sanitize(name: str, run: Run) -> list[str] | None:
    """Return the sanitize actions that the drive supports; None if it does not answer."""
    actions: list[str] = []
    answered = False
    for action, number in ACTIONS.items():
        answer = run("sg_opcodes", "--no-inquiry", f"--opcode=0x48,{number}", name)
        answered = answered or answer.ok
        if answer.ok and _SUPPORTED in answer.text:
            actions.append(action)
    return actions if answered else None


def sanitize(name: str, method: str, run: Run) -> tuple[bool, str]:
    """Sanitize and wait for the end: sg_sanitize asks for the progress once a minute until then.

    `--quick` leaves out the 15 seconds in which a person might change their mind. AUSE lets a
    failed sanitize be left again, so that the next method can be tried.
    """
    _, options = SANITIZE[method]
    ended = run("sg_sanitize", *options, "--ause", "--quick", name, timeout_s=SANITIZE_LIMIT_S)
    if not ended.ok:
        return False, f"sg_sanitize: {ended.error or ended.text or 'it did not end'}"
    ready = run("sg_turs", name)
    if not ready.ok:
        return False, f"after sg_sanitize the drive is not ready: {ready.error or ready.text}"
    return True, f"sg_sanitize {' '.join(options)}: completed, the drive is ready"
