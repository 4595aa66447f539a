"""A daemon opens what its settings allow, not the 1,024 files of a shell or a unit of systemd."""

from __future__ import annotations

import subprocess
import sys

import pytest

SAYS = """
import resource, sys
soft, hard = (int(a) for a in sys.argv[1:])
from provisioner.runtime import event_loop
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
print(event_loop.find_open_files_limit())
event_loop.raise_open_files()
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(
    ("soft", "hard", "opened"), [(256, 4096, 4096), (1024, 1024, 1024), (128, 20_000, 20_000)]
)
def test_the_soft_limit_is_raised_to_the_hard_one_within_reason(
    soft: int, hard: int, opened: int
) -> None:
    said = subprocess.run(
        [sys.executable, "-c", SAYS, str(soft), str(hard)],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip

    assert said.stdout.split() == [str(opened)] * 2
