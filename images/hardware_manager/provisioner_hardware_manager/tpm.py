"""Clears the TPM, and with its owner's seed every secret that a tenant stored in it."""

from __future__ import annotations

from pathlib import Path

from provisioner_hardware_manager.commands import Run, run, shorten

DEVICE = Path("/dev/tpmrm0")
# Physical Presence Interface: operation 5 is "Clear TPM", carried out by the firmware at next boot
# (TCG PC Client Platform Physical Presence Interface Specification 1.30, table of operations)
REQUEST = Path("/sys/class/tpm/tpm0/ppi/request")
CLEAR = "5"
# what the firmware does with each operation, "5 4: User not required" for example: the kernel's
# drivers/char/tpm/tpm_ppi.c, Documentation/ABI/testing/sysfs-driver-ppi
OPERATIONS = "tcg_operations"
UNATTENDED = "4"
# the firmware's own word that there is a TPM 2.0 (TCG ACPI Specification 1.2, table TPM2)
TABLE = Path("/sys/firmware/acpi/tables/TPM2")


def clear(
    run: Run = run, *, device: Path = DEVICE, request: Path = REQUEST, table: Path = TABLE
) -> dict[str, str]:
    """Clear the TPM by the lockout hierarchy if that has no password, else by the firmware.

    `result` is "done" (cleared now), "not_done" (requested from the firmware, which acts at the
    next boot, or refused) or "unsupported" (the firmware lists no TPM either).
    """
    if not device.exists() and table.exists():
        detail = "the firmware lists a TPM 2.0, and the kernel has no device for it"
        return {"result": "not_done", "detail": detail}
    if not device.exists():
        return {"result": "unsupported", "detail": "there is no TPM 2.0 device"}
    now = run("tpm2_clear", "-c", "lockout", timeout_s=120.0)
    if now.ok:
        return {"result": "done", "detail": "TPM2_Clear by the lockout hierarchy"}
    refused = f"TPM2_Clear: {now.error}"
    if (waits := find_wait(request.parent / OPERATIONS)) is not None:
        return {"result": "not_done", "detail": shorten(f"{refused}; not requested: {waits}")}
    try:
        request.write_text(CLEAR)
        requested = request.read_text().split()
    except OSError as failure:
        return {
            "result": "not_done",
            "detail": shorten(f"{refused}; no firmware request: {failure}"),
        }
    if CLEAR not in requested:
        return {
            "result": "not_done",
            "detail": shorten(f"{refused}; the firmware accepted no request"),
        }
    return {
        "result": "not_done",
        "detail": shorten(f"{refused}; the firmware is to clear it at the next boot"),
    }


def find_wait(operations: Path) -> str | None:
    """Return why the firmware is not asked to clear the TPM; None if no person is needed for it.

    A firmware that needs one waits for a key at its console, at the next boot and without an end.
    """
    try:
        lines = operations.read_text().splitlines()
    except OSError as failure:
        return f"whether the firmware waits for a person is unknown: {failure}"
    for line in lines:
        number, _, answer = line.partition(" ")
        if number == CLEAR:
            code, _, meaning = answer.partition(":")
            if code.strip() == UNATTENDED:
                return None
            return (
                f"the firmware would wait at its console or refuse ({meaning.strip()}); allow the "
                "clear without presence in the BIOS (Dell: TpmPpiBypassClear)"
            )
    return "the firmware does not list the operation"
