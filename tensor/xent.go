package tensor

import (
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// CrossEntropyStats reads logits [N, C] once, the classes lo to lo+C of a larger number
// of classes, and returns the statistics of each row x, [N, 4]: m = max x, Σ exp(x-m),
// x[target], and Σ w·(x-m) if withSum is set. target [N] is int64 or int32; x[target] is
// 0 if the target is not in [lo, lo+C). weight [C] holds w; nil means ones. For logits of
// a narrow type, the other arguments and the statistics are float32.
func CrossEntropyStats(logits, target *Tensor, lo int, weight *Tensor, withSum bool) *Tensor {
	const op = "CrossEntropyStats"
	n := wantLogits(op, logits, target, weight)
	stats := alloc(op, logits.dev, logits.dtype.Wide(), []int{n, kernel.Stats})
	logits.dev.CrossEntropyStats(stats.addr, classLogits(op, logits, target, weight, lo), withSum)
	keepAlive(logits, target, weight)
	return stats
}

// classLogits returns the logits as the kernels of cross-entropy take them. The caller has
// checked the tensors, and keeps them alive.
func classLogits(op string, logits, target, weight *Tensor, lo int) kernel.ClassLogits {
	return kernel.ClassLogits{DType: logits.dtype, Logits: logits.ptr(op), Target: target.indices(op),
		Weight: addrOf(op, weight), Rows: logits.dims[0], Classes: logits.dims[1], Lo: lo}
}

// CrossEntropyJoin changes stats [N, 4], the statistics of a part of the classes, to those
// of that part and another, whose statistics are more [N, 4]. weights and others are the
// sums of the two parts' class weights if the statistics have weighted sums, else 0.
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
// and returns dst, which may be logits itself; a nil dst stands for a new tensor. dst is
// of the type of logits, or of a narrow type if logits are float32. lse [N] is
// ln Σ exp(x) over all classes. The loss of a row with label smoothing ε over K classes,
// whose weights add up to W,
//
//	(1-ε)·w[t]·(lse - x[t]) + ε/K·(W·(lse - m) - Σ w·(x-m))
//
// has coef [N, 3] = (1-ε)·w[t] + ε/K·W, (1-ε)·w[t] and ε/K, each times the gradient of
// the row's loss. If all three are 0 the row of dst is 0, whatever the logits are.
// weight may be nil (ones).
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

// wantBeside throws unless x is on the device of logits and of their type, or of float32 if
// they are of a narrow type.
func wantBeside(op, name string, logits, x *Tensor) {
	if x.dtype != logits.dtype.Wide() {
		throwType(op, "%s %v for logits %v: want %v; Cast it", name, x.brief(), logits.brief(), logits.dtype.Wide())
	}
	wantSameDevice(op, logits, x)
}
