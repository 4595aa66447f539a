"""Tickets as issues of Jira Cloud: REST API v3, with texts in the Atlassian Document Format.

Sources: developer.atlassian.com/cloud/jira/platform/rest/v3 (create issue, add comment, JQL
enhanced search), read 2026-11. An issue has our key as a label, so that a message whose answer was
lost is searched for before it is sent again. Later messages are comments; the issue's status is
people's and the project's own workflow's, and is never set here.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from yarl import URL

from provisioner.integrations.tickets.exchange import DeskExchange
from provisioner.model.integrations.audit_export import TicketMessage
from provisioner.ports import Malformed, Secret
from provisioner.ports.tickets import Looked, TicketRef

SUMMARY_MAX = 255  # of the field `summary`; Jira refuses a longer one, and one with a line break
TEXT_MAX = 20_000  # characters; Jira refuses descriptions and comments beyond 32,767
ID_MAX = 100


class Jira:
    """`ports.TicketSystem`. To be used in one event loop, and closed there."""

    name = "jira"

    def __init__(
        self,
        url: str,
        project: str,
        issue_type: str,
        login: tuple[str, Secret],
        ca_file: Path | None = None,
        pin: str = "",
    ) -> None:
        self._site = URL(url).origin()
        self._project = project
        self._issue_type = issue_type
        self._login = login
        self._exchange = DeskExchange(ca_file, pin)

    async def look(self, key: str) -> Looked:
        """Search for the issue with this key's label."""
        issue = await self._find(key)
        return Looked(certain=True, ref=None if issue is None else self._make_ref(issue))

    async def send(self, message: TicketMessage, bundle: bytes) -> TicketRef:
        """Create an issue, or comment on it. The archive is named by its digest."""
        issue = None if message.event == "open" else await self._find(message.key)
        if issue is not None:
            comment = {"body": make_document(message.text or message.work)}
            status, body = await self._ask("POST", f"issue/{issue}/comment", comment)
            if status != 201:
                raise _refusal(status, body)
            return self._make_ref(issue)
        if message.event == "closed":
            return TicketRef(id=message.ticket or message.key)  # people have removed the issue
        fields = make_fields(message, self._project, self._issue_type)
        status, body = await self._ask("POST", "issue", {"fields": fields})
        if status != 201:
            raise _refusal(status, body)
        return self._make_ref(read_key(body))

    async def close(self) -> None:
        """Close the connection."""
        await self._exchange.close()

    async def _find(self, key: str) -> str | None:
        label = make_label(key)
        query = {
            "jql": f'project = "{self._project}" AND labels = "{label}" ORDER BY key',
            "fields": "labels",
            "maxResults": "10",
        }
        status, body = await self._ask("GET", "search/jql", None, query)
        if status != 200:
            raise _refusal(status, body)
        return find_labelled(body, label)

    async def _ask(
        self,
        method: str,
        path: str,
        document: Mapping[str, Any] | None,
        query: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        user, secret = self._login
        basic = base64.b64encode(f"{user}:{secret.reveal()}".encode()).decode()
        headers = {"Accept": "application/json", "Authorization": f"Basic {basic}"}
        content = b""
        if document is not None:
            headers["Content-Type"] = "application/json"
            content = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
        target = self._site / "rest/api/3" / path
        return await self._exchange.request(
            method, target.with_query(query or {}), headers, content
        )

    def _make_ref(self, issue: str) -> TicketRef:
        return TicketRef(id=issue, url=str(self._site / "browse" / issue))


def make_label(key: str) -> str:
    """Return the label of a ticket: a label has no spaces, and a site's name may have some."""
    return f"provisioner-{hashlib.sha256(key.encode()).hexdigest()[:32]}"


def make_fields(message: TicketMessage, project: str, issue_type: str) -> dict[str, Any]:
    """Return the fields of a new issue."""
    return {
        "project": {"key": project},
        "issuetype": {"name": issue_type},
        "summary": " ".join(message.title.split())[:SUMMARY_MAX],
        "description": make_document(message.text or message.work),
        "labels": ["provisioner", make_label(message.key)],
    }


def make_document(text: str) -> dict[str, Any]:
    """Return a text as a document of ADF, with one paragraph a line; a text node is never empty."""
    lines = text[:TEXT_MAX].splitlines()
    content: list[dict[str, Any]] = [
        {"type": "paragraph", "content": [{"type": "text", "text": line}] if line else []}
        for line in lines
    ]
    return {"version": 1, "type": "doc", "content": content}


def find_labelled(body: bytes, label: str) -> str | None:
    """Return the key of the first issue of a search that has the label. Raises Malformed."""
    try:
        issues = json.loads(body)["issues"]
        for issue in issues:
            if label in issue["fields"]["labels"]:
                return _check_key(issue["key"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Malformed("Jira's answer is no list of issues") from None
    return None


def read_key(body: bytes) -> str:
    """Return the key of a created issue. Raises Malformed."""
    try:
        return _check_key(json.loads(body)["key"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Malformed("Jira's answer has no key of an issue") from None


def _check_key(key: object) -> str:
    """Return a key of an issue, if it is one that can stand in a path and on a line."""
    project, _, number = key.partition("-") if isinstance(key, str) else ("", "", "")
    good = project.isascii() and project.replace("_", "").isalnum() and number.isdecimal()
    if not good or not number.isascii() or len(project) + len(number) > ID_MAX:
        raise Malformed("Jira's answer has no key of an issue")
    return f"{project}-{number}"


def _refusal(status: int, body: bytes) -> Malformed:
    """Return the error with the fields that Jira refused; their values are not repeated."""
    try:
        names = sorted(str(name) for name in json.loads(body)["errors"])
    except (ValueError, KeyError, TypeError, RecursionError):
        names = []
    fields = ", ".join(name for name in names if name.isprintable())[:200]
    return Malformed(f"Jira answered with status {status}" + (f": {fields}" if fields else ""))
