#!/usr/bin/env python3
"""A reference training step: each rank prints one line of times and checksums. Needs PyTorch only;
where there is none, `training_cublas.py` beside it takes its place.

Started once per GPU by mpirun or torchrun (`RANK`, `WORLD_SIZE` or Open MPI's variables), with
`MASTER_ADDR` and `MASTER_PORT`. Without a GPU it runs on the CPU over gloo, with a small model.

Phases, with fixed seeds and deterministic kernels:
* alone: every rank computes the same forward and backward passes, without communication, so every
  rank of one kind of GPU and software must print the same checksums, here and in the whole fleet;
* together: an expert-parallel model (two all-to-alls a layer, forward and backward) with its
  gradients summed over all ranks while backward goes on. Gradients are rounded to a grid on which
  every sum in float32 is exact, so that rings, trees and NVLS give the same bits: after each step
  all ranks have the same weights, and groups of one size the same loss curve;
* communication only, for the overlap; then blocks from rank to rank, for slow receivers.

A line: `TRAINING <JSON> <CRC-32 of the JSON>`; a line that is cut or mixed shows by its CRC.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import platform
import socket
import struct
import sys
import time
import zlib

sys.dont_write_bytecode = True  # beside it stands what was installed, and nothing else
from training_rank import place, say

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic cuBLAS

VERSION = 1  # of the workload: other arithmetic has another number
SEED = 20_24
LEARNING_RATE = 2.0**-3


try:
    import torch
    import torch.distributed as dist
except Exception as error:
    other = os.path.join(os.path.dirname(os.path.abspath(__file__)), "training_cublas.py")
    if os.path.exists(other):
        os.execv(sys.executable, [sys.executable, other, *sys.argv[1:]])
    say({"rank": place()[0], "missing": f"PyTorch: {error!r:.160}"})
    sys.exit(3)


class Job:
    def __init__(self, options: argparse.Namespace) -> None:
        self.rank, self.ranks, local = place()
        self.gpu = torch.cuda.is_available()
        if self.gpu:
            torch.cuda.set_device(local % torch.cuda.device_count())
            torch.backends.cuda.matmul.allow_tf32 = False
            torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        self.device = torch.device("cuda", torch.cuda.current_device()) if self.gpu else "cpu"
        self.backend = "nccl" if self.gpu else "gloo"
        if not self.gpu:
            torch.set_num_threads(1)  # the order of a sum depends on their number
        torch.use_deterministic_algorithms(True)
        self.type = torch.bfloat16 if self.gpu else torch.float32
        self.width = options.width or (4096 if self.gpu else 64)
        self.layers = options.layers
        # tokens of one rank: as many for each other rank, so that no router can be uneven
        each = options.tokens or (8192 if self.gpu else 64)
        self.tokens = max(1, each // self.ranks) * self.ranks
        self.steps = options.steps
        # multiples of `grid` up to 2**bits: their sum over all ranks stays below 2**23
        self.bits = 23 - (self.ranks - 1).bit_length()
        self.grid = 2.0**-self.bits
        self.flip = options.flip  # "RANK:STEP": one unit in the last place, to try the judges

    def draw(self, seed: int, *shape: int) -> torch.Tensor:
        """Draw on the CPU: the same bits whatever the device is."""
        generator = torch.Generator().manual_seed(SEED + seed)
        return torch.randn(*shape, generator=generator).to(self.device)

    def wait(self) -> None:
        if self.gpu:
            torch.cuda.synchronize()

    def key(self) -> dict:
        """Return what the bits depend on."""
        own = {
            "workload": VERSION,
            "torch": torch.__version__,
            "width": self.width,
            "layers": self.layers,
            "tokens": self.tokens,
            "steps": self.steps,
        }
        if not self.gpu:
            return {
                **own,
                "device": f"cpu {platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
            }
        return {
            **own,
            "device": torch.cuda.get_device_name(),
            "cuda": str(torch.version.cuda),
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),
            "cudnn": str(torch.backends.cudnn.version()),
        }


def checksum(values: list[torch.Tensor]) -> str:
    sum_ = 0
    for value in values:
        raw = value.detach().to("cpu").contiguous()
        sum_ = zlib.crc32(ctypes.string_at(raw.data_ptr(), raw.numel() * raw.element_size()), sum_)
    return f"{sum_:08x}"


def bits_of(loss: torch.Tensor) -> str:
    return struct.pack(">f", loss.item()).hex()


class Exchange(torch.autograd.Function):
    """Tokens to their experts, and their gradients back: an all-to-all each way."""

    @staticmethod
    def forward(_context, tokens):
        out = torch.empty_like(tokens)
        dist.all_to_all_single(out, tokens.contiguous())
        return out

    @staticmethod
    def backward(_context, gradient):
        out = torch.empty_like(gradient)
        dist.all_to_all_single(out, gradient.contiguous())
        return out


def weights(job: Job, expert_seed: int) -> list[torch.Tensor]:
    """Return for each layer: into, the own expert, out of it."""
    scale = job.width**-0.5
    drawn = []
    for layer in range(job.layers):
        for n, seed in enumerate((layer * 3, 1000 + expert_seed * 97 + layer, layer * 3 + 2)):
            weight = job.draw(seed, job.width, job.width) * scale
            weight.is_expert = n == 1
            drawn.append(weight.requires_grad_())
    return drawn


def run_forward(job: Job, drawn: list, x: torch.Tensor, *, exchanged: bool) -> torch.Tensor:
    y = x.to(job.type)
    for layer in range(job.layers):
        into, expert, out = (w.to(job.type) for w in drawn[layer * 3 : layer * 3 + 3])
        h = torch.relu(y @ into)
        h = Exchange.apply(h) if exchanged else h
        h = torch.relu(h @ expert)
        h = Exchange.apply(h) if exchanged else h
        y = y + h @ out
    return y.float()


def train(job: Job, *, together: bool) -> dict:
    """Return the loss and the checksum of each step, and its time in ms."""
    exchanged = together and job.ranks > 1
    drawn = weights(job, job.rank if together else 0)
    shared = [w for w in drawn if not w.is_expert]
    x = job.draw(5000 + (job.rank if together else 0), job.tokens, job.width)
    target = torch.tanh(x.roll(1, dims=1))
    pending: list = []

    def sum_up(weight: torch.Tensor) -> None:
        gradient = weight.grad
        gradient.div_(job.grid).round_().clamp_(-(2.0**job.bits), 2.0**job.bits).mul_(job.grid)
        if exchanged and not weight.is_expert:
            pending.append(dist.all_reduce(gradient, async_op=True))  # while backward goes on

    hooks = [w.register_post_accumulate_grad_hook(sum_up) for w in drawn]
    losses, sums, times, local = [], [], [], []
    for step in range(job.steps):
        if exchanged:
            dist.barrier()
        job.wait()
        began = time.perf_counter()
        for weight in drawn:
            weight.grad = None
        loss = (run_forward(job, drawn, x, exchanged=exchanged) - target).square().mean()
        (loss * job.width).backward()
        for work in pending:
            work.wait()
        pending.clear()
        job.wait()
        with torch.no_grad():
            for weight in drawn:
                count = job.ranks if exchanged and not weight.is_expert else 1
                weight -= weight.grad * (LEARNING_RATE / count)
            if job.flip == f"{job.rank}:{step}":
                drawn[0].view(-1).view(torch.int32)[7] += 1
        job.wait()
        times.append((time.perf_counter() - began) * 1e3)
        if step == 0:
            continue  # buffers, kernels and connections are set up in it
        losses.append(bits_of(loss))
        sums.append(checksum(shared if together else drawn))
        local.append(loss.item())
    for hook in hooks:
        hook.remove()
    return {"losses": losses, "sums": sums, "ms": times[1:], "first": local[0], "last": local[-1]}


def mean_loss(job: Job, losses: list[str]) -> list[str]:
    """Return the mean loss of all ranks at each step, summed in the order of ranks."""
    own = [struct.unpack(">f", bytes.fromhex(x))[0] for x in losses]
    sent = torch.tensor(own, dtype=torch.float64, device=job.device)
    listed = [torch.empty_like(sent) for _ in range(job.ranks)]
    dist.all_gather(listed, sent)
    rows = [one.tolist() for one in listed]
    return [struct.pack(">d", sum(column) / job.ranks).hex() for column in zip(*rows, strict=True)]


def time_communication(job: Job) -> float:
    """Return the ms that a step's communication takes by itself."""
    tokens = torch.zeros(job.tokens, job.width, dtype=job.type, device=job.device)
    gradient = torch.zeros(job.width, job.width, device=job.device)
    spent = []
    for _ in range(4):
        dist.barrier()
        job.wait()
        began = time.perf_counter()
        for _ in range(job.layers):
            for _ in range(4):
                dist.all_to_all_single(torch.empty_like(tokens), tokens)
            dist.all_reduce(gradient)
            dist.all_reduce(gradient)
        job.wait()
        spent.append((time.perf_counter() - began) * 1e3)
    return min(spent[1:])


def time_receiving(job: Job, stride: int) -> dict[str, float]:
    """Return distance -> the ms until a block of the rank that far behind has arrived.

    Who receives slowly is late at every distance; who sends slowly makes another one late at each.
    """
    out: dict[str, float] = {}
    count = (1 << 26 if job.gpu else 1 << 14) // 4
    sent = torch.zeros(count, device=job.device)
    arrived = torch.empty_like(sent)
    distances = list(range(stride, job.ranks, stride))[:4]
    for distance in distances:
        ends = (job.rank + distance) % job.ranks, (job.rank - distance) % job.ranks
        spent = []
        for _ in range(4):
            dist.barrier()
            job.wait()
            began = time.perf_counter()
            work = dist.batch_isend_irecv(
                [dist.P2POp(dist.isend, sent, ends[0]), dist.P2POp(dist.irecv, arrived, ends[1])]
            )
            for one in reversed(work):  # the received one first, where they are apart
                one.wait()
                if one is work[-1]:
                    job.wait()
                    spent.append((time.perf_counter() - began) * 1e3)
        out[str(distance)] = round(min(spent[1:]), 3)
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=0)
    parser.add_argument("--flip", default="", help="RANK:STEP: plant one wrong bit")
    job = Job(parser.parse_args())
    os.environ.setdefault("RANK", str(job.rank))
    os.environ.setdefault("WORLD_SIZE", str(job.ranks))
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "18598")
    dist.init_process_group(job.backend)
    key = job.key()
    head = {"rank": job.rank, "ranks": job.ranks, "host": socket.gethostname()}
    say({**head, "key": key, "backend": dist.get_backend(), "began": True})
    alone = train(job, together=False)
    together = train(job, together=True)
    curve = mean_loss(job, together["losses"])
    alone_ms, together_ms = ([round(x, 3) for x in p["ms"]] for p in (alone, together))
    here = torch.cuda.device_count() if job.gpu else int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    row = {
        **head,
        "alone": [f"{a}{b}" for a, b in zip(alone["losses"], alone["sums"], strict=True)],
        "alone_ms": alone_ms,
        "curve": curve,
        "sums": together["sums"],
        "step_ms": together_ms,
        "comm_ms": round(time_communication(job), 3) if job.ranks > 1 else 0.0,
        "receive_ms": time_receiving(job, here if here < job.ranks else 1),
        "ended": True,
    }
    say(row)
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
