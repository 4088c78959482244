"""Writes reference.json: what PyTorch computes for the layers of package nn.

    python3 reference.py > reference.json

Inputs and weights are sin(0.7·i + seed) for element i, so the file has results alone.
"""
import json
import math
import sys

import torch
from torch import nn
import torch.nn.functional as F


def wave(seed, *shape):
    n = 1
    for s in shape:
        n *= s
    return torch.sin(0.7 * torch.arange(n, dtype=torch.float64) + seed).to(torch.float32).reshape(shape).requires_grad_()


cases = []


def case(name, out, *inputs):
    out = out if torch.is_tensor(out) else out[0]
    (out * wave(9, *out.shape).detach()).sum().backward()
    numbers = lambda t: [float(f"{v:.6g}") for v in t.detach().flatten().tolist()]
    cases.append({"name": name, "shape": list(out.shape), "output": numbers(out), "grads": [numbers(x.grad) for x in inputs]})


def conv(name, dims, b, size, i, o, k, stride=1, padding=0, dilation=1, groups=1):
    x = wave(1, b, i, *size)
    w, bias = wave(2, o, i // groups, *([k] * dims if isinstance(k, int) else k)), wave(3, o)
    f = (F.conv1d, F.conv2d, F.conv3d)[dims - 1]
    case(name, f(x, w, bias, stride, padding, dilation, groups), x, w, bias)


conv("conv1d", 1, 2, (7,), 2, 3, 3)
conv("conv1d padded", 1, 2, (6,), 2, 4, 3, 2, 1, 2, 2)
conv("conv2d", 2, 2, (5, 4), 2, 3, 3)
conv("conv2d padded", 2, 2, (5, 6), 4, 4, 3, 2, 2, 2, 4)
conv("conv2d each", 2, 2, (5, 6), 2, 4, (3, 2), (1, 2), (1, 0), (2, 1), 2)
conv("conv3d", 3, 2, (3, 4, 2), 2, 3, 2)
conv("conv3d padded", 3, 3, (3, 2, 4), 2, 2, 2, 2, 1, 2, 2)


def transposed(name, dims, b, size, i, o, k, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    x = wave(1, b, i, *size)
    w, bias = wave(2, i, o // groups, *([k] * dims if isinstance(k, int) else k)), wave(3, o)
    f = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[dims - 1]
    case(name, f(x, w, bias, stride, padding, output_padding, groups, dilation), x, w, bias)


transposed("convtranspose1d", 1, 2, (4,), 2, 3, 3)
transposed("convtranspose1d padded", 1, 2, (5,), 2, 4, 3, 2, 1, 1, 2, 2)
transposed("convtranspose1d short", 1, 3, (1,), 2, 2, 1, 3, 0, 2)
transposed("convtranspose2d", 2, 2, (3, 2), 2, 3, 3)
transposed("convtranspose2d padded", 2, 2, (3, 4), 4, 4, 3, 2, 2, 1, 4, 2)
transposed("convtranspose2d each", 2, 2, (3, 4), 2, 4, (3, 2), (1, 3), (1, 0), 0, 2, (2, 1))
transposed("convtranspose3d", 3, 2, (2, 3, 2), 2, 2, 2)
transposed("convtranspose3d padded", 3, 3, (2, 1, 3), 2, 2, 3, 2, 1, 1, 2)

for name, shape in ("batchnorm1d", (6, 3)), ("batchnorm2d", (4, 3, 2, 2)):
    bn = nn.BatchNorm1d(3) if len(shape) == 2 else nn.BatchNorm2d(3)
    x, w, b = wave(1, *shape), wave(2, 3), wave(3, 3)
    bn.weight.data, bn.bias.data = w.detach(), b.detach()
    y = bn(x)
    case(name, y, x, bn.weight, bn.bias)
    bn.eval()
    x = wave(4, *shape)
    bn.weight.grad = bn.bias.grad = None
    case(name + " eval", bn(x), x)


def pool(name, f, shape, **options):
    x = wave(1, *shape).detach().mul(4).round().div(4).requires_grad_() if "ties" in name else wave(1, *shape)
    case(name, f(x, **options), x)


for name, shape, sizes, options in (("fold", (2, 3, 4, 5), (4, 5), {"kernel_size": 2}),
                                    ("fold padded", (3, 2, 6, 5), (6, 5), {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2})):
    x = wave(1, *shape)
    y = F.unfold(x, **options)
    case("un" + name, y, x)
    y = wave(2, *y.shape)
    case(name, F.fold(y, sizes, **options), y)

pool("maxpool1d", F.max_pool1d, (2, 3, 7), kernel_size=2)
pool("maxpool1d dilated", F.max_pool1d, (2, 2, 9), kernel_size=3, stride=2, padding=1, dilation=2)
pool("maxpool2d", F.max_pool2d, (4, 2, 6, 5), kernel_size=2)
pool("maxpool2d ties", F.max_pool2d, (2, 2, 6, 7), kernel_size=3, stride=2, padding=1)
pool("avgpool1d", F.avg_pool1d, (2, 3, 7), kernel_size=3, stride=1, padding=1)
pool("maxpool3d", F.max_pool3d, (2, 2, 4, 5, 3), kernel_size=2)
pool("maxpool3d ties", F.max_pool3d, (3, 2, 3, 4, 5), kernel_size=3, stride=2, padding=1)
pool("avgpool3d", F.avg_pool3d, (3, 2, 3, 4, 5), kernel_size=2, stride=1, padding=1)
pool("maxpool2d each", F.max_pool2d, (4, 2, 6, 5), kernel_size=(3, 2), stride=(2, 2), padding=(1, 0), dilation=(1, 2))
pool("maxpool2d ceil", F.max_pool2d, (2, 2, 6, 7), kernel_size=3, stride=2, padding=1, ceil_mode=True)
pool("maxpool1d ceil", F.max_pool1d, (2, 2, 7), kernel_size=2, stride=3, padding=1, dilation=2, ceil_mode=True)
pool("maxpool1d ceil short", F.max_pool1d, (2, 2, 2), kernel_size=3, stride=2, ceil_mode=True)
pool("avgpool2d ceil", F.avg_pool2d, (2, 2, 6, 5), kernel_size=3, stride=2, padding=1, ceil_mode=True)
pool("avgpool2d without padding", F.avg_pool2d, (2, 2, 6, 5), kernel_size=3, stride=2, padding=1, count_include_pad=False)
pool("avgpool3d ceil without padding", F.avg_pool3d, (2, 1, 4, 5, 3), kernel_size=2, stride=3, padding=1, ceil_mode=True,
     count_include_pad=False)


def unpool(name, f, back, shape, sizes, **options):
    """What was pooled put back, and the indices as numbers, which have no gradient."""
    x = wave(1, *shape)
    y, index = f(x, return_indices=True, **options)
    options.pop("ceil_mode", None)
    case(name, back(y, index, output_size=sizes, **options), x)
    x = wave(1, *shape)
    case(name + " index", index.float() + 0 * x.sum(), x)


unpool("maxunpool1d", F.max_pool1d, F.max_unpool1d, (2, 3, 7), (7,), kernel_size=2)
unpool("maxunpool2d", F.max_pool2d, F.max_unpool2d, (4, 2, 6, 5), (6, 5), kernel_size=2)
unpool("maxunpool2d padded", F.max_pool2d, F.max_unpool2d, (2, 2, 7, 6), (7, 6), kernel_size=3, stride=2, padding=1)
unpool("maxunpool2d ceil", F.max_pool2d, F.max_unpool2d, (2, 2, 5, 7), (5, 7), kernel_size=2, ceil_mode=True)
unpool("maxunpool3d", F.max_pool3d, F.max_unpool3d, (2, 2, 4, 5, 3), (4, 5, 3), kernel_size=2)
pool("avgpool2d each", F.avg_pool2d, (2, 2, 6, 5), kernel_size=(1, 3), stride=(1, 2), padding=(0, 1))
pool("avgpool2d", F.avg_pool2d, (4, 2, 6, 5), kernel_size=3, stride=2, padding=1)

for name, shape, groups in ("groupnorm", (4, 6), 3), ("groupnorm2d", (2, 4, 3, 2), 2), ("groupnorm one", (3, 3, 5), 3):
    x, w, b = wave(1, *shape), wave(2, shape[1]), wave(3, shape[1])
    case(name, F.group_norm(x, groups, w, b), x, w, b)


def attention(name, b, t, s, heads, groups, d, cross, mask, causal, bias=False, norm=False, scale=None):
    c = heads * d
    x, memory = wave(1, b, t, c), wave(2, b, s, c)
    w = [wave(3 + i, n, c) for i, n in enumerate((c, groups * d, groups * d, c))]
    m = memory if cross else x
    split = lambda y, n: y.reshape(b, -1, n, d).transpose(1, 2)
    q, k, v = split(x @ w[0].T, heads), split(m @ w[1].T, groups), split(m @ w[2].T, groups)
    if norm:
        w += [wave(7, d), wave(8, d)]
        q, k = F.rms_norm(q, (d,), w[4], 1e-6), F.rms_norm(k, (d,), w[5], 1e-6)
    k, v = (y.repeat_interleave(heads // groups, 1) for y in (k, v))
    scores = q @ k.transpose(2, 3) / (1 / scale if scale else d**0.5)
    if bias:
        w += [wave(10, heads, *scores.shape[2:])]
        scores = scores + w[-1]
    if mask:  # key j is hidden from query i where (i + 2·j) is a multiple of 3
        i, j = torch.meshgrid(torch.arange(scores.shape[2]), torch.arange(scores.shape[3]), indexing="ij")
        scores = scores.masked_fill((i + 2 * j) % 3 == 0 if not causal else (i + 2 * j) % 3 == 1, float("-inf"))
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[2:]).triu(1).bool(), float("-inf"))
    y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c) @ w[3].T
    case(name, y, x, *w)


attention("attention grouped", 2, 4, 4, 4, 2, 3, False, False, True)
attention("attention cross", 2, 3, 5, 2, 1, 4, True, False, False)
attention("attention masked", 2, 4, 4, 3, 3, 2, False, True, True)
attention("attention cross masked", 1, 3, 5, 2, 2, 2, True, True, False)
attention("attention biased", 2, 4, 4, 3, 3, 2, False, True, True, bias=True, scale=1)
attention("attention cross biased", 2, 3, 5, 4, 2, 2, True, False, False, bias=True, norm=True)
attention("attention normed", 2, 4, 4, 4, 2, 3, False, False, True, norm=True, scale=0.3)


def encoder(name, b, t, c, heads, hidden, norm_first, padded):
    layer = nn.TransformerEncoderLayer(c, heads, hidden, 0, activation=F.gelu, batch_first=True, norm_first=norm_first)
    x, params = wave(1, b, t, c), dict(layer.named_parameters())
    for i, p in enumerate(params.values()):
        p.data = wave(2 + i, *p.shape).detach()
    mask = torch.arange(t) >= torch.arange(1, b + 1)[:, None] if padded else None  # row i has i + 1 positions
    case(name, layer(x, src_key_padding_mask=mask), x, *params.values())


encoder("encoder", 2, 3, 4, 2, 6, False, True)
encoder("encoder norm first", 2, 3, 4, 2, 6, True, False)


def moe(name, b, t, c, f, experts, k, capacity):
    x, router, up, down = wave(1, b, t, c), wave(2, experts, c), wave(3, experts, f, c), wave(4, experts, c, f)
    rows = x.reshape(-1, c)
    probs = (rows @ router.T).softmax(-1)
    weights, chosen = probs.topk(k)
    weights = weights / weights.sum(-1, keepdim=True)
    size, taken = math.ceil(capacity * k * b * t / experts), [0] * experts
    y = [torch.zeros(c) for _ in rows]
    for j in range(k):
        for n in range(len(rows)):
            e = int(chosen[n, j])
            if taken[e] < size:
                y[n] = y[n] + weights[n, j] * (down[e] @ F.gelu(up[e] @ rows[n]))
            taken[e] += 1
    share = torch.bincount(chosen.flatten(), minlength=experts) / chosen.numel()
    balance = experts * (share * probs.mean(0)).sum()
    print(name, "drops", sum(max(0, n - size) for n in taken), file=sys.stderr)
    case(name, torch.stack(y).reshape(b, t, c) + balance, x, router, up, down)


moe("moe", 2, 6, 4, 5, 4, 2, 4.0)
moe("moe full", 4, 3, 4, 5, 3, 2, 0.8)

def rnn(name, make, b, t, c, h, layers, bidirectional, state, lengths=None):
    """The result, the last state and, of an LSTM, the last cells, one after the other."""
    net = make(c, h, layers, batch_first=True, bidirectional=bidirectional)
    for i, p in enumerate(net.parameters()):
        p.data = wave(2 + i, *p.shape).detach()
    x, params = wave(1, b, t, c), list(net.parameters())
    first = [wave(30 + i, layers * (1 + bidirectional), b, h) for i in range(state)]
    if lengths is not None:
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor(lengths), batch_first=True, enforce_sorted=False)
        y, last = net(packed, (tuple(first) if state == 2 else first[0]) if state else None)
        y, _ = nn.utils.rnn.pad_packed_sequence(y, batch_first=True, total_length=t)
    else:
        y, last = net(x, (tuple(first) if state == 2 else first[0]) if state else None)
    last = last if isinstance(last, tuple) else (last,)
    case(name, torch.cat([y.flatten(), *[s.flatten() for s in last]]), x, *first, *params)


rnn("rnn", nn.RNN, 3, 4, 2, 3, 1, False, 0)
rnn("gru", nn.GRU, 3, 5, 2, 3, 1, False, 0)
rnn("gru both ways", nn.GRU, 1, 3, 3, 2, 2, True, 1)
rnn("gru padded", nn.GRU, 4, 5, 2, 3, 1, True, 1, [2, 5, 1, 4])
rnn("lstm", nn.LSTM, 3, 5, 2, 3, 1, False, 0)
rnn("lstm both ways", nn.LSTM, 3, 4, 3, 2, 2, True, 2)
rnn("lstm one position", nn.LSTM, 1, 1, 3, 2, 1, False, 2)
rnn("lstm padded", nn.LSTM, 3, 5, 2, 3, 2, True, 0, [3, 1, 4])


def upsample(name, shape, **options):
    x = wave(1, *shape)
    case(name, F.interpolate(x, **options), x)


upsample("upsample nearest 1d", (3, 2, 4), size=7, mode="nearest")
upsample("upsample nearest 2d", (3, 2, 3, 4), scale_factor=2, mode="nearest")
upsample("upsample nearest down", (2, 3, 5, 7), size=(2, 3), mode="nearest")
upsample("upsample linear", (3, 2, 5), size=8, mode="linear", align_corners=False)
upsample("upsample linear scaled", (3, 2, 5), scale_factor=1.7, mode="linear", align_corners=False)
upsample("upsample linear corners", (3, 2, 5), size=9, mode="linear", align_corners=True)
upsample("upsample bilinear", (1, 2, 3, 4), scale_factor=2, mode="bilinear", align_corners=False)
upsample("upsample bilinear corners", (3, 1, 3, 4), size=(5, 7), mode="bilinear", align_corners=True)
upsample("upsample bilinear down", (3, 2, 5, 7), size=(2, 3), mode="bilinear", align_corners=False)
upsample("upsample bilinear down corners", (2, 2, 5, 6), size=(1, 3), mode="bilinear", align_corners=True)
upsample("upsample bicubic", (3, 2, 3, 4), size=(5, 9), mode="bicubic", align_corners=False)
upsample("upsample bicubic scaled", (2, 1, 3, 5), scale_factor=1.5, mode="bicubic", align_corners=False)
upsample("upsample bicubic corners", (2, 2, 4, 3), size=(7, 5), mode="bicubic", align_corners=True)
upsample("upsample bicubic down", (2, 3, 6, 7), size=(2, 3), mode="bicubic", align_corners=False)

for name, shape, n in ("prelu", (3, 4), 1), ("prelu of channels", (3, 4, 2), 4):
    x, w = wave(1, *shape), wave(2, n)
    case(name, F.prelu(x, w), x, w)

for name, shape, size in ("adaptive 1d", (3, 2, 7), (3,)), ("adaptive 2d", (2, 3, 5, 4), (3, 2)), ("adaptive up", (2, 2, 2, 3), (3, None)), \
        ("adaptive 3d", (3, 2, 3, 2, 4), (2, 1, 3)):
    for kind, pools in ("avg", (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)), \
            ("max", (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)):
        x = wave(1, *shape)
        case(f"{name} {kind}", pools[len(size) - 1](x, size), x)

for name, mode, padding, corners in ("grid", "bilinear", "zeros", False), ("grid corners", "bilinear", "zeros", True), \
        ("grid border", "bilinear", "border", False), ("grid nearest", "nearest", "zeros", False), ("grid nearest border", "nearest", "border", True):
    x, places = wave(1, 3, 2, 4, 5), wave(2, 3, 2, 3, 2)
    case(name, F.grid_sample(x, places * 1.2, mode, padding, corners), x, places)

print("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]")
