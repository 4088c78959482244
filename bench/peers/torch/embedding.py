"""bench/embedding with torch.nn.functional.embedding: one process, or DTensor."""
import torch
import torch.nn.functional as F

import measure as m

for V, D, N in ((50304, 768, 4096), (131072, 256, 8192), (1000000, 64, 65536)):
    size = f"/{V}x{D}/{N}"
    variants = ("row-wise to R", "row-wise to S(0)", "column-wise to R", "column-wise to S(1)")
    if not m.wants(*(v + size + p for v in variants for p in ("/forward", "/both"))):
        continue
    ids = torch.randint(0, V, (N,), generator=torch.Generator().manual_seed(7))
    full = torch.randn(V, D, generator=torch.Generator().manual_seed(3))
    if m.SIZE == 1:
        with torch.no_grad():
            m.case([v + size + "/forward" for v in variants], lambda: F.embedding(ids, full))
        w, gy = full.requires_grad_(True), torch.ones(N, D)
        for sparse in (False, True):
            def both():
                w.grad = None
                F.embedding(ids, w, sparse=sparse).backward(gy)
            m.case([v + size + "/both" for v in variants], both, **({"who": "sparse=True"} if sparse else {}))
        continue
    from torch.distributed.tensor import DTensor, Replicate, Shard
    mesh = m.mesh()
    want = full[ids]
    dids = DTensor.from_local(ids, mesh, [Replicate()], run_check=False)
    for name, place, to in (("row-wise to R", Shard(0), Replicate()), ("row-wise to S(0)", Shard(0), Shard(0)),
                            ("column-wise to R", Shard(1), Replicate()), ("column-wise to S(1)", Shard(1), None)):
        local = full.chunk(m.SIZE, dim=place.dim)[m.RANK].contiguous()
        w = DTensor.from_local(local, mesh, [place], run_check=False)

        def lookup(w):
            out = F.embedding(dids, w)
            return m.wait((out if to is None else out.redistribute(mesh, [to])).to_local())

        def forward():
            with torch.no_grad():
                return lookup(w)

        try:
            got = forward()
        except RuntimeError:
            got = None  # unsupported by the backend: case says so
        if got is not None:
            part = want if isinstance(to, Replicate) else want.chunk(m.SIZE)[m.RANK] if to else want.chunk(m.SIZE, dim=1)[m.RANK]
            assert torch.equal(got, part), name
        m.case(name + size + "/forward", forward)
        p = w.detach().requires_grad_(True)
        gy = None if got is None else torch.ones_like(got)

        def both():
            p.grad = None
            lookup(p).backward(gy)
            m.wait(p.grad.to_local())
        m.case(name + size + "/both", both)
        p.grad = None
m.end()
