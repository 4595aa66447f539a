"""Properties and resources that recorded trees show, added to the simulated ones.

`recorded/*.json` has one file for each recorded tree: `overlays` add properties to the resources
that the simulator computes, and `resources` are whole ones that it only shows. `*` in a path is one
segment, and `{path}` in a value is the resource that it stands in. What the simulator computes
itself goes before what was recorded. Each file is read once and shared by all BMCs of its shape.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache, partial
from importlib.resources import files
from typing import Any

from provisioner.sim.redfish.redfish_answers import Json
from provisioner.sim.redfish.redfish_tree import Read, Resource, Tree

_FILES = {
    name: f"{name}.json"
    for name in (
        "dell",
        "ami_dgx",
        "nvidia_openbmc",
        "nvidia_gb200",
        "hpe",
        "lenovo",
        "supermicro",
    )
}
_HERE = "{path}"


class RecordedShape:
    """The recorded properties and resources of one shape."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.source: str = content["source"]
        self.resources = len(content["resources"])
        self.overlays: list[tuple[re.Pattern[str], Json]] = [
            (_pattern(one["path"]), {"@odata.type": one["type"], **one["add"]})
            for one in content["overlays"]
        ]
        self.fixed: dict[str, Resource] = {}
        self._wild: list[tuple[re.Pattern[str], int, Json]] = []
        for path, body in content["resources"].items():
            if "*" in path:
                depth = path.count("/", 0, path.rindex("*"))
                self._wild.append((_pattern(path), depth, body))
            else:
                self.fixed[path] = _show({"@odata.id": path, **_placed(body, path)})
        self._added: dict[str, Json | None] = {}

    def find_addition(self, path: str) -> Json | None:
        """The properties that a resource has in the recorded tree besides the simulated ones."""
        if path not in self._added:
            fitting = (add for pattern, add in self.overlays if pattern.fullmatch(path))
            add = next(fitting, None)
            self._added[path] = None if add is None else _placed(add, path)
        return self._added[path]

    def find_resource(self, tree: Tree, path: str) -> Resource | None:
        """A resource that is only shown, below one that the tree has."""
        if path in self.fixed:
            return self.fixed[path]
        for pattern, depth, body in self._wild:
            if pattern.fullmatch(path):
                segments = path.split("/")
                if tree.find("/".join(segments[: depth + 1])) is None:
                    return None
                return _show({"@odata.id": path, **_placed(body, path)})
        return None


@cache
def read_shape(name: str) -> RecordedShape | None:
    """The recorded shape of this name; None where no tree was recorded."""
    if name not in _FILES:
        return None
    text = files("provisioner.sim.redfish").joinpath("recorded", _FILES[name]).read_text()
    return RecordedShape(json.loads(text))


def mount_recorded(tree: Tree, name: str) -> None:
    """Add the recorded properties to every resource of the tree, and the recorded resources."""
    shape = read_shape(name)
    if shape is None:
        return
    for path, resource in tree.resources.items():
        add_recorded(shape, path, resource)
    tree.dress = partial(add_recorded, shape)
    tree.find_more = partial(shape.find_resource, tree)


def add_recorded(shape: RecordedShape, path: str, resource: Resource) -> Resource:
    """Let a resource show its recorded properties too; return it."""
    add = shape.find_addition(path)
    shown = shape.fixed.get(path)
    if resource.read is not None and shown is not None and shown.read is not None:
        resource.read = partial(_read_either, resource.read, shown.read)
    elif resource.read is not None and add is not None:
        resource.read = partial(_read_both, resource.read, add)
    return resource


def _read_both(read: Read, add: Json) -> Json | None:
    value = read()
    return None if value is None else merge(add, value)


def _read_either(read: Read, recorded: Read) -> Json | None:
    """A resource that the simulator has at times only; else as it was recorded."""
    value = read()
    body = recorded() or {}
    return body if value is None else merge(body, value)


def merge(add: Mapping[str, Any], value: Mapping[str, Any]) -> Json:
    """Both objects as one; in nested objects too, the second goes before the first.

    Only the type is the recorded one: a schema's newer version has the properties that were added.
    """
    both = {**add, **value}
    for name, inner in add.items():
        own = value.get(name)
        if name == "@odata.type":
            both[name] = inner
        elif isinstance(inner, dict) and isinstance(own, dict) and "@odata.id" not in own:
            both[name] = merge(inner, own)
    return both


def _show(body: Json) -> Resource:
    return Resource(lambda: body, collection="Members" in body, partial=False)


def _pattern(glob: str) -> re.Pattern[str]:
    return re.compile("[^/]*".join(re.escape(part) for part in glob.split("*")))


def _placed(body: Json, path: str) -> Json:
    """The body with `{path}` replaced; an Id of its own where it has none."""
    text = json.dumps(body)
    if _HERE in text:
        return dict(json.loads(text.replace(_HERE, path)))
    return body
