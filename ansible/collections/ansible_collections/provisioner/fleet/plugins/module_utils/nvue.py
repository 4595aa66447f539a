"""Speaks NVUE, the REST API of Cumulus Linux: revisions, actions, what is applied.

Rule: nothing is written that is there already, and what was written is read back. A revision that
the switch refuses is a failure with the switch's own words, never "ok, changed".
Sources: NVIDIA's Cumulus Linux guide, "NVUE API"; states as its own clients know them.
"""

from __future__ import annotations

import ipaddress
import json
import time
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit

from ansible.module_utils.urls import open_url
from ansible_collections.provisioner.fleet.plugins.module_utils import tools

ANSWER_MAX = 32 * 1024 * 1024  # bytes; a leaf's whole configuration is below 1 MB
REQUEST_S = 60.0  # nginx on the switch waits about as long for the NVUE daemon
POLL_S = 1.0
APPLIED = ("applied", "applied_and_saved")
# every other state is an end without effect (ays_fail, invalid, verify_fail, ...)
UNDER_WAY = ("pending", "apply", "verifying", "verified", "ready", "preparing", "reloading")
UNDER_WAY += ("saving",)

ARGUMENTS = {
    "url": {"type": "str", "default": "https://127.0.0.1:8765"},
    "username": {"type": "str", "required": True},
    "password": {"type": "str", "required": True, "no_log": True},
    "ca_path": {"type": "path", "default": None},
    "limit_s": {"type": "int", "default": 600},
}


class Switch:
    """One switch's API. Methods raise `tools.Refused` with a sentence for a person."""

    def __init__(self, params):
        self.url = params["url"].rstrip("/")
        self._login = (params["username"], params["password"])
        self._ca_path = params["ca_path"]
        self.limit_s = params["limit_s"]
        parts = urlsplit(self.url)
        if parts.scheme != "https" and not _loopback(parts.hostname):
            raise tools.Refused(f"{self.url}: a password goes over https only")

    def ask(self, method, path, body=None):
        """One request; its JSON."""
        text = None if body is None else json.dumps(body)
        try:
            answer = open_url(
                f"{self.url}/nvue_v1{path}",
                method=method,
                data=text,
                headers={"Content-Type": "application/json"},
                url_username=self._login[0],
                url_password=self._login[1],
                force_basic_auth=True,
                ca_path=self._ca_path,
                follow_redirects="none",
                timeout=REQUEST_S,
            )
            read = answer.read(ANSWER_MAX + 1)
        except HTTPError as error:
            words = error.read(2000).decode("utf-8", errors="replace")
            if error.code == 403:
                words = "the factory's password must be changed first. " + words
            raise tools.Refused(_said(method, path, f"status {error.code}: {words}")) from None
        except (OSError, ValueError) as error:
            raise tools.Refused(_said(method, path, str(error))) from None
        if len(read) > ANSWER_MAX:
            raise tools.Unreadable(_said(method, path, "the answer is too long"))
        if not read:
            return {}
        try:
            return json.loads(read)
        except (ValueError, RecursionError):
            raise tools.Unreadable(_said(method, path, "the answer is not JSON")) from None

    def tree(self, path="/", revision="applied"):
        """Part of the configuration; {} where there is none."""
        try:
            found = self.ask("GET", f"{path}?rev={quote(revision, safe='')}")
        except tools.Refused as refused:
            if "status 404" in str(refused) and path != "/":
                return {}
            raise
        if not isinstance(found, dict):
            raise tools.Unreadable(_said("GET", path, "the answer is no object"))
        return found

    def running(self):
        """Version of the image that runs."""
        return images(self.tree("/system/image", "operational"))["running"]

    def revise(self, change):
        """One revision with this change, applied; its name."""
        opened = self.ask("POST", "/revision", {})
        if not isinstance(opened, dict) or len(opened) != 1:
            raise tools.Unreadable("a new revision without a name")
        name = str(next(iter(opened)))
        place = "/revision/" + quote(name, safe="")
        self.ask("PATCH", f"/?rev={quote(name, safe='')}", change)
        self.ask("PATCH", place, {"state": "apply", "auto-prompt": {"ays": "ays_yes"}})

        def state():
            found = self.ask("GET", place)
            if not isinstance(found, dict) or not isinstance(found.get("state"), str):
                raise tools.Unreadable(f"revision {name} has no readable state")
            return found

        seen = self._until(state, lambda s: s["state"] not in UNDER_WAY, f"revision {name}")
        if seen["state"] not in APPLIED:
            words = tools.printable(f"revision {name} is {seen['state']}: {_issue(seen)}")
            raise tools.Refused(words[:600])
        return name

    def save(self):
        """What is applied survives a reboot."""
        body = {"state": "save", "auto-prompt": {"ays": "ays_yes"}}
        self.ask("PATCH", "/revision/applied", body)
        self._until(
            lambda: self.tree() == self.tree(revision="startup"), bool, "saving the configuration"
        )

    def act(self, path, action, parameters):
        """An action, to its end."""
        job = self.ask("POST", path, {action: {"state": "start", "parameters": parameters}})
        if isinstance(job, bool) or not str(job).isalnum():
            raise tools.Unreadable(f"{action}: an answer without a job")

        def state():
            found = self.ask("GET", f"/action/{job}")
            if not isinstance(found, dict) or not isinstance(found.get("state"), str):
                raise tools.Unreadable(f"{action}: a job without a readable state")
            return found

        ended = self._until(state, lambda s: s["state"] not in ("start", "running"), action)
        if ended["state"] != "action_success":
            words = str(ended.get("detail") or ended.get("status") or ended["state"])
            raise tools.Refused(tools.printable(f"{action}: {words}")[:600])

    def _until(self, look, good, what):
        until = time.monotonic() + self.limit_s
        while True:
            seen = look()
            if good(seen):
                return seen
            if time.monotonic() > until:
                raise tools.Refused(f"{what} does not end within {self.limit_s} s")
            time.sleep(POLL_S)


def differing(have, want):
    """The part of `want` that `have` lacks; {} if it holds all. A null means: not there."""
    change = {}
    for key, value in want.items():
        there = have.get(key) if isinstance(have, dict) else None
        if isinstance(value, dict):
            # an empty object asks that the key exists
            inner = differing(there, value)
            if inner or not isinstance(there, dict):
                change[key] = inner if isinstance(there, dict) else value
        elif value is None:
            if isinstance(have, dict) and key in have:
                change[key] = None
        elif isinstance(there, (dict, list)) or there is None or str(there) != str(value):
            change[key] = value
    return change


def chosen(have, change):
    """What `have` says at the places of `change`, for a person's eyes."""
    found = {}
    for key, value in change.items():
        there = have.get(key) if isinstance(have, dict) else None
        deeper = isinstance(value, dict) and isinstance(there, dict)
        found[key] = chosen(there, value) if deeper else there
    return found


def images(answer):
    """Running version, version that boots next, and version by partition."""
    held = {}
    for number in ("1", "2"):
        part = answer.get("partition" + number)
        build = part.get("build-id") if isinstance(part, dict) else None
        if isinstance(build, str) and build:
            held[number] = build
    current = str(answer.get("current", "")).removeprefix("partition")
    following = str(answer.get("next", "")).removeprefix("partition")
    if current not in held:
        raise tools.Unreadable("the running image has no build id")
    return {
        "running": held[current],
        "next": held.get(following, held[current]),
        "held": sorted(set(held.values())),
    }


def older(version, limit):
    """Whether a version is below another; one that cannot be read is refused."""
    try:
        pair = [tuple(int(p) for p in v.split(".")) for v in (version, limit)]
    except ValueError:
        raise tools.Unreadable(tools.printable(f"{version[:40]} is no version")) from None
    return pair[0] < pair[1]


def _issue(state):
    transition = state.get("transition")
    issues = transition.get("issue") if isinstance(transition, dict) else None
    listed = list(issues.values())[:5] if isinstance(issues, dict) else []
    words = [str(i.get("message", i) if isinstance(i, dict) else i) for i in listed]
    return "; ".join(words) or "no reason given"


def _loopback(host):
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return host == "localhost"


def _said(method, path, words):
    return tools.printable(f"{method} {path}: {words}")[:600]
