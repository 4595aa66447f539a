"""A small share of `make soak NAME=fuzz` in every run: no judge and no parser crashes or passes
garbage.
"""

from __future__ import annotations

import pytest
from attempts import HEAD, SAMPLES, attempt, make_head, seeds
from hypothesis import given
from hypothesis import strategies as st

from provisioner import checks


def test_every_recorded_output_is_attempted_by_its_own_judge() -> None:
    tried = [attempt(seed) for seed in seeds()]

    assert len(tried) > 2 * len(checks.ALL)


def test_every_sample_is_attempted_by_every_judge() -> None:
    files = sorted(SAMPLES.glob("*/*")) if SAMPLES.is_dir() else []
    if not files:
        pytest.skip("there are no samples here: set PROVISIONER_SAMPLES")

    for file in (f for f in files if f.is_file() and f.stat().st_size < 60_000):
        for number in range(len(checks.ALL)):
            attempt(make_head(number, 0, 0) + file.read_bytes())


@given(
    head=st.binary(min_size=HEAD, max_size=HEAD),
    body=st.binary(max_size=600) | st.text(max_size=300).map(lambda text: text.encode("utf-8")),
)
def test_arbitrary_bytes_never_crash_and_never_pass(head: bytes, body: bytes) -> None:
    attempt(head + body)


@given(which=st.integers(0, len(checks.ALL) - 1), at=st.integers(0, 255), data=st.data())
def test_a_piece_of_a_good_output_that_is_replaced_never_crashes(
    which: int, at: int, data: st.DataObject
) -> None:
    piece = data.draw(
        st.sampled_from(
            ["", "N/A", "-1", "nan", "1e999", "9" * 400, "{", "}}", "[[", "\x00", "\x1b[2J"]
        )
        | st.text(max_size=40)
    )

    attempt(make_head(which, 1, at) + piece.encode())
