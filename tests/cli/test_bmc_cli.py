"""`provisioner bmc dry-run` over HTTP: only reads reach the BMC; the last line is the result."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from program import Done, run

TREES = Path(__file__).parents[1] / "recorded" / "writes"


class Served:
    """A reduced tree behind plain HTTP; `others` are requests that were no reads."""

    def __init__(self, tree: dict[str, Any]) -> None:
        self.others: list[str] = []
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = tree.get(self.path.rstrip("/"))
                body = json.dumps(found or {}).encode()
                self.send_response(200 if found is not None else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                served.others.append(f"{self.command} {self.path}")
                self.send_error(405)

            do_PATCH = do_DELETE = do_PUT = do_POST  # noqa: N815 (names of the library)

            def log_message(self, *_: Any) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def bmc(request: pytest.FixtureRequest) -> Iterator[Served]:
    tree = json.loads((TREES / f"{request.param}.json").read_text())["tree"]
    served = Served(tree)
    thread = threading.Thread(target=served.server.serve_forever, daemon=True)
    thread.start()
    yield served
    served.server.shutdown()
    served.server.server_close()
    thread.join()


def dry_run(bmc: Served, words: list[str], cwd: Path) -> tuple[Done, dict[str, Any]]:
    done = run(["bmc", "dry-run", bmc.url, *words, "--json"], cwd)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return done, result


@pytest.mark.parametrize("bmc", ["lenovo_xcc"], indirect=True)
def test_requests_are_printed_and_not_sent(bmc: Served, tmp_path: Path) -> None:
    image = ["--image", "http://192.0.2.9/maintenance.iso"]

    done, result = dry_run(bmc, ["boot-maintenance", *image], tmp_path)

    assert done.returncode == 0
    assert result["refused"] is None
    assert [w["method"] for w in result["writes"]] == ["PATCH", "PATCH", "POST", "POST"]
    assert set(result["writes"][0]) == {"method", "path", "headers", "body", "upload"}
    assert bmc.others == []


@pytest.mark.parametrize("bmc", ["dgx_h100"], indirect=True)
def test_a_refusal_is_the_last_line_and_exit_code_1(bmc: Served, tmp_path: Path) -> None:
    done, result = dry_run(bmc, ["ac-cycle"], tmp_path)

    assert done.returncode == 1
    assert result["writes"] == []
    assert set(result["refused"]) == {"reason", "detail", "unblock"}


@pytest.mark.parametrize("bmc", ["bluefield3"], indirect=True)
def test_the_password_of_the_administrator_is_changed_where_no_user_is_named(
    bmc: Served, tmp_path: Path
) -> None:
    _, result = dry_run(bmc, ["change-password"], tmp_path)

    assert [(w["path"].rpartition("/")[2], w["body"]) for w in result["writes"]] == [
        ("root", {"Password": "***"})
    ]


def test_a_bmc_that_does_not_answer_is_a_refusal(tmp_path: Path) -> None:
    done = run(["bmc", "dry-run", "http://127.0.0.1:1", "power", "on", "--json"], tmp_path)

    assert done.returncode == 1
    assert json.loads(done.stdout.splitlines()[-1])["refused"]["reason"] == "unreachable"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["explode"], "no such action"),
        (["power", "sideways"], "no such state"),
        (["push", "host.bios"], "no such file"),
        (["push", "host.nothing", "--file", "x"], "no such component kind"),
        (["boot-maintenance"], "needs it"),
        (["subscribe"], "needs it"),
    ],
)
def test_wrong_input_is_named_before_the_bmc_is_asked(
    words: list[str], named: str, tmp_path: Path
) -> None:
    done = run(["bmc", "dry-run", "http://127.0.0.1:1", *words], tmp_path)

    assert done.returncode == 2
    assert named in done.stderr
