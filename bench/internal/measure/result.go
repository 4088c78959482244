package measure

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// A Result is one line of the output. Two programs that measure the same case
// give it the same Name.
type Result struct {
	Name string
	NP   int
	Timing
	Fields []Field
}

// A Field is a parameter of a case, or a figure computed from its time. It is a
// number or a string.
type Field struct {
	Name  string
	Value any
}

// Rate returns count per nanosecond: GB/s for bytes, Gelem/s for elements, GFLOP/s.
func Rate(name string, count int, t Timing) Field { return Field{name, float64(count) / t.NS} }

// MarshalJSON writes one flat object, parameters and figures after the times.
func (r Result) MarshalJSON() ([]byte, error) {
	all := []Field{
		{"name", r.Name}, {"np", r.NP}, {"ns", r.NS}, {"min_ns", r.MinNS}, {"p10_ns", r.P10NS},
		{"calls", r.Calls}, {"faults", round(r.Faults)},
	}
	if r.LoopNS > 0 {
		all = append(all, Field{"loop_ns", r.LoopNS})
	}
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range append(all, r.Fields...) {
		if i > 0 {
			b.WriteByte(',')
		}
		v := f.Value
		if x, ok := v.(float64); ok {
			v = round(x)
		}
		value, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("measure: %s: field %s: %w", r.Name, f.Name, err)
		}
		fmt.Fprintf(&b, "%q:%s", f.Name, value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// round keeps five digits after the point.
func round(x float64) json.Number { return json.Number(trim(fmt.Sprintf("%.5f", x))) }

func trim(s string) string { return strings.TrimRight(strings.TrimRight(s, "0"), ".") }

// String returns a line of the table, without its newline.
func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-52s %3d %12.2f %12.2f ", r.Name, r.NP, r.NS/1e3, r.MinNS/1e3)
	if r.LoopNS > 0 {
		fmt.Fprintf(&b, "%12.2f", r.LoopNS/1e3)
	} else {
		fmt.Fprintf(&b, "%12s", "")
	}
	fmt.Fprintf(&b, " %8.1f", r.Faults)
	for _, f := range r.Fields {
		if x, ok := f.Value.(float64); ok {
			fmt.Fprintf(&b, "  %s=%.4g", f.Name, x)
		} else {
			fmt.Fprintf(&b, "  %s=%v", f.Name, f.Value)
		}
	}
	return b.String()
}
