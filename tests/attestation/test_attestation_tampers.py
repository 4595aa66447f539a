"""Twenty-five ways to tamper with evidence: each is named, and none is proved.

The reports are re-made: simulated devices, signed by the simulator's own authority.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from attested_devices import (
    AUTHORITY,
    NONCE,
    VBIOS,
    Question,
    chain_of,
    flip,
    make_gpu,
    names_of,
    pem_of,
    write_vbios_rim,
)
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from provisioner.checks.attestation.device_reports import find_shared_identities
from provisioner.integrations.sim.hardware.device_authority import (
    DeviceAuthority,
    issue,
    make_key,
    sign_raw,
)
from provisioner.integrations.sim.hardware.simulated_tpm import make_values
from provisioner.model.certificate import Effect, Verdict

RECORD_AT = 37 + 8  # of the first measurement block in a 1.1 report
SIGNATURE = 96


def _report() -> bytes:
    return make_gpu().answer(NONCE)


def _bit_in_nonce() -> Question:
    return Question(report=flip(_report(), 4))


def _replayed() -> Question:
    return Question(report=make_gpu().answer(b"\x11" * 32))


def _bit_in_measurement() -> Question:
    return Question(report=flip(_report(), RECORD_AT + 20))


def _bit_in_signature() -> Question:
    return Question(report=flip(_report(), len(_report()) - 1))


def _r_and_s_swapped() -> Question:
    raw = _report()
    return Question(report=raw[:-96] + raw[-48:] + raw[-96:-48])


def _r_zero() -> Question:
    raw = _report()
    return Question(report=raw[:-96] + bytes(48) + raw[-48:])


def _other_driver() -> Question:
    return Question(report=_report().replace(b"590.12\0", b"590.13\0"))


def _truncated() -> Question:
    return Question(report=_report()[:2000])


def _long_record() -> Question:
    raw = _report()
    return Question(report=raw[:42] + b"\xff\xff\xff" + raw[45:])


def _opaque_overrun() -> Question:
    gpu = make_gpu()
    report = gpu.answer(NONCE)
    size = len(report) - SIGNATURE - sum(4 + len(v) for v in gpu.opaque.values())
    # the first field says that it has more bytes than there are; signed again, so only form fails
    covered = report[:size] + b"\x06\x00\xff\x7f" + report[size + 4 : -SIGNATURE]
    return Question(gpu=gpu, report=covered + sign_raw(gpu.device.holder.key, covered))


def _bytes_appended() -> Question:
    return Question(report=_report() + b"\0" * 8)


def _fewer_blocks_counted() -> Question:
    return Question(gpu=make_gpu(blocks_counted=63))


def _index_twice() -> Question:
    return Question(gpu=make_gpu(copies=2))


def _unsigned() -> Question:
    return Question(report=flip(_report(), 2))


def _labelled_1_1() -> Question:
    raw = make_gpu(version=0x12).answer(NONCE)
    return Question(report=raw.replace(b"\x12\xe0\x01\xff", b"\x11\xe0\x01\xff"))


def _labelled_1_2() -> Question:
    raw = _report()
    return Question(report=b"\x12" + raw[1:37] + b"\x12" + raw[38:])


def _chain_of_another() -> Question:
    return Question(chain=chain_of(make_gpu("A2").device))


def _intermediate_missing() -> Question:
    device = make_gpu().device
    holders = (device.holder, device.issuers[0], device.issuers[2])
    return Question(chain="".join(h.pem for h in holders).encode())


def _self_made_root() -> Question:
    maker = DeviceAuthority("tests/self-made", AUTHORITY.root_name)
    gpu = make_gpu()
    gpu.device = maker.make_device("GH100 A01 GSP", "A1")
    return Question(gpu=gpu)


def _root_swapped_for_self_made() -> Question:
    """Only the root is replaced, by one with the same name."""
    device = make_gpu().device
    false = DeviceAuthority("tests/self-made", AUTHORITY.root_name).root
    holders = (device.holder, *device.issuers[:2], false)
    return Question(chain="".join(h.pem for h in holders).encode())


def _weak_leaf(key: Any) -> Callable[[], Question]:
    def make() -> Question:
        device = make_gpu().device
        rom = device.issuers[0]
        leaf = issue(
            "weak", "GH100 A01 GSP FMC LF", rom, is_ca=False, serial="A1", fwid=device.fwid, key=key
        )
        chain = leaf.pem + "".join(h.pem for h in device.issuers)
        return Question(chain=chain.encode())

    return make


def _fwid_differs() -> Question:
    gpu = make_gpu()
    return Question(gpu=make_gpu(opaque={**gpu.opaque, 20: b"\x99" * 48}))


def _fwid_not_certified() -> Question:
    gpu = make_gpu()
    gpu.device = AUTHORITY.make_device("GH100 A01 GSP", "A9", fwid=None)
    return Question(gpu=gpu)


def _older_vbios() -> Question:
    """A genuine report of an old VBIOS with its genuine manifest: only the matrix objects."""
    return Question(versions={"vbios": "96.00.B0.00.01"})


def _edited_rim() -> Question:
    rims = Question().rims
    values = make_values("firmware")
    edited = rims[1][1].replace(values[2].hex().encode(), b"00" * 48)
    assert edited != rims[1][1]
    return Question(rims=[rims[0], (rims[1][0], edited)])


def _debug_root_rim() -> Question:
    debug = DeviceAuthority("tests/debug", "L1 Root CA Debug Only")
    rims = Question().rims
    return Question(rims=[rims[0], (rims[1][0], write_vbios_rim(by=debug))])


def _rim_of_another_sku() -> Question:
    board = "G520_0200_885"
    gpu = make_gpu()
    gpu = make_gpu(opaque={**gpu.opaque, 17: b"G520\0", 15: b"885\0"})
    assert board not in str(Question().rims[1][0])
    return Question(gpu=gpu)


def _renamed_rim_of_another_version() -> Question:
    """The file carries the right name, and inside the version of another SKU."""
    rims = Question().rims
    return Question(rims=[rims[0], (rims[1][0], write_vbios_rim("96.00.74.00.14"))])


def _second_genuine_rim() -> Question:
    admitted = frozenset({"ab" * 32})
    return Question(admitted=admitted)


def _rim_expired_when_admitted() -> Question:
    times = (datetime(2023, 1, 1, tzinfo=UTC), datetime(2025, 1, 1, tzinfo=UTC))
    signer = AUTHORITY.make_signer(*times)
    rims = Question().rims
    return Question(rims=[rims[0], (rims[1][0], write_vbios_rim(signer=signer))])


def _nvdec_unknown() -> Question:
    gpu = make_gpu()
    return Question(gpu=make_gpu(opaque={**gpu.opaque, 11: b"\0"}))


def _with_rim(change: Callable[[bytes], bytes]) -> Callable[[], Question]:
    def make() -> Question:
        rims = Question().rims
        return Question(rims=[rims[0], (rims[1][0], change(rims[1][1]))])

    return make


_BOMB = b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
_FILE = b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'


def _two_signatures(raw: bytes) -> bytes:
    start = raw.index(b"<ds:Signature ")
    end = raw.index(b"</ds:Signature>") + len(b"</ds:Signature>")
    return raw[:end] + raw[start:end] + raw[end:]


def _wrapped(raw: bytes) -> bytes:
    return raw.replace(b'Reference URI=""', b'Reference URI="#other"')


P256, RSA = ec.generate_private_key(ec.SECP256R1()), rsa.generate_private_key(65537, 2048)
# number and tamper, and the words that a finding begins with: a generated page shows them
TAMPERS: list[tuple[str, Callable[[], Question], str]] = [
    ("1 bit in the nonce", _bit_in_nonce, "nonce"),
    ("2 replayed", _replayed, "replayed"),
    ("3 bit in a measurement", _bit_in_measurement, "signature"),
    ("4 bit in the signature", _bit_in_signature, "signature"),
    ("4 r and s swapped", _r_and_s_swapped, "signature"),
    ("4 r is zero", _r_zero, "signature"),
    ("5 driver text changed", _other_driver, "signature"),
    ("6 truncated", _truncated, "malformed at byte"),
    ("6 record beyond the end", _long_record, "malformed at byte"),
    ("6 opaque field overruns", _opaque_overrun, "malformed at byte"),
    ("7 bytes appended", _bytes_appended, "trailing bytes"),
    ("8 fewer blocks counted", _fewer_blocks_counted, "malformed: blocks"),
    ("8 index twice", _index_twice, "malformed: blocks"),
    ("9 no signature asked", _unsigned, "unsigned"),
    ("10 1.2 labelled 1.1", _labelled_1_1, "version"),
    ("10 1.1 labelled 1.2", _labelled_1_2, "version"),
    ("11 chain of another GPU", _chain_of_another, "signature"),
    ("12 intermediate missing", _intermediate_missing, "chain"),
    ("13 self-made root", _self_made_root, "anchor"),
    ("13 only the root self-made", _root_swapped_for_self_made, "anchor"),
    ("15 leaf of P-256", _weak_leaf(P256), "algorithm"),
    ("15 leaf of RSA", _weak_leaf(RSA), "algorithm"),
    ("16 FWID differs", _fwid_differs, "fwid"),
    ("16 FWID not certified", _fwid_not_certified, "fwid"),
    ("17 older VBIOS", _older_vbios, "version is not the pin"),
    ("18 manifest edited", _edited_rim, "rim digest"),
    ("19 manifest of a debug root", _debug_root_rim, "rim anchor"),
    ("20 manifest of another SKU", _rim_of_another_sku, "rim is for 1010_0200_882, found G520"),
    ("20 renamed manifest", _renamed_rim_of_another_version, "rim is for 96.00.74.00.14, found"),
    ("21 second genuine manifest", _second_genuine_rim, "rim is not the admitted one (sha256)"),
    ("22 expired when admitted", _rim_expired_when_admitted, "rim expired"),
    ("23 NVDEC unknown", _nvdec_unknown, "nvdec status unknown"),
    ("25 entity bomb", _with_rim(lambda r: _BOMB + r), "rim structure: refused unread"),
    ("25 external entity", _with_rim(lambda r: _FILE + r), "rim structure: refused unread"),
    ("25 two signatures", _with_rim(_two_signatures), "rim structure"),
    ("25 wrapped reference", _with_rim(_wrapped), "rim structure"),
]


@pytest.mark.parametrize(("make", "says"), [t[1:] for t in TAMPERS], ids=[t[0] for t in TAMPERS])
def test_each_tamper_is_named_and_never_proved(make: Callable[[], Question], says: str) -> None:
    result = make().judge()

    assert result.verdict is not Verdict.PROVED
    assert any(str(f).startswith(says) and f.effect is not Effect.NOTES for f in result.findings), [
        str(f) for f in result.findings
    ]


def test_the_tampers_are_numbered_and_their_findings_are_words_of_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "attestation_findings.csv").read_text()
    numbers = list(dict.fromkeys(int(name.split()[0]) for name, _, _ in TAMPERS))
    words = {re.split(r"[:(0-9]| at byte", says)[0].strip() for _, _, says in TAMPERS}

    assert numbers == sorted(set(range(1, 26)) - {14, 24})  # accepted; a root that is left out
    assert sorted(word for word in words if f"`{word}" not in page) == []


def test_the_untouched_report_is_proved() -> None:
    result = Question().judge()

    assert (result.verdict, result.measurements.golden) == (Verdict.PROVED, 33)
    assert result.measurements.matched == 33  # index 35 is left out: the decoder is disabled
    assert names_of(result) == {"nvdec disabled", "revocation not looked at", "added anchor"}
    assert dict(result.versions) == {"driver": "590.12", "vbios": VBIOS}


def test_spdm_1_2_is_proved_as_well() -> None:
    assert Question(gpu=make_gpu(version=0x12)).judge().verdict is Verdict.PROVED


def test_1_two_nonces_differ_and_both_are_named() -> None:
    result = Question(report=flip(_report(), 4)).judge()

    assert names_of(result) >= {"nonce", "signature"}


def test_without_our_nonce_nothing_is_proved() -> None:
    assert Question(nonce=None).judge().verdict is Verdict.UNPROVED


def test_11_two_components_with_one_identity_contradict_each_other() -> None:
    one, other = Question().judge(), _chain_of_another().judge()
    again = Question(gpu=make_gpu("A2")).judge()

    judged = find_shared_identities([one, other, again])

    assert ["identity" in names_of(r) for r in judged] == [False, True, True]


def test_11_the_same_report_twice_is_one_report() -> None:
    judged = find_shared_identities([Question().judge(), Question().judge()])

    assert [r.verdict for r in judged] == [Verdict.PROVED, Verdict.PROVED]


@pytest.mark.parametrize("order", [(3, 2, 1, 0), (1, 3, 0, 2)])
def test_12_the_order_of_a_chain_does_not_matter(order: tuple[int, ...]) -> None:
    device = make_gpu().device
    holders = (device.holder, *device.issuers)

    result = Question(chain="".join(holders[i].pem for i in order).encode()).judge()

    assert result.verdict is Verdict.PROVED


def test_14_another_root_certificate_of_the_same_key_is_accepted() -> None:
    device = make_gpu().device
    key = make_key("tests/root")
    times = (datetime(2020, 1, 1, tzinfo=UTC), datetime(2090, 1, 1, tzinfo=UTC))
    other = issue("another", AUTHORITY.root_name, None, is_ca=True, times=times, key=key)
    holders = (device.holder, *device.issuers[:2], other)

    result = Question(chain="".join(h.pem for h in holders).encode()).judge()

    assert pem_of(other.certificate) != pem_of(AUTHORITY.root.certificate)
    assert result.verdict is Verdict.PROVED


def test_golden_values_of_an_untrusted_manifest_are_not_taken() -> None:
    result = _debug_root_rim().judge()

    assert result.measurements.golden == 21  # the driver's alone
