package layout

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

var lawNames = map[string]Law{
	"opaque": Opaque, "adds": Adds, "subtracts": Subtracts, "multiplies": Multiplies, "divides": Divides, "weighs": Weighs,
	"maximizes": Maximizes,
	"minimizes": Minimizes, "scales": Scales, "negates": Negates, "monotone": Monotone, "above": MonotoneAbove, "casts": Casts,
	"selects": Selects,
}

func TestRuleTranscripts(t *testing.T) {
	runTranscripts(t, "rule*.txt", func(c command) string {
		r, names, err := readRule(c)
		if err != nil {
			return err.Error()
		}
		if _, ok := c.args["mesh"]; !ok {
			// Without a mesh: the table of the rule.
			return r.Table(names...)
		}
		// With a mesh and the placements of the inputs: what Choose makes of them.
		var in []Layout
		var sizes []int
		for i, p := range strings.Split(c.args["in"], ";") {
			l, err := parseLayout(c.args["mesh"], fmt.Sprint(r.inShape[i]), p)
			if err != nil {
				return err.Error()
			}
			in, sizes = append(in, l), append(sizes, 4)
		}
		choice, err := r.Choose(in, sizes, Costs{})
		if err != nil {
			return err.Error()
		}
		var b strings.Builder
		for i, l := range choice.In {
			plan, err := NewPlan(in[i], l, 4, Costs{})
			if err != nil {
				return err.Error()
			}
			fmt.Fprintf(&b, "%s %v: %s\n", names[i], l, strings.ReplaceAll(plan.String(), "\n", "; "))
		}
		for i, l := range choice.Out {
			fmt.Fprintf(&b, "%s %v\n", names[len(in)+i], l)
		}
		return b.String()
	})
}

// readRule makes the rule that a command names, with names for its operands.
func readRule(c command) (*Rule, []string, error) {
	shapes, err := parseShapes(c.args["shapes"])
	if err != nil {
		return nil, nil, err
	}
	dims, err := parseShape(c.arg("dims", "[]"))
	if err != nil {
		return nil, nil, err
	}
	dim, err := strconv.Atoi(c.arg("dim", "0"))
	if err != nil {
		return nil, nil, err
	}
	names := append([]string{"a", "b", "c", "d"}[:len(shapes)], "result")
	var r *Rule
	switch c.name {
	// contraction: equation, shapes, and the shapes of addends.
	case "contraction":
		addends, err := parseShapes(c.args["addends"])
		if err != nil {
			return nil, nil, err
		}
		names = append(append([]string{"a", "b", "c"}[:len(shapes)], []string{"bias"}[:len(addends)]...), "result")
		r, err = Contraction("contraction", c.args["equation"], shapes, addends...)
		return r, names, err
	// indexed: equation, shapes, the letters that are whole.
	case "indexed":
		r, err = Indexed("indexed", c.args["equation"], c.args["whole"], shapes...)
	// pointwise: shapes, law.
	case "pointwise":
		r, err = Pointwise("pointwise", lawNames[c.arg("law", "opaque")], shapes...)
	// reduction: one shape, dims, op, keep.
	case "reduction":
		op, _ := parseReduceOp(c.args["op"])
		r, err = Reduction("reduction", op, shapes[0], dims, c.args["keep"] == "true")
	// rowwise: shapes, dims.
	case "rowwise":
		r, err = Rowwise("rowwise", dims, shapes[0], shapes[1:]...)
	// summary: one shape, dim, lengths of the results.
	case "summary":
		names = []string{"a", "values", "indices"}
		r, err = Summary("summary", shapes[0], dim, 3, 3)
	// lookup, gather: two shapes, dim.
	case "lookup":
		names = []string{"table", "ids", "result"}
		r, err = Lookup("lookup", shapes[0], dim, shapes[1])
	case "gather":
		names = []string{"input", "index", "result"}
		r, err = Gather("gather", shapes[0], dim, shapes[1])
	// cat: shapes, dim.
	case "cat":
		r, err = Concatenation("cat", dim, shapes...)
	default:
		err = fmt.Errorf("unknown command %q", c.name)
	}
	return r, names, err
}

// parseShapes reads [4,6];[6,5].
func parseShapes(s string) ([][]int, error) {
	if s == "" {
		return nil, nil
	}
	var shapes [][]int
	for f := range strings.SplitSeq(s, ";") {
		shape, err := parseShape(f)
		if err != nil {
			return nil, err
		}
		shapes = append(shapes, shape)
	}
	return shapes, nil
}

func TestViewTranscripts(t *testing.T) {
	runTranscripts(t, "view*.txt", func(c command) string {
		in, err := parseLayout(c.args["mesh"], c.args["shape"], c.args["at"])
		if err != nil {
			return err.Error()
		}
		to, err := parseShape(c.arg("to", "[]"))
		if err != nil {
			return err.Error()
		}
		var v View
		switch c.name {
		// Each has mesh, shape, at (the placements) and to: a shape, an order of
		// dimensions, or for narrow the dim, the start and the length.
		case "reshape":
			v, err = Reshape(in, to)
		case "expand":
			v, err = Expand(in, to)
		case "permute":
			v, err = Permute(in, to...)
		case "narrow":
			v, err = Narrow(in, to[0], to[1], to[2])
		default:
			return fmt.Sprintf("unknown command %q", c.name)
		}
		if err != nil {
			return err.Error()
		}
		plan, err := NewPlan(in, v.In, 4, Costs{})
		if err != nil {
			return err.Error()
		}
		if len(plan.Steps) == 0 {
			return v.Out.String()
		}
		return fmt.Sprintf("%v\n%v", plan, v.Out)
	})
}
