"""Clears the TPM: what a tenant has put into it goes with its owner's seed."""

from __future__ import annotations

from pathlib import Path

from provisioner_hardware_manager.commands import Run, run, words

DEVICE = Path("/dev/tpmrm0")
# Physical Presence Interface: operation 5 is "Clear TPM", carried out by the firmware at next boot
# (TCG PC Client Platform Physical Presence Interface Specification 1.30, table of operations)
REQUEST = Path("/sys/class/tpm/tpm0/ppi/request")
CLEAR = "5"


def clear(run: Run = run, *, device: Path = DEVICE, request: Path = REQUEST) -> dict[str, str]:
    """Through the lockout hierarchy where its password is empty, else through the firmware.

    `result` is "done" (cleared now), "not_done" (asked of the firmware, which answers at the next
    boot, or refused) or "unsupported" (no TPM).
    """
    if not device.exists():
        return {"result": "unsupported", "detail": "there is no TPM 2.0 device"}
    now = run("tpm2_clear", "-c", "lockout", timeout_s=120.0)
    if now.ok:
        return {"result": "done", "detail": "TPM2_Clear by the lockout hierarchy"}
    refused = f"TPM2_Clear: {now.error}"
    try:
        request.write_text(CLEAR)
        asked = request.read_text().split()
    except OSError as failure:
        return {"result": "not_done", "detail": words(f"{refused}; no firmware request: {failure}")}
    if CLEAR not in asked:
        return {"result": "not_done", "detail": words(f"{refused}; the firmware took no request")}
    return {
        "result": "not_done",
        "detail": words(f"{refused}; the firmware was asked to clear it at the next boot"),
    }
