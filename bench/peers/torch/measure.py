"""What the PyTorch scripts share: the timing of bench/internal/measure, in Python.

Rank 0 prints a line of JSON for each case, under the name that the Go program
gives the same case. PEER_BACKEND is "gloo", "mpi" or "" (one process), PEER_TIME
the seconds to spend on a case, PEER_MATCH a part of the names to measure, and
PEER_DTYPE the type that new tensors and modules have.
"""
import gc
import json
import os
import time

import torch
import torch.distributed as dist

torch.set_num_threads(1)
torch.manual_seed(1234)
DTYPE = getattr(torch, os.environ.get("PEER_DTYPE", "float32"))
torch.set_default_dtype(DTYPE)
BACKEND = os.environ.get("PEER_BACKEND", "")
BUDGET = float(os.environ.get("PEER_TIME", "1"))
MATCH = os.environ.get("PEER_MATCH", "")
if BACKEND:
    dist.init_process_group(BACKEND)
    RANK, SIZE = dist.get_rank(), dist.get_world_size()
else:
    RANK, SIZE = 0, 1


def mesh():
    from torch.distributed.device_mesh import init_device_mesh
    return init_device_mesh("cpu", (SIZE,))


def wait(x):
    """The result of an asynchronous collective."""
    return x.wait() if hasattr(x, "wait") else x


def wants(*names):
    return any(MATCH in n for n in names)


def _slowest(values):
    t = torch.tensor(values, dtype=torch.float64)
    if SIZE == 1:
        return t
    all = [torch.zeros_like(t) for _ in range(SIZE)]
    dist.all_gather(all, t)
    return torch.stack(all).max(dim=0).values


def _barrier():
    if SIZE > 1:
        dist.barrier()


def case(names, f, each=1, best=False, **figures):
    """Times f and prints it under each of the names; f does each operators.

    With best the fastest call counts, not the median."""
    names = [n for n in ([names] if isinstance(names, str) else names) if MATCH in n]
    if not names:
        return
    clock = time.perf_counter_ns
    gc.collect()
    try:
        budget = BUDGET * 1e9
        for _ in range(4):
            _barrier()
            start = clock()
            f()
            once = _slowest([clock() - start]).item()
            if once >= budget:
                break
        calls = int(min(max(budget / 2 / once, 20), 20000))
        if 20 * once > 10 * budget:
            calls = int(max(10 * budget / once, 2))
        times = []
        for _ in range(calls):
            _barrier()
            start = clock()
            f()
            times.append(clock() - start)
        times = _slowest(times).sort().values
        line = dict(np=SIZE, ns=times[calls // 2].item(), min_ns=times[0].item(), p10_ns=times[calls // 10].item(), calls=calls)
        if best:
            line["ns"] = line["min_ns"]
        if each > 1:
            line["op_ns"] = line["ns"] / each
        line.update(figures)
    except (RuntimeError, NotImplementedError) as e:
        line = dict(np=SIZE, unsupported=str(e).strip().split("\n")[0][:200])
    if RANK == 0:
        for n in names:
            print(json.dumps(dict(name=n, **line)), flush=True)


def end():
    if BACKEND:
        dist.barrier()
        dist.destroy_process_group()
