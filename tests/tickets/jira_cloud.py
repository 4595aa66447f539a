"""A Jira Cloud site, as Atlassian publishes its REST API v3: for tests.

source: developer.atlassian.com/cloud/jira/platform/swagger-v3.v3.json (create issue 201 with id,
key and self; add comment 201; GET search/jql, which returns the named fields only and needs a
bounded query; error collections with 400), and the JSON schema of the document format
(@atlaskit/adf-schema 57.7.22, json-schema/v1/full.json), of which DOCUMENT has the nodes that are
used here. Both were read on 2026-11-28. `summary` is a text field of 255 characters on one line, a
label has no space.
"""

from __future__ import annotations

import base64
import re
from typing import Any

import jsonschema
from aiohttp import web
from vendors import Vendor

TEXT = {
    "type": "object",
    "properties": {
        "type": {"enum": ["text"]},
        "text": {"type": "string", "minLength": 1},
        "marks": {"type": "array"},
    },
    "required": ["type", "text"],
    "additionalProperties": False,
}
PARAGRAPH = {
    "type": "object",
    "properties": {
        "type": {"enum": ["paragraph"]},
        "content": {"type": "array", "items": TEXT},
        "marks": {"type": "array", "maxItems": 0},
        "attrs": {"type": "object"},
    },
    "required": ["type"],
    "additionalProperties": False,
}
DOCUMENT = {
    "type": "object",
    "properties": {
        "version": {"enum": [1]},
        "type": {"enum": ["doc"]},
        "content": {"type": "array", "items": PARAGRAPH},
    },
    "required": ["version", "type", "content"],
    "additionalProperties": False,
}
ISSUE = {
    "type": "object",
    "properties": {
        "fields": {
            "type": "object",
            "properties": {
                "project": {"type": "object", "required": ["key"]},
                "issuetype": {"type": "object", "required": ["name"]},
                "summary": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 255,
                    "pattern": r"^[^\r\n]*\Z",
                },
                "description": DOCUMENT,
                "labels": {
                    "type": "array",
                    "items": {"type": "string", "maxLength": 255, "pattern": r"^\S+\Z"},
                },
            },
            "required": ["project", "issuetype", "summary"],
            "additionalProperties": False,  # ours: fields that are not on the create screen
        }
    },
    "required": ["fields"],
    "additionalProperties": False,
}
COMMENT = {"type": "object", "properties": {"body": DOCUMENT}, "required": ["body"]}
BOUNDED = re.compile(r'project = "([A-Z0-9_]+)" AND labels = "([^"\s]+)" ORDER BY key')


class JiraCloud(Vendor):
    """One project, OPS, with an issue type Task."""

    login = ("bot@site.test", "api-token-of-the-site")

    def __init__(self) -> None:
        super().__init__()
        self.issues: dict[str, dict[str, Any]] = {}
        self.comments: dict[str, list[str]] = {}

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/rest/api/3/issue", self._create),
            web.get("/rest/api/3/search/jql", self._search),
            web.post("/rest/api/3/issue/{key}/comment", self._comment),
        ]

    def _refuse(self, request: web.Request) -> web.Response | None:
        sent = request.headers.get("Authorization", "")
        good = "Basic " + base64.b64encode(":".join(self.login).encode()).decode()
        return None if sent == good else web.Response(status=401)

    async def _create(self, request: web.Request) -> web.Response:
        if refusal := self._refuse(request):
            return refusal
        document = await request.json()
        problem = _find_problem(document, ISSUE)
        if not problem and document["fields"]["project"]["key"] != "OPS":
            problem = "project"
        if not problem and document["fields"]["issuetype"]["name"] != "Task":
            problem = "issuetype"
        if problem:
            return _refuse_field(problem)
        number = len(self.issues) + 1
        self.issues[f"OPS-{number}"] = document["fields"]
        created = {
            "id": str(10000 + number),
            "key": f"OPS-{number}",
            "self": f"{request.url.origin()}/rest/api/3/issue/{10000 + number}",
        }
        return web.json_response(created, status=201)

    async def _search(self, request: web.Request) -> web.Response:
        if refusal := self._refuse(request):
            return refusal
        query = BOUNDED.fullmatch(request.query["jql"])
        if query is None:
            errors = {"errorMessages": ["Unbounded JQL queries are not allowed here."]}
            return web.json_response(errors | {"errors": {}}, status=400)
        chosen = [k for k, f in self.issues.items() if query[2] in f.get("labels", ())]
        names = request.query.get("fields", "id").split(",")
        issues = [
            {
                "id": key,
                "key": key,
                "fields": {n: v for n, v in self.issues[key].items() if n in names},
            }
            for key in chosen[: int(request.query["maxResults"])]
        ]
        return web.json_response({"issues": issues, "isLast": True})

    async def _comment(self, request: web.Request) -> web.Response:
        if refusal := self._refuse(request):
            return refusal
        document = await request.json()
        key = request.match_info["key"]
        if key not in self.issues:
            return web.json_response({"errorMessages": ["no such issue"]}, status=404)
        if _find_problem(document, COMMENT):
            return _refuse_field("comment")
        self.comments.setdefault(key, []).append(read_text(document["body"]))
        return web.json_response({"id": "1", "body": document["body"]}, status=201)


def read_text(document: dict[str, Any]) -> str:
    """The lines of a document of the format."""
    paragraphs = [p.get("content", ()) for p in document["content"]]
    return "\n".join("".join(t["text"] for t in p) for p in paragraphs)


def _find_problem(document: object, schema: dict[str, Any]) -> str:
    """The name of the field that a schema refuses; "" if it is valid."""
    try:
        jsonschema.validate(document, schema)
    except jsonschema.ValidationError as error:
        names = [str(each) for each in error.absolute_path if each != "fields"]
        return names[0] if names else "fields"
    return ""


def _refuse_field(name: str) -> web.Response:
    body = {"errorMessages": [], "errors": {name: "It is not valid."}}
    return web.json_response(body, status=400)
