"""Matrix files with one fault in an edge each: name -> text, verdict, line."""

from __future__ import annotations

from treacherous_base import BLOCKS, NOTE, REFUSED, File, change, more_edges, on_edge

EDGES: dict[str, File] = {
    # edges: spelling, direction, circles
    "one edge twice": (
        more_edges('{from: ["1.0"], to: "2.0", activates_by: cold_boot}'),
        REFUSED,
        29,
    ),
    "one edge in two spellings": (
        more_edges('{from: ["1.0.0"], to: "2.0", activates_by: cold_boot}'),
        REFUSED,
        29,
    ),
    "one edge with another end": (
        more_edges('{from: ["1.0"], to: "2", activates_by: cold_boot}'),
        REFUSED,
        29,
    ),
    "a start twice": (change(('from: ["1.0"]', 'from: ["1.0", "1.0"]')), REFUSED, 25),
    "a start in two spellings": (change(('from: ["1.0"]', 'from: ["1.0", "1"]')), REFUSED, 25),
    "an edge to itself": (change(('to: "2.0"', 'to: "1.0"')), REFUSED, 26),
    "an edge to itself in another spelling": (change(('to: "2.0"', 'to: "1"')), REFUSED, 26),
    "a way through its end": (on_edge('via: ["2"]'), REFUSED, 29),
    "a way through its start": (on_edge('via: ["1"]'), REFUSED, 29),
    "a way through one stop twice": (on_edge('via: ["1.5", "1.5.0"]'), REFUSED, 29),
    "a circle": (more_edges('{from: ["2.0"], to: "1.0", activates_by: bmc_reset}'), REFUSED, 24),
    "a circle by spelling": (
        more_edges('{from: ["2"], to: "1", activates_by: bmc_reset}'),
        REFUSED,
        24,
    ),
    "a circle through a stop": (
        more_edges('{from: ["2.0.0"], to: "1.5", via: ["1"], activates_by: bmc_reset}'),
        REFUSED,
        24,
    ),
    "a downgrade without its mark": (
        more_edges('{from: ["3.0"], to: "2.0", activates_by: bmc_reset}'),
        BLOCKS,
        29,
    ),
    "a downgrade on the way": (on_edge('via: ["3.0"]'), BLOCKS, 25),
    "a downgrade into the first stop": (
        more_edges('{from: ["3.0"], to: "4.0", via: ["2.5"], activates_by: bmc_reset}'),
        BLOCKS,
        29,
    ),
    "an upgrade marked as a downgrade": (on_edge("downgrade: true"), NOTE, 29),
    "a way back over a one-way edge": (
        on_edge("one_way: true")
        + '    - {from: ["2.0"], to: "1.0", downgrade: true, activates_by: bmc_reset}\n',
        BLOCKS,
        30,
    ),
    "any version beside another": (change(('from: ["1.0"]', 'from: ["*", "1.0"]')), NOTE, 25),
    "an end that is any version": (change(('to: "2.0"', 'to: "*"')), REFUSED, 26),
    "a start that is a pattern": (change(('from: ["1.0"]', 'from: ["1.*"]')), REFUSED, 25),
    "a stop that is any version": (on_edge('via: ["*"]'), REFUSED, 29),
    "a start without a list": (change(('from: ["1.0"]', "from: 1.0")), REFUSED, 25),
    "an edge that starts nowhere": (change(('from: ["1.0"]', "from: []")), REFUSED, 25),
    "an end that no BMC prints": (change(('to: "2.0"', "to: two")), BLOCKS, 26),
    "a stop that no BMC prints": (on_edge("via: [between]"), BLOCKS, 29),
    "a start that no BMC prints": (change(('from: ["1.0"]', 'from: ["1.0", factory]')), NOTE, 25),
    # edges: conditions and what they bring
    "a condition that contradicts itself": (
        on_edge('requires: {host.driver: ">=2,<1"}'),
        BLOCKS,
        29,
    ),
    "a condition between two neighbours": (on_edge('requires: {host.driver: ">2,<2"}'), BLOCKS, 29),
    "a condition that no version in the file meets": (
        on_edge('requires: {host.driver: ">=7"}'),
        BLOCKS,
        29,
    ),
    "a condition on its own later version": (on_edge('requires: {host.bmc: ">=2"}'), BLOCKS, 29),
    "a condition of a component on itself": (
        on_edge("requires: {host.driver: =host.driver}"),
        BLOCKS,
        29,
    ),
    "a condition on a text": (on_edge('requires: {host.driver: ">=tomorrow"}'), BLOCKS, 29),
    "an order of what has none": (on_edge('requires: {nic.config: ">=RA1.2"}'), BLOCKS, 29),
    "a condition on a kind that does not exist": (
        on_edge('requires: {host.boss: ">=1"}'),
        REFUSED,
        29,
    ),
    "a condition equal to a version": (on_edge('requires: {host.driver: "=1.0"}'), REFUSED, 29),
    "an edge that brings itself": (on_edge('carries: {host.bmc: "2.0"}'), REFUSED, 29),
    "an edge that brings what is not pinned": (
        on_edge('carries: {host.driver: "9.0"}'),
        BLOCKS,
        29,
    ),
    "an edge that brings a text": (on_edge("carries: {host.driver: some}"), BLOCKS, 29),
    "an edge that brings an unknown version": (
        on_edge("carries: {host.driver: unknown}"),
        REFUSED,
        29,
    ),
    "a duration in minutes": (on_edge("duration_s: 10m"), REFUSED, 29),
    "a duration below nothing": (on_edge("duration_s: -1"), REFUSED, 29),
    "a mark that is no word": (on_edge("downgrade: perhaps"), REFUSED, 29),
}
