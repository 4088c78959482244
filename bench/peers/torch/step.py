"""bench/step: embedding, linear, GELU, linear, head, cross-entropy, SGD."""
import torch
import torch.nn as nn
import torch.nn.functional as F

import measure as m

V, T, D, H = 32768, 2048, 256, 1024


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(V, D)
        self.up = nn.Linear(D, H, bias=False)
        self.down = nn.Linear(H, D, bias=False)
        self.head = nn.Linear(D, V, bias=False)

    def forward(self, ids):
        return self.head(self.down(F.gelu(self.up(self.emb(ids)))))


model = Model()
g = torch.Generator().manual_seed(9)
ids, targets = torch.randint(0, V, (T,), generator=g), torch.randint(0, V, (T,), generator=g)
if m.SIZE > 1:
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel as context, parallelize_module
    model = parallelize_module(model, m.mesh(), {
        "emb": RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate()),
        "up": ColwiseParallel(), "down": RowwiseParallel(),
        "head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)})
else:
    from contextlib import nullcontext as context
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def step():
    optimizer.zero_grad(set_to_none=True)
    with context():
        F.cross_entropy(model(ids), targets).backward()
    optimizer.step()


m.case(["step", "step fused"], step)
m.end()
