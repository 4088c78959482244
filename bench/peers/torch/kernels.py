"""bench/kernels: the same kernels on [4096, 1024], of the type of measure.py."""
import torch
import torch.nn.functional as F

import measure as m

N, D = 4096, 1024
x, y = torch.randn(N, D), torch.randn(N, D)
row, column, out = torch.randn(D), torch.randn(N, 1), torch.empty(N, D)
ids = torch.arange(N) * 7919 % N
soft, logs = torch.softmax(x, 1), torch.log_softmax(x, 1)
_, mean, rstd = torch.native_layer_norm(x, (D,), row, row, 1e-5)
aten = torch.ops.aten


def optimizer(make):
    p = torch.randn(N, D).requires_grad_(True)
    p.grad = y
    return make([p]).step


def forward(name, f):
    with torch.no_grad():
        m.case(name, f)


forward("copy", lambda: out.copy_(x))
forward("add", lambda: x + y)
forward("add in place", lambda: out.add_(x))
forward("mul", lambda: x * y)
forward("add row", lambda: x + row)
forward("mul column", lambda: x * column)
forward("add scalar", lambda: x + 1)
forward("exp", lambda: torch.exp(x))
forward("tanh", lambda: torch.tanh(x))
forward("gelu", lambda: F.gelu(x))
forward("gelu gradient", lambda: aten.gelu_backward(y, x))
forward("silu", lambda: F.silu(x))
forward("softmax", lambda: torch.softmax(x, 1))
forward("softmax gradient", lambda: aten._softmax_backward_data(y, soft, 1, m.DTYPE))
forward("log-softmax", lambda: torch.log_softmax(x, 1))
forward("log-softmax gradient", lambda: aten._log_softmax_backward_data(y, logs, 1, m.DTYPE))
forward("layer norm", lambda: F.layer_norm(x, (D,), row, row))
forward("layer norm gradient", lambda: aten.native_layer_norm_backward(y, x, (D,), mean, rstd, row, row, [True] * 3))
forward("sum", lambda: x.sum())
forward("sum of columns", lambda: x.sum(0))
forward("sum of rows", lambda: x.sum(1))
forward("max of rows", lambda: x.amax(1))
forward("argmax of rows", lambda: x.argmax(1))
forward("gather rows", lambda: F.embedding(ids, x))
forward("gather rows gradient", lambda: aten.embedding_dense_backward(y, ids, N, -1, False))
forward("normal", lambda: out.normal_())
forward("uniform", lambda: out.uniform_())
forward("bernoulli", lambda: out.bernoulli_(0.1))
m.case("sgd", optimizer(lambda p: torch.optim.SGD(p, lr=1e-3)))
m.case("sgd momentum", optimizer(lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9)))
m.case("adamw", optimizer(lambda p: torch.optim.AdamW(p, foreach=False)))
m.case("adamw", optimizer(lambda p: torch.optim.AdamW(p, fused=True)))
m.end()
