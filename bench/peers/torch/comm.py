"""bench/comm with torch.distributed."""
import os

import torch
import torch.distributed as dist

import measure as m

for size in (8, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20):
    if size > int(os.environ.get("PEER_MAX", 64 << 20)):
        break
    n = max(size // 4, m.SIZE)
    a, b = torch.zeros(n), torch.zeros(n * m.SIZE)
    part = b[: n // m.SIZE]
    whole = n // m.SIZE * m.SIZE
    ops = {
        "all_reduce": lambda: dist.all_reduce(a),
        "all_gather": lambda: dist.all_gather_into_tensor(b, a),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, a[:whole]),
        "all_to_all": lambda: dist.all_to_all_single(b[:whole], a[:whole]),
        "broadcast": lambda: dist.broadcast(a, 0),
    }
    if size == 8:
        m.case("barrier/0", dist.barrier)
    for name, f in ops.items():
        m.case(f"{name}/{4 * n}", f)
m.end()
