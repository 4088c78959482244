"""Writes pytorch.json: what PyTorch computes where docs/pytorch.md has operators of dtensor.

    python3 pytorch.py > pytorch.json

Input k is sin(0.7·i + k + 1) for element i, so the file has results alone.
"""
import json
import math

import torch
import torch.nn.functional as F


def wave(k, *shape):
    n = math.prod(shape)
    return torch.sin(0.7 * torch.arange(n, dtype=torch.float64) + k + 1).reshape(shape).requires_grad_()


def halves(x):
    """x rounded to halves, so that numbers are equal and 0, with the gradient of x."""
    return x - x.detach() + (x * 2).round().detach() / 2


def scatter_reduce(x, y):
    """Of all operations. PyTorch loses some of dy where an element of x that is not folded equals the result, so none does here."""
    y, to = halves(y), torch.tensor([[0, 2, 0, 2, 2, 0], [3, 3, 3, 3, 3, 1], [0, 1, 2, 3, 0, 1]])
    ops = [(op, self) for op in ("sum", "mean", "prod", "amax", "amin") for self in (True, False)]
    return torch.cat([(halves(x) if self else x).scatter_reduce(1, to, y, op, include_self=self) * (k + 1)
                      for k, (op, self) in enumerate(ops)], 1)


def scan(a, b):
    """h[t] = a[t]·h[t-1] + b[t], as torch.associative_scan and Mamba compute it, by a loop."""
    h = [b[0]]
    for t in range(1, len(b)):
        h.append(a[t] * h[-1] + b[t])
    return torch.stack(h)


def turned(x):
    """x with a larger diagonal of the other sign: its rows are not exchanged and its determinant is not near 0."""
    return x * 0.2 - 2 * torch.eye(x.shape[-1], dtype=x.dtype)


def positive(x):
    return x @ x.mT + torch.eye(x.shape[-1], dtype=x.dtype)


def bent(x):
    """x with a rank that is full."""
    return x * x * x


def flat(*parts):
    return torch.cat([p.reshape(-1) for p in parts])


def qr(x):
    return flat(*torch.linalg.qr(bent(x)), *torch.linalg.qr(bent(x).mT))


def eigh(x):
    x = bent(x) + bent(x).mT
    values, vectors = torch.linalg.eigh(x)
    return flat(values, vectors.square() * values.unsqueeze(-2), torch.linalg.matrix_exp(x))


def svd(x):
    parts = []
    for y in bent(x), bent(x).mT:
        u, s, vh = torch.linalg.svd(y, full_matrices=False)
        parts += [s, u.square(), vh.square(), u @ vh]
    return flat(*parts)


rows = [(5, 3)]
equations = [(2, 3, 3), (2, 3, 4)]
pair = [(5, 3), (5, 3)]
i = torch.tensor([4, 0, 4])
cases = {
    "hypot": (torch.hypot, pair),
    "xlogy": (lambda x, y: torch.xlogy(x * (x > 0), y.abs()), pair),
    "logit": (lambda x: torch.logit(x * 0.4 + 0.5), rows),
    "sinc": (lambda x: torch.sinc(x.relu()), rows),
    "heaviside": (lambda x, v: torch.heaviside(x.relu().detach(), v.detach()), pair),
    "copysign": (lambda a, b: torch.copysign(a, b), pair),
    "frac": (lambda x: torch.frac(x * 9), rows),
    "nan_to_num": (lambda x: torch.nan_to_num((x - 0.5).log()), rows),
    "isfinite": (lambda x: torch.isfinite((x - 0.5).log()).double(), rows),
    "addcmul": (lambda c, a, b: torch.addcmul(c, a, b, value=0.3), [(5, 3), (5, 3), (3,)]),
    "addcdiv": (lambda c, a, b: torch.addcdiv(c, a, b, value=0.3), [(5, 3), (5, 3), (3,)]),
    "addmm": (lambda c, a, b: torch.addmm(c, a, b, beta=0.2, alpha=0.3), [(3,), (5, 2), (2, 3)]),
    "bilinear": (F.bilinear, [(5, 3), (5, 2), (4, 3, 2)]),
    "pairwise_distance": (F.pairwise_distance, pair),
    "threshold": (lambda x: F.threshold(x, 0.3, 2.0), rows),
    "gumbel_softmax": (lambda x, u: ((x - torch.log(-torch.log(u.detach() * 0.4 + 0.5))) / 0.7).softmax(-1), pair),
    # As torch.multinomial draws: u decides, and of equal chances the largest p over an exponential number is first.
    "multinomial": (lambda x, u: (x.detach().softmax(-1) / -torch.log(u.detach() * 0.4 + 0.5)).topk(2, -1).indices.double(), pair),
    "softsign": (F.softsign, rows),
    "tanhshrink": (F.tanhshrink, rows),
    "softshrink": (lambda x: F.softshrink(x, 0.3), rows),
    "hardshrink": (lambda x: F.hardshrink(x, 0.3), rows),
    "relu6": (lambda x: F.relu6(x * 9), rows),
    "selu": (F.selu, rows),
    "celu": (lambda x: F.celu(x, 0.5), rows),
    "glu": (F.glu, [(5, 4)]),
    "softmin": (lambda x: F.softmin(x, -1), rows),
    "count_nonzero": (lambda x: torch.count_nonzero(x.relu(), -1).double(), rows),
    "nansum": (lambda x: torch.nansum((x - 0.5).log(), -1), rows),
    "median": (lambda x: x.median(0).values, [(6, 3)]),
    "kthvalue": (lambda x: x.kthvalue(2, -1).values, rows),
    "quantile": (lambda x: x.quantile(0.3, 0), [(6, 3)]),
    "bincount": (lambda x: torch.bincount((x * 2 + 2).long().flatten(), minlength=5).double(), [(9,)]),
    "diff": (lambda x: x.diff(dim=0), rows),
    "logcumsumexp": (lambda x: x.logcumsumexp(0), rows),
    "trapezoid": (lambda x: torch.trapezoid(x, dx=0.1, dim=0), rows),
    "cov": (torch.cov, rows),
    "diag": (torch.diag, [(5,)]),
    "kron": (torch.kron, [(5, 3), (2, 2)]),
    "cross": (lambda a, b: torch.linalg.cross(a, b), pair),
    "tensordot": (lambda a, b: torch.tensordot(a, b), [(5, 3, 2), (3, 2, 4)]),
    "cdist": (lambda a, b: torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist"), [(5, 3), (4, 3)]),
    "cosine_similarity": (lambda a, b: F.cosine_similarity(a, b, -1), pair),
    "index_fill": (lambda x: x.index_fill(0, i, 0.5), rows),
    "index": (lambda x: x[i, torch.tensor([2, 0, 2])], [(5, 3, 2)]),
    "equal": (lambda a, b: torch.tensor(torch.equal(a.relu() * 0, b.relu() * 0)).double(), pair),
    "isclose": (lambda a, b: torch.isclose(a, a + b * 2e-5 * a).double(), pair),
    "isin": (lambda x: torch.isin((x * 9).long(), i).double(), rows),
    "slice_scatter": (lambda x, y: x.slice_scatter(y, 0, 1, 3), [(5, 3), (2, 3)]),
    "index_copy": (lambda x, y: x.index_copy(0, i[:2], y), [(5, 3), (2, 3)]),
    "scatter_reduce": (scatter_reduce, [(3, 4), (3, 6)]),
    "index_reduce": (lambda x, y: x.index_reduce(0, i, y, "amax", include_self=False), pair[:1] + [(3, 3)]),
    "renorm": (lambda x: x.renorm(2, 0, 0.8), rows),
    "take": (lambda x: x.take(i), rows),
    "masked_scatter": (lambda x, y: x.masked_scatter(x > 0, y), [(5, 3), (15,)]),
    "Tensor.unfold": (lambda x: x.unfold(0, 3, 2), rows),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), [(2, 8, 3, 2)]),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), [(2, 2, 6, 4)]),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 3), [(2, 6, 2)]),
    "pad, circular": (lambda x: F.pad(x, (2, 2), mode="circular"), [(2, 2, 4)]),
    "pad, reflect": (lambda x: F.pad(x, (2, 2), mode="reflect"), [(2, 2, 4)]),
    "pad, replicate": (lambda x: F.pad(x, (2, 2), mode="replicate"), [(2, 2, 4)]),
    "affine_grid": (lambda theta: F.affine_grid(theta, (2, 1, 3, 4), align_corners=False), [(2, 2, 3)]),
    "meshgrid": (lambda a, b: torch.stack(torch.meshgrid(a, b, indexing="ij")), [(4,), (3,)]),
    "cartesian_prod": (torch.cartesian_prod, [(4,), (3,)]),
    "nanmean": (lambda x: (x - 0.5).log().nanmean(1), [(3, 5)]),
    "corrcoef": (torch.corrcoef, rows),
    "diag_embed": (torch.diag_embed, rows),
    "logaddexp2": (torch.logaddexp2, pair),
    "isinf": (lambda x: torch.isinf(x.round().log()).double(), rows),
    "associative_scan": (scan, [(5, 3), (5, 3)]),
    "fake_quantize_per_tensor_affine": (lambda x: torch.fake_quantize_per_tensor_affine(x * 3, 0.25, 2, -6, 9), rows),
    "cumulative_trapezoid": (lambda x: torch.cumulative_trapezoid(x, dx=0.5, dim=0), rows),
    "block_diag": (torch.block_diag, [(2, 3), (3, 1)]),
    "select_scatter": (lambda x, y: x.select_scatter(y, 0, 2), [(5, 3), (3,)]),
    "vander": (lambda x: x[:, None] ** torch.arange(4), [(5,)]),  # torch.vander has no gradient
    "linalg.cholesky": (lambda x: torch.linalg.cholesky(positive(x)), equations[:1]),
    "linalg.solve": (lambda a, b: torch.linalg.solve(turned(a).flip(-2), b), equations),
    "linalg.solve_triangular": (lambda a, b: torch.linalg.solve_triangular(turned(a).triu(), b, upper=True), equations),
    "linalg.slogdet": (lambda a: torch.stack(torch.linalg.slogdet(turned(a))), equations[:1]),
    "linalg.det": (lambda a: torch.linalg.det(turned(a)), equations[:1]),
    "linalg.inv": (lambda a: torch.linalg.inv(turned(a)), equations[:1]),
    "linalg.lstsq": (lambda a, b: torch.linalg.lstsq(a, b).solution, [(5, 2), (5, 3)]),
    "linalg.qr": (qr, rows),
    "linalg.eigh": (eigh, equations[:1]),
    "linalg.svd": (svd, rows),
    "linalg.pinv": (lambda x: torch.linalg.pinv(bent(x)), rows),
    "linalg.matrix_power": (lambda x: torch.linalg.matrix_power(x, 3), equations[:1]),
    "cholesky_solve": (lambda x, b: torch.cholesky_solve(b, torch.linalg.cholesky(positive(x))), equations),
    "cholesky_inverse": (lambda x: torch.cholesky_inverse(torch.linalg.cholesky(positive(x))), equations[:1]),
    "fmax": (lambda a, b: torch.fmax(torch.fmax((a - 0.2).log(), b), (b - 0.1).log()), pair),
    "nanmedian": (lambda x: (x - 0.1).log().nanmedian(0).values, rows),
    "searchsorted": (lambda edges, v: torch.searchsorted(edges.sort().values, v.detach()), [(5,), (4,)]),
    "addr": (lambda c, a, b: torch.addr(c, a, b, beta=0.2, alpha=0.3), [(5, 3), (5,), (3,)]),
    "addbmm": (lambda c, a, b: torch.addbmm(c, a, b, beta=0.2, alpha=0.3), [(5, 4), (2, 5, 3), (2, 3, 4)]),
    "ldexp": (lambda x, e: torch.ldexp(x, (e.detach() * 4).round().int()), pair),
    "dist": (lambda a, b: torch.dist(a, b, 2), pair),
    "local_response_norm": (lambda x: F.local_response_norm(x, 3, alpha=0.5, beta=0.75, k=1), [(2, 5, 3)]),
    "diagonal_scatter": (lambda x, v: torch.diagonal_scatter(x, v), [(4, 4), (4,)]),
    # Modules of torchrec: a layer of each.
    "CrossNet": (lambda x0, x, w, b: x0 * (F.linear(x, w) + b) + x, [(5, 3), (5, 3), (3, 3), (3,)]),
    "LowRankCrossNet": (lambda x0, x, v, w, b: x0 * (F.linear(F.linear(x, v), w) + b) + x, [(5, 3), (5, 3), (2, 3), (3, 2), (3,)]),
    "FactorizationMachine": (lambda x: 0.5 * (x.sum(1, True) ** 2 - (x * x).sum(1, True)), rows),
    "SwishLayerNorm": (lambda x, w, b: x * torch.sigmoid(F.layer_norm(x, (3,), w, b)), [(5, 3), (3,), (3,)]),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, 1), [(2, 2, 3, 2)]),
}

lines = []
for name, (f, shapes) in cases.items():
    inputs = [wave(k, *s) for k, s in enumerate(shapes)]
    out = f(*inputs)
    if out.requires_grad:
        (out * wave(8, *out.shape).detach()).sum().backward()
    numbers = lambda t: [] if t is None else [float(f"{v:.12g}") for v in t.detach().flatten().tolist()]
    grads = [numbers(x.grad) for x in inputs]
    lines.append(json.dumps({"name": name, "inputs": shapes, "shape": list(out.shape), "output": numbers(out), "grads": grads}))
print("[\n" + ",\n".join(lines) + "\n]")
