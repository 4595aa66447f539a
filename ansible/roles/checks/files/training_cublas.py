#!/usr/bin/env python3
"""The training step for hosts without PyTorch: cuBLAS and NCCL of the CUDA toolkit, by ctypes.

`training_step.py` starts it in its own place, on every rank alike. Its lines have the same form;
its bits are others (`workload`), and are compared with its own kind only:
* alone: every rank multiplies the same matrices in TF32, forward and backward, and must get the
  same losses and weights bit by bit, in one run and in the whole fleet with the same versions;
* together: two all-to-alls forward and two backward (experts), gradients summed over all ranks
  while backward goes on. Gradients are rounded to a grid on which each sum in float32 is exact, so
  weights and loss curve are comparable between groups of one size;
* times are compared, never bit by bit.

cuBLAS gives the same bits for one version and kind of GPU while one stream is active (its manual,
2.1.4); only NCCL's stream runs beside it here. Values and names are those of driver_types.h,
cublas_api.h and nccl.h.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import os
import socket
import struct
import sys
import time
import zlib
from ctypes import byref, c_char, c_char_p, c_float, c_int, c_size_t, c_void_p

sys.dont_write_bytecode = True  # beside it stands what was installed, and nothing else
from training_rank import place, say

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

VERSION = "cublas-1"  # of the workload: other arithmetic has another name
SEED = 20_24
LEARNING_RATE = 2.0**-3
MEET_S = 120.0  # ranks of 64 hosts start within seconds of each other
LIBRARIES = {"cudart": "libcudart.so", "cublas": "libcublas.so", "nccl": "libnccl.so"}
RELEASES = (".13", ".12", "")  # of CUDA; its runtime and cuBLAS are of one
FOLDERS = ("", "/usr/local/cuda/lib64/", "/usr/local/cuda/targets/x86_64-linux/lib/")
TO_DEVICE, TO_HOST = 1, 2  # cudaMemcpyKind
NON_BLOCKING, NO_TIMING = 1, 2  # cudaStreamNonBlocking, cudaEventDisableTiming
PLAIN, TURNED = 0, 1  # CUBLAS_OP_N, CUBLAS_OP_T
TF32 = 3  # CUBLAS_TF32_TENSOR_OP_MATH
FLOAT32, FLOAT64, SUM = 7, 8, 0  # ncclFloat32, ncclFloat64, ncclSum


class Missing(Exception):
    """Why it cannot run here."""


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", c_char * 128)]


SIGNATURES = {
    "cublasSgemm_v2": [
        *(c_void_p, *[c_int] * 5, c_void_p, c_void_p, c_int, c_void_p, c_int),
        *(c_void_p, c_void_p, c_int),
    ],
    "cublasSaxpy_v2": [c_void_p, c_int, c_void_p, c_void_p, c_int, c_void_p, c_int],
    "cublasSdot_v2": [c_void_p, c_int, c_void_p, c_int, c_void_p, c_int, c_void_p],
    "cublasIsamax_v2": [c_void_p, c_int, c_void_p, c_int, c_void_p],
    "ncclCommInitRank": [c_void_p, c_int, UniqueId, c_int],
    "ncclAllReduce": [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p],
    "ncclAllGather": [c_void_p, c_void_p, c_size_t, c_int, c_void_p, c_void_p],
    "ncclSend": [c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p],
    "ncclRecv": [c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p],
    "cudaMalloc": [c_void_p, c_size_t],
    "cudaMemcpy": [c_void_p, c_void_p, c_size_t, c_int],
    "cudaMemset": [c_void_p, c_int, c_size_t],
    "cudaEventRecord": [c_void_p, c_void_p],
    "cudaStreamWaitEvent": [c_void_p, c_void_p, ctypes.c_uint],
    "cublasSetStream_v2": [c_void_p, c_void_p],
    "cublasSetMathMode": [c_void_p, c_int],
    "cublasGetVersion_v2": [c_void_p, c_void_p],
    "ncclCommDestroy": [c_void_p],
}


def _load(name: str) -> ctypes.CDLL:
    for folder in FOLDERS[:-1]:
        try:
            return ctypes.CDLL(folder + name)
        except OSError:
            continue
    return ctypes.CDLL(FOLDERS[-1] + name)


class Library:
    """Functions of CUDA's runtime, cuBLAS and NCCL; one that fails raises with its own words."""

    def __init__(self) -> None:
        self._loaded = {}
        lost = ""
        for release in RELEASES:
            endings = {"cudart": release, "cublas": release, "nccl": ".2"}
            try:
                for kind, name in LIBRARIES.items():
                    self._loaded[kind] = _load(name + endings[kind])
                return
            except OSError as error:
                lost = lost or f"{error!s:.120}".rpartition("/")[2]
        raise Missing(f"the CUDA toolkit or NCCL: {lost}")

    def __getattr__(self, name: str):
        kind = "cublas" if name.startswith("cublas") else name[:4].replace("cuda", "cudart")
        try:
            function = getattr(self._loaded[kind], name)
        except AttributeError:
            raise Missing(f"{name} in {kind}") from None
        function.argtypes = SIGNATURES.get(name)

        def call(*arguments) -> None:
            code = function(*arguments)
            if code:
                raise Missing(f"{name}: {self._words(kind, code)}")

        setattr(self, name, call)
        return call

    def _words(self, kind: str, code: int) -> str:
        names = {"cudart": "cudaGetErrorString", "nccl": "ncclGetErrorString"}
        if kind not in names:
            return f"status {code}"
        told = getattr(self._loaded[kind], names[kind])
        told.restype = c_char_p
        return (told(code) or b"").decode("ascii", "replace")


class Job:
    def __init__(self, options: argparse.Namespace) -> None:
        self.rank, self.ranks, local = place()
        self.width = options.width or 8192
        # as many columns for each rank, so that no router can be uneven
        self.tokens = max(1, (options.tokens or 8192) // self.ranks) * self.ranks
        self.steps = options.steps
        self.flip = options.flip  # "RANK:STEP": one unit in the last place, to try the judges
        # multiples of 2**-bits below 1: their sum over all ranks is exact in 24 bits
        self.bits = 23 - (self.ranks - 1).bit_length()
        self.lib = Library()
        count = c_int()
        self.lib.cudaGetDeviceCount(byref(count))
        if count.value < 1:
            raise Missing("a GPU: CUDA's runtime counts none")
        self.here = count.value
        self.lib.cudaSetDevice(c_int(local % count.value))
        self.stream, self.comm_stream = c_void_p(), c_void_p()
        for stream in (self.stream, self.comm_stream):
            self.lib.cudaStreamCreateWithFlags(byref(stream), NON_BLOCKING)
        self.event = c_void_p()
        self.lib.cudaEventCreateWithFlags(byref(self.event), NO_TIMING)
        self.blas = c_void_p()
        self.lib.cublasCreate_v2(byref(self.blas))
        self.lib.cublasSetStream_v2(self.blas, self.stream)
        self.lib.cublasSetMathMode(self.blas, TF32)
        self.comm = c_void_p()

    def key(self) -> dict:
        """Return what the bits depend on."""
        text = ctypes.create_string_buffer(16384)  # cudaDeviceProp begins with its name
        device, cuda, cublas, nccl = c_int(), c_int(), c_int(), c_int()
        self.lib.cudaGetDevice(byref(device))
        self.lib.cudaGetDeviceProperties(text, device)
        self.lib.cudaRuntimeGetVersion(byref(cuda))
        self.lib.cublasGetVersion_v2(self.blas, byref(cublas))
        self.lib.ncclGetVersion(byref(nccl))
        return {
            "workload": VERSION,
            "device": text.value.decode("ascii", "replace")[:128],
            "cuda": f"{cuda.value // 1000}.{cuda.value % 1000 // 10}",
            "cublas": str(cublas.value),
            "nccl": str(nccl.value),
            "width": self.width,
            "tokens": self.tokens,
            "steps": self.steps,
        }

    def meet(self) -> None:
        """Get NCCL's id from rank 0, which waits at MASTER_ADDR, and begin its communicator."""
        unique = UniqueId()
        where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        until = time.monotonic() + MEET_S
        if self.rank == 0:
            self.lib.ncclGetUniqueId(byref(unique))
            _hand_out(where, bytes(unique), self.ranks - 1, until)
        else:
            ctypes.memmove(byref(unique), _fetch(where, ctypes.sizeof(unique), until), 128)
        self.lib.ncclCommInitRank(byref(self.comm), self.ranks, unique, self.rank)

    # --- memory of the GPU, float32 ---

    def room(self, count: int) -> c_void_p:
        pointer = c_void_p()
        self.lib.cudaMalloc(byref(pointer), count * 4)
        self.lib.cudaMemset(pointer, 0, count * 4)
        return pointer

    def load(self, pointer: c_void_p, values: bytes) -> None:
        self.lib.cudaMemcpy(pointer, values, len(values), TO_DEVICE)

    def fetch(self, pointer: c_void_p, count: int) -> bytes:
        kept = ctypes.create_string_buffer(count * 4)
        self.lib.cudaMemcpy(kept, pointer, count * 4, TO_HOST)
        return kept.raw

    def draw(self, seed: int, count: int) -> c_void_p:
        """Draw on the CPU: numbers of both signs between a half and one, the same on every host."""
        raw = hashlib.shake_128(f"{SEED + seed}".encode()).digest(count * 4)
        kept = int.from_bytes(struct.pack("<I", 0x807FFFFF) * count, "little")
        exponent = int.from_bytes(struct.pack("<I", 0x3F000000) * count, "little")
        value = int.from_bytes(raw, "little") & kept | exponent
        pointer = self.room(count)
        self.load(pointer, value.to_bytes(count * 4, "little"))
        return pointer

    # --- arithmetic; matrices are columns of tokens ---

    def wait(self) -> None:
        self.lib.cudaDeviceSynchronize()

    def multiply(self, out, a, b, turn_a, turn_b, columns, inner, scale=1.0) -> None:
        """out[width, columns] = scale * a * b, either turned; all have `width` rows."""
        w = self.width
        self.lib.cublasSgemm_v2(
            self.blas, turn_a, turn_b, w, columns, inner, byref(c_float(scale)), a, w, b,
            w, byref(c_float(0.0)), out, w,
        )  # fmt: skip

    def add(self, into, factor: float, values, count: int) -> None:
        factor = byref(c_float(factor))
        self.lib.cublasSaxpy_v2(self.blas, count, factor, values, 1, into, 1)

    def exchange(self, out, sent) -> None:
        """Send each rank its columns."""
        each = self.width * self.tokens // self.ranks
        self.lib.ncclGroupStart()
        for peer in range(self.ranks):
            at = peer * each * 4
            to = peer, self.comm, self.stream
            self.lib.ncclSend(c_void_p(sent.value + at), each, FLOAT32, *to)
            self.lib.ncclRecv(c_void_p(out.value + at), each, FLOAT32, *to)
        self.lib.ncclGroupEnd()

    def sum_up(self, out, values, count: int, stream=None) -> None:
        self.lib.ncclAllReduce(
            values, out, count, FLOAT32, SUM, self.comm, stream or self.comm_stream
        )

    def follow(self, later, earlier) -> None:
        """Have one stream go on after what the other one has to do so far."""
        self.lib.cudaEventRecord(self.event, earlier)
        self.lib.cudaStreamWaitEvent(later, self.event, 0)


def _hand_out(where: tuple[str, int], unique: bytes, others: int, until: float) -> None:
    with socket.create_server(where, backlog=256) as server:
        served = set()
        while len(served) < others:
            server.settimeout(max(0.1, until - time.monotonic()))
            try:
                client, _ = server.accept()
            except OSError:
                lost = others - len(served)
                raise Missing(f"{lost} ranks, which did not come in {MEET_S:.0f} s") from None
            with client:
                client.settimeout(5.0)
                try:
                    word = client.recv(64).split()
                    if len(word) == 2 and word[0] == VERSION.encode() and word[1].isdigit():
                        client.sendall(unique)
                        served.add(word[1])
                except OSError:
                    continue  # it comes again


def _fetch(where: tuple[str, int], size: int, until: float) -> bytes:
    while time.monotonic() < until:
        try:
            with socket.create_connection(where, timeout=5.0) as server:
                server.sendall(f"{VERSION} {place()[0]}".encode())
                told = b""
                while len(told) < size and (more := server.recv(size)):
                    told += more
                if len(told) == size:
                    return told
        except OSError:
            pass
        time.sleep(0.2)
    raise Missing(f"an answer of rank 0 at {where[0]} within {MEET_S:.0f} s")


class Model:
    """The weights into an expert, of it, and out of it; and what a step needs beside them."""

    def __init__(self, job: Job, *, together: bool) -> None:
        self.job = job
        self.exchanged = together and job.ranks > 1
        size, tokens = job.width * job.width, job.width * job.tokens
        own = job.rank if together else 0
        self.size, self.columns = size, tokens
        self.weights = [self._scaled(seed, size) for seed in (0, 1000 + own, 2)]
        self.x = job.draw(5000 + own, tokens)
        self.target = job.draw(7000 + own, tokens)
        self.gradients = [job.room(size) for _ in self.weights]
        self.summed = [job.room(size) for _ in self.weights]
        self.ones = job.room(size)
        job.load(self.ones, struct.pack("<f", 1.0) * size)
        self.buffers = [job.room(tokens) for _ in range(9)]

    def _scaled(self, seed: int, size: int) -> c_void_p:
        drawn, weight = self.job.draw(seed, size), self.job.room(size)
        self.job.add(weight, self.job.width**-0.5, drawn, size)
        return weight

    def _move(self, out, values):
        """Return where the tokens are after an all-to-all, if there is one."""
        if not self.exchanged:
            return values
        self.job.exchange(out, values)
        return out

    def _finish(self, number: int, left, right) -> None:
        """Get a weight's gradient, rounded by adding and taking away a number of that unit."""
        job, gradient = self.job, self.gradients[number]
        job.multiply(gradient, left, right, PLAIN, TURNED, job.width, job.tokens, 1 / job.tokens)
        big = 1.5 * 2.0 ** (23 - job.bits)
        job.add(gradient, big, self.ones, self.size)
        job.add(gradient, -big, self.ones, self.size)
        if self.exchanged and number != 1:
            job.follow(job.comm_stream, job.stream)
            job.sum_up(self.summed[number], gradient, self.size)

    def step(self) -> None:
        job, (first, expert, last) = self.job, self.weights
        into, arrived, out, returned, error, sent, flowing, before, behind = self.buffers
        t, w = job.tokens, job.width
        job.multiply(into, first, self.x, PLAIN, PLAIN, t, w)
        arrived = self._move(arrived, into)
        job.multiply(out, expert, arrived, PLAIN, PLAIN, t, w)
        returned = self._move(returned, out)
        job.multiply(error, last, returned, PLAIN, PLAIN, t, w)
        job.add(error, -1.0, self.target, self.columns)
        self._finish(2, error, returned)
        job.multiply(sent, last, error, TURNED, PLAIN, t, w)
        flowing = self._move(flowing, sent)
        self._finish(1, flowing, arrived)
        job.multiply(before, expert, flowing, TURNED, PLAIN, t, w)
        self._finish(0, self._move(behind, before), self.x)
        job.follow(job.stream, job.comm_stream)
        for number, weight in enumerate(self.weights):
            summed = self.exchanged and number != 1
            factor = -LEARNING_RATE / (job.ranks if summed else 1)
            job.add(weight, factor, (self.summed if summed else self.gradients)[number], self.size)

    def loss(self) -> float:
        value, error = c_float(), self.buffers[4]
        self.job.lib.cublasSdot_v2(self.job.blas, self.columns, error, 1, error, 1, byref(value))
        return value.value / self.job.tokens / self.job.width

    def require_exact(self) -> None:
        """Refuse gradients of one and more: their sums would depend on the order."""
        for gradient in self.gradients:
            at = c_int()
            self.job.lib.cublasIsamax_v2(self.job.blas, self.size, gradient, 1, byref(at))
            place = c_void_p(gradient.value + (at.value - 1) * 4)
            (value,) = struct.unpack("<f", self.job.fetch(place, 1))
            if not abs(value) < 1:
                raise Missing(f"gradients below one: {value} is not, so no sum is exact")


def train(job: Job, *, together: bool) -> dict:
    """Return the loss and the checksum of each step, and its time in ms."""
    model = Model(job, together=together)
    shared = [w for n, w in enumerate(model.weights) if n != 1 or not together]
    losses, sums, times = [], [], []
    for step in range(job.steps):
        if together:
            barrier(job)
        job.wait()
        began = time.perf_counter()
        model.step()
        job.wait()
        spent = (time.perf_counter() - began) * 1e3
        if job.flip == f"{job.rank}:{step}":
            place = c_void_p(model.weights[0].value + 28)
            bits = struct.unpack("<I", job.fetch(place, 1))[0] + 1
            job.load(place, struct.pack("<I", bits))
        if step == 0:
            continue  # kernels and connections are set up in it
        model.require_exact()
        times.append(round(spent, 3))
        losses.append(struct.pack(">f", model.loss()).hex())
        sum_ = 0
        for weight in shared:
            sum_ = zlib.crc32(job.fetch(weight, model.size), sum_)
        sums.append(f"{sum_:08x}")
    return {"losses": losses, "sums": sums, "ms": times}


def barrier(job: Job) -> None:
    one = job.room(1) if not hasattr(job, "_one") else job._one
    job._one = one
    job.sum_up(one, one, 1, job.stream)
    job.wait()


def mean_loss(job: Job, losses: list[str]) -> list[str]:
    """Return the mean loss of all ranks at each step, summed in the order of ranks."""
    own = struct.pack(
        f"<{len(losses)}d", *(struct.unpack(">f", bytes.fromhex(x))[0] for x in losses)
    )
    sent, listed = job.room(2 * len(losses)), job.room(2 * len(losses) * job.ranks)
    job.load(sent, own)
    job.lib.ncclAllGather(sent, listed, len(losses), FLOAT64, job.comm, job.stream)
    job.wait()
    told = job.fetch(listed, 2 * len(losses) * job.ranks)
    values = struct.unpack(f"<{len(losses) * job.ranks}d", told)
    rows = [values[n * len(losses) : (n + 1) * len(losses)] for n in range(job.ranks)]
    return [struct.pack(">d", sum(column) / job.ranks).hex() for column in zip(*rows, strict=True)]


def time_it(job: Job, work) -> float:
    spent = []
    for _ in range(4):
        barrier(job)
        began = time.perf_counter()
        work()
        job.wait()
        spent.append((time.perf_counter() - began) * 1e3)
    return round(min(spent[1:]), 3)


def time_communication(job: Job) -> float:
    """Return the ms that a step's communication takes by itself."""
    tokens, size = job.width * job.tokens, job.width * job.width
    sent, out, gradient = job.room(tokens), job.room(tokens), job.room(size)

    def work() -> None:
        for _ in range(4):
            job.exchange(out, sent)
        for _ in range(2):
            job.sum_up(gradient, gradient, size, job.stream)

    return time_it(job, work)


def time_receiving(job: Job) -> dict[str, float]:
    """Return distance -> the ms until a block of the rank that far behind has arrived."""
    stride = job.here if job.here < job.ranks else 1
    count = min(1 << 24, job.width * job.tokens)
    sent, arrived = job.room(count), job.room(count)
    out = {}
    for distance in list(range(stride, job.ranks, stride))[:4]:

        def work(distance: int = distance) -> None:
            job.lib.ncclGroupStart()
            ends = (job.rank + distance) % job.ranks, (job.rank - distance) % job.ranks
            job.lib.ncclSend(sent, count, FLOAT32, ends[0], job.comm, job.stream)
            job.lib.ncclRecv(arrived, count, FLOAT32, ends[1], job.comm, job.stream)
            job.lib.ncclGroupEnd()

        out[str(distance)] = time_it(job, work)
    return out


def run(job: Job) -> None:
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "18598")
    head = {"rank": job.rank, "ranks": job.ranks, "host": socket.gethostname()}
    say({**head, "key": job.key(), "backend": "nccl", "began": True})
    job.meet()
    alone = train(job, together=False)
    together = train(job, together=True)
    row = {
        **head,
        "alone": [f"{a}{b}" for a, b in zip(alone["losses"], alone["sums"], strict=True)],
        "alone_ms": alone["ms"],
        "curve": mean_loss(job, together["losses"]),
        "sums": together["sums"],
        "step_ms": together["ms"],
        "comm_ms": time_communication(job) if job.ranks > 1 else 0.0,
        "receive_ms": time_receiving(job),
        "ended": True,
    }
    say(row)
    barrier(job)
    job.lib.ncclCommDestroy(job.comm)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--width", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=0)
    parser.add_argument("--flip", default="", help="RANK:STEP: plant one wrong bit")
    try:
        run(Job(parser.parse_args()))
    except Missing as error:
        say({"rank": place()[0], "missing": f"{error!s:.160}"})
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
