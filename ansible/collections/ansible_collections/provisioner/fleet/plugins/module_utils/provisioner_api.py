"""Speaks the provisioner's REST API: pages, one node, changes that are asked for once.

Rule: the token comes from a file that only its owner may read, and goes over https only.
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
        if parts.scheme != "https" and not (parts.scheme == "http" and loopback(parts.hostname)):
            raise tools.Refused(f"{self.url}: a token goes over https only")
        self._token = read_token(token_file)

    def get(self, path, **query):
        """(JSON, ETag) of a GET; None for what is not there."""
        given = {k: v for k, v in query.items() if v not in ("", None)}
        suffix = "?" + urlencode(given) if given else ""
        return self._ask("GET", path + suffix)

    def nodes(self, where):
        """Every node that the expression picks."""
        found, cursor = [], ""
        for _page in range(PAGES_MAX):
            page, _tag = self.get("/nodes", where=where, limit=PAGE, cursor=cursor)
            items = page.get("items") if isinstance(page, dict) else None
            if not isinstance(items, list):
                raise tools.Refused(f"{self.url}: its list of nodes cannot be read")
            found += [item for item in items if isinstance(item, dict)]
            cursor = page.get("next", "")
            if not cursor:
                return found
        raise tools.Refused(f"{self.url}: more than {PAGES_MAX} pages of nodes")

    def node(self, name):
        """(the node, its ETag)."""
        node, tag = self.get(f"/nodes/{quote(name, safe='')}")
        if not isinstance(node, dict):
            raise tools.Refused(f"{name}: there is no such node, or it is not ours to see")
        return node, tag

    def change(self, path, body, tag, seed):
        """Ask for a change of what was seen; the operation. The same `seed` is asked once."""
        key = hashlib.sha256(f"{path}\n{tag}\n{seed}".encode()).hexdigest()
        headers = {"If-Match": tag, "Idempotency-Key": key}
        answer, _tag = self._ask("POST", path, body, headers)
        if not isinstance(answer, dict) or "state" not in answer:
            raise tools.Refused(f"{path}: the answer is no operation")
        return answer

    def settled(self, operation, limit_s):
        """The operation once it is over, or as it is when the time is."""
        until = time.monotonic() + limit_s
        while operation["state"] in UNDER_WAY and time.monotonic() < until:
            time.sleep(POLL_S)
            found, _tag = self.get(f"/operations/{quote(str(operation['id']), safe='')}")
            operation = found if isinstance(found, dict) else operation
        return operation

    def _ask(self, method, path, body=None, headers=None):
        text = None if body is None else json.dumps(body)
        given = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        if body is not None:
            given["Content-Type"] = "application/json"
        try:
            answer = open_url(
                f"{self.url}/v1{path}",
                method=method,
                data=text,
                headers={**given, **(headers or {})},
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
            raise tools.Refused(f"{path}: {problem(error)}") from None
        except (OSError, ValueError) as error:
            raise tools.Refused(f"{self.url}{path}: {tools.printable(str(error))[:300]}") from None
        if len(content) > ANSWER_MAX:
            raise tools.Refused(f"{path}: the answer is over {ANSWER_MAX} bytes")
        try:
            return json.loads(content), tag
        except (ValueError, RecursionError):
            raise tools.Refused(f"{path}: the answer is not JSON") from None


def problem(error):
    """What an answer that is a no says (RFC 9457), and what would help."""
    try:
        told = json.loads(error.read(65536))
        words = [str(told.get(k, "")) for k in ("title", "detail", "unblock")]
    except (OSError, ValueError, AttributeError, RecursionError):
        words = []
    return tools.printable(f"HTTP {error.code}: " + " - ".join(w for w in words if w))[:600]


def read_token(path):
    """The token of a file that nobody else may read."""
    try:
        with open(path, encoding="ascii") as file:
            mode = os.fstat(file.fileno()).st_mode
            token = file.read(TOKEN_MAX + 1).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise tools.Refused(f"{path}: {getattr(error, 'strerror', None) or 'not text'}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise tools.Refused(f"{path}: others may read it; chmod 600 it, and make a new token")
    if not token or len(token) > TOKEN_MAX or not token.isprintable() or " " in token:
        raise tools.Refused(f"{path}: there is no token in it")
    return token


def loopback(host):
    """Whether a request to it stays on this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False
