"""A client of NVUE, the REST API of Cumulus Linux: revisions, actions, the applied configuration.

It writes nothing that is already there, and reads back everything that it wrote. A revision that
the switch refuses is a failure with the switch's own message, never "ok, changed".
Sources: NVIDIA's Cumulus Linux guide, "NVUE API"; the states that NVIDIA's own clients handle.
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
# NVUE applies no revision that equals what is applied, and says so in the revision's issue, under
# whatever state it is left (NVIDIA/infra-controller pull requests 5772 and 5790)
NO_DIFFERENCE = "no config diff"
EQUAL_LOOK = 3  # a revision that is still pending then is compared with what is applied
# every other state is a failed end (ays_fail, invalid, verify_fail, ...)
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
        if parts.scheme != "https" and not _is_loopback(parts.hostname):
            raise tools.Refused(f"{self.url}: a password is sent over https only")

    def request(self, method, path, body=None):
        """Send one request and return its JSON."""
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
            text_of_error = error.read(2000).decode("utf-8", errors="replace")
            if error.code == 403:
                text_of_error = "the factory password must be changed first. " + text_of_error
            raise tools.Refused(
                _format_problem(method, path, f"status {error.code}: {text_of_error}")
            ) from None
        except (OSError, ValueError) as error:
            raise tools.Refused(_format_problem(method, path, str(error))) from None
        if len(read) > ANSWER_MAX:
            raise tools.Unreadable(_format_problem(method, path, "the answer is too long"))
        if not read:
            return {}
        try:
            return json.loads(read)
        except (ValueError, RecursionError):
            raise tools.Unreadable(
                _format_problem(method, path, "the answer is not JSON")
            ) from None

    def read_tree(self, path="/", revision="applied"):
        """Return a part of the configuration; {} where there is none."""
        try:
            tree = self.request("GET", f"{path}?rev={quote(revision, safe='')}")
        except tools.Refused as refused:
            if "status 404" in str(refused) and path != "/":
                return {}
            raise
        if not isinstance(tree, dict):
            raise tools.Unreadable(_format_problem("GET", path, "the answer is not an object"))
        return tree

    def read_running_version(self):
        """Return the version of the running image."""
        return parse_images(self.read_tree("/system/image", "operational"))["running"]

    def apply_revision(self, change):
        """Apply one revision with this change and return its name."""
        opened = self.request("POST", "/revision", {})
        if not isinstance(opened, dict) or len(opened) != 1:
            raise tools.Unreadable("the new revision has no name")
        name = str(next(iter(opened)))
        place = "/revision/" + quote(name, safe="")
        self.request("PATCH", f"/?rev={quote(name, safe='')}", change)
        self.request("PATCH", place, {"state": "apply", "auto-prompt": {"ays": "ays_yes"}})

        looks = 0

        def state():
            nonlocal looks
            looks += 1
            document = self.request("GET", place)
            if not isinstance(document, dict) or not isinstance(document.get("state"), str):
                raise tools.Unreadable(f"revision {name} has no readable state")
            # some releases leave a revision that changes nothing pending
            if looks == EQUAL_LOOK and document["state"] == "pending":
                tree = self.read_tree(revision=name)
                if tree and tree == self.read_tree():
                    return {"state": "applied"}
            return document

        def has_ended(document):
            return document["state"] not in UNDER_WAY or _changes_nothing(document)

        ended = self._wait_until(state, has_ended, f"revision {name}")
        if ended["state"] not in APPLIED and not _changes_nothing(ended):
            message = tools.replace_control_characters(
                f"revision {name} is {ended['state']}: {_format_issues(ended)}"
            )
            raise tools.Refused(message[:600])
        return name

    def save(self):
        """Save the applied configuration, so that it survives a reboot."""
        body = {"state": "save", "auto-prompt": {"ays": "ays_yes"}}
        self.request("PATCH", "/revision/applied", body)
        self._wait_until(
            lambda: self.read_tree() == self.read_tree(revision="startup"),
            bool,
            "saving the configuration",
        )

    def run_action(self, path, action, parameters):
        """Run an action to its end."""
        job = self.request("POST", path, {action: {"state": "start", "parameters": parameters}})
        if isinstance(job, bool) or not str(job).isalnum():
            raise tools.Unreadable(f"{action}: the answer names no job")

        def state():
            job_document = self.request("GET", f"/action/{job}")
            if not isinstance(job_document, dict) or not isinstance(job_document.get("state"), str):
                raise tools.Unreadable(f"{action}: the job has no readable state")
            return job_document

        ended = self._wait_until(state, lambda s: s["state"] not in ("start", "running"), action)
        if ended["state"] != "action_success":
            message = str(ended.get("detail") or ended.get("status") or ended["state"])
            raise tools.Refused(tools.replace_control_characters(f"{action}: {message}")[:600])

    def _wait_until(self, read, is_good, subject):
        until = time.monotonic() + self.limit_s
        while True:
            state = read()
            if is_good(state):
                return state
            if time.monotonic() > until:
                raise tools.Refused(f"{subject} did not end within {self.limit_s} s")
            time.sleep(POLL_S)


def find_missing(have, want):
    """Return the part of `want` that is missing in `have`; a null means that the key is absent."""
    change = {}
    for key, value in want.items():
        current = have.get(key) if isinstance(have, dict) else None
        if isinstance(value, dict):
            # an empty object requires that the key exists
            inner = find_missing(current, value)
            if inner or not isinstance(current, dict):
                change[key] = inner if isinstance(current, dict) else value
        elif value is None:
            if isinstance(have, dict) and key in have:
                change[key] = None
        elif isinstance(current, (dict, list)) or current is None or str(current) != str(value):
            change[key] = value
    return change


def select_values(have, change):
    """Return the values of `have` at the places of `change`, for display."""
    selected = {}
    for key, value in change.items():
        current = have.get(key) if isinstance(have, dict) else None
        deeper = isinstance(value, dict) and isinstance(current, dict)
        selected[key] = select_values(current, value) if deeper else current
    return selected


def parse_images(answer):
    """Return the running version, the version that boots next, and the installed versions."""
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


def is_older(version, limit):
    """Return whether a version is below another. Raises `Unreadable` for another form."""
    try:
        pair = [tuple(int(p) for p in v.split(".")) for v in (version, limit)]
    except ValueError:
        raise tools.Unreadable(
            tools.replace_control_characters(f"{version[:40]} is not a version")
        ) from None
    return pair[0] < pair[1]


def _changes_nothing(state):
    issues = _format_issues(state).lower().split("; ")
    return all(NO_DIFFERENCE in issue for issue in issues)


def _format_issues(state):
    transition = state.get("transition")
    issues = transition.get("issue") if isinstance(transition, dict) else None
    if isinstance(issues, dict):
        issues = list(issues.values())
    listed = issues[:5] if isinstance(issues, list) else [issues] if issues else []
    messages = [str(i.get("message", i) if isinstance(i, dict) else i) for i in listed]
    return "; ".join(messages) or "no reason given"


def _is_loopback(host):
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return host == "localhost"


def _format_problem(method, path, text):
    return tools.replace_control_characters(f"{method} {path}: {text}")[:600]
