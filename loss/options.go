package loss

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
)

// A Reduction says how the losses of the positions are combined.
type Reduction uint8

// The reductions. The mean divides by the sum of the targets' class weights
// over the positions that are not ignored; for class probabilities by the
// number of positions.
const (
	Mean Reduction = iota
	Sum
	None // one loss for each position
	reductions
)

var reductionNames = [reductions]string{"mean", "sum", "none"}

// String returns "mean", "sum" or "none".
func (r Reduction) String() string {
	if r < reductions {
		return reductionNames[r]
	}
	return "invalid"
}

// ParseReduction is the inverse of String; ok is false for an unknown name.
func ParseReduction(name string) (r Reduction, ok bool) {
	i := slices.Index(reductionNames[:], name)
	return Reduction(max(i, 0)), i >= 0
}

// ignoreByDefault is the target that marks a position without a loss.
const ignoreByDefault = -100

// Options are the settings of a loss. The zero Options is the mean without weights,
// smoothing and z-loss.
type Options struct {
	// Weight holds one factor for each class, [C], in any layout; nil: all 1.
	// It is redistributed to Replicate unless it is replicated. It gets no gradient, as
	// in PyTorch with targets that are classes.
	Weight *dtensor.Tensor
	// IgnoreIndex is the target of positions that have neither loss nor
	// gradient; nil: -100. It is not used with class probabilities.
	IgnoreIndex *int64
	Reduction   Reduction
	// LabelSmoothing is the part of the target, from 0 to 1, that is spread over
	// all classes evenly.
	LabelSmoothing float64
	// ZLoss times log²(Σ exp(logits)) is added to the loss of each position that
	// is not ignored; 0: nothing. It keeps the logits of a long training near 0
	// (Chowdhery et al., arXiv 2204.02311, section 5).
	ZLoss float64
	// Workspace is how many bytes LinearCrossEntropy holds at most on a rank beside the
	// gradients, or the logits of one position if they are larger; 0: 512 MiB. It takes
	// only what the logits of all positions need. A small Workspace, such as 64 MiB, makes
	// it slower: each block of positions reads and writes the gradient of the weight, and
	// logits that it has no room for are computed twice. Other losses ignore it.
	Workspace int
}

// defaultWorkspace is the Workspace of an Options that has none.
const defaultWorkspace = 512 << 20

// workspace returns the bytes of Workspace.
func (o *Options) workspace() int {
	if o.Workspace == 0 {
		return defaultWorkspace
	}
	return o.Workspace
}

// ignored returns the target that marks a position without a loss.
func (o *Options) ignored() int64 {
	if o.IgnoreIndex != nil {
		return *o.IgnoreIndex
	}
	return ignoreByDefault
}

// validate throws for numbers that make no sense.
func (o *Options) validate(op string) {
	switch {
	case o.Reduction >= reductions:
		refuse(op, fmt.Sprintf("Reduction is %d; use Mean, Sum or None", o.Reduction))
	case !(o.LabelSmoothing >= 0 && o.LabelSmoothing <= 1):
		refuse(op, fmt.Sprintf("LabelSmoothing is %v; it must be from 0 to 1", o.LabelSmoothing))
	case o.Workspace < 0:
		refuse(op, fmt.Sprintf("Workspace is %d bytes; it must not be negative, and 0 is 512 MiB", o.Workspace))
	case !(o.ZLoss >= 0):
		refuse(op, fmt.Sprintf("ZLoss is %v; it must not be negative", o.ZLoss))
	}
}
