"""Counter-proofs: with the thing behind it broken, the same step may not pass any more.

Each row of `ROWS` names the id, its step, and the way in which it is broken. The answers are judged
by the suite's own checks. Rows for an unbroken site run before the suite, so that its history is
still empty; the others after it.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from daemon_client import wait_for
from demonstration import Demonstration
from transport_steps import find_outer_address
from verdicts import OWN

HERE = Path(__file__).resolve().parent
STEP_LIMIT_S = 400
ABOUT = "about"  # of a breakage: the --node of the step
CONTROL = "control-plane"
Breakage = Callable[[Demonstration], Any]  # a context: its variables for the step


@dataclass(frozen=True)
class Row:
    """One counter-proof."""

    test_id: str
    step: str
    breaks: str  # name of the breakage
    about: str = ""  # name of the demonstration's setting for --node or --rack, or a literal
    suite: str = "bare_metal"


def _make_token(site: Demonstration, subject: str, *words: str) -> Path:
    """Create a token and return its file."""
    file = site.directory / f"{subject}-token"
    file.touch(mode=0o600)
    token = site.client("token", "create", "--subject", subject, *words, plain=True)
    file.write_text(token, encoding="utf-8")
    return file


@contextmanager
def revoke_key(site: Demonstration) -> Iterator[Mapping[str, str]]:
    """Let the step use a token that was revoked."""
    file = _make_token(site, "revoked", "--role", "operator")
    for row in site.open().get("/tokens")["items"]:
        if row["subject"] == "revoked" and row["good"]:
            site.client("token", "revoke", row["id"], "--yes")
    yield {"ACCEPTANCE_TOKEN_FILE": str(file)}


@contextmanager
def use_stranger(site: Demonstration) -> Iterator[Mapping[str, str]]:
    """Let the step use a token of a tenant that has no node."""
    site.open().change("PUT", "/tenants/stranger", {"nodes": 0, "vrf": "STRANGER"})
    file = _make_token(site, "stranger", "--role", "tenant", "--tenant", "stranger")
    yield {"ACCEPTANCE_TOKEN_FILE": str(file)}


@contextmanager
def hang_bmc(site: Demonstration) -> Iterator[Mapping[str, str]]:
    """Let the BMC of a host that serves answer no more."""
    site.simulate("break", site.nodes["retired_id"], "gateway_timeout")
    yield {}


@contextmanager
def fail_erasure(site: Demonstration) -> Iterator[Mapping[str, str]]:
    """Take a node back whose disk fails every erasure, and wait for the outcome."""
    node = site.nodes["machine_id"]
    daemon = site.open()

    def read() -> bool:
        return bool(daemon.list_all("/events", node=node, kind="not_sanitized"))

    if not read():
        site.simulate("break", node, "erase_fails")
        daemon.accept(f"/nodes/{node}/reclaim", {})
        wait_for(read, STEP_LIMIT_S, "the erasure of a disk failed")
    yield {}


@contextmanager
def make_good_key(site: Demonstration) -> Iterator[Mapping[str, str]]:
    """Let the step look at a key that is good still."""
    made = run_step(site, "create_access_key", {})
    yield {ABOUT: made["access_key_id"]}


@contextmanager
def make_bad_key(site: Demonstration) -> Iterator[Mapping[str, str]]:
    """Let the step look at a key that is revoked."""
    made = run_step(site, "create_access_key", {})
    run_step(site, "disable_access_key", {}, "--node", made["access_key_id"])
    yield {ABOUT: made["access_key_id"]}


@contextmanager
def give_more_rights(site: Demonstration) -> Iterator[Mapping[str, str]]:
    """Give the account of the step the rights that it has to lack."""
    yield {"ACCEPTANCE_ROLE": "operator"}


@contextmanager
def fail_leaf(site: Demonstration) -> Iterator[Mapping[str, str]]:
    """Let a leaf accept no revision of its configuration."""
    site.simulate("break", "leaf-su0-r0", "apply_fails")
    yield {}


@contextmanager
def untag(site: Demonstration) -> Iterator[Mapping[str, str]]:
    """Give a node the two tags and remove one of them again."""
    path = f"/nodes/{site.nodes['retired_id']}/tags"
    site.open().change("PATCH", path, {"tags": {"name:acceptance": True, "createdby:demo": True}})
    site.open().change("PATCH", path, {"tags": {"createdby:demo": None}})
    yield {}


@contextmanager
def remove_image(site: Demonstration) -> Iterator[Mapping[str, str]]:
    """Take the systems' images out of the artifact store while the step runs."""
    images = list((site.directory / "artifacts").glob("*.raw"))
    for image in images:
        image.rename(image.with_suffix(".away"))
    try:
        yield {}
    finally:
        for image in images:
            image.with_suffix(".away").rename(image)


@contextmanager
def serve_old_tls(site: Demonstration) -> Iterator[Mapping[str, str]]:
    """Let the step look at a port that speaks TLS 1.0, with the demonstration's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(site.data / "agent-ca.pem", site.data / "agent-ca.key")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.set_ciphers("ALL:@SECLEVEL=0")  # OpenSSL offers TLS 1.0 at no higher level
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_answer_hellos, args=(server, context), daemon=True).start()
        yield {"ACCEPTANCE_API": f"https://127.0.0.1:{server.getsockname()[1]}"}


def _answer_hellos(server: socket.socket, context: ssl.SSLContext) -> None:
    """Begin a handshake with each caller, until the port is closed."""
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection, contextlib.suppress(OSError):
            context.wrap_socket(connection, server_side=True).close()


@contextmanager
def serve_outside(site: Demonstration) -> Iterator[Mapping[str, str]]:
    """Let the API's port answer at this machine's address in a network, too."""
    port = urlsplit(site.url).port or 443
    with socket.create_server((find_outer_address(), port)):
        yield {}


@contextmanager
def break_card(site: Demonstration) -> Iterator[Mapping[str, str]]:
    """Let the BMC of a card of a host answer no more."""
    site.simulate("break", site.nodes["retired_id"], "gateway_timeout", "--part", "DPU_0")
    yield {}


@contextmanager
def last_long(site: Demonstration) -> Iterator[Mapping[str, str]]:
    """Let the step make a token that lasts for a quarter of a year."""
    yield {"ACCEPTANCE_DAYS": "90"}


@contextmanager
def list_another(site: Demonstration) -> Iterator[Mapping[str, str]]:
    """Let the list of expected hardware have a host that is not there."""
    listed = json.loads((site.directory / "expected.yaml").read_text(encoding="utf-8"))
    host = next(n for n in listed["nodes"] if n["kind"] == "host")
    absent = {**host, "name": "absent", "bmc": {**host["bmc"], "serial": "ABSENT-1"}}
    file = site.directory / "expected-more.yaml"
    file.touch(mode=0o600)
    file.write_text(json.dumps({**listed, "nodes": [*listed["nodes"], absent]}), encoding="utf-8")
    yield {"ACCEPTANCE_EXPECTED": str(file)}


@contextmanager
def leave(site: Demonstration) -> Iterator[Mapping[str, str]]:
    """Change nothing more: an earlier row or the suite itself has broken something."""
    yield {}


BREAKAGES: dict[str, tuple[Breakage, str]] = {
    "key": (revoke_key, "the token is revoked"),
    "stranger": (use_stranger, "the token is of a tenant without nodes"),
    "absent": (list_another, "a listed host is not there"),
    "untagged": (untag, "one of the two tags is removed"),
    "silent": (hang_bmc, "the host's BMC does not answer"),
    "unwiped": (fail_erasure, "a disk of a node that came back could not be erased"),
    "good key": (make_good_key, "the key is good still"),
    "bad key": (make_bad_key, "the key is revoked"),
    "image": (remove_image, "the image is not in the artifact store"),
    "old TLS": (serve_old_tls, "the port speaks TLS 1.0"),
    "outside": (serve_outside, "the API's port answers in a network"),
    "card": (break_card, "the BMC of a card does not answer"),
    "long": (last_long, "the token lasts for 90 days"),
    "rights": (give_more_rights, "the account has the role of operators"),
    "leaf": (fail_leaf, "a leaf accepts no revision"),
    "none": (leave, "there is no such tenant"),
    "empty": (leave, "nothing of the kind has happened yet"),
    "damaged": (leave, "nodes are faulty, after the suite's break-fix steps"),
}


def run_step(site: Demonstration, step: str, more: Mapping[str, str], *words: str) -> Any:
    """Run a step as the suite runs it and return the object that it prints."""
    environment = {**os.environ, **site.environment(), **more}
    environment["ACCEPTANCE_EVIDENCE"] = str(site.evidence / "counterproofs")
    done = subprocess.run(
        [sys.executable, str(HERE / "ask.py"), step, *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=STEP_LIMIT_S,
        check=True,
    )
    return json.loads(done.stdout)


# each row runs before the suite, when nothing has happened yet, or after it
BEFORE = (
    Row("BFX02-01", "query_maintenance_events", "empty"),
    Row("BFX02-02", "query_retirement_notices", "empty"),
    Row("BFX02-03", "query_repair_history", "empty"),
    Row("BFX05-01", "query_planned_notifications", "empty"),
    Row("BFX06-01", "query_failure_notifications", "empty"),
    Row("HWING01-01", "verify_ingestion", "absent"),
    Row("CAP01-01", "query_governance_metrics", "stranger"),
    Row("CAP02-01", "query_fleet_inventory", "stranger"),
    Row("CAP03-01", "query_resource_discovery", "stranger"),
    Row("CAP05-02", "query_health_aggregation", "stranger"),
    Row("STG03-01", "query_stable_ips", "stranger"),
    Row("STG04-01", "query_oob_health", "stranger"),
    Row("STG05-01", "query_topology", "stranger"),
    Row("BFX03-01", "query_serial_numbers", "stranger"),
    Row("BFX03-02", "query_switch_firmware", "stranger"),
    Row("BFX01-02", "return_node_maintenance", "key", "machine_id"),
    Row("BFX01-03", "return_rack_maintenance", "key", "rack_id"),
    Row("BFX01-05", "request_host_replacement", "key", "replaced_id"),
    Row("CNP01-04", "topology_placement", "key", "machine_id"),
    Row("CNP05-01", "verify_tags", "untagged", "retired_id"),
    Row("CNP08-02", "reinstall_instance", "key", "machine_id"),
    Row("CP03-01", "check_api", "key", suite=CONTROL),
    Row("CP05-01", "test_access_key", "bad key", suite=CONTROL),
    Row("CP06-01", "verify_key_rejected", "good key", suite=CONTROL),
    Row("CP07-01", "create_tenant", "key", suite=CONTROL),
    Row("CP08-01", "list_tenants", "none", "acceptance-none", suite=CONTROL),
    Row("CP09-01", "get_tenant", "none", "acceptance-none", suite=CONTROL),
    Row("CP10-01", "delete_tenant", "none", "acceptance-none", suite=CONTROL),
    Row("IAM01-01", "test_credentials", "bad key", suite="iam"),
    Row("IAM03-01", "test_credentials", "bad key", suite="iam"),
    Row("IAM02-01", "delete_user", "key", "acceptance-none", suite="iam"),
    Row("SDN01-01", "vpc_crud", "key", suite="network"),
    Row("SDN01-02", "vpc_crud", "key", suite="network"),
    Row("SDN01-04", "vpc_crud", "key", suite="network"),
    Row("NET02-02", "nvlink_domain", "stranger", "machine_id", suite="network"),
    Row("SEC03-01", "sa_credential_test", "key", suite="security"),
    Row("SEC04-02", "least_privilege_test", "rights", "machine_id", suite="security"),
    Row("CAP04-01", "capacity_reservation_grouping", "key", suite="security"),
    Row("CAP04-02", "topology_block_atomic_allocation", "key", suite="security"),
    Row("SEC06-01", "short_lived_credentials_test", "long", suite="security"),
    Row("SEC13-02", "insecure_protocols_test", "old TLS", suite="security"),
    Row("SEC14-01", "api_endpoint_isolation", "outside", suite="security"),
    Row("OBS05-01", "telemetry_delivery_latency", "stranger", suite="observability"),
    Row("OBS17-01", "bmc_sel_logs", "stranger", suite="observability"),
    Row("BOOT01-02", "crud_install_config", "key", suite="image-registry"),
    Row("CTRL01-01", "query_api", "key", suite=OWN),
    Row("CP11-01", "add_tenant_user", "rights", suite=OWN),
    Row("RESDB01-01", "query_resources", "absent", suite=OWN),
    Row("NETMGMT01-01", "query_switches", "stranger", suite=OWN),
    Row("ATTEST01-01", "query_versions", "stranger", suite=OWN),
    Row("CNP09-01", "query_versions", "stranger", suite=OWN),
    Row("IMG01-01", "query_image", "image", suite=OWN),
    Row("OBS02-01", "query_control_log", "key", suite=OWN),
    Row("SDN04-01", "tenant_subnets", "stranger", suite=OWN),
    Row("CNP01-01", "node_lifecycle", "key", suite=OWN),
    Row("CNP01-02", "node_lifecycle", "key", suite=OWN),
    Row("CNP01-03", "node_lifecycle", "key", suite=OWN),
    Row("HSS05-01", "node_lifecycle", "key", suite=OWN),
)
AFTER = (
    Row("SEC21-02", "query_sanitization", "unwiped"),
    Row("SEC21-04", "query_memory_sanitization", "unwiped"),
    Row("SEC21-05", "query_gpu_sanitization", "unwiped"),
    Row("STG02-01", "query_sanitization", "unwiped"),
    Row("CAP05-01", "query_host_health", "damaged"),
    Row("BMAAS05-01", "check_dpu_health", "card"),
    Row("BFX03-03", "query_bmc_kernel_logs", "silent"),
    Row("BOOT01-03", "verify_image", "silent", "retired_id"),
    Row("CNP01-05", "reboot_instance", "silent", "retired_id"),
    Row("CNP01-06", "power_cycle_instance", "silent", "retired_id"),
    Row("CNP01-07", "stop_instance", "silent", "retired_id"),
    Row("CNP01-08", "start_instance", "silent", "retired_id"),
    Row("CNP08-01", "reboot_instance", "silent", "retired_id"),
    Row("SDN11-01", "stable_ip_test", "silent", "retired_id", suite="network"),
    Row("SDN04-02", "vpc_isolation", "leaf", suite="network"),
)


def prove(
    site: Demonstration, suite: Path, python: Path, rows: tuple[Row, ...]
) -> dict[str, dict[str, Any]]:
    """Return for each id whether its step fails, with the suite's own words."""
    nodes = site.nodes
    questions = []
    for row in rows:
        breakage, text = BREAKAGES[row.breaks]
        name = "--rack" if row.about == "rack_id" else "--node"
        with breakage(site) as more:
            about = more.get(ABOUT) or nodes.get(row.about, row.about)
            words = (name, about) if about else ()
            answer = run_step(site, row.step, more, *words)
        questions.append(
            {
                "id": row.test_id,
                "step": row.step,
                "broken": text,
                "suite": row.suite,
                "answer": answer,
            }
        )
    done = subprocess.run(
        [str(python), str(HERE / "judge.py"), str(suite)],
        input=json.dumps(questions),
        capture_output=True,
        text=True,
        timeout=STEP_LIMIT_S,
        check=True,
        env={**os.environ, "PYTHONPATH": ""},
    )
    judged = json.loads(done.stdout)
    return {row["id"]: {**row, "holds": row["verdict"] != "passed"} for row in judged}
