"""bench/kernels: the same kernels on [4096, 1024], of the type of measure.py."""
import torch
import torch.nn.functional as F

import measure as m

N, D = 4096, 1024
x, y = torch.randn(N, D), torch.randn(N, D)
row, column, out = torch.randn(D), torch.randn(N, 1), torch.empty(N, D)
ids, columns = torch.arange(N) * 7919 % N, (torch.arange(N * D) * 7919 % D).view(N, D)
divisors = columns + 1
size, small, mask = x.abs(), x.tanh(), y > 0
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
forward("sqrt", lambda: torch.sqrt(size))
forward("log", lambda: torch.log(size))
forward("erf", lambda: torch.erf(x))
forward("sin", lambda: torch.sin(x))
forward("tan", lambda: torch.tan(x))
forward("asin", lambda: torch.asin(small))
forward("asinh", lambda: torch.asinh(x))
forward("round", lambda: torch.round(x))
forward("elu", lambda: F.elu(x))
forward("elu gradient", lambda: aten.elu_backward(y, 1, 1, 1, False, x))
forward("softplus", lambda: F.softplus(x))
forward("softplus gradient", lambda: aten.softplus_backward(y, x, 1, 20))
forward("mish", lambda: F.mish(x))
forward("mish gradient", lambda: aten.mish_backward(y, x))
forward("hardswish", lambda: F.hardswish(x))
forward("hardswish gradient", lambda: aten.hardswish_backward(y, x))
forward("leaky relu", lambda: F.leaky_relu(x, 0.01))
forward("leaky relu gradient", lambda: aten.leaky_relu_backward(y, x, 0.01, False))
forward("clamp", lambda: x.clamp(-1, 1))
forward("clamp gradient", lambda: y.mul((x >= -1).logical_and_(x <= 1)))
forward("pow", lambda: torch.pow(size, y))
forward("cube", lambda: x ** 3)
forward("atan2", lambda: x.atan2(y))
forward("fmod", lambda: x.fmod(y))
forward("remainder", lambda: x.remainder(y))
forward("floor divide", lambda: x.floor_divide(y))
forward("divide by column", lambda: x / column)
forward("maximum with column", lambda: x.maximum(column))
forward("expand column", lambda: column.expand(N, D).contiguous())
forward("less than", lambda: x < y)
forward("cast to bool", lambda: x.to(torch.bool))
forward("where", lambda: torch.where(mask, x, y))
forward("masked fill", lambda: x.masked_fill(mask, 0))
forward("any of rows", lambda: mask.any(1))
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
forward("top 4 of rows", lambda: x.topk(4, 1))
forward("sort rows of int64", lambda: columns.sort(1))
forward("sort rows", lambda: x.sort(1))
forward("norm of rows", lambda: torch.linalg.vector_norm(x, 2, 1))
forward("product of rows", lambda: x.prod(1))
forward("cumulative sum", lambda: x.cumsum(1))
forward("lower triangle", lambda: x.tril())
forward("flip", lambda: x.flip(1))
forward("gather", lambda: x.gather(1, columns))
forward("scatter add", lambda: out.scatter_add_(1, columns, y))
forward("scatter maximum", lambda: out.scatter_reduce_(1, columns, y, "amax"))
forward("remainder of int64", lambda: columns.remainder(divisors))
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
