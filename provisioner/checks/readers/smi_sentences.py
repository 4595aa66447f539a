"""What nvidia-smi says outside of its tables about one GPU, and its exit codes.

The tool prints such a sentence before or behind its rows, and goes on with the other GPUs. Readers
of its outputs leave these lines to `provisioner.checks.driver_verdicts`, by this one function.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from provisioner.model.cohort import Severity
from provisioner.model.names import normalize_pci

_PCI = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]"
# source: NVIDIA/dcgm-exporter issue 604, NVIDIA/gpu-operator issues 285 and 2596:
# "Unable to determine the device handle for GPU5: 0000:5D:00.0: Unknown Error"
# "Unable to determine the device handle for GPU 0000:5D:00.0: GPU is lost.  Reboot the system ..."
_NO_HANDLE = re.compile(
    rf"^Unable to determine the device handle for gpu ?(?P<index>\d{{1,3}}\b(?!:[0-9a-f]))?"
    rf"(?P<pci>:? ?{_PCI})?(?:: (?P<why>.{{0,200}}))?$",
    re.IGNORECASE,
)
# "WARNING: infoROM is corrupted at gpu 0000:5D:00.0"; any other sentence that names one GPU
_NAMED = re.compile(
    rf"^(?!GPU {_PCI}\s*$)\S.{{0,200}}?\bgpu ?\d{{0,3}}:? ?(?P<pci>{_PCI})", re.IGNORECASE
)
# a complaint that names a GPU by its address alone, or by its number: "Unable to query GPU 3: ...".
# A setting that it speaks of is no verdict, and its tables leave such a line unread.
_COMPLAINT = re.compile(
    r"^(?!.{0,40}persistence mode)(?:warning|error|unable|fail\w*|can(?:not|'t)|could not"
    r"|unknown)\b.{0,200}?"
    rf"(?:\b(?:gpu|device) ?#?(?P<index>\d{{1,3}})\b(?![-:.]\w)|(?P<pci>{_PCI}))",
    re.IGNORECASE,
)
_HEAD = re.compile(rf"^GPU ?(?P<pci>{_PCI}):? \S")
# words of a sentence -> the remedy: of Xid 79 for a GPU that is gone, or the words' own
_REMEDIES = (
    ("requires reset", Severity.RESET_GPU),
    ("reset required", Severity.RESET_GPU),
    ("requires restart", Severity.RESTART),
    ("reboot", Severity.RESTART),
    ("lost", Severity.RESTART),
    ("fallen off", Severity.RESTART),
    ("unknown error", Severity.RESTART),
    ("not found", Severity.RESTART),
)
# source: the manual page of nvidia-smi, "RETURN VALUE"
_EXIT_CODES = {
    8: (Severity.ISOLATE, "a GPU's external power cables are not attached"),
    10: (Severity.RESTART, "the kernel found an interrupt issue with a GPU"),
    14: (Severity.ISOLATE, "the infoROM of a GPU is corrupted"),
    15: (Severity.RESTART, "a GPU has fallen off the bus, or cannot be reached any more"),
}
WHOLE_BUT = frozenset({14})  # codes of a run whose output is complete all the same


@dataclass(frozen=True)
class Sentence:
    """One sentence about a GPU. `is_gone`: the output has no row of this GPU."""

    part: str
    severity: Severity
    words: str
    is_gone: bool


def find_sentence(line: str) -> Sentence | None:
    """Return what a line outside of a table says of a GPU; None for any other line."""
    if match := _NO_HANDLE.match(line):
        pci = (match["pci"] or "").lstrip(": ")
        part = f"GPU {normalize_pci(pci)}" if pci else f"GPU {match['index'] or '?'}"
        return Sentence(part, _find_remedy(match["why"] or ""), line.strip(), is_gone=True)
    if match := _NAMED.match(line) or _HEAD.match(line):
        part = f"GPU {normalize_pci(match['pci'])}"
        return Sentence(part, _find_remedy(line), line.strip(), is_gone=False)
    if match := _COMPLAINT.match(line):
        part = f"GPU {normalize_pci(match['pci']) if match['pci'] else match['index']}"
        return Sentence(part, _find_remedy(line), line.strip(), is_gone=False)
    return None


def explain_exit(code: int | None) -> tuple[Severity, str] | None:
    """Return what an exit code says of a GPU; None for one that speaks of none."""
    return _EXIT_CODES.get(code) if code is not None else None


def _find_remedy(words: str) -> Severity:
    lower = words.lower()
    return next((s for part, s in _REMEDIES if part in lower), Severity.ISOLATE)
