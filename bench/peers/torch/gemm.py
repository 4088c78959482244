"""bench/gemm with torch.mm; the fastest call counts, as there."""
import torch

import measure as m

for name, M, N, K, ta, tb in (
        ("cube/128", 128, 128, 128, 0, 0), ("cube/256", 256, 256, 256, 0, 0), ("cube/512", 512, 512, 512, 0, 0),
        ("cube/1024", 1024, 1024, 1024, 0, 0), ("cube/1024/nt", 1024, 1024, 1024, 0, 1), ("cube/1024/tn", 1024, 1024, 1024, 1, 0),
        ("cube/2048", 2048, 2048, 2048, 0, 0), ("head/forward", 2048, 32768, 256, 0, 0), ("head/dx", 2048, 256, 32768, 0, 1),
        ("head/dw", 256, 32768, 2048, 1, 0), ("linear/forward", 1024, 4096, 192, 0, 0), ("linear/nt", 1024, 4096, 192, 0, 1)):
    if not m.wants(name):
        continue
    a = torch.randn(K, M).t() if ta else torch.randn(M, K)
    b = torch.randn(N, K).t() if tb else torch.randn(K, N)
    out = torch.empty(M, N)
    m.case(name, lambda: torch.mm(a, b, out=out), best=True)
m.end()
