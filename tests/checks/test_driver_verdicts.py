"""What the driver itself says of a GPU is judged by every check that reads an output of its tool.

Sentences and words: NVIDIA/dcgm-exporter issue 604, NVIDIA/gpu-operator issues 285 and 2596,
NVIDIA/DCGM issues 2 and 263, microsoft/pai issue 3756, the manual page of nvidia-smi.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from provisioner.checks import ALL
from provisioner.checks.check import Check, CheckContext
from provisioner.checks.readers.smi_sentences import find_sentence
from provisioner.model.cohort import CheckResult, Evidence, Severity, Verdict

GOLDEN = Path(__file__).parents[1] / "golden/checks"
QUERY = (GOLDEN / "sram_ecc/good/smi_query.txt").read_text()
ROWS = (GOLDEN / "gpu_inventory/good/gpus.txt").read_text().splitlines(keepends=True)
HEAD = "index, uuid, serial, name, pci.bus_id, vbios_version, driver_version, gpu_recovery_action\n"
READERS = [c for c in ALL if any("nvidia-smi" in command.line for command in c.commands)]
OF_QUERY = [c for c in READERS if any(command.name == "smi_query" for command in c.commands)]
NAMES = {c.name: c for c in ALL}
HOST = CheckContext(gpu_model="H100", gpus=8)


def judged(check: Check, command: str, text: str, code: int = 0) -> CheckResult:
    line = next(c.line for c in check.commands_of(HOST) if c.name == command)
    return check.judge({command: Evidence(source=line, exit_code=code, text=text)}, HOST)


def with_action(word: str, number: int = 1) -> str:
    heads = re.findall(r"^GPU [0-9A-Fa-f:.]+$", QUERY, re.MULTILINE)
    text = QUERY
    for at, head in enumerate(heads):
        said = word if at == number else "None"
        text = text.replace(f"{head}\n", f"{head}\n    GPU Recovery Action      : {said}\n")
    return text


@pytest.mark.parametrize("check", OF_QUERY, ids=lambda c: c.name)
@pytest.mark.parametrize(
    ("word", "severity"),
    [
        ("Reset", Severity.RESET_GPU),
        ("Reboot", Severity.RESTART),
        ("Drain P2P", Severity.RESET_GPU),
        ("Drain and Reset", Severity.RESET_GPU),
        ("Node Reboot Required", Severity.RESTART),
        ("Recover IMEX Domain", Severity.ISOLATE),
        ("Unknown Error", Severity.ISOLATE),
        ("5", Severity.ISOLATE),
    ],
)
def test_a_recovery_action_is_a_fault_of_its_gpu(
    check: Check, word: str, severity: Severity
) -> None:
    result = judged(check, "smi_query", with_action(word))

    assert result.verdict is Verdict.FAIL
    found = [(f.part, f.severity) for f in result.findings if "recovery" in f.detail]
    assert found == [("GPU 0000:29:00.0", severity)]


@pytest.mark.parametrize("word", ["None", "N/A", "[N/A]", "Not Supported"])
def test_no_recovery_action_is_no_fault(word: str) -> None:
    assert judged(NAMES["sram_ecc"], "smi_query", with_action(word)).verdict is Verdict.PASS


def test_a_table_with_the_column_is_read_as_well() -> None:
    rows = [f"{row.rstrip()}, {'Reset' if n == 1 else 'None'}\n" for n, row in enumerate(ROWS)]

    result = judged(NAMES["gpu_inventory"], "gpus", HEAD + "".join(rows))

    assert [(f.part, f.severity) for f in result.findings] == [("GPU 1", Severity.RESET_GPU)]


LOST = "Unable to determine the device handle for GPU5: 0000:5D:00.0: Unknown Error\n"
OLDER = (
    "Unable to determine the device handle for GPU 0000:5D:00.0: GPU is lost."
    "  Reboot the system to recover this GPU\n"
)
INFOROM = "WARNING: infoROM is corrupted at gpu 0000:5D:00.0\n"
RESET = "Unable to determine the device handle for GPU5: 0000:5D:00.0: GPU requires reset\n"
SEVEN = "".join(ROWS[:5] + ROWS[6:])


@pytest.mark.parametrize(
    ("text", "code", "severity"),
    [
        (LOST + SEVEN, 0, Severity.RESTART),
        (LOST + SEVEN, 15, Severity.RESTART),
        (LOST.replace("GPU5: ", "gpu ") + SEVEN, 15, Severity.RESTART),
        (OLDER, 15, Severity.RESTART),
        (RESET + SEVEN, 0, Severity.RESET_GPU),
        ("".join(ROWS) + INFOROM, 0, Severity.ISOLATE),
        ("".join(ROWS) + INFOROM, 14, Severity.ISOLATE),
        (INFOROM + "".join(ROWS), 14, Severity.ISOLATE),
    ],
)
def test_a_sentence_beside_the_table_names_its_gpu(
    text: str, code: int, severity: Severity
) -> None:
    result = judged(NAMES["gpu_inventory"], "gpus", text, code)

    assert result.verdict is Verdict.FAIL
    assert [(f.part, f.severity) for f in result.findings] == [("GPU 0000:5d:00.0", severity)]


@pytest.mark.parametrize("check", OF_QUERY, ids=lambda c: c.name)
@pytest.mark.parametrize("sentence", [LOST, OLDER, INFOROM, RESET])
def test_a_sentence_behind_the_query_is_no_key_of_its_last_gpu(check: Check, sentence: str) -> None:
    text = QUERY.replace("end-of-output", f"{sentence}end-of-output")

    result = judged(check, "smi_query", text)

    assert result.verdict is Verdict.FAIL
    assert "GPU 0000:5d:00.0" in {f.part for f in result.findings}


@pytest.mark.parametrize(
    "line", ["WARNING: something new", "Failed to initialize NVML: Unknown Error", "Key : value"]
)
def test_an_unknown_line_outside_of_every_gpu_passes_nowhere(line: str) -> None:
    text = QUERY.replace("end-of-output", f"{line}\nend-of-output")

    assert judged(NAMES["sram_ecc"], "smi_query", text).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("code", "severity"),
    [(8, Severity.ISOLATE), (10, Severity.RESTART), (14, Severity.ISOLATE), (15, Severity.RESTART)],
)
def test_an_exit_code_alone_says_what_it_means(code: int, severity: Severity) -> None:
    result = judged(NAMES["gpu_inventory"], "gpus", "".join(ROWS), code)

    assert result.verdict is Verdict.FAIL
    assert severity in {f.severity for f in result.findings}


@pytest.mark.parametrize("check", READERS, ids=lambda c: c.name)
def test_no_check_that_reads_nvidia_smi_passes_beside_a_sentence(check: Check) -> None:
    """A coverage rule: a line that the readers leave out is judged, in every output of the tool."""
    for command in (c for c in check.commands_of(HOST) if "nvidia-smi" in c.line):
        result = judged(check, command.name, INFOROM)
        assert ("GPU 0000:5d:00.0", Severity.ISOLATE) in {
            (f.part, f.severity) for f in result.findings
        }


@pytest.mark.parametrize(
    "line",
    [
        "GPU 00000000:1B:00.0",
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-3f1b)",
        ROWS[0],
        HEAD,
        "    Bus Id                  : 00000000:1B:00.0",
        "\t Link 0: 26.562 GB/s",
        "Attached GPUs                : 8",
    ],
)
def test_what_belongs_to_the_tables_is_no_sentence(line: str) -> None:
    assert find_sentence(line.rstrip("\n")) is None
