"""The training step without PyTorch, run: on stand-ins of CUDA's runtime, cuBLAS and NCCL for CPUs.

The stand-ins (`cuda_standin.c`) compute truly, and each rank sums in another order. It never ran on
a GPU: a long test compiles against NVIDIA's own headers and loads its libraries (`CUDA_PACKAGES`:
a folder of PyPI's nvidia-cublas-cu12, -nccl-cu12, -cuda-runtime-cu12, -cuda-nvcc-cu12 and
-cuda-cccl-cu12; 0.9 GB).
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from provisioner.checks.check import CheckContext
from provisioner.checks.fabric.training_step import Judged, judge_training, read_training

ROOT = Path(__file__).parents[2]
FILES = ROOT / "ansible/roles/checks/files"
PROGRAM = FILES / "training_cublas.py"
CONTEXT = CheckContext(gpu_model="H100", profile="hgx-h100-bf3")
NODES = ("n0", "n1")
COMPILER = shutil.which("gcc") or shutil.which("cc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler is installed")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cuda")
    first = folder / "libcudart.so.13"
    source = Path(__file__).parent / "cuda_standin.c"
    assert COMPILER is not None
    subprocess.run([COMPILER, "-O2", "-shared", "-fPIC", "-o", first, source], check=True)
    for name in ("libcublas.so.13", "libnccl.so.2"):
        (folder / name).symlink_to(first)
    return folder


def run_ranks(
    libraries: Path,
    folder: Path,
    *options: str,
    program: Path = PROGRAM,
    ranks: int = 4,
    more: Mapping[str, str] | None = None,
) -> str:
    """What all ranks print, two on each of two hosts."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    started = [
        subprocess.Popen(
            [sys.executable, program, "--width", "16", "--tokens", "32", "--steps", "6", *options],
            stdout=subprocess.PIPE,
            text=True,
            env={
                "PATH": os.environ["PATH"],
                "LD_LIBRARY_PATH": str(libraries),
                "STANDIN_FOLDER": str(folder),
                "RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "LOCAL_RANK": str(rank % 2),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                **(more or {}),
            },
        )
        for rank in range(ranks)
    ]
    return "".join(process.communicate(timeout=300)[0] for process in started)


def judged(text: str, nodes: Sequence[str] = NODES) -> Judged:
    return judge_training(read_training(text), CONTEXT, nodes, None)


@needs_compiler
def test_four_ranks_compute_the_same_bits_in_two_runs(libraries: Path, tmp_path: Path) -> None:
    first, second = (judged(run_ranks(libraries, tmp_path)) for _ in range(2))

    assert not first.wrong
    assert not first.unknown
    assert "stand-in CPU, cuBLAS 120903, 4 ranks" in first.words
    bits = {k: v for k, v in first.measured.items() if k.startswith(("training_a", "training_c"))}
    assert len(bits) == 2
    assert {k: second.measured[k] for k in bits} == bits
    assert {k.split("/")[0] for k in first.measured} >= {"training_step_ms", "training_receive_ms"}


@needs_compiler
def test_one_unit_in_the_last_place_names_its_rank_and_step(
    libraries: Path, tmp_path: Path
) -> None:
    found = judged(run_ranks(libraries, tmp_path, "--flip", "2:3"))

    named = [(f.part, f.detail) for f in found.wrong]
    assert ("n1", "GPU 2 (rank 2) computes wrong bits from step 3 on") in named
    assert {part for part, _ in named} == {"n1"}
    assert not found.measured


@needs_compiler
def test_a_host_without_pytorch_runs_it_in_the_place_of_the_other(
    libraries: Path, tmp_path: Path
) -> None:
    torch = tmp_path / "torch.py"
    torch.write_text("raise ImportError('none here')\n")

    text = run_ranks(
        libraries,
        tmp_path,
        program=FILES / "training_step.py",
        ranks=2,
        more={"PYTHONPATH": str(tmp_path)},
    )

    run = read_training(text)
    assert {begun.key["workload"] for begun in run.begun.values()} == {"cublas-1"}
    assert sorted(run.done) == [0, 1]


@needs_compiler
def test_a_run_of_both_kinds_of_ranks_is_unknown_and_accuses_nobody(
    libraries: Path, tmp_path: Path
) -> None:
    """Where one host has PyTorch and the other has not: its ranks wait for others in vain."""
    golden = (ROOT / "tests/golden/training/good.txt").read_text().splitlines(keepends=True)
    other = "".join(x for x in golden if re.search(r'"rank":[01],', x))
    own = run_ranks(libraries, tmp_path).splitlines(keepends=True)
    text = other + "".join(x for x in own if re.search(r'"rank":[23],', x))

    found = judged(text)

    assert not found.wrong
    assert not found.slow
    assert "its ranks run different things" in found.unknown[0]


@needs_compiler
def test_a_host_without_a_gpu_says_so(libraries: Path, tmp_path: Path) -> None:
    text = run_ranks(libraries, tmp_path, ranks=1, more={"STANDIN_NO_GPU": "1"})

    assert "no CUDA-capable device is detected" in read_training(text).missing
    assert judged(text, ()).unknown
    assert not judged(text, ()).wrong


@pytest.mark.skipif(Path("/usr/local/cuda/lib64/libcublas.so").exists(), reason="it is there")
def test_a_host_without_the_libraries_says_which(tmp_path: Path) -> None:
    text = run_ranks(tmp_path, tmp_path, ranks=1)

    assert re.match(r"the CUDA toolkit or NCCL: lib\w+\.so\.13: ", read_training(text).missing)


PACKAGES = os.environ.get("CUDA_PACKAGES", "")
HEADERS = """
#include <cuda_runtime_api.h>
#include <cublas_v2.h>
#include <nccl.h>
#include <stddef.h>
_Static_assert(cudaMemcpyHostToDevice == TO_DEVICE && cudaMemcpyDeviceToHost == TO_HOST, "");
_Static_assert(cudaStreamNonBlocking == NON_BLOCKING && cudaEventDisableTiming == NO_TIMING, "");
_Static_assert(CUBLAS_OP_N == PLAIN && CUBLAS_OP_T == TURNED, "");
_Static_assert(CUBLAS_TF32_TENSOR_OP_MATH == TF32, "");
_Static_assert(ncclFloat32 == FLOAT32 && ncclFloat64 == FLOAT64 && ncclSum == SUM, "");
_Static_assert(sizeof(ncclUniqueId) == 128 && offsetof(struct cudaDeviceProp, name) == 0, "");
_Static_assert(sizeof(struct cudaDeviceProp) < 16384, "");
void *called[] = {CALLED};
"""


@pytest.mark.long
@needs_compiler
@pytest.mark.skipif(not PACKAGES, reason="CUDA_PACKAGES names no folder of NVIDIA's packages")
def test_nvidias_own_headers_and_libraries_have_all_that_it_calls(tmp_path: Path) -> None:
    text = PROGRAM.read_text()
    called = sorted(set(re.findall(r"\b((?:cuda[A-Z]|cublas[A-Z]|nccl[A-Z])\w+)(?=\(|\")", text)))
    values = dict(
        pair
        for names, numbers in re.findall(r"^([A-Z0-9_, ]+) = ([0-9, ]+)  #", text, re.MULTILINE)
        for pair in zip(names.split(", "), numbers.split(", "), strict=True)
    )
    source = tmp_path / "abi.c"
    source.write_text(HEADERS.replace("CALLED", ", ".join(f"(void *){name}" for name in called)))
    folders = sorted({p.parent for p in Path(PACKAGES).rglob("*.so*")})
    includes = [f"-I{p}" for p in Path(PACKAGES).rglob("include") if p.is_dir()]
    defined = [f"-D{k}={v}" for k, v in values.items()]
    found = [str(next(Path(PACKAGES).rglob(n))) for n in ("libcudart.so.12", "libcublas.so.12")]
    found += [str(next(Path(PACKAGES).rglob("libnccl.so.2")))]

    assert COMPILER is not None
    out = ["-shared", "-fPIC", "-Wl,--no-undefined", "-o", str(tmp_path / "abi.so")]
    subprocess.run([COMPILER, *defined, *includes, str(source), *out, *found], check=True)
    run = run_ranks(Path(":".join(map(str, folders))), tmp_path, ranks=1)

    assert {"cublasSgemm_v2", "ncclAllReduce", "cudaMalloc"} <= set(called)
    assert "TF32" in values
    assert re.match(r"cudaGetDeviceCount: \w+", read_training(run).missing) or run.count("ended")
