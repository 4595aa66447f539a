"""A small matrix without a fault, and the changes that give it one."""

from __future__ import annotations

from provisioner.integrations.matrix_tools.deciding.review import Weight

BASE = """\
schema: 1
releases:
  old:
    profiles:
      node:
        match: {kind: host, devices: {gpu: 8}}
        pins:
          host.bmc: {version: "1.0"}
          host.driver: {version: "1.0"}
  new:
    supersedes: old
    profiles:
      node:
        match: {kind: host, devices: {gpu: 8}}
        pins:
          host.bmc: {version: "2.0"}
          host.driver: {version: "1.0"}
    requires:
      - name: one rule
        when: {host.bmc: ">=2"}
        needs: {host.driver: ">=1"}
        reason: they were tested together
edges:
  host.bmc:
    - from: ["1.0"]
      to: "2.0"
      activates_by: bmc_reset
      evidence: notes
"""
REFUSED, BLOCKS, NOTE, GOOD = "refused", Weight.BLOCKS, Weight.NOTE, "good"
LEAF = """\
      leaf:
        match: {kind: switch}
        pins: {switch.os: {version: 5.11.0.1}}
"""


def change(*pairs: tuple[str, str]) -> str:
    """Return the base with some text replaced; each must stand in it."""
    text = BASE
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def on_edge(line: str) -> str:
    return BASE + f"      {line}\n"


def more_edges(*edges: str) -> str:
    return BASE + "".join(f"    - {edge}\n" for edge in edges)


def other_edges(kind: str, *edges: str) -> str:
    return BASE + f"  {kind}:\n" + "".join(f"    - {edge}\n" for edge in edges)


def rule(name: str, when: str, needs: str) -> str:
    return f"      - {{name: {name}, when: {when}, needs: {needs}, reason: tested}}\n"


def with_rule(text: str) -> str:
    return change(("edges:\n", text + "edges:\n"))


DRIVER_EDGE = '{from: ["1.0"], to: "2.0", activates_by: cold_boot, evidence: notes}'

File = tuple[str, str, int]  # text, verdict, line
