package layout

import "testing"

func BenchmarkNew(b *testing.B) {
	axes, err := NewAxes(Axis{"data", 2}, Axis{"model", 2})
	if err != nil {
		b.Fatal(err)
	}
	shape := []int{500, 400}
	for b.Loop() {
		if _, err := New(axes, shape, Shard(0), Replicate()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPlan(b *testing.B) {
	const small, large = "(data=2,model=2)", "(pod=4,data=16,model=16)"
	for _, c := range []struct{ name, mesh, from, to string }{
		{"gather", small, "S(0),S(0)", "R,R"},
		{"exchange", small, "S(0),S(0)", "R,S(0)"},
		{"search", small, "P(sum),S(0)", "R,R"},
		{"search partials", small, "P(sum),P(avg)", "S(0),R"},
		{"1024 ranks", large, "S(0),S(0),S(1)", "R,S(0),S(0)"},
		{"search 1024 ranks", large, "P(sum),P(sum),S(0)", "S(0),R,S(1)"},
	} {
		b.Run(c.name, func(b *testing.B) {
			from, err := parseLayout(c.mesh, "[500 400]", c.from)
			if err != nil {
				b.Fatal(err)
			}
			to, err := parseLayout(c.mesh, "[500 400]", c.to)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := NewPlan(from, to, 4, Costs{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkChoose(b *testing.B) {
	for _, c := range []struct{ name, x, w string }{
		{"follows a row", "S(0),R", "R,S(1)"},
		{"must move", "S(0),S(1)", "S(1),S(0)"},
	} {
		b.Run(c.name, func(b *testing.B) {
			rule, err := Contraction("matmul", "mk,kn->mn", [][]int{{512, 256}, {256, 1024}})
			if err != nil {
				b.Fatal(err)
			}
			x, err := parseLayout("(data=2,model=2)", "[512 256]", c.x)
			if err != nil {
				b.Fatal(err)
			}
			w, err := parseLayout("(data=2,model=2)", "[256 1024]", c.w)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := rule.Choose([]Layout{x, w}, []int{4, 4}, Costs{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
