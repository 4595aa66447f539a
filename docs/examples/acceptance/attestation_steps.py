"""Steps about signed evidence: what each host proved of its firmware in its last validation."""

from __future__ import annotations

from typing import Any

from daemon_client import Daemon, RefusedError, list_hosts

PROVED = "proved"
# findings about devices that gave no answer, or none that could be read
SILENT = ("attester missing", "cannot be judged", "it gave no signed", "not run")
# findings that leave open whether the answer is new, and whether the device signed it
NOT_OURS = ("nonce", "replayed", "malformed", "unsigned")
NOT_SIGNED = ("signature", "chain", "anchor", "algorithm", "malformed", "unsigned", "trailing")


def _has(row: dict[str, Any], words: tuple[str, ...]) -> bool:
    return any(remark.startswith(words) for remark in row["remarks"])


def _describe(daemon: Daemon, host: str) -> dict[str, Any]:
    """Return what one host's roots of trust, GPUs and NVSwitches proved, and its Secure Boot."""
    try:
        shown = daemon.get(f"/nodes/{host}/attestation")
    except RefusedError as error:
        return {"machine_id": host, "attestation_supported": False, "reason": str(error)}
    rows = [*shown["roots"], *shown["devices"]]
    required = {shown["policy"], shown["gpu_reports_policy"], shown["nvswitch_reports_policy"]}
    details = [d["detail"] for d in shown["differences"]]
    answered = required == {"require"} and not any(d.startswith(SILENT) for d in details)
    return {
        "machine_id": host,
        "attestation_supported": bool(rows),
        "nonce_verified": answered and not any(_has(row, NOT_OURS) for row in rows),
        "attestation_signature_valid": answered and not any(_has(row, NOT_SIGNED) for row in rows),
        "secure_boot_enabled": bool(shown["systems"])
        and all(system["secure_boot"] is True for system in shown["systems"]),
        "boot_measurements_attested": answered
        and not details
        and all(row["verdict"] == PROVED and row["matched"] == row["golden"] > 0 for row in rows),
        "measured_boot_state": "; ".join(details)[:500] or f"{len(rows)} devices proved",
    }


def query_attestation(daemon: Daemon, _node: str, _rack: str) -> dict[str, Any]:
    """Return the evidence of every host that was validated."""
    machines = [_describe(daemon, host["id"]) for host in list_hosts(daemon)]
    return {"machines_checked": len(machines), "machines": machines}


STEPS = {"query_attestation": query_attestation}
