package layout

import (
	"fmt"
	"strconv"
	"strings"
)

// FormatPlacements returns the short forms of the placements joined by commas: S(0),R.
func FormatPlacements(placements []Placement) string {
	forms := make([]string, len(placements))
	for i, p := range placements {
		forms[i] = p.String()
	}
	return strings.Join(forms, ",")
}

// Parse returns the placement whose short form, as String prints it, is s. A
// MaskPartial is given in its full form, as the short one does not say enough.
func Parse(s string) (Placement, error) {
	bad := func(why string) (Placement, error) {
		return Placement{}, fmt.Errorf("layout: Parse: %q: %s; use R, S(0), S(0)[1 3], C(0), P(sum) or "+
			"MaskPartial(offset_shape=[10 29], offset_dim=0)", s, why)
	}
	text := strings.TrimSpace(s)
	if text == "R" {
		return Replicate(), nil
	}
	name, rest, ok := strings.Cut(text, "(")
	inner, tail, closed := strings.Cut(rest, ")")
	if !ok || !closed {
		return bad("not a placement")
	}
	if name != "S" && tail != "" {
		return bad(fmt.Sprintf("%q after the placement", tail))
	}
	switch name {
	case "S":
		dim, err := strconv.Atoi(inner)
		if err != nil {
			return bad("its dim is not an integer")
		}
		if tail == "" {
			return Shard(dim), nil
		}
		sizes, ok := parseInts(tail)
		if !ok || len(sizes) == 0 {
			return bad("its sizes are not a list of integers")
		}
		return ShardSizes(dim, sizes...), nil
	case "C":
		if inner != "0" {
			return bad("rows are dealt out in turn, dimension 0")
		}
		return ShardCyclic(), nil
	case "P":
		op, ok := parseReduceOp(inner)
		if !ok {
			return bad(fmt.Sprintf("unknown reduction %q", inner))
		}
		return Partial(op), nil
	case "MaskPartial":
		shapeText, dimText, ok := strings.Cut(strings.TrimPrefix(inner, "offset_shape="), ", offset_dim=")
		shape, isList := parseInts(shapeText)
		dim, err := strconv.Atoi(dimText)
		if !ok || !isList || err != nil {
			return bad("its offset shape or offset dim cannot be read")
		}
		return MaskPartial(shape, dim), nil
	}
	return bad("not a placement")
}

// parseInts reads a list such as [1 3 1 3].
func parseInts(s string) (list []int, ok bool) {
	s = strings.TrimSpace(s)
	if !strings.HasPrefix(s, "[") || !strings.HasSuffix(s, "]") || len(s) < 2 {
		return nil, false
	}
	for _, field := range strings.Fields(s[1 : len(s)-1]) {
		n, err := strconv.Atoi(field)
		if err != nil {
			return nil, false
		}
		list = append(list, n)
	}
	return list, true
}
