"""Reads the documents of `dcgmi diag -j` and `dcgmi mndiag -j` into one form.

"DCGM GPU Diagnostic" is that of DCGM 1 to 3: results name GPUs in `gpu_ids` or not at all, and
warnings are texts. "DCGM Diagnostic" is that of DCGM 4: one result per entity, warnings with ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from provisioner.checks.check import Unreadable
from provisioner.checks.readers.json_in_text import document_with
from provisioner.checks.readers.reading import mapping, sequence, word
from provisioner.model.base import Record

OLD, NEW, MANY = "DCGM GPU Diagnostic", "DCGM Diagnostic", "DCGM Multi-Node Diagnostic"
IDS_MAX = 64  # GPUs that one result may name

# as 3.x shows its tests to people -> the names of the plugins, which 4.x shows
_PLUGINS = {
    "gpu memory": "memory",
    "pcie": "pcie",
    "diagnostic": "diagnostic",
    "gpu diagnostic": "diagnostic",
    "memory bandwidth": "memory_bandwidth",
    "targeted stress": "targeted_stress",
    "targeted power": "targeted_power",
    "sm stress": "sm_stress",
    "memtest": "memtest",
    "pulse test": "pulse_test",
    "eud test": "eud",
}


class Warned(Record):
    """One warning. `severity` None: none is given."""

    words: str
    severity: int | None = None
    error_id: str = ""


class Result(Record):
    """One result; `parts` is () where it does not say of what."""

    parts: tuple[str, ...]  # "GPU 3", "node7 GPU 3"
    status: str  # lower case
    warnings: tuple[Warned, ...] = ()
    info: tuple[str, ...] = ()


class Test(Record):
    """One test as a plugin: "software", "memory", "pcie" ... `title` is what DCGM calls it."""

    name: str
    title: str
    results: tuple[Result, ...]
    summary: str = "pass"  # lower case
    said: tuple[str, ...] = ()  # plain words of the summary: some findings exist only there


def tests_of(text: str) -> tuple[Test, ...]:
    """The tests of one node. Raises `Unreadable`."""
    document = document_with(text, OLD, NEW, what="dcgmi")
    new = NEW in document
    body = mapping(document[NEW if new else OLD], "dcgmi")
    error = body.get("runtime_error", document.get("runtime_error"))
    if error:
        raise Unreadable(f"dcgmi could not run: {str(error)[:200]}")
    found = []
    for category, test in _listed(body):
        title = word(test.get("name"), "name")
        software = not new and category.lower() == "deployment"
        name = "software" if software else _PLUGINS.get(title.lower(), title.lower())
        found.append(_test(name, title, test, {}))
    if not found:
        raise Unreadable("dcgmi: no test in it")
    return tuple(found)


def tests_of_many(text: str) -> tuple[tuple[Test, ...], tuple[str, ...], tuple[Warned, ...]]:
    """Tests, host names and errors of a multi-node run. Raises `Unreadable`."""
    document = document_with(text, MANY, what="dcgmi mndiag")
    if document.get("runtime_error"):
        raise Unreadable(f"dcgmi mndiag could not run: {str(document['runtime_error'])[:200]}")
    hosts: dict[object, str] = {}
    for listed in sequence(document.get("hosts"), "hosts"):
        host = mapping(listed, "host")
        hosts[_plain(host.get("host_id"), "host_id")] = word(host.get("hostname"), "hostname")
    told = mapping(document.get("metadata"), "metadata").get("num_hosts")
    if told != len(hosts):
        raise Unreadable(f"dcgmi mndiag: {len(hosts)} hosts are listed, it says {told}")
    found = [
        _test(word(t.get("name"), "name").lower(), str(t.get("name")), t, hosts)
        for _, t in _listed(document)
    ]
    if not found:
        raise Unreadable("dcgmi mndiag: no test in it")
    errors = tuple(_warned(e) for e in sequence(document.get("global_errors", []), "errors"))
    return tuple(found), tuple(hosts.values()), errors


def _listed(body: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for listed in sequence(body.get("test_categories"), "test_categories"):
        category = mapping(listed, "category")
        name = word(category.get("category"), "category")
        for test in sequence(category.get("tests"), "tests"):
            yield name, mapping(test, "test")


def _test(name: str, title: str, test: Mapping[str, Any], hosts: Mapping[object, str]) -> Test:
    listed = sequence(test.get("results"), "results")
    if not listed:
        raise Unreadable(f"dcgmi: {title[:40]} has no result")
    summary = mapping(test.get("test_summary", {}), "test_summary")
    status = word(summary.get("status", "Pass"), "status").lower()
    own = str(test.get("status", "pass")).lower()  # a multi-node test has one of its own
    said = [*_texts(summary.get("info")), *(w.words for w in _warnings(summary))]
    if isinstance(test.get("mpi_error"), dict):
        status, said = "mpi error", [*said, str(test["mpi_error"].get("warning", ""))]
    return Test(
        name=name[:64],
        title=title[:64],
        results=tuple(_result(mapping(r, "result"), hosts) for r in listed),
        summary=status if status != "pass" else own,
        said=tuple(said),
    )


def _result(result: Mapping[str, Any], hosts: Mapping[object, str]) -> Result:
    return Result(
        parts=_parts(result, hosts),
        status=word(result.get("status"), "status").strip().lower(),
        warnings=_warnings(result),
        info=_texts(result.get("info")),
    )


def _parts(result: Mapping[str, Any], hosts: Mapping[object, str]) -> tuple[str, ...]:
    host = ""
    if hosts:
        host_id = _plain(result.get("host_id"), "host_id")
        if host_id not in hosts:
            raise Unreadable(f"dcgmi mndiag: a result of host {host_id}, which is not listed")
        host = hosts[host_id] + " "
    if "entity_id" in result:
        group = word(result.get("entity_group", "GPU"), "entity_group")
        return (f"{host}{group} {_plain(result['entity_id'], 'entity_id')}",)
    told = result.get("gpu_ids", result.get("gpu_id"))
    if told is None:
        return ()
    ids = [i.strip() for i in str(_plain(told, "gpu_ids")).split(",")]
    if len(ids) > IDS_MAX or not all(i.isascii() and i.isdecimal() for i in ids):
        raise Unreadable(f"dcgmi: gpu_ids {str(told)[:40]!r}")
    return tuple(f"{host}GPU {i}" for i in ids)


def _plain(value: Any, what: str) -> int | str:
    if isinstance(value, bool) or not isinstance(value, int | str) or len(str(value)) > 400:
        raise Unreadable(f"dcgmi: {what} is no name")
    return value


def _warnings(holder: Mapping[str, Any]) -> tuple[Warned, ...]:
    listed = holder.get("warnings", holder.get("warning"))
    if listed is None:
        return ()
    return tuple(_warned(w) for w in (listed if isinstance(listed, list) else [listed]))


def _warned(listed: Any) -> Warned:
    if not isinstance(listed, dict):
        return Warned(words=str(listed))
    code = listed.get("error_severity")
    return Warned(
        words=str(listed.get("warning", "no words")),
        severity=code if isinstance(code, int) and not isinstance(code, bool) else None,
        error_id=str(listed.get("error_id", "?"))[:12],
    )


def _texts(listed: Any) -> tuple[str, ...]:
    if listed is None:
        return ()
    return tuple(str(t) for t in (listed if isinstance(listed, list) else [listed]))
