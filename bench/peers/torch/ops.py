"""bench/ops: batches of small operators, plain or DTensor."""
import torch
import torch.distributed as dist
import torch.nn.functional as F

import measure as m

N = 200
a, b = torch.randn(8, 8), torch.randn(8, 8)
ids, table = torch.tensor([3, 60, 17, 42, 8, 31, 25, 50]), torch.randn(64, 8)


def batch(name, f, n=N):
    def run():
        for _ in range(n):
            f()
    with torch.no_grad():
        m.case(name, run, each=n)


def chain(x, y, n=N):
    for _ in range(n):
        x = x + y
    return x


def gradients(name, x, y):
    def run():
        x.grad = y.grad = None
        chain(x, y).sum().backward()
    m.case(name, run, each=N)


def chained(x, y):
    def run():
        with torch.no_grad():
            chain(x, y)
    m.case("add", run, each=N)
    p = x.detach().clone().requires_grad_(True)
    gradients("add with gradients", p, y)
    gradients("add with both gradients", p, y.detach().clone().requires_grad_(True))


if m.SIZE == 1:
    chained(a, b)
    batch("gelu", lambda: F.gelu(a))
    batch("matmul", lambda: a @ b)
    batch(["lookup column-wise", "lookup row-wise, reduced"], lambda: F.embedding(ids, table))
else:
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
    mesh = m.mesh()

    def place(t, p):
        return DTensor.from_local(t, mesh, [p], run_check=False)
    R, S0, S1, P = Replicate(), Shard(0), Shard(1), Partial()
    rows = a.chunk(m.SIZE)[m.RANK]
    x, y = place(rows, S0), place(b.chunk(m.SIZE)[m.RANK], S0)
    whole, part, dids = place(a, R), place(a, P), place(ids, R)
    byrow, bycol = place(table.chunk(m.SIZE)[m.RANK], S0), place(table.chunk(m.SIZE, dim=1)[m.RANK].contiguous(), S1)

    def to(t, p):
        return lambda: m.wait(t.redistribute(mesh, [p]).to_local())
    chained(x, y)
    batch("gelu", lambda: F.gelu(x))
    batch("matmul", lambda: whole @ whole)
    batch("from local", lambda: place(rows, S0))
    batch("lookup column-wise", lambda: F.embedding(dids, bycol))
    batch("lookup row-wise, reduced", lambda: m.wait(F.embedding(dids, byrow).redistribute(mesh, [R]).to_local()), 50)
    batch("redistribute R to S(0)", to(whole, S0))
    batch("redistribute S(0) to R", to(x, R), 50)
    batch("redistribute P to R", to(part, R), 50)
    batch("redistribute S(0) to S(1)", to(x, S1), 50)
    buf = torch.zeros(64)
    batch("all_reduce 256 B", lambda: dist.all_reduce(buf), 50)
m.end()
