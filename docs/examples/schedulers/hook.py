#!/usr/bin/env python3
"""Drain nodes in Slurm or Kubernetes when the provisioner takes them, and resume them later.

    hook.py serve --scheduler slurm --secret-file secret --cert tls.crt --key tls.key
    hook.py report su0-n04 "NCCL stalls on rail 3" --url https://provisioner:8443 --token-file token

Needs Python 3.9 and nothing else. `serve` answers webhooks (docs/integrations/schedulers.md);
`report` opens a case, for Slurm's HealthCheckProgram or a node's problem detector. This is an
example, meant to be read and adapted.

Rules: only signed events are accepted; the answer is 204 only after the scheduler has carried out
the change, otherwise the provisioner sends the event again; and a node that others drained is never
resumed.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import json
import re
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

MARK = "provisioner"  # prefix of the reason of our drains
TAKES = ("failure", "maintenance", "replacement", "retirement")  # kinds of notices
GIVES = ("returned",)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")  # no option, no range, no second word
BODY_MAX = 1024 * 1024
AGE_MAX_S = 300  # of a signature, as Standard Webhooks advises
COMMAND_S = 12  # the provisioner waits 15 s for an answer (webhook_timeout_s)
KEPT = "provisioner/drained"  # annotation of a Kubernetes node


def run(*words: str) -> str:
    """Run a command and return its output. Raise RuntimeError if it fails."""
    try:
        process = subprocess.run(words, capture_output=True, text=True, timeout=COMMAND_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"{words[0]}: {error}") from None
    if process.returncode:
        raise RuntimeError(f"{' '.join(words)}: {process.stderr.strip()[:300]}")
    return process.stdout


class Slurm:
    """Slurm: running jobs end by themselves, and no new ones start."""

    def take(self, node: str, why: str) -> None:
        state = run("scontrol", "show", "node", node, "--oneliner")
        if "DRAIN" in field(state, "State") and not field(state, "Reason").startswith(MARK):
            return  # drained by others, who also resume it
        run("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={MARK}: {why}")

    def give(self, node: str) -> None:
        state = run("scontrol", "show", "node", node, "--oneliner")
        if field(state, "Reason").startswith(MARK):
            run("scontrol", "update", f"NodeName={node}", "State=RESUME")


def field(text: str, name: str) -> str:
    """Return the value of a field of `scontrol show --oneliner`, or an empty string."""
    match = re.search(rf"(?:^|\s){name}=(\S*)", text)
    return match.group(1) if match else ""


class Kubernetes:
    """Kubernetes: no new pods; running ones are evicted as their disruption budgets allow."""

    def take(self, node: str, why: str) -> None:
        status = json.loads(run("kubectl", "get", "node", node, "--output=json"))
        ours = KEPT in status["metadata"].get("annotations", {})
        if status["spec"].get("unschedulable") and not ours:
            return
        run("kubectl", "annotate", "node", node, "--overwrite", f"{KEPT}={why}")
        run("kubectl", "cordon", node)
        # pods that remain are evicted next time: the event is sent again until none does
        limit = f"--timeout={COMMAND_S - 2}s"
        run("kubectl", "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", limit)

    def give(self, node: str) -> None:
        status = json.loads(run("kubectl", "get", "node", node, "--output=json"))
        if KEPT in status["metadata"].get("annotations", {}):
            run("kubectl", "uncordon", node)
            run("kubectl", "annotate", "node", node, f"{KEPT}-")


def verified(headers: dict[str, str], body: bytes, secret: str, now: float) -> bool:
    """Return whether the request has a recent, valid signature (Standard Webhooks 1.0.0)."""
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
        if abs(now - int(headers["webhook-timestamp"])) > AGE_MAX_S:
            return False
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        signatures = headers["webhook-signature"].split()
    except (KeyError, ValueError):
        return False
    expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return any(hmac.compare_digest(expected.encode(), word.encode()) for word in signatures)


class Hook:
    """The hook of one scheduler; `names` maps our node names to those of the scheduler."""

    def __init__(self, scheduler: Slurm | Kubernetes, names: dict[str, str]) -> None:
        self._scheduler, self._names = scheduler, names
        self._lock = threading.Lock()  # one node is drained after the other
        self._seen: dict[str, str] = {}  # the newest sequence of each node

    def event(self, event: dict[str, object]) -> str:
        """Carry out an event and return a summary. Raise RuntimeError or ValueError."""
        node = str(event.get("subject", ""))
        data = event.get("data")
        detail = data.get("detail") if isinstance(data, dict) else None
        if event.get("type") != "provisioner.notice" or not isinstance(detail, dict):
            return "nothing of ours"
        name = self._names.get(node, node)
        if not NAME.fullmatch(name):
            raise ValueError(f"{name[:100]!r} is no name of a node")
        sequence, kind = str(event.get("sequence", "")), detail.get("kind")
        with self._lock:
            if sequence < self._seen.get(node, ""):
                return f"{name}: older than the last event"
            if kind in TAKES:
                self._scheduler.take(name, words(detail))
            elif kind in GIVES:
                self._scheduler.give(name)
            self._seen[node] = sequence
        return f"{name}: {kind}"


def words(detail: dict[str, object]) -> str:
    """Return a drain reason for people, in plain characters."""
    case = f" ({detail['case']})" if detail.get("case") else ""
    text = f"{detail.get('kind')}{case} {detail.get('text', '')}"
    return re.sub(r"[^\w .,:()+-]", "_", text)[:200]


def handler(hook: Hook, secret: str) -> type[BaseHTTPRequestHandler]:
    """Return the class that answers POST requests."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 30

        def do_POST(self) -> None:
            size = self.headers.get("Content-Length", "")
            if not size.isdigit() or int(size) > BODY_MAX:
                return self._answer(413)
            body = self.rfile.read(int(size))
            headers = {key.lower(): value for key, value in self.headers.items()}
            if not verified(headers, body, secret, time.time()):
                return self._answer(401)
            try:
                self.log_message("%s", hook.event(json.loads(body)))
            except RuntimeError as error:  # the scheduler failed: the event is sent again
                self.log_message("%s", error)
                return self._answer(503)
            except (ValueError, AttributeError, KeyError) as error:
                self.log_message("%s", error)
                return self._answer(400)
            return self._answer(204)

        def _answer(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

    return Handler


def serve(arguments: argparse.Namespace) -> None:
    names = json.loads(arguments.names.read_text()) if arguments.names else {}
    hook = Hook({"slurm": Slurm, "kubernetes": Kubernetes}[arguments.scheduler](), names)
    secret = arguments.secret_file.read_text().strip()
    server = ThreadingHTTPServer((arguments.host, arguments.port), handler(hook, secret))
    if arguments.cert:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(arguments.cert, arguments.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    sys.stderr.write(f"listening on port {server.server_port}\n")
    sys.stderr.flush()
    server.serve_forever()


def report(arguments: argparse.Namespace) -> None:
    """Open a case. The same reason on one day is one report, even if a health check fails often."""
    parts = urlsplit(arguments.url)
    if parts.scheme != "https" and parts.hostname not in ("127.0.0.1", "::1", "localhost"):
        sys.exit(f"{arguments.url}: a token is sent over https only")
    day = time.strftime("%Y-%m-%d", time.gmtime())
    key = hashlib.sha256(f"{arguments.node}\n{arguments.reason}\n{day}".encode()).hexdigest()
    context = ssl.create_default_context(cafile=arguments.ca)
    base = f"{arguments.url.rstrip('/')}/v1/nodes/{arguments.node}"
    token = arguments.token_file.read_text().strip()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    try:
        node_request = urllib.request.Request(base, headers=headers)
        with urllib.request.urlopen(node_request, timeout=30, context=context) as answer:
            headers |= {"If-Match": answer.headers["ETag"], "Idempotency-Key": key}
        body = json.dumps({"reason": arguments.reason}).encode()
        case_request = urllib.request.Request(f"{base}/cases", body, headers, method="POST")
        with urllib.request.urlopen(case_request, timeout=30, context=context) as answer:
            sys.stdout.write(answer.read(BODY_MAX).decode() + "\n")
    except urllib.error.HTTPError as error:
        sys.exit(f"HTTP {error.code}: {error.read(2000).decode(errors='replace')}")
    except OSError as error:
        sys.exit(f"{arguments.url}: {error}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True)
    served = commands.add_parser("serve")
    served.set_defaults(work=serve)
    served.add_argument("--scheduler", choices=("slurm", "kubernetes"), required=True)
    served.add_argument("--secret-file", type=Path, required=True)
    served.add_argument("--names", type=Path, help='JSON: {"our name": "the scheduler\'s"}')
    served.add_argument("--host", default="127.0.0.1")
    served.add_argument("--port", type=int, default=8099)
    served.add_argument("--cert", type=Path)
    served.add_argument("--key", type=Path)
    reported = commands.add_parser("report")
    reported.set_defaults(work=report)
    reported.add_argument("node")
    reported.add_argument("reason")
    reported.add_argument("--url", required=True)
    reported.add_argument("--token-file", type=Path, required=True)
    reported.add_argument("--ca")
    arguments = parser.parse_args()
    if arguments.work is report and not NAME.fullmatch(arguments.node):
        parser.error("this is no name of a node")
    arguments.work(arguments)


if __name__ == "__main__":
    main()
