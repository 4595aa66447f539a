"""The proof that an NVLink domain's fabric carries a load, as `rack fabric --keep` leaves it.

No tray of a domain is handed over into a partition without one: `Completed` GPUs, IMEX and NCCL
over NVLink are proved over all of its trays, and by nobody once its tenants have them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from pydantic import Field

from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.impact import domain_of
from provisioner.integrations.racks.plan import RackPlan, read_record
from provisioner.model.base import Record
from provisioner.model.input_error import InputError
from provisioner.model.inventory import DeviceKind, Inventory
from provisioner.model.times.instant import Instant
from provisioner.runtime.whole_files import replace_file

FOLDER = "fabric"  # of the racks' folder
PROOF_MAX_S = 90 * 86400.0  # ours: links and switches age, too
AHEAD_MAX_S = 300.0  # of another machine's clock


class FabricProof(Record):
    """What was proved together. `judged_at`: the age of its oldest evidence (Unix time)."""

    domain: str = Field(max_length=63)
    trays: Mapping[str, tuple[str, ...]] = Field(max_length=1024)  # with their GPUs' serials
    judged_at: Instant


def list_trays(plan: RackPlan, domain: str) -> Sequence[str]:
    """Return the planned compute trays of an NVLink domain."""
    return [
        unit.name
        for rack in plan.racks
        for unit in rack.units
        if unit.kind is Kind.COMPUTE_TRAY and domain_of(rack, unit) == domain
    ]


def keep_proof(folder: Path, domain: str, proof: FabricProof | None) -> None:
    """Write a domain's proof in the racks' folder, or take it away. Raises InputError."""
    file = _find_file(folder, domain)
    try:
        if proof is None:
            file.unlink(missing_ok=True)
            return
        file.parent.mkdir(exist_ok=True)
        replace_file(file, proof.model_dump_json(indent=2) + "\n", mode=0o666, lasting=True)
    except OSError as error:
        problem = f"it cannot be written ({error.strerror})"
        raise InputError("--keep", str(file), problem, "Name the racks' folder.") from None


def find_lack(
    folder: Path, plan: RackPlan, domain: str, now: float, tray: str, seen: Inventory | None
) -> str:
    """Return why the fabric of a domain is not proved with the GPUs that a tray has, "" if it is.

    `seen`: the tray's inventory. A tray or GPU that was replaced has the same name in the plan.
    """
    file = _find_file(folder, domain)
    if not file.exists():
        return "nobody proved its fabric"
    try:
        proof = read_record(file, FabricProof)
    except (InputError, OSError) as error:
        return f"its proof cannot be read: {error}"[:200]
    planned = list_trays(plan, domain)
    if proof.domain != domain or set(proof.trays) != set(planned):
        other = sorted(set(proof.trays) ^ set(planned))
        return f"its proof is of other trays than the plan's: {', '.join(other[:4])}"
    if not -AHEAD_MAX_S <= now - proof.judged_at <= PROOF_MAX_S:
        days = (now - proof.judged_at) / 86400.0
        return f"its proof is {days:.0f} days old"
    has = (
        {d.serial for d in seen.devices if d.kind is DeviceKind.GPU and d.serial} if seen else set()
    )
    if not has:
        return f"the inventory of {tray} has no serials of GPUs, to be held against its proof"
    if has != set(proof.trays[tray]):
        return f"its proof was made with other GPUs in {tray} than are there now"
    return ""


def _find_file(folder: Path, domain: str) -> Path:
    return folder / FOLDER / f"{quote(domain, safe='')}.json"
