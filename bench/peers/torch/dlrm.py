"""bench/embedding -dlrm with torch.nn.EmbeddingBag(sparse=True), in one process."""
import torch

import measure as m

ROWS = (1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306, 10, 5652,
        2173, 4, 7046547, 18, 15, 286181, 105, 142572)
MOST, DIM, SAMPLES, BATCHES, RATE = 1000000, 64, 2048, 16, 0.25
OPTIMIZERS = {"Adagrad": torch.optim.Adagrad, "SparseAdam": torch.optim.SparseAdam}

assert m.SIZE == 1, "EmbeddingBag divides no table over ranks"
for name, make in OPTIMIZERS.items():
    name = f"dlrm, {name}/26 tables up to {MOST}x{DIM}/{SAMPLES}"
    if not m.wants(name):
        continue
    rows = [min(n, MOST) for n in ROWS]
    bags = [torch.nn.EmbeddingBag(n, DIM, mode="sum", sparse=True) for n in rows]
    optimizer = make([p for bag in bags for p in bag.parameters()], lr=RATE)
    batches = [[torch.randint(0, n, (SAMPLES,)) for n in rows] for _ in range(BATCHES)]
    offsets, gy, turn = torch.arange(SAMPLES), torch.ones(SAMPLES, len(rows) * DIM), 0

    def forward(batch):
        return torch.cat([bag(ids, offsets) for bag, ids in zip(bags, batch)], 1)

    def step():
        global turn
        turn = (turn + 1) % BATCHES
        optimizer.zero_grad(set_to_none=True)
        forward(batches[turn]).backward(gy)
        optimizer.step()

    # As in our program: the first step moves each element by the rate.
    with torch.no_grad():
        before = forward(batches[1])
    step()
    with torch.no_grad():
        assert torch.allclose(before - forward(batches[1]), torch.tensor(RATE), atol=1e-5), name
    m.case(name, step)
    del bags, optimizer
m.end()
