"""bench/loss with cross_entropy: one process, or DTensor with loss_parallel."""
import torch
import torch.nn.functional as F

import measure as m

if m.SIZE > 1:
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.distributed.tensor.parallel import loss_parallel as context
    mesh = m.mesh()
else:
    from contextlib import nullcontext as context


def shard(t, placement):
    return DTensor.from_local(t, mesh, [placement], run_check=False) if m.SIZE > 1 else t


def phases(names, f, *params):
    def forward():
        with torch.no_grad(), context():
            f()

    def both():
        for p in params:
            p.grad = None
        with context():
            f().backward()
    m.case([n + "/forward" for n in names], forward)
    m.case([n + "/both" for n in names], both)
    for p in params:
        p.grad = None


def targets(T, V):
    return torch.randint(0, V, (T,), generator=torch.Generator().manual_seed(5))


for T, V in ((1024, 32768), (2048, 50304), (2048, 131072)):
    name = f"cross-entropy/{T}x{V}"
    if m.wants(name + "/forward", name + "/both"):
        x = shard(torch.randn(T, V // m.SIZE), Shard(1) if m.SIZE > 1 else None).requires_grad_(True)
        y = targets(T, V)
        phases([name], lambda: F.cross_entropy(x, y), x)
        del x
H = 768
for T, V in ((1024, 32768), (2048, 131072)):
    names = [f"linear/{T}x{V}", f"linear unfused/{T}x{V}"]
    if m.wants(*(n + p for n in names for p in ("/forward", "/both"))):
        h = shard(torch.randn(T, H), Replicate() if m.SIZE > 1 else None).requires_grad_(True)
        w = shard(torch.randn(V // m.SIZE, H) * 0.02, Shard(0) if m.SIZE > 1 else None).requires_grad_(True)
        y = targets(T, V)
        phases(names, lambda: F.cross_entropy(F.linear(h, w), y), h, w)
        del h, w
m.end()
