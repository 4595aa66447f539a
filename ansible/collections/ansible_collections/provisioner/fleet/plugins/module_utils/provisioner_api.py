"""A client of the provisioner's REST API: pages, one node, and idempotent change requests.

The token comes from a file that only its owner may read, and is sent over https only.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import stat
import time
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit

from ansible.module_utils.urls import open_url
from ansible_collections.provisioner.fleet.plugins.module_utils import tools

ANSWER_MAX = 32 * 1024 * 1024  # bytes; a page of 500 nodes is some 2 MB
PAGE = 500
PAGES_MAX = 1000  # 65,536 nodes are 132 full pages; filtered ones hold fewer
TOKEN_MAX = 8000
REQUEST_S = 60.0
POLL_S = 2.0
UNDER_WAY = ("waiting", "running")

ARGUMENTS = {
    "url": {"type": "str", "default": "https://127.0.0.1:8443"},
    "token_file": {"type": "path", "required": True},
    "ca_path": {"type": "path", "default": None},
}


class Api:
    """One provisioner. Methods raise `tools.Refused` with a sentence for a person."""

    def __init__(self, url, token_file, ca_path=None):
        self.url = url.rstrip("/")
        self._ca_path = ca_path
        parts = urlsplit(self.url)
        if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname)):
            raise tools.Refused(f"{self.url}: a token is sent over https only")
        self._token = read_token(token_file)

    def get(self, path, **query):
        """Return (JSON, ETag) of a GET; (None, "") for an absent resource."""
        parameters = {k: v for k, v in query.items() if v not in ("", None)}
        suffix = "?" + urlencode(parameters) if parameters else ""
        return self._request("GET", path + suffix)

    def read_nodes(self, where):
        """Return every node that matches the expression."""
        nodes, cursor = [], ""
        for _page in range(PAGES_MAX):
            page, _tag = self.get("/nodes", where=where, limit=PAGE, cursor=cursor)
            items = page.get("items") if isinstance(page, dict) else None
            if not isinstance(items, list):
                raise tools.Refused(f"{self.url}: the list of nodes cannot be read")
            nodes += [item for item in items if isinstance(item, dict)]
            cursor = page.get("next", "")
            if not cursor:
                return nodes
        raise tools.Refused(f"{self.url}: more than {PAGES_MAX} pages of nodes")

    def read_node(self, name):
        """Return (the node, its ETag)."""
        node, tag = self.get(f"/nodes/{quote(name, safe='')}")
        if not isinstance(node, dict):
            raise tools.Refused(f"{name}: there is no such node, or the token may not read it")
        return node, tag

    def request_change(self, path, body, tag, seed):
        """Request a change of the version read, and return the operation; a seed counts once."""
        key = hashlib.sha256(f"{path}\n{tag}\n{seed}".encode()).hexdigest()
        headers = {"If-Match": tag, "Idempotency-Key": key}
        answer, _tag = self._request("POST", path, body, headers)
        if not isinstance(answer, dict) or "state" not in answer:
            raise tools.Refused(f"{path}: the answer is not an operation")
        return answer

    def wait_until_settled(self, operation, limit_s):
        """Return the operation when it has ended, or as it is after `limit_s` seconds."""
        until = time.monotonic() + limit_s
        while operation["state"] in UNDER_WAY and time.monotonic() < until:
            time.sleep(POLL_S)
            document, _tag = self.get(f"/operations/{quote(str(operation['id']), safe='')}")
            operation = document if isinstance(document, dict) else operation
        return operation

    def _request(self, method, path, body=None, headers=None):
        text = None if body is None else json.dumps(body)
        all_headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        if body is not None:
            all_headers["Content-Type"] = "application/json"
        try:
            answer = open_url(
                f"{self.url}/v1{path}",
                method=method,
                data=text,
                headers={**all_headers, **(headers or {})},
                ca_path=self._ca_path,
                timeout=REQUEST_S,
                follow_redirects="none",
                use_proxy=False,
            )
            content = answer.read(ANSWER_MAX + 1)
            tag = answer.headers.get("ETag", "")
        except HTTPError as error:
            if error.code == 404:
                return None, ""
            raise tools.Refused(f"{path}: {read_problem(error)}") from None
        except (OSError, ValueError) as error:
            raise tools.Refused(
                f"{self.url}{path}: {tools.replace_control_characters(str(error))[:300]}"
            ) from None
        if len(content) > ANSWER_MAX:
            raise tools.Refused(f"{path}: the answer is over {ANSWER_MAX} bytes")
        try:
            return json.loads(content), tag
        except (ValueError, RecursionError):
            raise tools.Refused(f"{path}: the answer is not JSON") from None


def read_problem(error):
    """Return the text of a refusal (RFC 9457), with its remedy."""
    try:
        document = json.loads(error.read(65536))
        texts = [str(document.get(k, "")) for k in ("title", "detail", "unblock")]
    except (OSError, ValueError, AttributeError, RecursionError):
        texts = []
    return tools.replace_control_characters(
        f"HTTP {error.code}: " + " - ".join(w for w in texts if w)
    )[:600]


def read_token(path):
    """Return the token of a file that only its owner may read."""
    try:
        with open(path, encoding="ascii") as file:
            mode = os.fstat(file.fileno()).st_mode
            token = file.read(TOKEN_MAX + 1).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise tools.Refused(f"{path}: {getattr(error, 'strerror', None) or 'not text'}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise tools.Refused(
            f"{path}: other users may read it; run chmod 600 on it, and create a new token"
        )
    if not token or len(token) > TOKEN_MAX or not token.isprintable() or " " in token:
        raise tools.Refused(f"{path}: it contains no token")
    return token


def is_loopback(host):
    """Return whether a request to a host stays on this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False
