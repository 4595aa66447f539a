"""The output of NVIDIA's `nvattest collect-evidence` on a simulated host.

The form is that of NVIDIA/attestation-sdk 443b9e3a (collect_evidence.cpp, nvat.h.in) and of its
command reference: an object with the evidences, or with a result that says why there are none. The
exit code is the low byte of the result.
"""

from __future__ import annotations

import json
import re

from provisioner.sim.hardware.report_devices import write_evidence
from provisioner.sim.outputs.host import HostView, Output

_COMMAND = re.compile(
    r"NVAT_FORMAT=json NVAT_LOG_LEVEL=error nvattest collect-evidence"
    r" --device (gpu|nvswitch) --nonce ([0-9a-f]{64})"
)
# results, with their sentences in nvat.h.in
NVML_INIT_FAILED = 500
NVML_ERROR = 501
_MESSAGES = {
    0: "Ok",
    NVML_INIT_FAILED: "a failure to initialize the NVIDIA Management Library (NVML)",
    NVML_ERROR: "a generic failure in the NVML library while performing a management operation",
    509: "the GPU is not running in a supported mode (CC or PPCIe)",
    600: "a failure to initialize NSCQ",
}


def print_nvattest(view: HostView, command: str) -> Output:
    """`nvattest collect-evidence --device gpu|nvswitch --nonce HEX`, with JSON output."""
    machine = view.machine
    asked = _COMMAND.fullmatch(command)
    if machine.nvattest is None:
        return Output(127, "", "/bin/sh: 1: nvattest: not found\n")
    if asked is None:
        return Output(106, "", "The following arguments were not expected\n")
    kind = asked[1]
    if machine.nvattest:
        return _answer(machine.nvattest, None)
    if kind == "gpu" and "gpu_fell_off" in machine.faults:
        return _answer(NVML_ERROR, None)
    if kind == "gpu" and "nvml_mismatch" in machine.faults:
        return _answer(NVML_INIT_FAILED, None)
    nonce = bytes.fromhex(asked[2])
    devices = view.gpus if kind == "gpu" else view.switches
    rows = [
        write_evidence(machine, device, view.driver, nonce)
        for device in devices
        if device.slot not in machine.silent_roots
    ]
    return _answer(0, rows)


def _answer(result: int, evidences: list[dict[str, str]] | None) -> Output:
    message = _MESSAGES.get(result, "unknown")
    answer = {"evidences": evidences, "result_code": result, "result_message": message}
    return Output(result & 0xFF, json.dumps(answer, indent=4) + "\n")
