package tensor

import (
	"runtime"
	"slices"
)

// Cross-entropy over classes that may be held in parts. The part of this rank is
// logits [N, C], classes lo to lo+C of all; the caller combines the statistics of
// the parts and works out the loss.
//
// With lse = ln Σ exp(x), t the target, w the class weights (ones), W their sum
// and ε the label smoothing, the loss of a row is
//
//	(1-ε)·w[t]·(lse - x[t]) + ε/K·(W·(lse - max) - Σ w·(x - max))   for K classes in all
//
// and its gradient is a·exp(x - lse) - b·[c is t] - s·w[c], with
//
//	a = (1-ε)·w[t] + ε/K·W   b = (1-ε)·w[t]   s = ε/K
//
// each times the gradient of the row's loss.
//
// Logits may be float32, float64 or bfloat16. What goes with bfloat16 logits is
// float32, and so is the arithmetic; their gradient is bfloat16. That of float32
// logits may be bfloat16 too.

// The columns of the statistics of CrossEntropyStats.
const (
	StatMax    = iota // the largest logit; -Inf for no classes, unspecified if one is NaN
	StatSumExp        // Σ exp(x - max); NaN if a logit is NaN or +Inf
	StatTarget        // the logit of the target; 0 if its class is not in this part
	StatSum           // Σ w·(x - max), counted from 0 if max is -Inf; 0 unless asked for
	Stats             // the number of columns
)

// CrossEntropyStats returns for each row of logits [N, C] the four numbers above,
// [N, 4], reading the logits once. target [N] is int64 or int32, any value: a
// class that is not in [lo, lo+C) is not this part's. weight [C] may be nil; the
// weighted sum is computed if withSum is set.
//
// The statistics of two parts combine: with m = max(m1, m2), the sum of
// exponentials is s1·exp(m1-m) + s2·exp(m2-m), and a weighted sum u1 of weights W1
// is counted from m by adding W1·(m1-m); then it adds, as does the target.
func CrossEntropyStats(logits, target *Tensor, lo int, weight *Tensor, withSum bool) *Tensor {
	n, classes := wantLogits("CrossEntropyStats", logits, target, weight)
	stats := alloc("CrossEntropyStats", logits.dev, WideType(logits.dtype), []int{n, Stats})
	logits.dev.CrossEntropyStats(logits.dtype, stats.addr, logits.ptr("CrossEntropyStats"), target.dtype, target.ptr("CrossEntropyStats"),
		addrOf("CrossEntropyStats", weight), n, classes, lo, withSum)
	runtime.KeepAlive(logits)
	runtime.KeepAlive(target)
	runtime.KeepAlive(weight)
	return stats
}

// CrossEntropyJoin makes stats [N, 4], those of a part of the classes, those of that
// part and another, of which more [N, 4] are: as said above, in float64. weights and
// others are the sums of the parts' class weights if weighted sums were asked for,
// else 0.
func CrossEntropyJoin(stats, more *Tensor, weights, others float64) {
	wantFloat("CrossEntropyJoin", stats)
	wantSameType("CrossEntropyJoin", stats, more)
	wantSameShape("CrossEntropyJoin", stats, more)
	if stats.ndim != 2 || stats.dims[1] != Stats {
		throwShape("CrossEntropyJoin", "statistics %v: want [N %d]", stats.brief(), Stats)
	}
	stats.dev.CrossEntropyJoin(stats.dtype, stats.ptr("CrossEntropyJoin"), more.ptr("CrossEntropyJoin"), stats.dims[0], weights, others)
	runtime.KeepAlive(more)
}

// CrossEntropyGrad computes the gradient of the logits [N, C],
//
//	dst[n][c] = coef[n][0]·exp(x - lse[n]) - coef[n][1]·[lo+c is target[n]] - coef[n][2]·weight[c]
//
// into dst, which is written once and may be logits itself, or bfloat16 where they are
// float32; nil makes a new tensor like them. coef is [N, 3]: a, b and s above times
// the gradient of the row's loss, all zero for a row that is ignored (its result is
// then zero whatever its logits are). weight may be nil (ones). It returns dst.
func CrossEntropyGrad(dst, logits, target *Tensor, lo int, lse, coef, weight *Tensor) *Tensor {
	n, classes := wantLogits("CrossEntropyGrad", logits, target, weight)
	wantBeside("CrossEntropyGrad", "lse", logits, lse)
	wantBeside("CrossEntropyGrad", "coef", logits, coef)
	if lse.numel != n || !slices.Equal(coef.Shape(), []int{n, 3}) {
		throwShape("CrossEntropyGrad", "lse %v and coef %v for logits %v: want [%d] and [%d 3]", lse.brief(), coef.brief(), logits.brief(), n, n)
	}
	switch {
	case dst == nil:
		dst = allocLike("CrossEntropyGrad", logits)
	case dst.dtype == BFloat16 && logits.dtype == Float32:
		wantSameDevice("CrossEntropyGrad", dst, logits)
	default:
		wantSameType("CrossEntropyGrad", dst, logits)
	}
	wantSameShape("CrossEntropyGrad", dst, logits)
	logits.dev.CrossEntropyGrad(dst.dtype, dst.ptr("CrossEntropyGrad"), logits.dtype, logits.ptr("CrossEntropyGrad"), target.dtype, target.ptr("CrossEntropyGrad"),
		lse.ptr("CrossEntropyGrad"), coef.ptr("CrossEntropyGrad"), addrOf("CrossEntropyGrad", weight), n, classes, lo)
	runtime.KeepAlive(logits)
	runtime.KeepAlive(target)
	runtime.KeepAlive(lse)
	runtime.KeepAlive(coef)
	runtime.KeepAlive(weight)
	return dst
}

// wantLogits throws unless logits [N, C], target [N] and weight [C] fit.
func wantLogits(op string, logits, target, weight *Tensor) (n, classes int) {
	if logits.dtype != BFloat16 {
		wantFloat(op, logits)
	}
	wantIndex(op, "target", target)
	wantSameDevice(op, logits, target)
	if logits.ndim != 2 || target.numel != logits.dims[0] {
		throwShape(op, "logits %v, target %v: want [N C] and [N]", logits.brief(), target.brief())
	}
	if weight != nil {
		wantBeside(op, "weight", logits, weight)
		if weight.ndim != 1 || weight.numel != logits.dims[1] {
			throwShape(op, "weight %v for the %d classes of logits %v", weight.brief(), logits.dims[1], logits.brief())
		}
	}
	return logits.dims[0], logits.dims[1]
}

// wantBeside throws unless x is of the type that goes with logits, on their device.
func wantBeside(op, name string, logits, x *Tensor) {
	if x.dtype != WideType(logits.dtype) {
		throwType(op, "%s %v for logits %v: want %v; Cast it", name, x.brief(), logits.brief(), WideType(logits.dtype))
	}
	wantSameDevice(op, logits, x)
}
