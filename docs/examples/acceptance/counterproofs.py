"""Counter-proofs: with the thing behind it broken, the same step may not pass any more.

Each row of `counterproof_rows.py` names a step, the way in which it is broken, and ids. The answers
are judged by the suite's own checks. Rows for an unbroken site run before the suite, so that its
history is still empty; the others after it.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from certificate_issue import issue
from counterproof_rows import Row
from daemon_client import RefusedError, list_hosts, wait_for
from demonstration import Demonstration
from file_breakages import forget_lines, remove_image, take_names
from guest_host import run_tool
from transport_steps import find_outer_address

HERE = Path(__file__).resolve().parent
STEP_LIMIT_S = 400
WRITTEN_S = 3.0  # the daemon has written what it got
ABOUT = "about"  # of a breakage: the --node of the step
Breakage = Callable[[Demonstration], Any]  # a context: its variables for the step


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


def choose_returning(
    hosts: Sequence[Mapping[str, Any]], known: Collection[str], cases: Sequence[Mapping[str, Any]]
) -> tuple[str, list[str]]:
    """Return a host that no other row is about, and the cases to close before it is taken back.

    A host with an open case goes from its fence to the repair, where planned work waits for people:
    it is not validated. The suite's own step gives back a whole rack, so that this was any host.
    """
    opened: dict[str, list[str]] = {}
    for case in cases:
        if case["closed_at"] is None:
            opened.setdefault(case["node"], []).append(case["id"])
    # the demonstration's own tenants: the others are of the run
    free = [h["id"] for h in hosts if h["tenant"] in ("red", "blue") and h["id"] not in known]
    if not free:
        raise RefusedError(0, "no host of the demonstration's tenants serves and is left over")
    node = min(free, key=lambda name: len(opened.get(name, ())))
    return node, opened.get(node, [])


@contextmanager
def implant_firmware(site: Demonstration) -> Iterator[Mapping[str, str]]:
    """Take a node back with other firmware in a GPU and a silent root of trust; wait for both."""
    daemon = site.open()
    hosts = list_hosts(daemon, "kind=host and state=released")
    cases = daemon.list_all("/cases", open="true")
    node, to_close = choose_returning(hosts, set(site.nodes.values()), cases)
    for case in to_close:
        body = {"ending": "no_fault", "why": "the acceptance run takes the node back"}
        daemon.accept(f"/cases/{case}/close", body)

    def read() -> bool:
        return bool(daemon.get(f"/nodes/{node}/attestation")["differences"])

    site.simulate("break", node, "firmware_implanted")
    site.simulate("break", node, "root_silent")
    daemon.accept(f"/nodes/{node}/reclaim", {})
    try:
        wait_for(read, STEP_LIMIT_S, "the next validation found the firmware")
    except RefusedError as late:
        host = daemon.get(f"/nodes/{node}")
        told = f"{late}; {node} is {host['state']}: {host['note']} {host['blockers']}"
        raise RefusedError(0, told) from late
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
def serve_old_tls(site: Demonstration) -> Iterator[Mapping[str, str]]:
    """Let the step look at a port that speaks TLS 1.0, with a certificate of the second site."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    file = site.data.parent / "old-tls.pem"
    issue(site.data, file)
    context.load_cert_chain(file)
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
def renew_for_a_year(site: Demonstration) -> Iterator[Mapping[str, str]]:
    """Let the renewed certificate last for a year, and take one for a month afterwards."""
    yield {"ACCEPTANCE_CERTIFICATE_DAYS": "365"}
    issue(site.second.data, site.second.certificate)


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
def send_no_log(site: Demonstration) -> Iterator[Mapping[str, str]]:
    """End the rsyslog of hosts and switches, and take what it has sent away, for the step."""
    stored = site.data / "machine-logs"
    away = site.data / "machine-logs-away"
    site.senders.stop()
    time.sleep(WRITTEN_S)
    stored.rename(away)
    try:
        yield {}
    finally:
        away.rename(stored)
        site.senders.start()


@contextmanager
def use_foreign_key(site: Demonstration) -> Iterator[Mapping[str, str]]:
    """Let the step use a key of a tenant that has no node."""
    site.open().change("PUT", "/tenants/stranger", {"nodes": 0, "vrf": "STRANGER"})
    yield {"ACCEPTANCE_TENANT": "stranger"}


@contextmanager
def send_otherwise(site: Demonstration) -> Iterator[Mapping[str, str]]:
    """Let the step send its change as another program than the one it looks for."""
    yield {"ACCEPTANCE_AGENT": "another/1"}


@contextmanager
def _change_ufm(site: Demonstration, path: str, content: object) -> Iterator[Mapping[str, str]]:
    """Let UFM answer a path with other content while the step runs; a tenant has a partition."""
    site.open().change("PUT", "/tenants/stranger", {"nodes": 0, "vrf": "STRANGER"})
    rule = {"name": "acceptance", "endpoint": "ufm", "path": path, "action": "merge"}
    site.ask_simulator("POST", "/faults", {"rules": [{**rule, "value": content}]})
    try:
        yield {}
    finally:
        site.ask_simulator("POST", "/faults", {"remove": "acceptance"})


def add_partition(site: Demonstration) -> AbstractContextManager[Mapping[str, str]]:
    """Let UFM list a partition that this program gave to no tenant."""
    return _change_ufm(site, "/ufmRest/resources/pkeys", {"0x123": {"guids": []}})


def clear_management_key(site: Demonstration) -> AbstractContextManager[Mapping[str, str]]:
    """Let the subnet manager have no M_Key."""
    return _change_ufm(site, "/ufmRest/app/smconf", {"m_key": "0x0"})


@contextmanager
def demand_no_factor(site: Demonstration) -> Iterator[Mapping[str, str]]:
    """Let the second daemon take any sign-in of its provider."""
    with site.second.restarted(api_oidc_methods=[]):
        yield {}


@contextmanager
def expect_another_audience(site: Demonstration) -> Iterator[Mapping[str, str]]:
    """Let the second daemon take tokens for another service only."""
    with site.second.restarted(api_oidc_audience="another"):
        yield {}


@contextmanager
def open_key(site: Demonstration) -> Iterator[Mapping[str, str]]:
    """Let the second daemon's master key be in clear beside its data."""
    if site.second.bao is None:  # it never was sealed: the step is skipped
        yield {}
        return
    site.second.stop()
    site.second.run("db", "unwrap-key")
    site.second.start()
    try:
        yield {}
    finally:
        site.second.stop()
        site.second.seal()
        site.second.start()


@contextmanager
def refuse_logs(site: Demonstration) -> Iterator[Mapping[str, str]]:
    """Let the receiver of OpenTelemetry take nothing."""
    site.second.collecting = False
    try:
        yield {}
    finally:
        site.second.collecting = True


@contextmanager
def log_in_otherwise(site: Demonstration) -> Iterator[Mapping[str, str]]:
    """Let the step log in with another key than the tenant's."""
    yield {"ACCEPTANCE_LOGIN_KEY": site.environment().get("ACCEPTANCE_OTHER_KEY", "")}


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
    "implanted": (implant_firmware, "a GPU runs other firmware, and a root of trust is silent"),
    "unwiped": (fail_erasure, "a disk of a node that came back could not be erased"),
    "good_key": (make_good_key, "the key is good still"),
    "bad_key": (make_bad_key, "the key is revoked"),
    "image": (remove_image, "the image is not in the artifact store"),
    "taken": (take_names, "another file has the image's name"),
    "old_TLS": (serve_old_tls, "the port speaks TLS 1.0"),
    "outside": (serve_outside, "the API's port answers in a network"),
    "card": (break_card, "the BMC of a card does not answer"),
    "long": (last_long, "the token lasts for 90 days"),
    "year": (renew_for_a_year, "the certificate lasts for a year"),
    "rights": (give_more_rights, "the account has the role of operators"),
    "leaf": (fail_leaf, "a leaf accepts no revision"),
    "forgotten": (forget_lines, "the lines of a month ago are removed"),
    "unsent": (send_no_log, "no machine sends its log, and none is stored"),
    "foreign": (use_foreign_key, "the key is another tenant's"),
    "partition": (add_partition, "UFM lists a partition that is no tenant's"),
    "no_M_Key": (clear_management_key, "the subnet manager has no M_Key"),
    "other_program": (send_otherwise, "another program sends the change"),
    "factor": (demand_no_factor, "the daemon demands no second factor"),
    "audience": (expect_another_audience, "the daemon expects another audience"),
    "opened": (open_key, "the master key is in clear beside the data"),
    "uncollected": (refuse_logs, "the receiver takes nothing"),
    "other_key": (log_in_otherwise, "the key of the login is not the tenant's"),
    "none": (leave, "there is no such tenant"),
    "empty": (leave, "nothing of the kind has happened yet"),
    "damaged": (leave, "nodes are faulty, after the suite's break-fix steps"),
}


def run_step(site: Demonstration, step: str, more: Mapping[str, str], *words: str) -> Any:
    """Run a step as the suite runs it and return the object that it prints."""
    environment = {**site.environment(), **more}
    environment["ACCEPTANCE_EVIDENCE"] = str(site.evidence / "counterproofs")
    program = (sys.executable, HERE / "ask.py", step, *words)
    return json.loads(run_tool(*program, timeout_s=STEP_LIMIT_S, environment=environment))


def prove(
    site: Demonstration, suite: Path, python: Path, rows: tuple[Row, ...]
) -> dict[str, dict[str, Any]]:
    """Return for each id whether its step fails, with the suite's own words."""
    nodes = site.nodes
    questions = []
    untried: dict[str, dict[str, Any]] = {}
    for row in rows:
        breakage, text = BREAKAGES[row.breaks]
        name = "--rack" if row.about == "rack_id" else "--node"
        try:
            with breakage(site) as more:
                about = more.get(ABOUT) or nodes.get(row.about, row.about)
                words = (name, about) if about else ()
                answer = run_step(site, row.step, more, *words)
        except RefusedError as error:  # nothing was broken, so that nothing is proved
            why = {"broken": text, "verdict": f"not tried: {error}", "holds": False}
            untried |= {
                test_id: {"id": test_id, "step": row.step, **why} for test_id in row.test_ids
            }
            continue
        fields = {"step": row.step, "broken": text, "suite": row.suite, "answer": answer}
        questions += [{"id": test_id, **fields} for test_id in row.test_ids]
    told = run_tool(
        *(python, HERE / "judge.py", suite),
        content=json.dumps(questions),
        timeout_s=STEP_LIMIT_S,
        environment={"PYTHONPATH": ""},
    )
    judged = json.loads(told)
    return untried | {row["id"]: {**row, "holds": row["verdict"] != "passed"} for row in judged}
