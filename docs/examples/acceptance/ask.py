#!/usr/bin/env python3
"""Answer one step of NVIDIA's ai-cloud-validation from the REST API of a running daemon.

    ask.py STEP [--node NODE] [--rack RACK]

The last output is one JSON object, as the suite wants it. Each of its fields comes from an answer
of this run, and the answers are in the folder ACCEPTANCE_EVIDENCE. Needs Python 3.11 and nothing
else. ACCEPTANCE_API, ACCEPTANCE_CA and ACCEPTANCE_TOKEN_FILE name the daemon.
"""

from __future__ import annotations

import argparse
import json
import sys

import attestation_steps
import bmc_steps
import breakfix_steps
import console_steps
import control_steps
import erasure_steps
import fleet_steps
import group_steps
import guest_steps
import image_steps
import install_steps
import isolation_steps
import log_steps
import network_steps
import node_steps
import own_steps
import partition_steps
import power_steps
import rights_steps
import second_steps
import telemetry_steps
import transport_steps
import unoffered
from daemon_client import RefusedError, open_daemon

PLATFORM = "provisioner"
STEPS = {
    **node_steps.STEPS,
    **fleet_steps.STEPS,
    **erasure_steps.STEPS,
    **breakfix_steps.STEPS,
    **control_steps.STEPS,
    **network_steps.STEPS,
    **power_steps.STEPS,
    **own_steps.STEPS,
    **transport_steps.STEPS,
    **bmc_steps.STEPS,
    **install_steps.STEPS,
    **rights_steps.STEPS,
    **console_steps.STEPS,
    **attestation_steps.STEPS,
    **partition_steps.STEPS,
    **second_steps.STEPS,
    **telemetry_steps.STEPS,
    **log_steps.STEPS,
    **group_steps.STEPS,
    **isolation_steps.STEPS,
    **guest_steps.STEPS,
    **image_steps.STEPS,
}


def answer(step: str, node: str, rack: str) -> dict[str, object]:
    """Return the JSON object of a step."""
    base: dict[str, object] = {"platform": PLATFORM, "test_name": step}
    if step in unoffered.REASONS:
        return {**base, "success": True, "skipped": True, "skip_reason": unoffered.REASONS[step]}
    try:
        return {**base, "success": True, **STEPS[step](open_daemon(step), node, rack)}
    except RefusedError as error:
        return {**base, "success": False, "error": str(error)}


def main() -> int:
    """Print the answer to the step that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("step", choices=sorted({*STEPS, *unoffered.REASONS}))
    parser.add_argument("--node", default="", help="name of the node that the step is about")
    parser.add_argument("--rack", default="", help="name of the rack that the step is about")
    options = parser.parse_args()
    json.dump(answer(options.step, options.node, options.rack), sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
