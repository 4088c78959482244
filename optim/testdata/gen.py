#!/usr/bin/env python3
"""Writes what PyTorch's optimizers and schedules make of some parameters.

usage: gen.py OUTDIR   (needs torch; the files beside it were made with 2.6)
A line of steps.jsonl: an optimizer and its arguments, a matrix and a vector, the gradients
and the rate of each step, and the parameters after it. Lion, LAMB and Muon, which this PyTorch
does not have, are written down below. A line of rates.jsonl: a
schedule, its arguments, and the rate of each step. averages.jsonl has parameters and their
average after each update, scales.jsonl which steps had finite gradients and the scale after each.
"""
import json, sys
import torch

out = sys.argv[1]
torch.manual_seed(20261123)
SHAPES = [(5, 7), (5,)]


def numbers(t):
    return [float("%.9g" % v) for v in t.detach().flatten().tolist()]


class Lion(torch.optim.Optimizer):
    """arXiv 2302.06675, program 1."""
    def __init__(self, params, lr, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(group["lr"] * torch.sign(b1 * m + (1 - b1) * p.grad))
                m.mul_(b2).add_((1 - b2) * p.grad)


class LAMB(torch.optim.Optimizer):
    """arXiv 1904.00962, algorithm 2, with phi(z) = z."""
    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                s = self.state[p]
                if not s:
                    s.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                s["t"] += 1
                s["m"].mul_(b1).add_((1 - b1) * p.grad)
                s["v"].mul_(b2).add_((1 - b2) * p.grad ** 2)
                r = s["m"] / (1 - b1 ** s["t"]) / ((s["v"] / (1 - b2 ** s["t"])).sqrt() + group["eps"])
                u = r + group["weight_decay"] * p
                a, b = p.norm(), u.norm()
                ratio = a / b if a > 0 and b > 0 else 1.0
                p.sub_(group["lr"] * ratio * u)


class Muon(torch.optim.Optimizer):
    """torch.optim.Muon of PyTorch 2.9, which this version does not have, in float32."""
    def __init__(self, params, lr, momentum=0.95, nesterov=True, ns_steps=5, weight_decay=0.0, match=False):
        super().__init__(params, dict(lr=lr, momentum=momentum, nesterov=nesterov, ns_steps=ns_steps, weight_decay=weight_decay, match=match))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                m.lerp_(p.grad, 1 - group["momentum"])
                u = p.grad.lerp(m, group["momentum"]) if group["nesterov"] else m
                x = (u.T if u.size(0) > u.size(1) else u) / u.norm().clamp(min=1e-7)
                for _ in range(group["ns_steps"]):
                    a = x @ x.T
                    x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
                x = x.T if u.size(0) > u.size(1) else x
                r, c = u.shape
                scale = 0.2 * max(r, c) ** 0.5 if group["match"] else max(1, r / c) ** 0.5
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(group["lr"] * scale * x)


CASES = [
    ("SGD", torch.optim.SGD, dict(momentum=0.9, dampening=0.1, weight_decay=0.05)),
    ("SGD", torch.optim.SGD, dict(momentum=0.9, nesterov=True)),
    ("Adam", torch.optim.Adam, dict(weight_decay=0.1)),
    ("Adam", torch.optim.Adam, dict(betas=(0.8, 0.7), weight_decay=0.1, amsgrad=True)),
    ("AdamW", torch.optim.AdamW, dict(weight_decay=0.1)),
    ("AdamW", torch.optim.AdamW, dict(betas=(0.8, 0.7), eps=1e-4, weight_decay=0.1, amsgrad=True)),
    ("Adagrad", torch.optim.Adagrad, dict(eps=1e-6)),
    ("Adagrad", torch.optim.Adagrad, dict(lr_decay=0.3, weight_decay=0.2, initial_accumulator_value=0.1)),
    ("RMSprop", torch.optim.RMSprop, dict()),
    ("RMSprop", torch.optim.RMSprop, dict(alpha=0.9, momentum=0.8, centered=True, weight_decay=0.1, eps=1e-4)),
    ("Adafactor", torch.optim.Adafactor, dict()),
    ("Adafactor", torch.optim.Adafactor, dict(weight_decay=0.3, d=1.1, beta2_decay=-0.5)),
    ("Lion", Lion, dict(weight_decay=0.2)),
    ("LAMB", LAMB, dict(weight_decay=0.2)),
    ("LAMB", LAMB, dict(betas=(0.7, 0.8), eps=1e-3)),
]
RATES = [0.1, 0.05, 0.2, 0.01, 0.1]
LATER = [  # recorded after the others; ASGD takes the rate of the step before, so its rate is constant
    ("Adadelta", torch.optim.Adadelta, dict(), [1.0, 0.5, 1.0, 2.0, 1.0]),
    ("Adadelta", torch.optim.Adadelta, dict(rho=0.7, eps=1e-3, weight_decay=0.1), RATES),
    ("Adamax", torch.optim.Adamax, dict(), RATES),
    ("Adamax", torch.optim.Adamax, dict(betas=(0.8, 0.7), eps=1e-3, weight_decay=0.1), RATES),
    ("NAdam", torch.optim.NAdam, dict(), RATES),
    ("NAdam", torch.optim.NAdam, dict(betas=(0.8, 0.7), eps=1e-3, weight_decay=0.1, momentum_decay=0.5), RATES),
    ("NAdam", torch.optim.NAdam, dict(weight_decay=0.1, decoupled_weight_decay=True), RATES),
    ("RAdam", torch.optim.RAdam, dict(), RATES + RATES),
    ("RAdam", torch.optim.RAdam, dict(betas=(0.8, 0.7), eps=1e-3, weight_decay=0.1), RATES + RATES),
    ("RAdam", torch.optim.RAdam, dict(weight_decay=0.1, decoupled_weight_decay=True), RATES + RATES),
    ("ASGD", torch.optim.ASGD, dict(), [0.1] * 5),
    ("ASGD", torch.optim.ASGD, dict(lambd=0.2, alpha=0.5, t0=2, weight_decay=0.1), [0.1] * 5),
]

def record(f, name, make, args, rates, shapes=SHAPES):
    params = [torch.randn(s).requires_grad_() for s in shapes]
    case = {"optimizer": name, "args": args, "shapes": shapes, "params": [numbers(p) for p in params], "rates": rates, "grads": [], "after": []}
    opt = make(params, lr=rates[0], **args)
    for rate in rates:
        opt.param_groups[0]["lr"] = rate
        for p in params:
            p.grad = torch.randn_like(p)
        case["grads"].append([numbers(p.grad) for p in params])
        opt.step()
        case["after"].append([numbers(p) for p in params])
    f.write(json.dumps(case, separators=(",", ":")) + "\n")


with open(out + "/steps.jsonl", "w") as f:
    for name, make, args in CASES:
        record(f, name, make, args, RATES)

S = torch.optim.lr_scheduler
with open(out + "/rates.jsonl", "w") as f:
    for name, peak, args, make in [
        ("WarmupLinear", 0.4, dict(Floor=0.04, Total=8), lambda o: S.LinearLR(o, 1.0, 0.1, total_iters=8)),
        ("WarmupCosine", 0.4, dict(Floor=0.04, Total=12), lambda o: S.CosineAnnealingLR(o, 12, 0.04)),
        ("WarmupStep", 0.4, dict(Factor=0.5, Every=3), lambda o: S.StepLR(o, 3, 0.5)),
        ("Constant", 0.4, dict(Warmup=5), lambda o: S.LinearLR(o, 0.2, 1.0, total_iters=4)),
        ("OneCycle", 0.4, dict(Total=12), lambda o: S.OneCycleLR(o, 0.4, total_steps=12)),
        ("CosineRestarts", 0.4, dict(Floor=0.04, Length=3), lambda o: S.CosineAnnealingWarmRestarts(o, 3, 1, 0.04)),
        ("CosineRestarts", 0.4, dict(Length=2, Factor=2), lambda o: S.CosineAnnealingWarmRestarts(o, 2, 2)),
        ("OneCycle", 0.4, dict(Total=11, Rise=0.4, Start=10, End=100),
         lambda o: S.OneCycleLR(o, 0.4, total_steps=11, pct_start=0.4, div_factor=10, final_div_factor=100)),
        ("WarmupMilestones", 0.4, dict(Factor=0.5, Milestones=[2, 3, 7]), lambda o: S.MultiStepLR(o, [2, 3, 7], 0.5)),
        ("WarmupPower", 0.4, dict(Total=8), lambda o: S.PolynomialLR(o, 8)),
        ("WarmupPower", 0.4, dict(Total=10, Power=2.5), lambda o: S.PolynomialLR(o, 10, 2.5)),
        ("WarmupInverseSqrt", 0.4, dict(Warmup=4), lambda o: S.LambdaLR(o, lambda t: 2 * min((t + 1) ** -0.5, (t + 1) * 4**-1.5))),
        ("RateFunc", 0.4, dict(Factor=0.9), lambda o: S.LambdaLR(o, lambda t: 0.9**t)),
        ("Phases", 0.4, dict(Warmup=3, Every=5, Total=4),
         lambda o: S.SequentialLR(o, [S.LinearLR(o, 1 / 3, 1.0, total_iters=2), S.LinearLR(o, 1.0, 0.0, total_iters=4)], [5])),
    ]:
        opt = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=peak)
        schedule, rates = make(opt), []
        for step in range(args.get("Total", 12) if name == "OneCycle" else 12):
            rates.append(opt.param_groups[0]["lr"])
            opt.step()
            if len(rates) < args.get("Total", 99) or name != "OneCycle":
                schedule.step()
        f.write(json.dumps({"schedule": name, "peak": peak, "args": args, "rates": rates}, separators=(",", ":")) + "\n")

with open(out + "/averages.jsonl", "w") as f:
    for decay in (0.75, 0.999, None):  # None: equal weights
        model = torch.nn.Linear(7, 5)
        average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=decay and torch.optim.swa_utils.get_ema_multi_avg_fn(decay))
        case = {"decay": decay, "params": [], "averages": []}
        for step in range(5):  # the first update takes the parameters as they are
            if step > 0:
                with torch.no_grad():
                    model.weight.copy_(torch.randn_like(model.weight))
            average.update_parameters(model)
            case["params"].append(numbers(model.weight))
            case["averages"].append(numbers(average.module.weight))
        f.write(json.dumps(case, separators=(",", ":")) + "\n")

with open(out + "/scales.jsonl", "w") as f:
    for args in (dict(init_scale=1024.0, growth_interval=2), dict(init_scale=64.0, growth_factor=4.0, backoff_factor=0.25, growth_interval=3)):
        scaler = torch.amp.GradScaler("cpu", **args)
        p = torch.ones(3, requires_grad=True)
        opt = torch.optim.SGD([p], lr=0.1)
        finite, scales = [True, True, True, False, True, False, False, True, True, True, True, True], []
        for ok in finite:
            opt.zero_grad()
            scaler.scale((p * (1.0 if ok else float("inf"))).sum()).backward()
            scaler.step(opt)
            scaler.update()
            scales.append(scaler.get_scale())
        f.write(json.dumps({"args": args, "finite": finite, "scales": scales, "params": numbers(p)}, separators=(",", ":")) + "\n")

torch.manual_seed(20261127)
with open(out + "/steps.jsonl", "a") as f:
    for name, make, args, rates in LATER:
        record(f, name, make, args, rates)
    for args in (dict(nesterov=True, weight_decay=0.1), dict(momentum=0.7, nesterov=False, ns_steps=3, match=True)):
        record(f, "Muon", Muon, args, RATES, [(5, 7), (5, 3)])
    for args in (dict(), dict(etas=(0.3, 1.7), step_sizes=(0.05, 0.15))):
        record(f, "Rprop", torch.optim.Rprop, args, RATES)

with open(out + "/plateaus.jsonl", "w") as f:
    for args in (dict(factor=0.5, patience=2), dict(factor=0.1, patience=0, threshold=0.1, cooldown=2, min_lr=0.003)):
        opt = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.4)
        plateau = S.ReduceLROnPlateau(opt, **args)
        losses, rates = [5, 4, 4, 4.1, 3.9999, 3.99999, 4, 3, 3, 3, 3, 3, 2.5, 2.4, 2.3, 2.3, 2.3, 2.3], []
        for loss in losses:
            plateau.step(loss)
            rates.append(opt.param_groups[0]["lr"])
        f.write(json.dumps({"args": args, "losses": losses, "rates": rates}, separators=(",", ":")) + "\n")

# A line of lbfgs.jsonl: arguments, and for each step the loss before it, how often the function was evaluated so far, and
# the parameters after it. The function is the mean of (sigmoid(x·wᵀ + b) - y)² plus the mean of (w² - 1)²/20.
torch.manual_seed(20261128)
with open(out + "/lbfgs.jsonl", "w") as f:
    for lr, args in [
        (1, dict()),
        (0.1, dict(max_iter=4, history_size=2)),
        (1, dict(max_iter=6, line_search_fn="strong_wolfe")),
        (20, dict(max_iter=9, history_size=3, line_search_fn="strong_wolfe")),
        (1e-3, dict(max_iter=30, max_eval=7, line_search_fn="strong_wolfe")),
        (1, dict(max_iter=50, tolerance_grad=1e-3, line_search_fn="strong_wolfe")),
        (1, dict(max_iter=50, tolerance_change=1e-3)),
    ]:
        x, y = torch.randn(6, 7, dtype=torch.float64), torch.rand(6, 5, dtype=torch.float64)
        w, b = torch.randn(5, 7, dtype=torch.float64).requires_grad_(), torch.randn(5, dtype=torch.float64).requires_grad_()
        exact = lambda t: t.detach().flatten().tolist()
        case = {"rate": lr, "args": args, "x": exact(x), "y": exact(y), "params": [exact(w), exact(b)], "losses": [], "evaluations": [], "after": []}
        opt = torch.optim.LBFGS([w, b], lr=lr, **args)

        def closure():
            opt.zero_grad()
            loss = ((x @ w.T + b).sigmoid() - y).square().mean() + (w.square() - 1).square().mean() / 20
            loss.backward()
            return loss

        for step in range(4):
            case["losses"].append(opt.step(closure).item())
            case["evaluations"].append(opt.state[w]["func_evals"])
            case["after"].append([exact(w), exact(b)])
        f.write(json.dumps(case, separators=(",", ":")) + "\n")
