"""The operator as a process: its settings from the environment, and its way into the cluster.

PROVISIONER_SERVER, PROVISIONER_TOKEN_FILE and PROVISIONER_CA name the daemon, as for the command
line. Kopf finds the cluster by the pod's service account, or by KUBECONFIG.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import kopf

from provisioner.integrations.kubernetes.api_client import ApiClient
from provisioner.integrations.kubernetes.operator import Operator, build_settings
from provisioner.model.input_error import InputError

LIVENESS = "http://0.0.0.0:8081/healthz"


async def serve() -> None:
    """Run the operator. Raises InputError for an address or a file that cannot be used."""
    token_file = os.environ.get("PROVISIONER_TOKEN_FILE", "")
    if not token_file:
        remedy = "Name the file that holds a token of the role operator."
        raise InputError("PROVISIONER_TOKEN_FILE", "", "it is not set", remedy)
    server = os.environ.get("PROVISIONER_SERVER", "")
    api = ApiClient(server, Path(token_file), os.environ.get("PROVISIONER_CA", ""))
    registry = Operator(api).build_registry()
    ignored = kopf.ErrorsMode.IGNORED  # of two ways to sign in, one is enough
    for number, sign_in in enumerate((kopf.login_with_service_account, kopf.login_with_kubeconfig)):
        kopf.on.login(id=f"sign-in-{number}", errors=ignored, registry=registry)(sign_in)
    try:
        await kopf.operator(
            registry=registry,
            settings=build_settings(),
            clusterwide=True,
            standalone=True,
            liveness_endpoint=LIVENESS,
        )
    finally:
        await api.close()


def main() -> int:
    """Run the operator; return 2 for an input that cannot be used."""
    kopf.configure(log_format=kopf.LogFormat.PLAIN)
    try:
        asyncio.run(serve())
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0
