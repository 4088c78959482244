"""What bench/gpu measures, with PyTorch on a GPU: a line of JSON for each case, under
the same name. Its arguments are what to divide the sizes by, and a JSON list of the
names to measure."""
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
wanted = set(json.loads(sys.argv[2]))
dev = torch.device("cuda")
both_types = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def case(name, make, memory=False):
    """Prints the least time of several runs, after two that are not counted. make makes
    the arguments and returns a run."""
    if name not in wanted:
        return
    least = None
    try:
        run = make()
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        for i in range(8):
            torch.cuda.synchronize()
            start = time.perf_counter_ns()
            run()
            torch.cuda.synchronize()
            ms = (time.perf_counter_ns() - start) / 1e6
            if i > 1 and (least is None or ms < least):
                least = ms
    except Exception as e:  # the other cases may do; among them is too little memory
        print(f"{name}: {e}", file=sys.stderr)
        return
    finally:
        run = None
        torch.cuda.empty_cache()
    line = dict(name=name, ms=least)
    if memory:
        line["extra_mib"] = (torch.cuda.max_memory_allocated() - before) / 2**20
    print(json.dumps(line), flush=True)


def normal(*shape, dtype=torch.float32):
    return torch.randn(*shape, device=dev, dtype=dtype)


def forward(f, *shapes, dtype=torch.float32):
    """f of random arguments."""
    def make():
        args = [normal(*shape, dtype=dtype) for shape in shapes]
        return lambda: f(*args)
    return make


def backward(f, *shapes):
    """The gradients of f by all its arguments, without f."""
    def make():
        args = [normal(*shape).requires_grad_(True) for shape in shapes]
        y = f(*args)
        dy = torch.randn_like(y)
        return lambda: torch.autograd.grad(y, args, dy, retain_graph=True)
    return make


def both(f, *shapes, dtype=torch.float32, size=1):
    """f and its gradients by all its arguments, the last of them times size."""
    def make():
        args = [normal(*shape, dtype=dtype) for shape in shapes]
        args[-1] *= size
        for x in args:
            x.requires_grad_(True)
        with torch.no_grad():
            dy = torch.ones_like(f(*args))
        return lambda: torch.autograd.grad(f(*args), args, dy)
    return make


tokens, classes, width = 8192 // scale, 256000 // scale, 2304 // min(scale, 16)
y = torch.zeros(tokens, dtype=torch.int64, device=dev)
for name, dtype in reversed(both_types.items()):
    case(f"linear + cross-entropy, fused, {name}", both(lambda h, w: F.cross_entropy(F.linear(h, w), y), (tokens, width), (classes, width), dtype=dtype, size=0.02), memory=True)

# All elements alike.
n = 2**28 // scale
side = 8192 // scale


def cast(source, target):
    def make():
        a, b = normal(n // 2, dtype=source), torch.empty(n // 2, device=dev, dtype=target)
        return lambda: b.copy_(a)
    return make


def copy():
    a, b = torch.zeros(n, device=dev), torch.zeros(n, device=dev)
    return lambda: b.copy_(a)


def add(n, dtype):
    def make():
        a, b = torch.zeros(n, device=dev, dtype=dtype), torch.zeros(n, device=dev, dtype=dtype)
        return lambda: torch.add(a, b, out=b)
    return make


def adamw():
    param = normal(n // 2).requires_grad_(True)
    param.grad = normal(n // 2)
    return torch.optim.AdamW([param], fused=True).step


case("copy of 1 GiB", copy)
case("add of 1 GiB", add(n, torch.float32))
case("add, bfloat16", add(n // 2, torch.bfloat16))
case("cast of float32 to bfloat16", cast(torch.float32, torch.bfloat16))
case("cast of bfloat16 to float32", cast(torch.bfloat16, torch.float32))
case("gelu forward", forward(F.gelu, [n // 4]))
case("gelu backward", backward(F.gelu, [n // 4]))
case("AdamW step", adamw)
case("random numbers, uniform", forward(lambda x: x.uniform_(), [n]))
case("random numbers, normal", forward(lambda x: x.normal_(), [n]))
case("transpose", forward(lambda x: x.t().contiguous(), [side, side]))

# By index.
rows, dim, count = 2**20 // scale, 256, 2**18 // scale


def spread(count, rows):
    return torch.arange(count, device=dev) * 2654435761 % rows


def often(count, rows):
    u = (torch.arange(count, device=dev) * 2654435761 % 2**32).double() / 2**32
    return (rows * u**4).long()


def masked_gather():
    table, ids = torch.zeros(rows, dim, device=dev), spread(count, 2 * rows)

    def run():
        mask = ids >= rows
        return F.embedding(ids.masked_fill(mask, 0), table).masked_fill_(mask[:, None], 0)
    return run


def masked_gradient():
    dy, ids = torch.zeros(count, dim, device=dev), spread(count, 2 * rows)

    def run():
        mine = ids < rows
        return torch.sparse_coo_tensor(ids[mine][None], dy[mine], (rows, dim)).coalesce()
    return run


def gradient(ids, rows, dim):
    def make():
        dy = torch.zeros(len(ids), dim, device=dev)
        return lambda: torch.sparse_coo_tensor(ids[None], dy, (rows, dim)).coalesce()
    return make


def index_add(ids, rows, *shape):
    def make():
        dst, src = torch.zeros(rows, *shape, device=dev), torch.zeros(len(ids), *shape, device=dev)
        return lambda: dst.index_add_(0, ids, src)
    return make


four = spread(rows, rows // 4)
case("masked gather", masked_gather)
case("row gradient", masked_gradient)
case("row gradient, a few rows often", gradient(often(count, rows), rows, dim))
case("row gradient, short rows", gradient(four, rows // 4, 64))
case("index add of rows", index_add(four, rows // 4, 64))
case("index add of numbers", index_add(four, rows // 4))

# Along rows.
normed = [32768 // scale, 2304]


def layer_norm(x, weight, bias):
    return F.layer_norm(x, weight.shape, weight, bias, 1e-5)


def rms_norm(x, weight):
    return F.rms_norm(x, weight.shape, weight, 1e-5)


classes = 131072 // scale
case("softmax", forward(lambda x: torch.softmax(x, 1), [tokens, classes]))
case("softmax, short rows", forward(lambda x: torch.softmax(x, 1), [65536 // scale, 1024]))
case("cumulative sum of rows", forward(lambda x: torch.cumsum(x, 1), [4096 // scale, 16384]))
case("top 10 of rows", forward(lambda x: torch.topk(x, 10, dim=1), [8192 // scale, 32768]))
case("layer norm forward", forward(layer_norm, normed, normed[1:], normed[1:]))
case("layer norm backward", backward(layer_norm, normed, normed[1:], normed[1:]))
case("RMS norm forward", forward(rms_norm, normed, normed[1:]))
case("RMS norm backward", backward(rms_norm, normed, normed[1:]))

# Of both types.
matrix = [16384 // scale, 8192]
heads = [1, 64, 2048 // scale, 64]


def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def mm(side, dtype):
    def make():
        a, b, c = (normal(side, side, dtype=dtype) for _ in range(3))
        return lambda: torch.mm(a, b, out=c)
    return make


def training_step(dtype):
    """A step of a decoder in the size of GPT-2 small; see step.go."""
    shrink = min(scale, 16)
    layers, width, heads = max(12 // shrink, 1), 768 // shrink, 12 // min(shrink, 4)
    batch, window, vocab = 8, max(1024 // scale, 1), 50304 // scale

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            linear = lambda n, m: torch.nn.Linear(n, m, bias=False)
            self.norm1, self.norm2 = torch.nn.RMSNorm(width), torch.nn.RMSNorm(width)
            self.q, self.k, self.v, self.out = (linear(width, width) for _ in range(4))
            self.up, self.down = linear(width, 4 * width), linear(4 * width, width)

        def forward(self, x):
            h = self.norm1(x)
            q, k, v = (w(h).view(batch, window, heads, -1).transpose(1, 2) for w in (self.q, self.k, self.v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(batch, window, width))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    def make():
        tokens, positions = torch.nn.Embedding(vocab, width), torch.nn.Embedding(window, width)
        blocks, norm = torch.nn.Sequential(*(Block() for _ in range(layers))), torch.nn.RMSNorm(width)
        head = torch.nn.Linear(width, vocab, bias=False)
        model = torch.nn.ModuleList([tokens, positions, blocks, norm, head]).to(dev, dtype)
        opt = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
        ids = spread(batch * window, vocab).view(batch, window)

        def run():
            opt.zero_grad()
            logits = head(norm(blocks(tokens(ids) + positions.weight)))
            F.cross_entropy(logits.view(-1, vocab), ids.view(-1)).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
            opt.step()
        return run
    return make


for name, dtype in both_types.items():
    case(f"training step of a transformer, {name}", training_step(dtype))
    case(f"sum of all, {name}", forward(torch.sum, matrix, dtype=dtype))
    case(f"sum of rows, {name}", forward(lambda x: torch.sum(x, 1), matrix, dtype=dtype))
    case(f"sum of columns, {name}", forward(lambda x: torch.sum(x, 0), matrix, dtype=dtype))
    case(f"cross-entropy forward, {name}", forward(lambda x: F.cross_entropy(x, y), [tokens, classes], dtype=dtype))
    case(f"cross-entropy forward + backward, {name}", both(lambda x: F.cross_entropy(x, y), [tokens, classes], dtype=dtype))
    case(f"product, {name}", mm(side, dtype))
    case(f"attention forward, {name}", forward(attention, heads, heads, heads, dtype=dtype))
    case(f"attention forward + backward, {name}", both(attention, heads, heads, heads, dtype=dtype))
