"""How cases are computed and written: what gen.py and gen_more.py share."""
import json, os, random, sys
# Sums are rounded as the CPU's kernels order them. These made the files, byte for byte;
# others move the last bits of some expectations, well within the tolerances.
os.environ.update(OPENBLAS_CORETYPE="Haswell", ATEN_CPU_CAPABILITY="avx512", OMP_NUM_THREADS="2")
import torch

out, seed = sys.argv[1], int(sys.argv[2])
torch.manual_seed(seed)
rnd = random.Random(seed)
os.makedirs(out, exist_ok=True)
count = {}


def ten(t, placements=None):
    t = t.detach().contiguous()
    dt = {torch.float32: "float32", torch.float64: "float64", torch.int64: "int64", torch.int32: "int32", torch.bool: "bool", torch.bfloat16: "bfloat16"}[t.dtype]
    data = t.flatten().tolist()
    if dt == "float32":  # nine significant digits name a float32 exactly
        data = [float("%.9g" % v) for v in data]
    d = {"dtype": dt, "shape": list(t.shape), "data": data}
    if placements is not None:
        d["placements"] = placements
    return d


def save(op, mesh, inputs, args, expect, grad_output=None, tol=None, want_grad=()):
    i = count[op] = count.get(op, 0) + 1
    name = f"{op}_{i:03d}"
    case = {"name": name, "op": op, "mesh": mesh, "inputs": inputs, "args": args, "expect": expect,
            "tol": tol or {"rtol": 2e-5, "atol": 2e-6}}
    if grad_output is not None:
        case["grad_output"] = ten(grad_output)
        case["want_grad"] = list(want_grad)
    with open(os.path.join(out, op + ".jsonl"), "w" if i == 1 else "a") as f:
        f.write(json.dumps(case, separators=(",", ":")) + "\n")


def mesh1(n):
    return {"shape": [n], "names": ["tp"]}


def mesh2(a, b):
    return {"shape": [a, b], "names": ["dp", "tp"]}


def run(op, fn, mesh, tensors, placements, args, grads, tol=None, extra=None):
    """fn(**tensors) -> output; expectations of output and of the gradients of `grads`."""
    leaf = {k: (v.clone().requires_grad_(k in grads) if v.is_floating_point() else v) for k, v in tensors.items()}
    y = fn(**leaf)
    expect = {"output": ten(y)}
    go = None
    if grads:
        go = torch.randn_like(y) if y.dim() > 0 else torch.tensor(1.0 + 0.5 * rnd.random(), dtype=y.dtype)
        gs = torch.autograd.grad(y, [leaf[k] for k in grads], go, allow_unused=True)
        expect["grads"] = {k: ten(g if g is not None else torch.zeros_like(tensors[k])) for k, g in zip(grads, gs)}
    if extra:
        expect.update(extra)
    save(op, mesh, {k: ten(v, placements[k]) for k, v in tensors.items()}, args, expect, go, tol, grads)


R, MP = "R", "MaskP"
S = lambda d: f"S({d})"


def each(op, fn, tensors, layouts, args, grads, tol=None):
    for mesh, pl in layouts:
        run(op, fn, mesh, tensors, pl, args, grads, tol)
