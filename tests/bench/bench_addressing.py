"""Every address of 524,288 GPUs there and back: proof by exhaustion, and what it costs.

Three tiers of 64-port switches, two ports a cage: 128 pods of 8 scalable units of 64 nodes. Prints
what it ran on and, as the last line, JSON.
"""

from __future__ import annotations

import json
import platform
import sys
import time

from provisioner.integrations.places.gazetteer import Gazetteer
from provisioner.model.location import NodePlace
from provisioner.planning.places.address_plan import AddressPlan, Names, Widths, find_problems
from provisioner.planning.places.addressing import Addressing

PLAN = AddressPlan(
    tiers=3,
    pods=128,
    units=8,
    nodes=64,
    rails=8,
    spines=64,
    superspines=64,
    widths=Widths(pod=7, unit=6),
    names=Names(
        node="p{pod}-su{unit}-n{node:02}",
        leaf="leaf-p{pod}-su{unit}-r{number}",
        spine="spine-p{pod}-{number}",
        rack="p{pod}-su{unit}-rack{rack}",
    ),
)


def main() -> None:
    assert find_problems(PLAN) == (), find_problems(PLAN)
    addressing = Addressing(PLAN)
    gazetteer = Gazetteer(addressing)
    began = time.process_time()
    offsets: set[int] = set()
    ends = 0
    for pod in range(PLAN.pods):
        for unit in range(PLAN.units):
            for node in range(PLAN.nodes):
                for host in gazetteer.list_rails(NodePlace(pod, unit, node)):
                    for end in (host, host.other):
                        offset = addressing.compute_offset(end)
                        assert addressing.find_end(offset) == end
                        offsets.add(offset)
                        ends += 1
    assert len(offsets) == ends == 2 * PLAN.gpus
    switches = sum(PLAN.switches.values())
    for number in range(switches):
        switch = addressing.find_switch(number)
        assert switch is not None
        assert addressing.get_switch_number(switch) == number
    cpu_s = time.process_time() - began
    figures = {"gpus": PLAN.gpus, "addresses": ends, "switches": switches, "cpu_s": round(cpu_s, 1)}
    sys.stdout.write(
        f"{platform.machine()}, Python {platform.python_version()}\n"
        f"{PLAN.gpus} GPUs, {ends} addresses, {switches} switches: all distinct, all found again\n"
        f"{json.dumps(figures)}\n"
    )


if __name__ == "__main__":
    main()
