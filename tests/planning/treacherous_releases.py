"""Matrix files with one fault outside of edges, and right ones: name -> text, verdict, line."""

from __future__ import annotations

from treacherous_base import (
    BASE,
    BLOCKS,
    DRIVER_EDGE,
    GOOD,
    LEAF,
    NOTE,
    REFUSED,
    File,
    change,
    more_edges,
    on_edge,
    other_edges,
    rule,
    with_rule,
)

RELEASES: dict[str, File] = {
    # name: (text, verdict, line)
    "nothing wrong": (BASE, GOOD, 0),
    # parts and models
    "a kind of part in the plural": (change(("{gpu: 8}", "{gpus: 8}")), REFUSED, 6),
    "a kind of part that nobody has": (change(("{gpu: 8}", "{tpu: 8}")), REFUSED, 6),
    "a negative number of parts": (change(("{gpu: 8}", "{gpu: -8}")), REFUSED, 6),
    "a number of parts in words": (change(("{gpu: 8}", "{gpu: eight}")), REFUSED, 6),
    "a number of parts with a fraction": (change(("{gpu: 8}", "{gpu: 8.5}")), REFUSED, 6),
    "a million GPUs": (change(("{gpu: 8}", "{gpu: 1000000}")), REFUSED, 6),
    "a kind of node in the plural": (change(("kind: host,", "kind: hosts,")), REFUSED, 6),
    "an empty model": (change(("kind: host,", 'kind: host, models: [""],')), BLOCKS, 6),
    "a switch with GPU models": (
        change(
            (
                "  new:\n",
                "      leaf: {match: {kind: switch, gpu_models: [H100]}, pins: {}}\n  new:\n",
            )
        ),
        BLOCKS,
        10,
    ),
    "a host that pins a switch": (
        change(('host.driver: {version: "1.0"}', 'switch.os: {version: "5.11.0"}')),
        BLOCKS,
        9,
    ),
    "a switch that pins a host's driver": (
        change(
            (
                "  new:\n",
                '      leaf: {match: {kind: switch}, pins: {host.doca: {version: "1"}}}\n  new:\n',
            )
        ),
        BLOCKS,
        10,
    ),
    # the file
    "no schema": (change(("schema: 1\n", "")), BLOCKS, 1),
    "another schema": (change(("schema: 1\n", "schema: 2\n")), REFUSED, 1),
    "a schema in words": (change(("schema: 1\n", "schema: one\n")), REFUSED, 1),
    "a schema that is empty": (change(("schema: 1\n", "schema:\n")), REFUSED, 1),
    "a key with a slip of the pen": (change(("supersedes:", "supercedes:")), REFUSED, 11),
    "a release twice": (BASE.replace("  new:", "  old:"), REFUSED, 10),
    "a base with an override": (
        change(('host.bmc: {version: "2.0"}', 'host.bmc: {version: "2.0", override: true}')),
        NOTE,
        16,
    ),
    # methods
    "a method with a slip of the pen": (on_edge("method: redfish_psuh"), REFUSED, 29),
    "a method that does not exist": (on_edge("method: floppy"), REFUSED, 29),
    "a switch's method on a BMC": (on_edge("method: nvue_image"), BLOCKS, 25),
    "a BMC's method on a switch": (
        other_edges(
            "switch.os",
            '{from: ["5.11.0"], to: "5.12.0", activates_by: image_reboot, method: redfish_push}',
        ),
        BLOCKS,
        30,
    ),
    "a method that never works alone": (on_edge("method: with_bundle"), BLOCKS, 25),
    "an edge of what only a bundle brings": (
        other_edges("hgx.gpu", '{from: ["96.00.01"], to: "96.00.02", activates_by: ac_cycle}'),
        BLOCKS,
        30,
    ),
    "a BMC that boots another image": (change(("bmc_reset", "image_reboot")), BLOCKS, 27),
    "an activation with a slip of the pen": (change(("bmc_reset", "bmc_rest")), REFUSED, 27),
    # rules
    "a rule that the pins break": (
        change(('needs: {host.driver: ">=1"}', 'needs: {host.driver: ">=2"}')),
        BLOCKS,
        19,
    ),
    "a rule of equality that the pins break": (
        change(('needs: {host.driver: ">=1"}', "needs: {host.driver: =host.bmc}")),
        BLOCKS,
        19,
    ),
    "a rule that an alternative breaks": (
        change(
            ('host.bmc: {version: "2.0"}', 'host.bmc: {version: "2.0", also: ["1.5"]}'),
            ('needs: {host.driver: ">=1"}', 'needs: {host.bmc: ">=2"}'),
            ('when: {host.bmc: ">=2"}', 'when: {host.driver: ">=1"}'),
        ),
        NOTE,
        19,
    ),
    "a rule about a switch that its pin breaks": (
        change(
            (
                "    requires:\n",
                LEAF + "    requires:\n",
            ),
            ('needs: {host.driver: ">=1"}', 'needs: {switch.os: ">=5.12.0"}'),
        ),
        BLOCKS,
        22,
    ),
    "a rule that needs what contradicts itself": (
        change(('needs: {host.driver: ">=1"}', 'needs: {host.driver: ">=2,<1"}')),
        BLOCKS,
        21,
    ),
    "a rule that never concerns a node": (
        change(('when: {host.bmc: ">=2"}', 'when: {host.bmc: ">3,<3"}')),
        BLOCKS,
        20,
    ),
    "a rule with two versions at once": (
        change(('when: {host.bmc: ">=2"}', 'when: {host.bmc: "==2,==3"}')),
        BLOCKS,
        20,
    ),
    "a rule on a version that no driver prints": (
        change(('needs: {host.driver: ">=1"}', 'needs: {host.bmc: ">=new"}')),
        BLOCKS,
        21,
    ),
    "two rules of one name": (
        with_rule(rule("one rule", "{host.driver: '>=9'}", "{host.bmc: '>=1'}")),
        REFUSED,
        23,
    ),
    "two rules of one name in capitals": (
        with_rule(rule("One Rule", "{host.driver: '>=9'}", "{host.bmc: '>=1'}")),
        REFUSED,
        23,
    ),
    "a rule without a name": (change(("name: one rule", 'name: ""')), REFUSED, 19),
    "a rule without a reason": (
        change(("        reason: they were tested together\n", "")),
        REFUSED,
        19,
    ),
    "a rule with an empty reason": (change(("they were tested together", '" "')), REFUSED, 22),
    "a rule without needs": (change(('needs: {host.driver: ">=1"}', "needs: {}")), REFUSED, 21),
    "a rule on a kind that does not exist": (
        change(("needs: {host.driver", "needs: {host.boss")),
        REFUSED,
        21,
    ),
    "a rule with a turned sign": (
        change(('needs: {host.driver: ">=1"}', 'needs: {host.driver: "=>1"}')),
        REFUSED,
        21,
    ),
    "a rule on an unknown version": (
        change(('needs: {host.driver: ">=1"}', "needs: {host.driver: unknown}")),
        REFUSED,
        21,
    ),
    "a rule on any version": (
        change(('needs: {host.driver: ">=1"}', 'needs: {host.driver: "*"}')),
        REFUSED,
        21,
    ),
    "a rule on a pattern": (
        change(('needs: {host.driver: ">=1"}', 'needs: {host.driver: "1.*"}')),
        REFUSED,
        21,
    ),
    # files and digests
    "one file with two digests": (
        on_edge(f"artifact: a.bin\n      sha256: {'a' * 64}")
        + f'    - {{from: ["0.9"], to: "2.0", activates_by: bmc_reset, artifact: a.bin, sha256: '
        f"{'b' * 64}}}\n",
        BLOCKS,
        31,
    ),
    "a digest that is too short": (on_edge("sha256: abc"), REFUSED, 29),
    "a file in a folder": (on_edge("artifact: a/b.bin"), REFUSED, 29),
    "a digest without a file": (
        change(('host.bmc: {version: "2.0"}', f'host.bmc: {{version: "2.0", sha256: {"a" * 64}}}')),
        NOTE,
        16,
    ),
    # bundles
    "two bundles of the same contents": (
        BASE + 'bundles: {hgx.bundle: {HGX-X_1.0: {hgx.gpu: "96.00.01"}, '
        'HGX-X_2.0: {hgx.gpu: "96.00.01"}}}\n',
        BLOCKS,
        29,
    ),
    "a bundle in two spellings": (
        BASE + 'bundles: {hgx.bundle: {HGX-X_1.0: {hgx.gpu: "96.00.01"}, '
        'HGX-X_1: {hgx.gpu: "96.00.02"}}}\n',
        REFUSED,
        29,
    ),
    "a bundle in itself": (
        BASE + "bundles: {hgx.bundle: {HGX-X_1.0: {hgx.bundle: HGX-X_1.0}}}\n",
        REFUSED,
        29,
    ),
    "a bundle of nothing": (BASE + "bundles: {hgx.bundle: {HGX-X_1.0: {}}}\n", REFUSED, 29),
    "a bundle with a part that prints no such thing": (
        BASE + "bundles: {hgx.bundle: {HGX-X_1.0: {hgx.gpu: new}}}\n",
        BLOCKS,
        29,
    ),
    "a pinned bundle that nothing identifies": (
        change(('host.driver: {version: "1.0"}', "hgx.bundle: {version: HGX-X_1.0}")),
        BLOCKS,
        9,
    ),
    "a pin that contradicts its bundle": (
        change(
            (
                'host.driver: {version: "1.0"}',
                'hgx.bundle: {version: HGX-X_1.0}\n          hgx.gpu: {version: "96.00.02"}',
            )
        )
        + 'bundles: {hgx.bundle: {HGX-X_1.0: {hgx.gpu: "96.00.01"}}}\n',
        BLOCKS,
        9,
    ),
    # pins and releases
    "a pin that no BMC prints": (
        change(('host.bmc: {version: "2.0"}', "host.bmc: {version: two}")),
        BLOCKS,
        16,
    ),
    "a pin of any version": (
        change(('host.bmc: {version: "2.0"}', 'host.bmc: {version: "*"}')),
        REFUSED,
        16,
    ),
    "a pin of a pattern": (
        change(('host.bmc: {version: "2.0"}', 'host.bmc: {version: "2.?"}')),
        REFUSED,
        16,
    ),
    "an alternative twice": (
        change(('host.bmc: {version: "2.0"}', 'host.bmc: {version: "2.0", also: ["2.1", "2.1"]}')),
        NOTE,
        16,
    ),
    "an unknown pin with a file": (
        change(
            ('host.driver: {version: "1.0"}', "host.driver: {version: unknown, artifact: b.bin}")
        ),
        NOTE,
        9,
    ),
    "a pin that nothing reaches": (
        change(('host.bmc: {version: "2.0"}', 'host.bmc: {version: "3.0"}')),
        BLOCKS,
        16,
    ),
    "an order that no rule allows": (
        change(
            ('when: {host.bmc: ">=2"}', 'when: {host.driver: "==1.0"}'),
            ('needs: {host.driver: ">=1"}', 'needs: {host.bmc: "==1.0"}'),
            (
                'host.driver: {version: "1.0"}\n    requires',
                'host.driver: {version: "2.0"}\n    requires',
            ),
        )
        + f"  host.driver:\n    - {DRIVER_EDGE[:-1]}, requires: {{host.bmc: '>=2'}}}}\n",
        BLOCKS,
        13,
    ),
    "a release that supersedes itself": (
        change(("supersedes: old", "supersedes: new")),
        REFUSED,
        11,
    ),
    "a release that supersedes no release": (
        change(("supersedes: old", "supersedes: odl")),
        REFUSED,
        11,
    ),
    "a release with no profile in common": (
        BASE.replace("      node:", "      other:", 1),
        NOTE,
        11,
    ),
    "an edge that leads nowhere": (
        more_edges('{from: ["2.0"], to: "4.0", activates_by: bmc_reset}'),
        NOTE,
        29,
    ),
    # what is right and was once refused
    "a pin at a stop of a way": (
        change(('to: "2.0"', 'to: "3.0"')) + '      via: ["2.0"]\n',
        GOOD,
        0,
    ),
    "a pin that any version reaches": (change(('from: ["1.0"]', 'from: ["*"]')), GOOD, 0),
    "a pin in another spelling than its edge": (change(('to: "2.0"', 'to: "2"')), GOOD, 0),
    "a start in another spelling than the old pin": (
        change(('from: ["1.0"]', 'from: ["1"]')),
        GOOD,
        0,
    ),
    "a stop in another spelling": (
        change(('to: "2.0"', 'to: "3.0"')) + '      via: ["2.0.0"]\n',
        GOOD,
        0,
    ),
    "a downgrade with its mark": (
        more_edges('{from: ["3.0"], to: "2.0", downgrade: true, activates_by: bmc_reset}'),
        GOOD,
        0,
    ),
    "a condition that a later version meets": (
        change(
            (
                'host.driver: {version: "1.0"}\n    requires',
                'host.driver: {version: "2.0"}\n    requires',
            )
        )
        + f"      requires: {{host.driver: '>=2'}}\n  host.driver:\n    - {DRIVER_EDGE}\n",
        GOOD,
        0,
    ),
}
