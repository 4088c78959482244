package embedding

import (
	"fmt"
	"math"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
)

// Options change what a lookup does. They mean what they mean in
// torch.nn.functional.embedding; nil and false are the defaults.
type Options struct {
	// PaddingIdx is a row that gets no gradient; a negative one counts from the
	// end. Its contents are looked up as those of any other row.
	PaddingIdx *int
	// MaxNorm bounds the norm of the rows that are looked up: longer ones are
	// scaled down to it, in the table itself, before the lookup.
	MaxNorm *float64
	// NormType is the p of that norm; nil: 2. +Inf is the largest absolute value.
	NormType *float64
	// ScaleGradByFreq divides the gradient of a row by how often the row occurs
	// in all ids of the lookup, on all ranks.
	ScaleGradByFreq bool
	// Table is the name of the table in errors; "" describes it by its layout.
	Table string
}

// settings are Options with the defaults filled in.
type settings struct {
	padding   int // the row as servedIDs counts it, -1: none
	renorm    bool
	maxNorm   float64
	normType  float64
	frequency bool
	name      string          // of the table; "": see table
	weight    *dtensor.Tensor // the table
	stored    *stored         // its rows; nil: they are in memory
	mode      Mode            // of bags, else 0
	dynamic   *Dynamic        // nil: the table is none
}

// facts returns a hash of what the ranks must have the same: the table and its options.
func (s *settings) facts() uint32 {
	h := agreed(s.weight.Facts()).and(uint64(s.weight.DType())).and(uint64(s.padding)).and(math.Float64bits(s.maxNorm)).
		and(math.Float64bits(s.normType)).and(uint64(s.mode)).text(s.name)
	if s.frequency {
		h = h.and(1)
	}
	if s.dynamic != nil {
		h = h.and(uint64(s.dynamic.facts))
	}
	return uint32(h)
}

// String says what facts is a hash of.
func (s *settings) String() string {
	text := fmt.Sprintf("table %q, %v", s.name, s.weight)
	if s.dynamic != nil {
		text = fmt.Sprintf("%+v", s.dynamic.config)
	}
	if s.mode != 0 {
		text += ", mode " + s.mode.String()
	}
	if s.padding >= 0 {
		text += fmt.Sprintf(", padding %d", s.padding)
	}
	if s.renorm {
		text += fmt.Sprintf(", norm %v of at most %v", s.normType, s.maxNorm)
	}
	if s.frequency {
		text += ", gradients by frequency"
	}
	return text
}

// agreed is a hash of what ranks must have the same: FNV-1a over words.
type agreed uint32

func (h agreed) and(word uint64) agreed {
	return (h^agreed(word))*16777619 ^ agreed(word>>32)*2654435761
}

func (h agreed) text(s string) agreed {
	for i := range len(s) {
		h = h.and(uint64(s[i]))
	}
	return h
}

// table returns what errors call the table.
func (s *settings) table() string {
	if s.name == "" {
		return fmt.Sprintf("the table %v", s.weight)
	}
	return fmt.Sprintf("table %q", s.name)
}

// check returns o for a lookup in weight, and throws what does not fit.
func (o *Options) check(op string, weight *dtensor.Tensor) settings {
	s := settings{normType: 2, frequency: o.ScaleGradByFreq, name: o.Table, weight: weight}
	if weight.NDim() != 2 {
		refuse(op, "%s has %d dimensions; a table has 2, rows and features", s.table(), weight.NDim())
	}
	if dt := weight.DType(); !dt.Float() {
		refuse(op, "%s holds %v; Cast it to a type of floating-point numbers", s.table(), dt)
	}
	if !s.setPadding(o.PaddingIdx, weight.Dim(0)) {
		refuse(op, badPadding, *o.PaddingIdx, -weight.Dim(0), weight.Dim(0), s.table())
	}
	if o.MaxNorm != nil {
		s.renorm, s.maxNorm = true, *o.MaxNorm
		if !(s.maxNorm > 0) {
			refuse(op, "MaxNorm is %v for %s; it must be positive", s.maxNorm, s.table())
		}
	}
	if o.NormType != nil {
		s.normType = *o.NormType
		if !(s.normType > 0) || math.IsNaN(s.normType) {
			refuse(op, "NormType is %v for %s; it must be positive", s.normType, s.table())
		}
	}
	return s
}

// badPadding is the error of a PaddingIdx that setPadding does not take.
const badPadding = "PaddingIdx is %d, out of range [%d, %d) for %s"

// setPadding sets the padding row of a table of a number of rows; ok is false if there is no
// such row.
func (s *settings) setPadding(idx *int, rows int) (ok bool) {
	s.padding = -1
	if idx == nil {
		return true
	}
	if *idx < -rows || *idx >= rows {
		return false
	}
	if s.padding = (*idx + rows) % rows; s.weight != nil {
		s.padding = s.weight.Layout().Served(s.padding)
	}
	return true
}

// checkIDs throws unless ids are integers on the table's mesh.
func checkIDs(op string, weight, ids *dtensor.Tensor, s settings) {
	if dt := ids.DType(); dt != tensor.Int64 && dt != tensor.Int32 {
		refuse(op, "the ids for %s are %v; use int64 or int32", s.table(), ids)
	}
	if ids.Mesh() != weight.Mesh() {
		refuse(op, "the ids are on mesh %v and %s on another, %v; move one of them", ids.Mesh(), s.table(), weight.Mesh())
	}
}
