#!/usr/bin/env python3
"""Writes more conformance cases: operators and losses that gen.py does not have.

usage: gen_more.py OUTDIR SEED   (needs torch; the files beside it were made with seed 20261123)
"""
import torch
import torch.nn.functional as F
from cases import *

# Layouts of a [5, 6] or [3, 4] tensor: uneven shards over 2, 3 and 4 ranks, empty ones over 4.
def layouts(*names, partial=False):
    some = [(mesh1(2), [S(0)]), (mesh1(4), [S(0)]), (mesh1(3), [S(1)]), (mesh2(2, 2), [S(1), S(0)])]
    if partial:
        some.append((mesh1(2), ["P(sum)"]))
    return [(mesh, {n: p for n in names}) for mesh, p in some]

x, y = torch.randn(5, 6), torch.randn(5, 6)
for op, fn in (("sin", torch.sin), ("cos", torch.cos), ("erf", torch.erf)):
    each(op, (lambda fn: lambda input: fn(input))(fn), {"input": 3 * x}, layouts("input", partial=True), {}, ["input"])
for dim in (0, 1):
    for mesh, pl in layouts("input", partial=True):
        save("argmin", mesh, {"input": ten(x, pl["input"])}, {"dim": dim}, {"output": ten(x.argmin(dim))})
        for descending in (False, True):
            values, index = x.sort(dim=dim, descending=descending, stable=True)
            run("sort", (lambda dim, descending: lambda input: input.sort(dim=dim, descending=descending, stable=True)[0])(dim, descending), mesh, {"input": x}, pl,
                {"dim": dim, "descending": descending}, ["input"], extra={"indices": ten(index)})
    each("roll", (lambda dim: lambda input: torch.roll(input, 2, dim))(dim), {"input": x}, layouts("input", partial=True), {"dim": dim, "shift": 2}, ["input"])
    each("roll", (lambda dim: lambda input: torch.roll(input, -8, dim))(dim), {"input": x}, layouts("input"), {"dim": dim, "shift": -8}, ["input"])
for diagonal in (0, 2, -1):
    for op, fn in (("tril", torch.tril), ("triu", torch.triu)):
        each(op, (lambda fn, diagonal: lambda input: fn(input, diagonal))(fn, diagonal), {"input": x}, layouts("input", partial=True), {"diagonal": diagonal}, ["input"])
a, b = torch.randint(-1, 2, (5, 6)), torch.randint(-1, 2, (6,))
for op, fn in (("logical_and", torch.logical_and), ("logical_or", torch.logical_or), ("logical_xor", torch.logical_xor)):
    for mesh, p, q in ((mesh1(2), [S(0)], [R]), (mesh1(4), [S(1)], [S(0)]), (mesh2(2, 2), [S(0), S(1)], [R, S(0)]), (mesh1(3), [R], [R])):
        save(op, mesh, {"input": ten(a, p), "other": ten(b, q)}, {}, {"output": ten(fn(a, b))})
for mesh, pl in layouts("input"):
    save("logical_not", mesh, {"input": ten(a, pl["input"])}, {}, {"output": ten(torch.logical_not(a))})

# ---- losses: both operands have gradients ---------------------------------------------------------
pairs = layouts("input", "target") + [(mesh1(2), {"input": [S(0)], "target": [S(1)]}), (mesh1(2), {"input": [R], "target": ["P(sum)"]})]
logs, t = F.log_softmax(x, 1), F.softmax(y, 1)
t[2, 3] = 0
for red in ("mean", "sum", "none"):
    both, args = ["input", "target"], {"reduction": red}
    each("mse_loss", lambda input, target: F.mse_loss(input, target, reduction=red), {"input": x, "target": y}, pairs, args, both)
    each("l1_loss", lambda input, target: F.l1_loss(input, target, reduction=red), {"input": x, "target": y}, pairs, args, both)
    each("huber_loss", lambda input, target: F.huber_loss(input, target, reduction=red, delta=0.7), {"input": x, "target": y}, pairs, {**args, "delta": 0.7}, both)
    each("kl_div", lambda input, target: F.kl_div(input, target, reduction=red), {"input": logs, "target": t}, pairs, args, ["input"])
    each("kl_div", lambda input, target: F.kl_div(input, target, reduction=red, log_target=True), {"input": logs, "target": F.log_softmax(y, 1)},
         pairs[:3], {**args, "log_target": True}, both)
    each("binary_cross_entropy_with_logits", lambda input, target: F.binary_cross_entropy_with_logits(input, target, reduction=red),
         {"input": x, "target": t}, pairs[:5], args, ["input"])
    sign = torch.randint(0, 2, (5, 6)) * 2 - 1
    each("margin_ranking_loss", lambda a, b, target: F.margin_ranking_loss(a, b, target, margin=0.3, reduction=red), {"a": x, "b": y, "target": sign},
         [(mesh, {**pl, "target": pl["a"]}) for mesh, pl in layouts("a", "b")], {**args, "margin": 0.3}, ["a", "b"])
    each("triplet_margin_loss", lambda a, b, c: F.triplet_margin_loss(a, b, c, margin=0.8, reduction=red), {"a": x, "b": y, "c": torch.randn(5, 6)},
         layouts("a", "b", "c"), {**args, "margin": 0.8}, ["a", "b", "c"])
each("kl_div", lambda input, target: F.kl_div(input, target, reduction="batchmean"), {"input": logs, "target": t}, pairs[:2], {"reduction": "batchmean"}, ["input"])

# ---- InfoNCE, which PyTorch has as this formula ---------------------------------------------------
def info_nce(query, key, temperature, symmetric, dot):
    if not dot:
        query, key = F.normalize(query), F.normalize(key)
    s = query @ key.t() / temperature
    own = torch.arange(len(s))
    return (F.cross_entropy(s, own) + F.cross_entropy(s.t(), own)) / 2 if symmetric else F.cross_entropy(s, own)

for temperature, symmetric, dot in ((0.1, False, False), (0.5, True, False), (2.0, False, True)):
    each("info_nce", lambda query, key: info_nce(query, key, temperature, symmetric, dot), {"query": x, "key": y},
         layouts("query", "key", partial=True) + [(mesh2(2, 2), {"query": [S(0), S(1)], "key": [S(0), S(1)]}), (mesh1(2), {"query": [S(0)], "key": [R]})],
         {"temperature": temperature, "symmetric": symmetric, "dot_product": dot}, ["query", "key"])

print(sum(count.values()), count)
