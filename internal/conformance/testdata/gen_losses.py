#!/usr/bin/env python3
"""Writes more conformance cases: losses that gen_more.py does not have.

usage: gen_losses.py OUTDIR SEED   (needs torch; the files beside it were made with seed 20261127)
"""
import torch
import torch.nn.functional as F
from cases import *


# Layouts of tensors [5, 6] by name, and of vectors [5]: uneven shards over 2 and 3 ranks, empty ones over 4, an axis of each dimension.
def layouts(names, vectors=()):
    list = [(mesh1(1), [R], [R]), (mesh1(2), [S(0)], [S(0)]), (mesh1(4), [S(0)], [R]), (mesh1(3), [S(1)], [S(0)]), (mesh2(2, 2), [S(1), S(0)], [R, S(0)]),
            (mesh2(2, 2), [S(0), S(0)], [S(0), S(0)])]
    return [(mesh, {**{n: p for n in names}, **{n: v for n in vectors}}) for mesh, p, v in list]


x, y = torch.randn(5, 6), torch.randn(5, 6)
probs, t = torch.rand(5, 6), torch.rand(5, 6)
probs[0, 0], probs[0, 1], probs[3, 2], probs[4, 5] = 0, 1, 1e-20, 1 - 2**-24
t[0, 0], t[0, 1], t[2, 3] = 0, 1, 1
counts = torch.randint(0, 6, (5, 6)).float()
variance = torch.rand(5, 6) + 0.1
variance[1, 1], variance[4, 0] = 0, 1e-7
signs, rows, classes = torch.randint(0, 2, (5, 6)) * 2 - 1, torch.tensor([1, -1, -1, 1, -1]), torch.tensor([5, 0, 3, 3, 1])
both = ["input", "target"]
for red in ("mean", "sum", "none"):
    args = {"reduction": red}
    each("binary_cross_entropy", lambda input, target: F.binary_cross_entropy(input, target, reduction=red), {"input": probs, "target": t}, layouts(both), args,
         ["input"])
    each("binary_cross_entropy_pos_weight",
         lambda input, target, pos_weight: F.binary_cross_entropy_with_logits(input, target, pos_weight=pos_weight, reduction=red),
         {"input": 9 * x, "target": t, "pos_weight": 3 * torch.rand(6)}, [(m, {**p, "pos_weight": [R] * len(m["shape"])}) for m, p in layouts(both)], args,
         ["input", "target"])
    for log in (True, False):
        for full in (True, False):
            each("poisson_nll_loss", lambda input, target: F.poisson_nll_loss(input, target, log_input=log, full=full, reduction=red),
                 {"input": x if log else 3 * t + 0.1, "target": counts}, layouts(both)[full::2], {**args, "log_input": log, "full": full}, ["input"])
    for full in (True, False):
        each("gaussian_nll_loss", lambda input, target, var: F.gaussian_nll_loss(input, target, var, full=full, reduction=red),
             {"input": x, "target": y, "var": variance}, layouts(both + ["var"])[full::2], {**args, "full": full}, ["input", "target", "var"])
    each("soft_margin_loss", lambda input, target: F.soft_margin_loss(input, target, reduction=red), {"input": 3 * x, "target": signs}, layouts(both), args, ["input"])
    each("hinge_embedding_loss", lambda input, target: F.hinge_embedding_loss(input, target, margin=0.7, reduction=red), {"input": x, "target": signs},
         layouts(both), {**args, "margin": 0.7}, ["input"])
    each("cosine_embedding_loss", lambda a, b, target: F.cosine_embedding_loss(a, b, target, margin=0.1, reduction=red), {"a": x, "b": y, "target": rows},
         layouts(["a", "b"], ["target"]), {**args, "margin": 0.1}, ["a", "b"])
    for p in (1, 2):
        each("multi_margin_loss", lambda input, target: F.multi_margin_loss(input, target, p=p, margin=0.8, reduction=red), {"input": x, "target": classes},
             layouts(["input"], ["target"]), {**args, "p": p, "margin": 0.8}, ["input"])
    each("multi_margin_loss", lambda input, target, weight: F.multi_margin_loss(input, target, weight=weight, reduction=red),
         {"input": x, "target": classes, "weight": torch.rand(6)}, [(m, {**p, "weight": [R] * len(m["shape"])}) for m, p in layouts(["input"], ["target"])],
         {**args, "p": 1, "margin": 1}, ["input"])

labels = torch.tensor([[3, 0, -1, 1, 1, 1], [5, 5, 2, -1, 0, 0], [-1, 0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5], [4, -1, -1, -1, -1, -1]])
for red in ("mean", "sum", "none"):
    args = {"reduction": red}
    each("multilabel_margin_loss", lambda input, target: F.multilabel_margin_loss(input, target, reduction=red), {"input": x, "target": labels}, layouts(both),
         args, ["input"])
each("multilabel_margin_loss", lambda input, target: F.multilabel_margin_loss(input, target, reduction="none"), {"input": x[0], "target": labels[0]},
     [(mesh1(2), {"input": [S(0)], "target": [R]})], {"reduction": "none"}, ["input"])


# Layouts of log_probs [7, 5, 6], targets [5, 3] and lengths [5].
def ctc_layouts():
    for mesh, logs, targets in [(mesh1(1), [R], [R]), (mesh1(2), [S(1)], [S(0)]), (mesh1(3), [S(1)], [R]), (mesh1(4), [S(1)], [S(0)]), (mesh1(3), [S(2)], [S(1)]),
                                (mesh1(2), [S(0)], [R]), (mesh2(2, 2), [S(1), S(1)], [R, S(0)]), (mesh2(2, 2), [S(2), S(1)], [S(0), R])]:
        yield mesh, {"log_probs": logs, "targets": targets, "input_lengths": [R] * len(logs), "target_lengths": ["R" if p != S(0) else p for p in targets]}


def ctc(red, blank, zero, logs, targets, frames, lengths, some):
    each("ctc_loss",
         lambda log_probs, targets, input_lengths, target_lengths: F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, red, zero),
         {"log_probs": logs, "targets": targets, "input_lengths": torch.tensor(frames), "target_lengths": torch.tensor(lengths)}, some,
         {"reduction": red, "blank": blank, "zero_infinity": zero}, ["log_probs"])


logs = torch.randn(7, 5, 6).mul(2).log_softmax(-1)
words = torch.tensor([[1, 2, 2], [3, 3, 3], [5, 4, 1], [2, 1, 2], [4, 4, 1]])
for red in ("mean", "sum", "none"):
    ctc(red, 0, False, logs, words, [7, 5, 3, 6, 1], [3, 3, 2, 0, 1], list(ctc_layouts()))
    ctc(red, 0, True, logs, words, [7, 4, 0, 6, 0], [3, 3, 2, 0, 0], list(ctc_layouts()))  # of sequences 1 and 2 the loss is infinite
ctc("none", 5, False, logs, torch.tensor([0, 1, 1, 4, 3, 2]), [7, 7, 6, 6, 4], [3, 0, 1, 0, 2],
    [(m, {**p, "targets": [R if len(p["targets"]) > 1 else S(0)] * len(p["targets"])}) for m, p in ctc_layouts()])
each("ctc_loss", lambda log_probs, targets, input_lengths, target_lengths: F.ctc_loss(log_probs, targets, input_lengths, target_lengths),
     {"log_probs": logs[:, 0], "targets": words[0], "input_lengths": torch.tensor(6), "target_lengths": torch.tensor(3)},
     [(mesh1(2), {"log_probs": [S(1)], "targets": [R], "input_lengths": [R], "target_lengths": [R]})], {"reduction": "mean", "blank": 0}, ["log_probs"])

print(sum(count.values()), count)
