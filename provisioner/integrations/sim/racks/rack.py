"""One rack: its clock, what feeds it, and who answers at which address."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

ROOT = "/redfish/v1"
Tree = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Times:
    """How long each thing takes, in seconds. Placeholders of the size that public notes have."""

    push: float = 660.0
    bmc_back: float = 180.0
    hmc_back: float = 90.0
    copy: float = 600.0
    power: float = 20.0
    nvos_boot: float = 300.0
    nvos_cycle: float = 480.0  # with firmware pending, a reboot is a power cycle of the tray
    job: float = 300.0
    configure: float = 120.0
    shelf_push: float = 240.0
    discharge: float = 240.0


class Silence(Exception):
    """No answer. `executed`: what was asked for was done before the connection died."""

    def __init__(self, *, executed: bool) -> None:
        super().__init__("no answer")
        self.executed = executed


@dataclass(frozen=True)
class Answer:
    """An HTTP answer; `text` in place of JSON where it is not None."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    text: str | None = None

    def encode(self) -> bytes:
        return self._encoded

    @cached_property
    def _encoded(self) -> bytes:
        if self.text is not None:
            return self.text.encode()
        return b"" if self.body is None else json.dumps(self.body).encode()


@dataclass(frozen=True)
class Push:
    """An upload of a package, multipart or raw. `inside`: versions by inventory id."""

    targets: tuple[str, ...]
    file_name: str
    inside: Mapping[str, str]
    force: bool = False


@dataclass(frozen=True)
class Event:
    """Something that happened to a unit: what a checker reads."""

    at: float
    unit: str
    what: str
    detail: str = ""


class Unit(Protocol):
    """A unit with its own answers."""

    name: str

    def handle(self, method: str, path: str, body: Any) -> Answer: ...
    def lose_power(self) -> None: ...
    def settle(self) -> None: ...


@runtime_checkable
class Speaker(Protocol):
    """A unit with an operating system that answers beside its BMC."""

    def handle_nvos(self, method: str, path: str, body: Any, login: str) -> Answer: ...


@dataclass
class Rack:
    """All units of a rack and what happened to them."""

    times: Times = field(default_factory=Times)
    now: float = 1_000.0
    units: dict[str, Unit] = field(default_factory=dict)
    hosts: dict[str, tuple[str, str]] = field(default_factory=dict)  # url: (unit, "bmc" or "nvos")
    log: list[Event] = field(default_factory=list)
    fed: bool = True
    dark_since: float | None = None  # when the last shelf went off
    watch: Callable[[Event], None] = lambda _: None
    streams: dict[str, list[Callable[[Any], None]]] = field(default_factory=dict)  # by unit

    def send(self, unit: str, document: Any) -> None:
        """Send a document to everybody who follows the stream of a unit's BMC."""
        for listen in self.streams.get(unit, ()):
            listen(document)

    def note(self, unit: str, what: str, detail: str = "") -> None:
        event = Event(self.now, unit, what, detail)
        self.log.append(event)
        self.watch(event)

    def find(self, what: str) -> list[Event]:
        return [each for each in self.log if each.what == what]

    def advance(self, seconds: float) -> None:
        """Let time pass in steps that are short against all durations."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 5.0)
            for unit in self.units.values():
                unit.settle()

    def cut(self) -> None:
        """The last shelf went off: what is charged still runs for a while."""
        if self.fed:
            self.fed = False
            self.dark_since = self.now

    def feed(self) -> None:
        """A shelf came on. Units that were dark come up from nothing."""
        if not self.fed:
            discharged = self.is_dark()
            self.fed = True
            self.dark_since = None
            self.note("rack", "fed", "discharged" if discharged else "too early")

    def is_dark(self) -> bool:
        """Return whether nothing in the rack has power any more, also no charge."""
        since = self.dark_since
        return not self.fed and since is not None and self.now - since >= self.times.discharge

    def request(self, url: str, method: str, path: str, body: Any, login: str = "") -> Answer:
        """Answer one request. Raises Silence."""
        name, kind = self.hosts[url.rstrip("/")]
        unit = self.units[name]
        if kind == "nvos":
            assert isinstance(unit, Speaker)
            return unit.handle_nvos(method, path, body, login)
        return unit.handle(method, path, body)


def add_events(tree: Tree) -> None:
    """Add an event service with a stream, as bmcweb has it."""
    tree[ROOT]["EventService"] = ref("EventService")
    stream = {"ServiceEnabled": True, "ServerSentEventUri": f"{ROOT}/EventService/SSE"}
    tree[f"{ROOT}/EventService"] = {"Id": "EventService", **stream}


def tell_leak(path: str, state: str) -> Any:
    """Return the event of a leak as it is in the field: a change of state, of severity OK."""
    said = f"The state of resource `{path.rpartition('/')[2]}` has changed to {state}"
    event = {"MessageId": "ResourceEvent.1.2.ResourceStateChanged", "Severity": "OK"}
    return {"Events": [{**event, "Message": said, "OriginOfCondition": {"@odata.id": path}}]}


EXPAND = {"ExpandQuery": {"ExpandAll": True, "Levels": True, "NoLinks": True, "MaxLevels": 2}}


class Shown:
    """The tree of a unit as it is at one time; built once between two changes. `mark`: what changes
    with everything that the tree shows; without it each moment has a tree of its own.
    """

    def __init__(
        self, rack: Rack, build: Callable[[], Tree], mark: Callable[[], object] | None = None
    ) -> None:
        self._build = build
        self._mark = mark or (lambda: rack.now)
        self._tree: Tree | None = None
        self._at: object = None
        self._answers: dict[str, Answer] = {}

    def change(self) -> None:
        self._tree = None

    def answer(self, path: str) -> Answer:
        """Answer a GET, with the members of a collection inside it where that is asked for."""
        mark = self._mark()
        if self._tree is None or self._at != mark:
            self._tree = self._build()
            self._at = mark
            self._answers.clear()
        if path not in self._answers:
            self._answers[path] = self._find(self._tree, path)
        return self._answers[path]

    @staticmethod
    def _find(tree: Tree, path: str) -> Answer:
        where, _, query = path.partition("?")
        found = tree.get(where.rstrip("/"))
        if found is None:
            return Answer(404)
        if "expand" in query and "Members" in found:
            inside = [
                {"@odata.id": one["@odata.id"], **tree.get(one["@odata.id"], {})}
                for one in found["Members"]
            ]
            return Answer(200, {**found, "Members": inside})
        return Answer(200, found)


def ref(path: str) -> dict[str, str]:
    return {"@odata.id": f"{ROOT}/{path}"}


def list_members(tree: Tree, path: str, names: list[str]) -> None:
    members = [ref(f"{path}/{name}") for name in names]
    tree[f"{ROOT}/{path}"] = {"Members": members, "Members@odata.count": len(members)}


@dataclass
class Task:
    """An update under way on a BMC."""

    number: int
    begin: float
    end: float
    push: Push
    failed: str = ""
    applied: bool = False


@dataclass
class Tasks:
    """The tasks of a BMC; they live in its memory."""

    listed: dict[int, Task] = field(default_factory=dict)
    reaped: str = ""  # "404" or "empty": what an ended task answers
    frozen_percent: bool = False

    def begin(self, now: float, seconds: float, push: Push, failed: str = "") -> Task:
        task = Task(len(self.listed), now, now + seconds, push, failed)
        self.listed[task.number] = task
        return task

    def running(self, now: float) -> list[Task]:
        return [task for task in self.listed.values() if now < task.end]

    def add_to(self, tree: Tree, now: float) -> None:
        shown = [str(n) for n, t in self.listed.items() if now < t.end or not self.reaped]
        tree[f"{ROOT}/TaskService"] = {"Id": "TaskService", "Tasks": ref("TaskService/Tasks")}
        list_members(tree, "TaskService/Tasks", shown)
        for task in self.listed.values():
            tree[f"{ROOT}/TaskService/Tasks/{task.number}"] = self.describe(task, now)

    def describe(self, task: Task, now: float) -> dict[str, Any]:
        share = (now - task.begin) / (task.end - task.begin)
        percent = 0 if self.frozen_percent else 20 if share < 0.3 else 40
        state = "Running"
        status = "OK"
        messages: list[dict[str, Any]] = []
        if now >= task.end:
            state, percent = ("Exception", 40) if task.failed else ("Completed", 100)
            status = "Critical" if task.failed else "OK"
            if task.failed:
                messages = [{"MessageId": f"Update.1.0.{task.failed}", "Severity": "Critical"}]
        body = {"Id": str(task.number), "TaskState": state, "PercentComplete": percent}
        return {**body, "TaskStatus": status, "Messages": messages}

    def answer_gone(self, path: str, now: float) -> Answer | None:
        """Return what a task that ended answers where this BMC forgets tasks."""
        number = path.rpartition("/")[2]
        task = self.listed.get(int(number)) if number.isdigit() and "/Tasks/" in path else None
        if task is None or not self.reaped or now < task.end:
            return None
        return Answer(404) if self.reaped == "404" else Answer(200, text="")
