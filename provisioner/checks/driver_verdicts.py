"""The driver's own verdicts on a GPU, read in every output of nvidia-smi, whatever the check asks.

They are the recovery action (`nvidia-smi -q`, column gpu_recovery_action), the reset status of
drivers before it, sentences outside of the tables, a cell that says that the GPU is lost, and exit
codes. An output that a check needs is therefore never fine while the driver says in it that a GPU
is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from provisioner.checks.check import Check, CheckContext, Command, Judge, Unreadable, fault
from provisioner.checks.readers import smi_query
from provisioner.checks.readers.smi_sentences import (
    WHOLE_BUT,
    Sentence,
    explain_exit,
    find_sentence,
)
from provisioner.checks.readers.tool_output import ROWS_MAX
from provisioner.checks.xid.xid_explain import RECOVERIES
from provisioner.model.cohort import Evidence, Finding, Severity

TOOL = "nvidia-smi"
COLUMN = "gpu_recovery_action"
# keys of `nvidia-smi -q` wherever they stand: a driver that moves or shortens one says the same
_RECOVERY_KEY = re.compile(r"(?:^|/)(?:GPU )?Recovery Actions?$", re.IGNORECASE)
_RESET_KEY = re.compile(r"(?:^|/|\b)Reset (?:Required|Recommended)$", re.IGNORECASE)
# drivers up to 570; later ones print that it has been deprecated in its place. "Either of these
# being 'Yes' indicates that an unrecoverable error has occurred" (nvidia-smi --help-query-gpu)
RESETS = {
    "GPU Reset Status/Reset Required": "reset_status.reset_required",
    "GPU Reset Status/Drain and Reset Recommended": "reset_status.drain_and_reset_recommended",
}
_NO_RESET = ("", "no", "n/a", "not supported", "requested functionality has been deprecated")
# how nvidia-smi words the values of nvmlDeviceGpuRecoveryAction_t -> the value
# source: NVIDIA, "GPU Memory Error Management", recovery action flag; NVIDIA/DCGM issue 263
_VALUES = {"none": 0, "reset": 1, "reboot": 2, "drain p2p": 3, "drain and reset": 4}
_WORDS = {words.lower(): r.severity for r in RECOVERIES for words in r.words} | {
    words: r.severity for r in RECOVERIES for words, number in _VALUES.items() if r.number == number
}


def read_driver_verdicts(check: Check) -> Check:
    """Return the check, with the driver's verdicts among its findings where it reads nvidia-smi."""
    if not any(TOOL in command.line for command in check.commands):
        return check
    return replace(check, findings=_join(check, check.findings))


def judge_recovery_action(part: str, word: str) -> Finding | None:
    """Return the fault that a recovery action names; None for none, or where none is reported."""
    plain = word.strip().strip("[]").lower()
    if plain in ("", "n/a", "not supported"):
        return None
    severity = _WORDS.get(plain, Severity.ISOLATE)
    if severity is None:
        return None
    return fault(part, severity, "the driver asks for a recovery of this GPU", word, "None")


def judge_reset(part: str, word: str) -> Finding | None:
    """Return the fault that a reset status names; None for "No", or where none is reported."""
    if word.strip().strip("[]").lower() in _NO_RESET:
        return None
    return fault(part, Severity.RESET_GPU, "the driver asks for a reset of this GPU", word, "No")


def _join(check: Check, judge: Judge) -> Judge:
    def findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
        commands = [c for c in check.commands_of(context) if TOOL in c.line and c.name in evidence]
        sentences = {s for c in commands for s in _list_sentences(evidence[c.name])}
        explained = [fault(s.part, s.severity, s.words) for s in sorted(sentences, key=_order)]
        if not explained:
            explained = [f for c in commands for f in _judge_exit(evidence[c.name])]
        yield from explained
        yield from (f for c in commands for f in _judge_values(evidence, c))
        is_gone = any(s.is_gone for s in sentences)
        accepted = {c.name: _accept_exit(evidence[c.name], is_gone=is_gone) for c in commands}
        whole = {**evidence, **accepted}
        try:
            # beside a GPU that the driver names as gone, that one is missing says no more
            yield from (f for f in judge(whole, context) if not (is_gone and f.part == "host"))
        except Unreadable:
            if not explained:
                raise

    return findings


def _order(sentence: Sentence) -> tuple[str, str]:
    return sentence.part, sentence.words


def _list_sentences(output: Evidence) -> Iterator[Sentence]:
    for line in output.text.split("\n")[:ROWS_MAX]:
        if (sentence := find_sentence(line.rstrip("\r"))) is not None:
            yield sentence


def _judge_exit(output: Evidence) -> Iterator[Finding]:
    explanation = explain_exit(output.exit_code)
    if explanation is not None:
        last = " ".join(output.text[-200:].split())
        yield fault("host", *explanation, f"exit code {output.exit_code}: {last}")


def _accept_exit(output: Evidence, *, is_gone: bool) -> Evidence:
    """Return an output whose exit code a sentence explains as that of a run that ended well."""
    accepted = WHOLE_BUT | ({15} if is_gone else set())
    return output.model_copy(update={"exit_code": 0}) if output.exit_code in accepted else output


def _judge_values(evidence: Mapping[str, Evidence], command: Command) -> Iterator[Finding]:
    """Yield what keys and cells say; nothing where the output cannot be read: its check says so."""
    try:
        if command.name == smi_query.SMI_QUERY.name:
            yield from _judge_query(evidence[command.name].text)
        elif "--query-gpu" in command.line:
            yield from _judge_table(evidence, command)
    except Unreadable:
        return


def _judge_query(text: str) -> Iterator[Finding]:
    for gpu in smi_query.read(smi_query.strip_end(text)):
        for judge, said in ((judge_recovery_action, _RECOVERY_KEY), (judge_reset, _RESET_KEY)):
            words = (w for key, listed in gpu.values.items() if said.search(key) for w in listed)
            yield from (f for word in words if (f := judge(gpu.part, word)) is not None)
        lost = [(k, v) for k, values in gpu.values.items() for v in values if smi_query.is_lost(v)]
        if lost:
            key, value = lost[0]
            severity = smi_query.SILENT[value.strip("[]").lower()]
            yield fault(gpu.part, severity, f"the driver cannot read this GPU: {key}", value)


def _judge_table(evidence: Mapping[str, Evidence], command: Command) -> Iterator[Finding]:
    for row in smi_query.read_table(evidence, command):
        part = smi_query.name_part(row) if "index" in row else f"GPU {row.get('pci.bus_id')}"
        said = [judge_recovery_action(part, row[COLUMN])] if COLUMN in row else []
        said += [judge_reset(part, row[column]) for column in RESETS.values() if column in row]
        yield from (found for found in said if found is not None)
