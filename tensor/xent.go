package tensor

import (
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/tensor/kernel"
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
// Logits may be of any floating-point type. What goes with logits of a narrow type is
// float32, and so is the arithmetic; their gradient is of their type. That of float32
// logits may be of a narrow type too.

// CrossEntropyStats returns for each row of logits [N, C] the four numbers above,
// [N, 4], reading the logits once. target [N] is int64 or int32, any value: a
// class that is not in [lo, lo+C) is not this part's. weight [C] may be nil; the
// weighted sum is computed if withSum is set.
//
// The statistics of two parts combine: with m = max(m1, m2), the sum of
// exponentials is s1·exp(m1-m) + s2·exp(m2-m), and a weighted sum u1 of weights W1
// is counted from m by adding W1·(m1-m); then it adds, as does the target.
func CrossEntropyStats(logits, target *Tensor, lo int, weight *Tensor, withSum bool) *Tensor {
	const op = "CrossEntropyStats"
	n := wantLogits(op, logits, target, weight)
	stats := alloc(op, logits.dev, logits.dtype.Wide(), []int{n, kernel.Stats})
	logits.dev.CrossEntropyStats(stats.addr, classLogits(op, logits, target, weight, lo), withSum)
	keepAlive(logits, target, weight)
	return stats
}

// classLogits returns what the kernels of cross-entropy take. The caller has checked the
// tensors, and keeps them alive.
func classLogits(op string, logits, target, weight *Tensor, lo int) kernel.ClassLogits {
	return kernel.ClassLogits{DType: logits.dtype, Logits: logits.ptr(op), Target: target.indices(op),
		Weight: addrOf(op, weight), Rows: logits.dims[0], Classes: logits.dims[1], Lo: lo}
}

// CrossEntropyJoin makes stats [N, 4], those of a part of the classes, those of that
// part and another, of which more [N, 4] are: as said above, in float64. weights and
// others are the sums of the parts' class weights if weighted sums were asked for,
// else 0.
func CrossEntropyJoin(stats, more *Tensor, weights, others float64) {
	const op = "CrossEntropyJoin"
	if stats.dtype.Narrow() {
		throwType(op, "statistics %v: want float32 or float64", stats.brief())
	}
	wantFloat(op, stats)
	wantSameType(op, stats, more)
	wantSameShape(op, stats, more)
	if stats.ndim != 2 || stats.dims[1] != kernel.Stats {
		throwShape(op, "statistics %v: want [N %d]", stats.brief(), kernel.Stats)
	}
	stats.dev.CrossEntropyJoin(stats.dtype, stats.ptr(op), more.ptr(op), stats.dims[0], weights, others)
	runtime.KeepAlive(more)
}

// CrossEntropyGrad computes the gradient of the logits [N, C],
//
//	dst[n][c] = coef[n][0]·exp(x - lse[n]) - coef[n][1]·[lo+c is target[n]] - coef[n][2]·weight[c]
//
// into dst, which is written once and may be logits itself, or of a narrow type where they are
// float32; nil makes a new tensor like them. coef is [N, 3]: a, b and s above times
// the gradient of the row's loss, all zero for a row that is ignored (its result is
// then zero whatever its logits are). weight may be nil (ones). It returns dst.
func CrossEntropyGrad(dst, logits, target *Tensor, lo int, lse, coef, weight *Tensor) *Tensor {
	const op = "CrossEntropyGrad"
	n := wantLogits(op, logits, target, weight)
	wantBeside(op, "lse", logits, lse)
	wantBeside(op, "coef", logits, coef)
	if lse.numel != n || !slices.Equal(coef.Shape(), []int{n, 3}) {
		throwShape(op, "lse %v and coef %v for logits %v: want [%d] and [%d 3]", lse.brief(), coef.brief(), logits.brief(), n, n)
	}
	switch {
	case dst == nil:
		dst = allocLike(op, logits)
	case dst.dtype.Narrow() && logits.dtype == Float32:
		wantSameDevice(op, dst, logits)
	default:
		wantSameType(op, dst, logits)
	}
	wantSameShape(op, dst, logits)
	logits.dev.CrossEntropyGrad(dst.dtype, dst.ptr(op), classLogits(op, logits, target, weight, lo),
		lse.ptr(op), coef.ptr(op))
	keepAlive(logits, target, lse, coef, weight)
	return dst
}

// wantLogits returns N, and throws unless logits [N, C], target [N] and weight [C] fit.
func wantLogits(op string, logits, target, weight *Tensor) (rows int) {
	wantFloat(op, logits)
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
	return logits.dims[0]
}

// wantBeside throws unless x is of the type that goes with logits, on their device.
func wantBeside(op, name string, logits, x *Tensor) {
	if x.dtype != logits.dtype.Wide() {
		throwType(op, "%s %v for logits %v: want %v; Cast it", name, x.brief(), logits.brief(), logits.dtype.Wide())
	}
	wantSameDevice(op, logits, x)
}
