"""Quotes of a TPM with their event logs: the simulator's, and one of swtpm if it is installed."""

from __future__ import annotations

import hashlib
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from provisioner.checks.attestation.event_log import parse_event_log
from provisioner.checks.attestation.tpm_quotes import (
    QuoteEvidence,
    QuoteExpectation,
    parse_quote,
    verify_quote,
)
from provisioner.integrations.sim.hardware.simulated_tpm import SimulatedTpm
from provisioner.model.certificate import Attestation, Unacceptable, Verdict

NONCE = b"\x5a" * 32


def enrolled(tpm: SimulatedTpm, **changes: object) -> QuoteExpectation:
    """Return the expectation after the enrolment of this TPM."""
    spki = tpm.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    values = tpm.read_pcrs()
    return QuoteExpectation(
        **{
            "nonce": NONCE,
            "key_sha256": hashlib.sha256(spki).hexdigest(),
            "reset_count": 1,
            "secure_boot": True,
            "golden_pcrs": tuple((n, (values[n].hex(),)) for n in tpm.pcrs),
            "reference": "witness",
            **changes,
        }
    )


def answer(tpm: SimulatedTpm, nonce: bytes = NONCE) -> QuoteEvidence:
    quote, signature = tpm.quote(nonce)
    return QuoteEvidence(quote, signature, tpm.key_pem, tpm.write_log())


def says(result: Attestation, name: str) -> bool:
    return any(str(f).startswith(name) for f in result.findings)


def test_a_quote_with_its_log_is_proved() -> None:
    tpm = SimulatedTpm("board")

    result = verify_quote(answer(tpm), enrolled(tpm))

    assert (result.verdict, result.findings) == (Verdict.PROVED, ())
    assert (result.measurements.golden, result.measurements.matched) == (4, 4)


def test_an_edited_log_does_not_replay() -> None:
    tpm = SimulatedTpm("board")
    evidence = answer(tpm)
    tpm.events[1] = (2, 0x80000008, b"\1" * 32, b"other")
    edited = QuoteEvidence(evidence.quote, evidence.signature, evidence.key, tpm.write_log())

    result = verify_quote(edited, enrolled(SimulatedTpm("board")))

    assert result.verdict is Verdict.CONTRADICTED
    assert says(result, "log does not replay")


def test_a_variable_that_was_edited_beside_its_digest_is_noticed() -> None:
    """The replay uses digests alone, so that edited data would pass it."""
    tpm = SimulatedTpm("board")
    evidence = answer(tpm)
    pcr, kind, digest, data = tpm.events[3]
    tpm.events[3] = (pcr, kind, digest, data[:-1] + b"\0")
    edited = QuoteEvidence(evidence.quote, evidence.signature, evidence.key, tpm.write_log())

    assert says(verify_quote(edited, enrolled(SimulatedTpm("board"))), "log does not replay")


def test_a_key_that_was_not_enrolled_is_named() -> None:
    result = verify_quote(answer(SimulatedTpm("other")), enrolled(SimulatedTpm("board")))

    assert result.verdict is Verdict.CONTRADICTED
    assert says(result, "ak")


def test_without_an_enrolment_nothing_is_proved() -> None:
    tpm = SimulatedTpm("board")

    assert verify_quote(answer(tpm), enrolled(tpm, key_sha256="")).verdict is Verdict.UNPROVED


def test_a_reset_that_we_did_not_make_is_named() -> None:
    tpm = SimulatedTpm("board", reset_count=3)

    assert says(verify_quote(answer(tpm), enrolled(tpm)), "reset we did not make")


def test_secure_boot_that_the_bmc_reports_and_the_log_denies_is_a_contradiction() -> None:
    tpm = SimulatedTpm("board", secure_boot=False)

    result = verify_quote(answer(tpm), enrolled(tpm))

    assert result.verdict is Verdict.CONTRADICTED
    assert says(result, "contradiction: the BMC reports Secure Boot on, PCR 7 says off")


def test_a_replayed_quote_and_a_changed_one_are_told_apart() -> None:
    tpm = SimulatedTpm("board")
    old = answer(tpm, b"\x11" * 32)
    changed = QuoteEvidence(
        old.quote.replace(b"\x11" * 32, NONCE), old.signature, old.key, old.event_log
    )

    assert says(verify_quote(old, enrolled(tpm)), "replayed")
    assert says(verify_quote(changed, enrolled(tpm)), "signature")


def test_another_pcr_is_named_with_golden_and_measured_value() -> None:
    tpm = SimulatedTpm("board")
    expected = enrolled(tpm)
    tpm.measure(4, 0x80000003, b"another boot loader")

    result = verify_quote(answer(tpm), expected)

    (mismatch,) = result.mismatches
    assert (mismatch.index, mismatch.measured) == (4, tpm.read_pcrs()[4].hex())


@given(raw=st.binary(max_size=400), keep=st.integers(0, 145))
def test_no_bytes_are_parsed_beyond_their_end(raw: bytes, keep: int) -> None:
    tpm = SimulatedTpm("board")
    for parse, genuine in ((parse_quote, answer(tpm).quote), (parse_event_log, tpm.write_log())):
        for content in (raw, genuine[:keep] + raw):
            try:
                parse(content)
            except Unacceptable:
                continue


def find_ports() -> tuple[int, int]:
    """Return two neighbouring ports that are free: swtpm's, and the one of its control channel."""
    while True:
        with socket.socket() as one, socket.socket() as next_one:
            one.bind(("127.0.0.1", 0))
            port = int(one.getsockname()[1])
            try:
                next_one.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port, port + 1


def start_swtpm(state: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start a TPM in software, on other ports if another program took these meanwhile."""
    options = f"--tpm2 --tpmstate dir={state} --flags not-need-init,startup-clear"
    for _ in range(5):
        port, control = find_ports()
        ports = f"--server type=tcp,port={port} --ctrl type=tcp,port={control}"
        server = subprocess.Popen(["swtpm", "socket", *options.split(), *ports.split()])
        while server.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", control)) == 0:
                    return server, port
            time.sleep(0.1)
    raise AssertionError("swtpm does not start")


@contextmanager
def run_swtpm(folder: Path) -> Iterator[Callable[..., None]]:
    """Run a TPM in software; the value runs one of tpm2-tools against it in this folder."""
    state = folder / "state"
    state.mkdir()
    server, port = start_swtpm(state)
    environment = {"TPM2TOOLS_TCTI": f"swtpm:host=127.0.0.1,port={port}", "PATH": "/usr/bin"}

    def run(line: str) -> None:
        done = subprocess.run(line.split(), cwd=folder, env=environment, capture_output=True)
        assert done.returncode == 0, (line, done.stderr.decode(errors="replace"))

    try:
        yield run
    finally:
        server.terminate()
        server.wait(timeout=10)


@pytest.mark.skipif(
    not (shutil.which("swtpm") and shutil.which("tpm2_quote")), reason="swtpm is not installed"
)
def test_a_quote_of_swtpm_verifies(tmp_path: Path) -> None:
    with run_swtpm(tmp_path) as run:
        run("tpm2_createek -c ek.ctx -G ecc -u ek.pub")
        run("tpm2_flushcontext -t")
        run("tpm2_createak -C ek.ctx -c ak.ctx -G ecc -g sha256 -s ecdsa -u ak.pem -f pem")
        run("tpm2_flushcontext -t")
        asked = f"-c ak.ctx -l sha256:0,2,4,7 -q {NONCE.hex()}"
        run(f"tpm2_quote {asked} -m quote -s signature -f plain")
    quote, signature = (tmp_path / "quote").read_bytes(), (tmp_path / "signature").read_bytes()
    key = (tmp_path / "ak.pem").read_bytes()

    parsed = parse_quote(quote)
    result = verify_quote(
        QuoteEvidence(quote, signature, key), QuoteExpectation(NONCE, key_sha256="")
    )

    assert (parsed.nonce, parsed.pcrs) == (NONCE, (0, 2, 4, 7))
    assert parsed.pcr_digest == hashlib.sha256(bytes(128)).digest()  # nothing was measured yet
    assert not says(result, "signature")
    assert not says(result, "replayed")
