"""What the matrix reader takes, and how it refuses everything else: one error that says where."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.model.input_error import InputError
from provisioner.planning.matrix.matrix_text import parse

SHIPPED = Path(__file__).parents[2] / "firmware_matrix.yaml"

SMALL = """\
schema: 1
releases:
  old:
    profiles:
      node:
        match: {gpu_models: ["*H100*"]}
        pins:
          nic.cx7: {version: 1.10, artifact: a.bin, evidence: "https://example.com/a"}
          host.bios: {version: unknown}
  new:
    supersedes: old
    profiles:
      node:
        match: {gpu_models: ["*H100*"]}
        pins:
          nic.cx7: {version: "2.0"}
edges:
  nic.cx7:
    - {from: [1.10], to: "2.0", activates_by: mlxfwreset}
"""


def refusal(*texts: str) -> InputError:
    with pytest.raises(InputError) as caught:
        parse([(f"file{n}.yaml", text) for n, text in enumerate(texts, start=1)])
    assert caught.value.remedy
    return caught.value


def test_the_shipped_file_is_read_with_the_published_releases():
    matrix = parse([(SHIPPED.name, SHIPPED.read_text())])

    lines = Counter(name.partition("-")[0] for name in matrix.releases)
    assert lines == {"spectrum": 7, "doca": 14, "cumulus": 3, "driver": 4, "dgx": 6}
    pins = matrix.releases["spectrum-x-1.3.0"].profiles["hgx-h100-bf3"].pins
    assert pins["bluefield.nic"].version == "32.44.1036"
    assert pins["host.doca"].version == "2.10.0-0.5.3"
    assert matrix.releases["spectrum-x-1.3.0"].profiles["sn5600"].pins["switch.os"].known


def test_a_version_stays_text_exactly_as_written():
    matrix = parse([("m.yaml", SMALL)])

    assert matrix.releases["old"].profiles["node"].pins["nic.cx7"].version == "1.10"
    assert matrix.edges["nic.cx7"][0].from_versions == ("1.10",)


def test_the_same_text_has_the_same_digest():
    assert parse([("a", SMALL)]).digest() == parse([("b", SMALL)]).digest()


def test_a_profile_like_another_has_its_pins_and_its_own():
    text = SMALL + "\n"
    text = text.replace(
        "  new:\n",
        "      other:\n"
        "        like: node\n"
        '        match: {gpu_models: ["*H200*"]}\n'
        '        pins: {host.bmc: {version: "7"}}\n'
        "  new:\n",
    )
    pins = parse([("m.yaml", text)]).releases["old"].profiles["other"].pins

    assert sorted(pins) == ["host.bios", "host.bmc", "nic.cx7"]


BAD = {
    "a file that is not YAML": ("schema: [", "line 2"),
    "a tab where YAML wants blanks": ("releases:\n\tx: 1\n", "line 2"),
    "an empty file": ("", "line 1"),
    "a list instead of a mapping": ("- 1\n", "line 1"),
    "a duplicate key": (SMALL + "schema: 1\n", "line 20"),
    "an unknown key": (SMALL + "relases: {}\n", "line 20"),
    "an unknown key in a pin": (SMALL.replace("artifact:", "artefact:"), "line 8"),
    "an unknown schema": (SMALL.replace("schema: 1", "schema: 7"), "line 1"),
    "no release": ("schema: 1\nreleases: {}\n", "line 2"),
    "a version that is a list": (SMALL.replace("version: 1.10", "version: [1]"), "line 8"),
    "a version that is empty": (SMALL.replace('version: "2.0"', "version:"), "line 16"),
    "a scalar where a list belongs": (SMALL.replace("[1.10]", "1.10"), "line 19"),
    "an unknown activation": (SMALL.replace("mlxfwreset", "kick"), "line 19"),
    "an unknown component kind": (SMALL.replace("host.bios", "host.boss"), "line 9"),
    "an unknown kind of edges": (SMALL.replace("edges:\n  nic.cx7", "edges:\n  nic.cx"), "line 18"),
    "an edge from a version to itself": (SMALL.replace('to: "2.0"', "to: 1.10"), "line 19"),
    "a way that passes a version twice": (
        SMALL.replace('to: "2.0",', 'to: "2.0", via: ["2.0"],'),
        "line 19",
    ),
    "a way back through its start": (
        SMALL.replace('to: "2.0",', 'to: "2.0", via: [1.10],'),
        "line 19",
    ),
    "an edge that starts nowhere": (SMALL.replace("from: [1.10]", "from: []"), "line 19"),
    "one move written twice": (
        SMALL + '    - {from: [1.10], to: "2.0", activates_by: cold_boot}\n',
        "line 20",
    ),
    "upgrades in a circle": (
        SMALL + '    - {from: ["2.0"], to: 1.10, activates_by: cold_boot}\n',
        "line 18",
    ),
    "an edge to an unknown version": (SMALL.replace('to: "2.0"', "to: unknown"), "line 19"),
    "a malformed condition": (
        SMALL.replace("activates_by", 'requires: {host.bmc: ">> 2"}, activates_by'),
        "line 19",
    ),
    "a condition on an unknown kind": (
        SMALL.replace("activates_by", 'requires: {host.bmc: "=host.boss"}, activates_by'),
        "line 19",
    ),
    "a digest that is none": (SMALL.replace("artifact: a.bin", "sha256: abc"), "line 8"),
    "a file name with a folder": (SMALL.replace("a.bin", "../a.bin"), "line 8"),
    "a release that supersedes nothing": (
        SMALL.replace("supersedes: old", "supersedes: x"),
        "line 11",
    ),
    "releases that supersede one another": (
        SMALL.replace("  old:\n", "  old:\n    supersedes: new\n"),
        "line 4",
    ),
    "two profiles for the same nodes": (
        SMALL.replace("  new:\n", "      twin: {match: {}, pins: {}}\n  new:\n"),
        "line 10",
    ),
    "a profile like one that is not there": (
        SMALL.replace("        match:", "        like: nobody\n        match:", 1),
        "line 6",
    ),
    "an alias": ("a: &a [x]\nb: *a\n", "line 1"),
    "a tag": ("schema: !!python/object:os.system {}\n", "line 1"),
    "a merge key": ("releases:\n  <<: {}\n", "line 2"),
    "two documents": (SMALL + "---\nschema: 1\n", "line 20"),
    "an NV-config profile that is not there": (
        SMALL.replace("host.bios: {version: unknown}", "nic.config: {version: RA9}"),
        "line 9",
    ),
    "text with a bell in it": (SMALL.replace("a.bin", "a\x07.bin"), ""),
}


@pytest.mark.parametrize("sentence", BAD)
def test_refused_with_its_line(sentence: str):
    text, where = BAD[sentence]
    error = refusal(text)

    assert error.source == "file1.yaml"
    assert error.where.startswith(where)
    assert "\n" not in str(error)


def test_ten_times_ten_aliases_of_aliases_are_refused_at_once():
    laughs = "a0: &a0 [x, x]\n" + "".join(
        f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}]\n" for n in range(1, 60)
    )
    begun = time.process_time()
    refusal(laughs)

    assert time.process_time() - begun < 5.0


def test_deep_nesting_is_refused():
    assert "levels" in refusal("a: " + "[" * 5000 + "]" * 5000).problem


def test_a_huge_file_is_refused_unread():
    assert "larger" in refusal("#" * 3_000_000).problem


def test_an_overlay_closes_an_unknown_pin_and_adds_files_and_edges():
    overlay = """
releases: {old: {profiles: {node: {pins: {
  nic.cx7: {sha256: "%s"}, host.bios: {version: "5.5"}}}}}}
edges: {host.bios: [{from: ["5.4"], to: "5.5", activates_by: cold_boot}]}
""" % ("ab" * 32)
    matrix = parse([("base", SMALL), ("site", overlay)])
    pins = matrix.releases["old"].profiles["node"].pins

    assert pins["host.bios"].version == "5.5"
    assert (pins["nic.cx7"].artifact, pins["nic.cx7"].sha256) == ("a.bin", "ab" * 32)
    assert matrix.edges["host.bios"][0].to == "5.5"


def test_an_overlay_fills_an_edge_that_is_there():
    overlay = """
edges: {nic.cx7: [{from: [1.10], to: "2.0", activates_by: mlxfwreset, evidence: "https://e"}]}
"""
    edges = parse([("base", SMALL), ("site", overlay)]).edges["nic.cx7"]

    assert [edge.evidence for edge in edges] == ["https://e"]


def test_an_overlay_may_not_change_a_published_version_in_silence():
    overlay = 'releases: {old: {profiles: {node: {pins: {nic.cx7: {version: "9"}}}}}}'
    error = refusal(SMALL, overlay)

    assert error.source == "file2.yaml"
    assert "1.10" in error.problem
    assert "override" in error.remedy


def test_an_override_needs_a_reason_and_takes_the_old_file_away():
    pin = "nic.cx7: {version: '9', override: true%s}"
    overlay = "releases: {old: {profiles: {node: {pins: {%s}}}}}"
    assert "override" in refusal(SMALL, overlay % (pin % "")).remedy

    matrix = parse([("base", SMALL), ("site", overlay % (pin % ", reason: vendor said so"))])
    changed = matrix.releases["old"].profiles["node"].pins["nic.cx7"]

    assert (changed.version, changed.artifact) == ("9", "")
    assert changed.evidence == "override: vendor said so"


def test_an_overlay_may_not_make_a_published_version_unknown():
    overlay = "releases: {old: {profiles: {node: {pins: {nic.cx7: {version: unknown}}}}}}"

    assert refusal(SMALL, overlay).source == "file2.yaml"


def test_an_overlay_may_not_change_an_edge():
    overlay = 'edges: {nic.cx7: [{from: [1.10], to: "2.0", activates_by: ac_cycle}]}'

    assert refusal(SMALL, overlay).source == "file2.yaml"


def test_a_pin_inherited_by_like_is_published_too():
    text = SMALL.replace(
        "  new:\n",
        '      other: {like: node, match: {gpu_models: ["*H200*"]}, pins: {}}\n  new:\n',
    )
    overlay = 'releases: {old: {profiles: {other: {pins: {nic.cx7: {version: "9"}}}}}}'

    assert "override" in refusal(text, overlay).remedy


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_no_damage_to_the_shipped_file_escapes_as_another_error(data: st.DataObject):
    text = SHIPPED.read_text()
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start, min(len(text), start + 200)))
    damage = data.draw(st.text(max_size=20))
    with contextlib.suppress(InputError):
        parse([("m.yaml", text[:start] + damage + text[end:])])


def test_the_overlay_of_the_documents_can_be_laid_over_the_shipped_file():
    blocks = (SHIPPED.parent / "docs" / "matrix.md").read_text().split("```yaml\n")
    overlay = blocks[-1].split("```")[0].replace('"..."', f'"{"0" * 64}"')
    matrix = parse([(SHIPPED.name, SHIPPED.read_text()), ("docs/matrix.md", overlay)])
    pins = matrix.releases["spectrum-x-1.3.0"].profiles["hgx-h200-bf3"].pins

    assert pins["host.driver"].version == "570.133.20"
    assert pins["bluefield.bundle"].evidence == "override: fix for our cards"
    assert pins["bluefield.nic"].version == "32.44.1036"
