"""An operating system for tests only: the third one behind the `Switch` port, in one folder.

It was added by following docs/new-switch-os.md. No switch in the world runs it.
"""

from bench_os.bench_box import BenchBox
from bench_os.bench_switch import FACTS, BenchSwitch
from provisioner.runtime.switch_systems import SwitchSystem

__all__ = ["SYSTEM", "BenchBox"]

SYSTEM = SwitchSystem(
    FACTS,
    lambda name, address, wires, clock, _settings: BenchSwitch(name, address, wires.shell, clock),
)
