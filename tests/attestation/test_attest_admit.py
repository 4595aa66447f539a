"""`attest admit`: golden values of witness nodes as lines for a person, and what it leaves out."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from attested_devices import AUTHORITY, make_gpu
from collected_evidence import Answer, enter
from typer.testing import CliRunner

from provisioner.checks.check import CheckContext
from provisioner.integrations.evidence_files.evidence_commands import app
from provisioner.integrations.sim.hardware.device_authority import SimulatedDevice
from provisioner.integrations.sim.hardware.simulated_tpm import SpdmResponder, make_values
from provisioner.model.cohort import Verdict
from provisioner.model.input_error import InputError
from provisioner.model.matrix import AttestationRule

NAMES = [f"HGX_ERoT_GPU_SXM_{n}" for n in (1, 2, 3)]
DEVICES = {name: AUTHORITY.make_device("CEC173x EC", f"A{name[-1]}", None) for name in NAMES}
WITNESS = "su0-n01, 2026-11-22"
COUNTER, SERIAL = 5, 6  # indices


def answer(device: SimulatedDevice, name: str, turn: int, **changes: Any) -> dict[str, str]:
    values = make_values("firmware", 8)
    values[COUNTER] = bytes([turn]) * 48
    values[SERIAL] = name.encode().ljust(48, b"\0")
    nonce = bytes([turn, NAMES.index(name)]) * 16
    signed = SpdmResponder(device, values).answer(nonce)
    row = {"component": name, "nonce": nonce.hex(), "certificates": device.chain_pem}
    return {**row, "signed": base64.b64encode(signed).decode(), **changes}


def write(folder: Path, turn: int, **changes: Any) -> str:
    rows = [answer(DEVICES[name], name, turn) for name in NAMES]
    rows[1] |= changes
    text = json.dumps({"asked_at": 1_795_305_600.0, "components": rows, "gaps": []})
    outputs = {"measurements": {"source": "bmc", "exit_code": 0, "text": text}}
    path = folder / f"{turn}.json"
    path.write_text(json.dumps(outputs if turn % 2 else {"node": "n", "evidence": outputs}))
    return str(path)


def admit(folder: Path, *words: str) -> tuple[int, str, str]:
    root = folder / "root.pem"
    root.write_text(AUTHORITY.root.pem)
    options = ["--witness", WITNESS, "--maker", str(root)]
    result = CliRunner().invoke(app, ["admit", *words, *options])
    if isinstance(result.exception, InputError):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_two_questions_give_a_rule_that_the_matrix_accepts(tmp_path: Path) -> None:
    code, printed, _ = admit(tmp_path, write(tmp_path, 1), write(tmp_path, 2))

    rule = AttestationRule.model_validate(yaml.safe_load(printed)["attestation"])
    (group,) = rule.components.values()
    assert code == 0
    assert list(rule.components) == ["HGX_ERoT_GPU_SXM_*"]
    assert (group.count, sorted(group.digests)) == (3, [1, 2, 3, 4, 7, 8])
    assert group.digests[3] == (make_values("firmware", 8)[3].hex(),)
    assert (rule.policy, group.learned_from) == ("record", WITNESS)


def test_counting_and_individual_indices_are_named(tmp_path: Path) -> None:
    _, printed, _ = admit(tmp_path, write(tmp_path, 1), write(tmp_path, 2))

    assert f"changed between questions: {COUNTER};" in printed
    assert f"each root has its own: {SERIAL}" in printed


def test_one_question_says_that_counters_are_not_recognised(tmp_path: Path) -> None:
    _, printed, _ = admit(tmp_path, write(tmp_path, 1))

    assert "asked once" in printed


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"nonce": "00" * 32}, "replayed"),
        ({"certificates": ""}, "chain"),
        ({"certificates": DEVICES[NAMES[0]].chain_pem}, "signature"),
        ({"signed": None, "problem": "it is disabled"}, "it is disabled"),
    ],
)
def test_an_answer_that_proves_nothing_admits_nothing(
    tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    code, printed, errors = admit(tmp_path, write(tmp_path, 1, **change))

    assert code == 1
    assert says in errors
    assert "components" not in printed


def test_an_unknown_maker_admits_nothing(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["admit", write(tmp_path, 1), "--witness", WITNESS])

    assert result.exit_code == 1
    assert "anchor" in result.stderr


def test_other_components_are_left_out(tmp_path: Path) -> None:
    _, printed, _ = admit(
        tmp_path, write(tmp_path, 1), "--components", "HGX_ERoT_GPU_SXM_1", "--json"
    )

    assert json.loads(printed)["groups"][0]["roots"] == ["HGX_ERoT_GPU_SXM_1"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"evidence": 3}', '{"measurements": {}}'])
def test_a_file_without_evidence_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "own.json"
    path.write_text(text)

    with pytest.raises(InputError):
        admit(tmp_path, str(path))


def write_reports(folder: Path, turn: int, **changes: Any) -> str:
    """Write the stored answers of `nvattest`, whose index 60 counts."""
    nonce = bytes([turn]) * 32
    values = {**make_values("firmware"), 60: bytes([turn]) * 48}
    entries = [enter(make_gpu(name, values=values), nonce) for name in ("A1", "A2")]
    outputs = Answer(entries=entries, nonce=nonce.hex(), **changes).outputs()
    path = folder / f"reports-{turn}.json"
    path.write_text(json.dumps({n: e.model_dump(mode="json") for n, e in outputs.items()}))
    return str(path)


def test_reports_of_gpus_give_the_digests_of_their_rule(tmp_path: Path) -> None:
    code, printed, _ = admit(tmp_path, write_reports(tmp_path, 1), write_reports(tmp_path, 2))

    tree = yaml.safe_load(printed)["attestation"]
    rule = AttestationRule.model_validate(tree)
    assert code == 0
    assert "gpu_reports: 2 roots, 63 indices; left out, since they changed" in printed
    assert (rule.gpu_reports.policy, rule.gpu_reports.count) == ("record", 2)
    assert rule.gpu_reports.learned_from == WITNESS
    assert 60 not in rule.gpu_reports.digests

    required = {**tree, "gpu_reports": {**tree["gpu_reports"], "policy": "require"}}
    context = CheckContext(attestation=AttestationRule.model_validate(required))
    assert Answer(context=context, manifests=()).judge().verdict is Verdict.PASS


def test_a_report_that_proves_nothing_gives_no_digest(tmp_path: Path) -> None:
    path = write_reports(tmp_path, 1)
    stored = json.loads(Path(path).read_text())
    text = json.loads(stored["gpu_reports"]["text"])
    stored["gpu_reports"]["text"] = json.dumps({**text, "nonce": "00" * 32})
    Path(path).write_text(json.dumps(stored))

    code, printed, problems = admit(tmp_path, path)

    assert code == 1
    assert "digests" not in printed
    assert "replayed" in problems
