"""A signature covers the whole certificate, and outlives the key that made it."""

from __future__ import annotations

from provisioner.model.certificate import Certificate
from provisioner.store import (
    MasterKey,
    exchange_signing_key,
    open_signer,
    public_keys,
    verify,
)

CERTIFICATE = Certificate(
    id="c1", node="n1", release="r", profile="p", serials=("s",), versions=(), boot_id="b",
    location="l", ports=(), report_digest="d", matrix_digest="m", issued_at=1, expires_at=9,
)  # fmt: skip


def test_a_signed_certificate_verifies_and_any_change_breaks_it(run):
    async def scenario(store):
        key = MasterKey.generate()
        signer = await open_signer(store, key, 1.0)
        again = await open_signer(store, key, 2.0)
        return signer.sign(CERTIFICATE), again.sign(CERTIFICATE), await public_keys(store)

    signed, again, keys = run(scenario)
    changes = {
        "node": "n2", "expires_at": 99.0, "serials": ("s", "t"), "key_id": "unknown",
        "signature": "", "boot_id": "other",
    }  # fmt: skip

    assert signed == again
    assert verify(signed, keys)
    assert not verify(CERTIFICATE, keys)
    assert not verify(signed, {})
    assert not verify(signed.model_copy(update={"signature": "zz" * 64}), keys)
    assert not verify(signed.model_copy(update={"signature": "\udc80"}), keys)
    assert not verify(signed, {signed.key_id: b"short"})
    assert {f: verify(signed.model_copy(update={f: v}), keys) for f, v in changes.items()} == (
        dict.fromkeys(changes, False)
    )


def test_certificates_of_an_exchanged_signing_key_still_verify(run):
    async def scenario(store):
        key = MasterKey.generate()
        old = (await open_signer(store, key, 1.0)).sign(CERTIFICATE)
        new = (await exchange_signing_key(store, key, 2.0)).sign(CERTIFICATE)
        newest = await open_signer(store, key, 3.0)
        keys = await public_keys(store)
        return old, new, newest.key_id, keys

    old, new, newest, keys = run(scenario)

    assert (verify(old, keys), verify(new, keys), len(keys)) == (True, True, 2)
    assert (new.key_id, old.key_id != newest) == (newest, True)
