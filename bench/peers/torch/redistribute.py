"""bench/redistribute with DTensor.redistribute."""
import torch

import measure as m
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

mesh = m.mesh()
N, D = 8192, 4096
places = {"R": Replicate(), "S(0)": Shard(0), "S(1)": Shard(1), "P": Partial()}
for src, dst in (("S(0)", "R"), ("S(1)", "R"), ("S(0)", "S(1)"), ("S(1)", "S(0)"), ("P", "R"), ("P", "S(0)"), ("P", "S(1)"), ("R", "S(0)"), ("R", "S(1)")):
    if not m.wants(f"{src} to {dst}"):
        continue
    shape = {"S(0)": (N // m.SIZE, D), "S(1)": (N, D // m.SIZE)}.get(src, (N, D))
    x = DTensor.from_local(torch.ones(shape), mesh, [places[src]], run_check=False)

    def f():
        with torch.no_grad():
            return m.wait(x.redistribute(mesh, [places[dst]]).to_local())
    m.case(f"{src} to {dst}", f)
m.end()
