"""Steps at the second daemon: sign-in by OIDC, keys at a key service, OpenTelemetry."""

from __future__ import annotations

import base64
import json
import os
import secrets
import ssl
import urllib.error
import urllib.request
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from control_steps import create_key, revoke_key
from daemon_client import Daemon, RefusedError, mark, wait_for

EVIDENCE = "ACCEPTANCE_EVIDENCE"
AUDIENCE = "provisioner"
KEY = "provisioner"
SEALED = "master.key.wrapped"
IN_CLEAR = "master.key"
COLLECT_S = 30.0
NO_SERVICE = "no OpenBao is installed here, whose key would seal the master key"
Answer = dict[str, Any]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow no redirect."""


def open_second(step: str, token: str = "") -> Daemon:
    """Return the second daemon, with a file of evidence for a step."""
    folder = Path(os.environ[EVIDENCE])
    if not token:
        token = Path(os.environ["ACCEPTANCE_SECOND_TOKEN_FILE"]).read_text(encoding="utf-8")
    address = os.environ["ACCEPTANCE_SECOND_API"]
    authority = os.environ["ACCEPTANCE_SECOND_CA"]
    return Daemon(address, authority, token.strip(), folder / f"{step}.jsonl")


def _read_logins() -> dict[str, str]:
    return dict(json.loads(Path(os.environ["ACCEPTANCE_LOGIN_TOKENS"]).read_text(encoding="utf-8")))


def _may_enter(step: str, token: str) -> bool:
    """Return whether a token opens the API."""
    try:
        return bool(open_second(step, token).get("/me")["roles"])
    except RefusedError as error:
        if error.status != 401:
            raise
        return False


def _read_json(url: str) -> Answer:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return dict(json.load(answer))


def oidc_user_auth_test(_daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Show the API a good token of the provider, and each kind of bad one."""
    issuer = os.environ["ACCEPTANCE_LOGIN_ISSUER"]
    tokens = _read_logins()
    step = "oidc_user_auth_test"
    discovery = _read_json(f"{issuer}/.well-known/openid-configuration")
    keys = _read_json(discovery["jwks_uri"])["keys"]
    accepted = {name: _may_enter(step, token) for name, token in tokens.items()}
    refused = {
        "bad_signature_rejected": "bad_signature",
        "wrong_issuer_rejected": "wrong_issuer",
        "wrong_audience_rejected": "wrong_audience",
        "expired_token_rejected": "expired",
        "missing_required_claim_rejected": "missing_claim",
    }
    return {
        "issuer_url": issuer,
        "audience": AUDIENCE,
        "target_url": f"{os.environ['ACCEPTANCE_SECOND_API']}/v1/me",
        "endpoints_tested": 1,
        "tests": {
            "valid_token_accepted": {"passed": accepted["valid"]},
            "discovery_and_jwks_reachable": {
                "passed": discovery["issuer"] == issuer and bool(keys)
            },
            **{name: {"passed": not accepted[token]} for name, token in refused.items()},
        },
    }


def _sign_in(methods: str) -> bool:
    """Go a browser's way to the provider and back; return whether the console has a session."""
    base = os.environ["ACCEPTANCE_SECOND_API"]
    context = ssl.create_default_context(cafile=os.environ["ACCEPTANCE_SECOND_CA"])
    browser = urllib.request.build_opener(
        urllib.request.HTTPSHandler(context=context), _NoRedirect()
    )

    def read(url: str, cookie: str) -> Any:
        request = urllib.request.Request(url, headers={"Cookie": cookie})
        try:
            return browser.open(request, timeout=10)
        except urllib.error.HTTPError as answer:
            return answer

    asked = read(f"{base}/console/sign-in", "")
    question = next(iter(SimpleCookie(asked.headers["Set-Cookie"]).values()))
    answer = read(asked.headers["Location"], f"methods={methods}")
    back = urlsplit(answer.headers["Location"])
    ended = read(f"{base}{back.path}?{back.query}", f"{question.key}={question.value}")
    cookies = [SimpleCookie(line) for line in ended.headers.get_all("Set-Cookie", [])]
    mine = {k: m.value for jar in cookies for k, m in jar.items() if m.value}
    me = read(f"{base}/v1/me", "; ".join(f"{k}={v}" for k, v in mine.items()))
    return int(me.status) == 200


def mfa_enforcement(_daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Sign in by a password alone and with a second factor: at the API and at the console."""
    tokens = _read_logins()
    step = "mfa_enforcement"
    by_two = _may_enter(step, tokens["valid"])
    administrator = _may_enter(step, tokens["password_only"])
    viewer = _may_enter(step, tokens["password_only_viewer"])
    console = (_sign_in("pwd"), _sign_in("pwd+otp"))
    return {
        "interfaces_checked": 2,
        "tests": {
            "admin_account_mfa": {"passed": by_two and not administrator},
            "interactive_access_mfa": {"passed": console == (False, True)},
            "programmatic_access_mfa": {"passed": by_two and not viewer},
        },
    }


def _ask_service(verb: str, path: str, body: Answer | None = None) -> Answer:
    """Send one request to the key service."""
    request = urllib.request.Request(
        f"{os.environ['ACCEPTANCE_BAO']}/v1/{path}",
        method=verb,
        data=None if body is None else json.dumps(body).encode(),
    )
    token = Path(os.environ["ACCEPTANCE_BAO_TOKEN_FILE"]).read_text(encoding="utf-8").strip()
    request.add_header("X-Vault-Token", token)
    context = ssl.create_default_context(cafile=os.environ["ACCEPTANCE_BAO_CA"])
    with urllib.request.urlopen(request, context=context, timeout=10) as answer:
        return dict(json.load(answer))


def _read_sealing() -> Answer:
    """Return the facts about the second daemon's master key, as its folder and the service show."""
    folder = Path(os.environ["ACCEPTANCE_SECOND_DATA"])
    sealed = {}
    opened = ""
    if (folder / SEALED).exists():
        sealed = json.loads((folder / SEALED).read_text(encoding="utf-8"))
        body = {"ciphertext": sealed["ciphertext"]}
        opened = _ask_service("POST", f"transit/decrypt/{KEY}", body)["data"]["plaintext"]
    text = base64.b64encode(secrets.token_bytes(24)).decode()
    made = _ask_service("POST", f"transit/encrypt/{KEY}", {"plaintext": text})["data"]
    read = _ask_service("POST", f"transit/decrypt/{KEY}", {"ciphertext": made["ciphertext"]})
    # the daemon could not answer had it not opened its key
    serves = bool(open_second("key_service").get("/me")["roles"])
    return {
        "keys": _ask_service("GET", "transit/keys?list=true")["data"]["keys"],
        "owner": sealed.get("service", {}).get("address") == os.environ["ACCEPTANCE_BAO"],
        "sealed": bool(opened) and serves,
        "in_clear": (folder / IN_CLEAR).exists(),
        "round_trip": read["data"]["plaintext"] == text,
        "id": sealed.get("key_id", ""),
    }


def _has_service() -> bool:
    return "ACCEPTANCE_BAO" in os.environ


def centralized_kms_test(_daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Have the key service open the key that seals all secrets of the second daemon."""
    if not _has_service():
        return {"skipped": True, "skip_reason": NO_SERVICE}
    facts = _read_sealing()
    return {
        "kms_keys_total": len(facts["keys"]),
        "encrypted_resources_inspected": 1,
        "non_kms_resources": int(facts["in_clear"] or not facts["sealed"]),
        "resource": f"master key {facts['id']}, under which every stored secret is sealed",
        "tests": {
            "kms_service_reachable": {"passed": facts["round_trip"]},
            "kms_keys_present": {"passed": KEY in facts["keys"]},
            "all_encrypted_resources_use_kms": {
                "passed": facts["sealed"] and not facts["in_clear"]
            },
        },
    }


def customer_managed_key_test(_daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Show that the key of the site's owner, in a service of its own, seals the daemon's key."""
    if not _has_service():
        return {"skipped": True, "skip_reason": NO_SERVICE}
    facts = _read_sealing()
    return {
        "key_id": f"{os.environ['ACCEPTANCE_BAO']}/v1/transit/keys/{KEY}",
        "encrypted_resource_id": facts["id"],
        "tests": {
            "customer_managed_key_available": {"passed": KEY in facts["keys"]},
            "key_manager_is_customer": {"passed": facts["owner"]},
            "encrypt_decrypt_roundtrip": {"passed": facts["round_trip"]},
            "resource_encrypted_with_customer_key": {"passed": facts["sealed"]},
            "provider_managed_key_not_used": {"passed": not facts["in_clear"]},
        },
    }


def kms_encryption_options_test(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Compare the demonstration, whose own key seals its secrets, with the second daemon."""
    if not _has_service():
        return {"skipped": True, "skip_reason": NO_SERVICE}
    facts = _read_sealing()
    folder = Path(os.environ["ACCEPTANCE_DATA"])
    sealed = daemon.get("/credentials", limit=1)["items"]
    own = (folder / IN_CLEAR).exists() and not (folder / SEALED).exists() and bool(sealed)
    other = facts["sealed"] and not facts["in_clear"]
    return {
        "customer_managed_key_id": f"transit/keys/{KEY}" if facts["owner"] else "",
        "tests": {
            "provider_managed_key_available": {"passed": own},
            "customer_managed_key_available": {"passed": other},
            "both_options_supported": {"passed": own and other},
        },
    }


def query_collector(_daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Make a change, and look for its row at the receiver of OpenTelemetry."""
    second = open_second("query_collector")
    revoke_key(second, create_key(second, "acceptance-otel")["access_key_id"])
    row = second.get("/audit", limit=1)["items"][0]
    file = Path(os.environ["ACCEPTANCE_COLLECTED"])

    def read() -> list[Answer]:
        records = [
            record
            for line in file.read_text(encoding="utf-8").splitlines()
            for resource in json.loads(line)["resourceLogs"]
            for scope in resource["scopeLogs"]
            for record in scope["logRecords"]
        ]
        return [r for r in records if _read_number(r) == row["seq"]]

    try:
        records = wait_for(read, COLLECT_S, "the row is at the receiver")
    except RefusedError:
        records = []
    return {
        "seq": row["seq"],
        "record": records[0] if records else {},
        **mark(
            delivered=bool(records),
            same_event=bool(records) and records[0]["eventName"].endswith(row["kind"]),
        ),
    }


def _read_number(record: Answer) -> int:
    values = {a["key"]: a["value"] for a in record["attributes"]}
    return int(values.get("provisioner.seq", {}).get("intValue", 0))


STEPS = {
    "oidc_user_auth_test": oidc_user_auth_test,
    "mfa_enforcement": mfa_enforcement,
    "centralized_kms_test": centralized_kms_test,
    "customer_managed_key_test": customer_managed_key_test,
    "kms_encryption_options_test": kms_encryption_options_test,
    "query_collector": query_collector,
}
