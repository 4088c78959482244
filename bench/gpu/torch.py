"""What bench/gpu measures, with PyTorch on a GPU: a line of JSON for each case, under
the same name. Its argument divides the sizes."""
import json
import sys
import time

import torch
import torch.nn.functional as F

if not torch.cuda.is_available():
    sys.exit("torch.cuda.is_available() is false")
torch.manual_seed(1)
torch.backends.cuda.matmul.allow_tf32 = False  # as cuBLAS's own default, which gorun uses
scale = int(sys.argv[1])
dev = torch.device("cuda")


def case(name, run, memory=False):
    """Prints the least time of several runs, after two that are not counted."""
    least = None
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    try:
        for i in range(8):
            torch.cuda.synchronize()
            start = time.perf_counter_ns()
            run()
            torch.cuda.synchronize()
            ms = (time.perf_counter_ns() - start) / 1e6
            if i > 1 and (least is None or ms < least):
                least = ms
    except torch.cuda.OutOfMemoryError:
        print(name + ": out of memory", file=sys.stderr)
        return
    line = dict(name=name, ms=least)
    if memory:
        line["extra_mib"] = (torch.cuda.max_memory_allocated() - before) / 2**20
    print(json.dumps(line), flush=True)


def both(params, f):
    def run():
        for p in params:
            p.grad = None
        f().backward()
    return run


tokens, classes, width = 8192 // scale, 256000 // scale, 2304 // min(scale, 16)
y = torch.zeros(tokens, dtype=torch.int64, device=dev)
for dtype in (torch.bfloat16, torch.float32):
    h = torch.randn(tokens, width, device=dev, dtype=dtype).requires_grad_(True)
    w = (torch.randn(classes, width, device=dev, dtype=dtype) * 0.02).requires_grad_(True)
    name = str(dtype).removeprefix("torch.")
    case(f"linear + cross-entropy, fused, {name}", both([h, w], lambda: F.cross_entropy(F.linear(h, w), y)), memory=True)
    del h, w
    torch.cuda.empty_cache()

n = 2**28 // scale
a, b = torch.zeros(n, device=dev), torch.zeros(n, device=dev)
case("copy of 1 GiB", lambda: b.copy_(a))
case("add of 1 GiB", lambda: torch.add(a, b, out=b))
del a, b

rows, dim, count = 2**20 // scale, 256, 2**18 // scale
table, dy = torch.zeros(rows, dim, device=dev), torch.zeros(count, dim, device=dev)
ids = torch.arange(count, device=dev) * 2654435761 % (2 * rows)


def gather():
    mask = ids >= rows
    return F.embedding(ids.masked_fill(mask, 0), table).masked_fill_(mask[:, None], 0)


def gradient():
    mine = ids < rows
    return torch.sparse_coo_tensor(ids[mine][None], dy[mine], (rows, dim)).coalesce()


case("masked gather", gather)
case("row gradient", gradient)
del table, dy

classes = 131072 // scale
for dtype in (torch.float32, torch.bfloat16):
    x = torch.randn(tokens, classes, device=dev).to(dtype).requires_grad_(True)
    name = str(dtype).removeprefix("torch.")

    def forward():
        with torch.no_grad():
            F.cross_entropy(x, y)

    case(f"cross-entropy forward, {name}", forward)
    case(f"cross-entropy forward + backward, {name}", both([x], lambda: F.cross_entropy(x, y)))
    if dtype == torch.float32:
        with torch.no_grad():
            case("softmax", lambda: torch.softmax(x, 1))
    del x

side = 8192 // scale
for dtype in (torch.float32, torch.bfloat16):
    a, b, c = (torch.randn(side, side, device=dev).to(dtype) for _ in range(3))
    name = str(dtype).removeprefix("torch.")
    case(f"product, {name}", lambda: torch.mm(a, b, out=c))
    del a, b, c
