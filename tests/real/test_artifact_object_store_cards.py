"""A card asks a bucket with two slashes and gets nothing. The page's nginx makes one of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from buckets import ANOTHER, US, before
from card_bench import BFB, BUNDLE, carded, updated
from card_bench import NAME as BUNDLE_NAME
from nginx_server import MISSING as NO_NGINX
from nginx_server import NGINX, Nginx, nginx
from object_store import ABSENT, DOMAIN, MISSING, ObjectStore, ask
from outside_files import BODY, NAME, OTHER, PINNED, reason, run
from test_doctor import doctor

from provisioner.execution.artifacts.outside_artifacts import OutsideArtifacts
from provisioner.model.operation import ActionStatus
from provisioner.model.outcome import Reason

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(ABSENT), reason=MISSING),
    pytest.mark.filterwarnings("ignore"),
]


ROOT = Path(__file__).parents[2]


@pytest.fixture
def front(store: ObjectStore, tmp_path: Path) -> Iterator[Nginx]:
    """The page's nginx before that bucket."""
    if NGINX is None:
        pytest.skip(NO_NGINX)
    home = tmp_path / "front"
    home.mkdir()
    with nginx(home, more=before(store)) as running:
        yield running


def test_two_slashes_are_another_bucket_to_the_store_and_its_cards_are_told_nothing(
    store: ObjectStore, url: str, cache: Path
) -> None:
    straight = ask(store.port, "GET", f"/firmware/{BUNDLE_NAME}")
    doubled = ask(store.port, "GET", f"//firmware/{BUNDLE_NAME}")
    assert (straight.status, straight.body) == (200, BFB)
    assert (doubled.status, b"<Code>NoSuchBucket</Code>" in doubled.body) == (404, True)
    earlier = len(store.asked("GET"))

    with carded() as site:
        told, running, ledger = updated(site, url, cache)

    assert [b.reason for b in told] == [Reason.MISSING_ARTIFACT]
    assert f"//firmware/{BUNDLE_NAME}" in told[0].detail
    assert "give --artifact-url an nginx" in told[0].unblock
    assert (running == BUNDLE, ledger) == (False, [])
    ours = [path for _, path, _ in store.asked("GET")[earlier:]]
    assert set(ours) == {f"/firmware/{BUNDLE_NAME}"}  # no card came


def test_with_the_bucket_in_the_hosts_name_two_slashes_are_another_key(store: ObjectStore) -> None:
    def answered(path: str) -> tuple[int, bytes]:
        named = {"Host": f"firmware.{DOMAIN}"}
        told = ask(store.port, "GET", path, headers=named)
        return told.status, told.body if told.status == 200 else b""

    store.put("firmware", "v.bin", b"one slash")
    assert answered("/v.bin") == (200, b"one slash")
    assert answered("//v.bin") == (403, b"")
    store.put("firmware", "/v.bin", b"two slashes")
    assert answered("/v.bin") == (200, b"one slash")
    assert answered("//v.bin") == (200, b"two slashes")


def test_a_card_installs_a_bundle_of_the_bucket_through_the_nginx_before_it(
    store: ObjectStore, front: Nginx, cache: Path
) -> None:
    earlier = len(store.asked("GET"))

    with carded() as site:
        told, running, ledger = updated(site, f"{front.origin}/firmware", cache)

    assert told == ()
    assert (running, ledger) == (BUNDLE, [ActionStatus.CONFIRMED])
    assert front.asked("GET")[-1] == f"//firmware/{BUNDLE_NAME}"  # the card's way to ask
    paths = {path for _, path, _ in store.asked("GET")[earlier:]}
    assert paths == {f"/firmware/{BUNDLE_NAME}"}


def test_through_nginx_all_is_as_of_the_bucket_and_nginx_says_who_may_read(
    store: ObjectStore, front: Nginx, cache: Path
) -> None:
    store.put("firmware", "y.bin", BODY)

    async def scenario(files: OutsideArtifacts) -> None:
        assert await files.offer_file(NAME, PINNED) is None  # a space, a plus and an accent in it
        assert await files.confirm_offer(NAME, PINNED, doubled=True) is None
        assert await files.offer_file("y.bin", PINNED) is None
        store.put("firmware", "y.bin", OTHER)
        assert reason(await files.confirm_offer("y.bin", PINNED)) is Reason.BUSY
        assert reason(await files.offer_file("absent.bin", PINNED)) is Reason.NOT_OFFERED

    run(scenario, cache, f"{front.origin}/firmware")

    assert ask(front.port, "GET", "//firmware/y.bin").status == 200
    assert ask(front.port, "PUT", "/firmware/y.bin", b"malware").status == 403
    earlier = len(store.asked("GET"))
    assert ask(front.port, "GET", "/firmware/y.bin", source=ANOTHER).status == 403
    assert len(store.asked("GET")) == earlier  # nginx refused: the bucket sees nginx's address
    seen = {path for peer, path, _ in store.asked("HEAD") if peer == US and "3.3.0" in path}
    assert any("3.3.0+" in path for path in seen)  # nginx does not quote a plus


def test_the_doctor_asks_for_a_bundle_as_a_card_will(
    url: str, front: Nginx, tmp_path: Path
) -> None:
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text(
        "edges:\n  bluefield.bundle:\n    - from: [2.9.0-90]\n      to: 2.10.0-147_25.01\n"
        f"      artifact: {BUNDLE_NAME}\n      sha256: {hashlib.sha256(BFB).hexdigest()}\n"
    )
    matrix = ["--matrix", str(ROOT / "firmware_matrix.yaml"), "--matrix", str(overlay)]
    _, direct = doctor(tmp_path, *matrix, "--artifact-url", url)
    _, through = doctor(tmp_path, *matrix, "--artifact-url", f"{front.origin}/firmware")

    assert direct["artifacts", BUNDLE_NAME]["standing"] == "bad"
    assert f"//firmware/{BUNDLE_NAME}" in direct["artifacts", BUNDLE_NAME]["detail"]
    assert through["artifacts", BUNDLE_NAME]["standing"] == "good"
