"""Reads files of evidence: those that the daemon stored, or the bare output of one command."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from provisioner.checks.attestation.evidence_containers import select_pinned
from provisioner.checks.attestation.tpm_quotes import QuoteExpectation
from provisioner.checks.check import Check, CheckContext, Command
from provisioner.checks.readers.tool_output import END, END_WORDS
from provisioner.checks.threshold_data import MODELS
from provisioner.model.cohort import Evidence
from provisioner.model.input_error import InputError
from provisioner.model.matrix import AttestationRule, Pin
from provisioner.planning.certification.regression import parse_outputs

# ------------------------------------------------------------------------------
# The `--expect` options of `attest verify`: pins that evidence is compared with.


_SHA256 = re.compile(r"[0-9a-f]{64}")
_PCR = re.compile(r"pcr(\d|1\d|2[0-3])")
_REMEDY = "Write driver=VERSION, vbios=VERSION, rim=SHA256, ak=SHA256, pcr7=HEX or resets=NUMBER."


@dataclass
class ExpectedEvidence:
    """The pins that were named on the command line."""

    versions: dict[str, str | tuple[str, ...]] = field(default_factory=dict)  # driver, vbios
    rims: set[str] = field(default_factory=set)  # SHA-256 of manifests
    admitted_at: dict[str, float] = field(default_factory=dict)  # SHA-256 -> when, by the matrix
    key_sha256: str = ""  # of the enrolled attestation key
    pcrs: dict[int, tuple[str, ...]] = field(default_factory=dict)
    resets: int | None = None
    secure_boot: bool | None = None

    @property
    def manifests(self) -> frozenset[str]:
        """The only manifests that count; any with a good chain if none was named."""
        return frozenset(self.rims)

    def of_quote(self, nonce: bytes | None) -> QuoteExpectation:
        return QuoteExpectation(
            nonce=nonce,
            key_sha256=self.key_sha256,
            reset_count=self.resets,
            secure_boot=self.secure_boot,
            golden_pcrs=tuple(sorted(self.pcrs.items())),
            reference="--expect",
        )


def add_pins(expected: ExpectedEvidence, pins: Mapping[str, Pin], rule: AttestationRule) -> None:
    """Expect the versions of a profile's pins, and only the manifests that it names.

    A version of which no manifest is named has none: it stays unproved.
    """
    known = {kind: (pin.version, *pin.also) for kind, pin in pins.items() if pin.known}
    references = {
        kind: pin.reference for kind, pin in pins.items() if pin.known and pin.reference is not None
    }
    more = (*rule.gpu_reports.references, *rule.nvswitch_reports.references)
    pinned = select_pinned(known, references, more)
    for name, versions in pinned.versions.items():
        expected.versions.setdefault(name, versions)
    expected.admitted_at.update(pinned.admitted_at)
    expected.rims |= pinned.admitted_at.keys()
    expected.rims = expected.rims or set(pinned.manifests)


def parse_expected(rows: list[str]) -> ExpectedEvidence:
    """Parse NAME=VALUE of each option. Raises InputError."""
    expected = ExpectedEvidence()
    for row in rows:
        name, _, value = row.partition("=")
        if not value or len(value) > 80 or not _take(expected, name, value):
            raise InputError("--expect", row[:80], "it is no expectation of this form", _REMEDY)
    return expected


def _take(expected: ExpectedEvidence, name: str, value: str) -> bool:
    """Store one expectation; False if its name or its value has another form."""
    if name in ("driver", "vbios"):
        expected.versions[name] = value
        return True
    if name == "resets" and value.isascii() and value.isdecimal():
        expected.resets = int(value)
        return True
    if name == "secure_boot" and value in ("on", "off"):
        expected.secure_boot = value == "on"
        return True
    digest = value.lower()
    pcr = _PCR.fullmatch(name)
    if not _SHA256.fullmatch(digest):
        return False
    if pcr is not None:
        number = int(pcr[1])
        expected.pcrs[number] = (*expected.pcrs.get(number, ()), digest)
    elif name == "rim":
        expected.rims.add(digest)
    elif name == "ak":
        expected.key_sha256 = digest
    else:
        return False
    return True


SIZE_MAX = 32 * 1024 * 1024  # bytes; a command's output is cut at 4 MiB, evidence holds a few


def read_evidence(
    check: Check, files: Sequence[str], context: CheckContext, exit_code: int
) -> Mapping[str, Evidence]:
    """Return outputs by command name.

    A file is stored evidence, or a command's output: [NAME=]FILE.

    A bare output is taken as printed by the check's own command, with this exit code.
    """
    commands = {c.name: c for c in check.commands_of(context)}
    outputs: dict[str, Evidence] = {}
    for argument in files:
        name, _, path = argument.partition("=")
        if not path or name.partition("@")[0] not in commands:
            name = ""
            path = argument
        text = _read(path)
        stored = parse_outputs(text) if not name else None
        if stored is not None:
            outputs.update(stored)
            continue
        name = name or _only(check, commands, path)
        outputs[name] = _one(text) or Evidence(
            source=_source(commands[name.partition("@")[0]], text), exit_code=exit_code, text=text
        )
    return outputs


def _source(command: Command, text: str) -> str:
    """Return the command line that a bare output is attributed to.

    A saved output of a bare tool does not have the `echo` that ends our lines: its marks are
    required only where they are present.
    """
    return command.line if END_WORDS in text else command.line.removesuffix(END).rstrip(" ;&")


def detect_model(outputs: Mapping[str, Evidence]) -> str:
    """Return the GPU model that the outputs themselves name; "" if none or several."""
    text = "\n".join(e.text for e in outputs.values())
    named = {model for model in MODELS if f"NVIDIA {model}" in text}
    return named.pop() if len(named) == 1 else ""


def _only(check: Check, commands: Mapping[str, Command], path: str) -> str:
    if len(commands) == 1:
        return next(iter(commands))
    names = ", ".join(commands)
    raise InputError(
        "--evidence",
        path,
        f"{check.name} judges the outputs of several commands",
        f"Write NAME=FILE for each of: {names}.",
    )


def _one(text: str) -> Evidence | None:
    """Return one stored output with its exit, or None if this is a bare output."""
    try:
        return Evidence.model_validate_json(text)
    except ValidationError:
        return None


def _read(path: str) -> str:
    try:
        if path == "-":
            content = sys.stdin.buffer.read(SIZE_MAX + 1)
        else:
            with Path(path).open("rb") as file:
                content = file.read(SIZE_MAX + 1)
    except OSError as error:
        problem = f"it cannot be read ({error.strerror})"
        raise InputError("--evidence", path, problem, "Check the path.") from None
    if len(content) > SIZE_MAX:
        problem = f"it is larger than {SIZE_MAX} bytes"
        raise InputError("--evidence", path, problem, "Is it the right file?")
    return content.decode("utf-8", errors="replace")
