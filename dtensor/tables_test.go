package dtensor_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// A tableCase is a table of layouts in a doc comment, and an operator to hold it
// against.
type tableCase struct {
	file, header string
	nth          int    // of the tables with this header in the file
	note         string // only rows with this in their last column
	shapes       [][]int
	ints         []int            // as in opCase
	columns      []int            // of each input; nil: the first ones in order
	result       int              // the column of the result
	letters      map[string][]int // what "i" or "i not dim" may be
	second       func(i int) int  // j of a result S(j)
	rows         int              // that can be held against it
	f            func(in []T) T
}

var tableCases = []tableCase{
	{file: "op_matmul.go", header: "a b result", shapes: [][]int{{4, 6}, {6, 5}}, result: 2, rows: 6, f: two(T.MatMul)},
	{file: "op_matmul.go", header: "x w bias result", shapes: [][]int{{4, 6}, {5, 6}, {5}}, result: 3, rows: 6,
		letters: map[string][]int{"b": {0}, "last": {1}}, f: func(in []T) T { return in[0].Linear(in[1], in[2]) }},
	{file: "op_attention.go", header: "q k, v result", shapes: [][]int{{2, 4, 6, 2}, {2, 4, 6, 2}, {2, 4, 6, 2}}, columns: []int{0, 1, 1},
		result: 2, rows: 3,
		f: func(in []T) T { return dtensor.ScaledDotProductAttention(in[0], in[1], in[2], true) }},
	{file: "op_binary.go", header: "a b result", note: "Add", shapes: [][]int{{4, 6}, {4, 6}}, result: 2, rows: 5,
		letters: map[string][]int{"i": {0, 1}}, f: two(T.Add)},
	{file: "op_binary.go", header: "a b result", note: "Mul", shapes: [][]int{{4, 6}, {4, 6}}, result: 2, rows: 5,
		letters: map[string][]int{"i": {0, 1}}, f: two(T.Mul)},
	{file: "op_binary.go", header: "a b result", note: "Div", shapes: [][]int{{4, 6}, {4, 6}}, result: 2, rows: 3,
		letters: map[string][]int{"i": {0, 1}}, f: two(T.Div)},
	{file: "op_binary.go", header: "a b result", note: "Maximum", shapes: [][]int{{4, 6}, {4, 6}}, result: 2, rows: 4,
		letters: map[string][]int{"i": {0, 1}}, f: two(T.Maximum)},
	{file: "op_index.go", header: "x index result", shapes: [][]int{{4, 6}, {8}}, ints: []int{0, 4}, result: 2, rows: 4,
		letters: map[string][]int{"dim": {0}, "i not dim": {1}, "i": {1}}, f: two(func(x, i T) T { return x.IndexSelect(0, i) })},
	{file: "op_index.go", header: "x index result", shapes: [][]int{{4, 6}, {4, 6}}, ints: []int{0, 4}, result: 2, rows: 4, nth: 1,
		letters: map[string][]int{"dim": {0}, "i not dim": {1}, "i": {1}}, f: two(func(x, i T) T { return x.Gather(0, i) })},
	{file: "op_index.go", header: "x result", shapes: [][]int{{4, 6}}, result: 1, rows: 2, letters: map[string][]int{"i not dim": {0}},
		f: one(func(x T) T { return x.Argmax(1, true) })},
	{file: "op_scatter.go", header: "x index, src result", shapes: [][]int{{4, 6}, {4, 6}, {4, 6}}, columns: []int{0, 1, 1}, ints: []int{0, 4},
		result: 2, rows: 3,
		letters: map[string][]int{"dim": {0}, "i not dim": {1}, "i": {1}}, f: func(in []T) T { return in[0].Scatter(0, in[1], in[2]) }},
	{file: "op_narrow.go", header: "t result", shapes: [][]int{{4, 6}}, result: 1, rows: 4, letters: map[string][]int{"dim": {0}, "i": {1}},
		f: one(func(x T) T { return x.Narrow(0, 1, 2) })},
	{file: "op_permute.go", header: "t result", shapes: [][]int{{4, 6, 8}}, result: 1, rows: 5, letters: map[string][]int{"i": {0, 1, 2}},
		second: func(i int) int { return slices.Index([]int{2, 0, 1}, i) }, f: one(func(x T) T { return x.Permute(2, 0, 1) })},
	{file: "op_reduce.go", header: "x Sum, Mean Amax Amin", shapes: [][]int{{4, 6}}, result: 1, rows: 7,
		letters: map[string][]int{"i not reduced": {0}, "i reduced": {1}},
		f:       one(func(x T) T { return x.Sum([]int{1}, false) })},
	{file: "op_reduce.go", header: "x Sum, Mean Amax Amin", shapes: [][]int{{4, 6}}, result: 2, rows: 7,
		letters: map[string][]int{"i not reduced": {0}, "i reduced": {1}},
		f:       one(func(x T) T { return x.Amax([]int{1}, false) })},
	{file: "op_reduce.go", header: "x Sum, Mean Amax Amin", shapes: [][]int{{4, 6}}, result: 3, rows: 7,
		letters: map[string][]int{"i not reduced": {0}, "i reduced": {1}},
		f:       one(func(x T) T { return x.Amin([]int{1}, false) })},
	{file: "op_stat.go", header: "x result", shapes: [][]int{{4, 6}}, result: 1, rows: 3,
		letters: map[string][]int{"i not reduced": {0}, "i reduced": {1}},
		f:       one(func(x T) T { return x.CompareScalar(kernel.OpGt, 0).Any([]int{1}, false) })},
	{file: "op_unary.go", header: "x result", note: "Scale", shapes: [][]int{{4, 6}}, result: 1, rows: 5,
		letters: map[string][]int{"i": {0, 1}},
		f:       one(func(x T) T { return x.Scale(-2) })},
	{file: "op_unary.go", header: "x result", note: "AddScalar", shapes: [][]int{{4, 6}}, result: 1, rows: 5,
		letters: map[string][]int{"i": {0, 1}},
		f:       one(func(x T) T { return x.AddScalar(1) })},
}

var (
	columnGap = regexp.MustCompile(`\s{2,}`)
	placeCell = regexp.MustCompile(`^(R|S\((\w+)\)|P\((\w+)\)|P)(?:, (\w+ [a-z].*))?(?::.*)?$`)
)

// The rows of the tables in the doc comments are what operators do: operands laid
// out so give a result laid out so, and nothing is communicated but to reduce what
// is Partial.
func TestDocTables(t *testing.T) {
	for _, c := range tableCases {
		rows := readTable(t, &c)
		onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
			held := 0
			for _, row := range rows {
				n, err := c.hold(ctx, m, row)
				if err != nil {
					return fmt.Errorf("%s: row %q: %w", c.file, strings.Join(row, "  "), err)
				}
				held += n
			}
			if held != c.rows {
				return fmt.Errorf("%s: %s: %d rows were held against the operator, want %d of %q", c.file, c.header, held, c.rows, rows)
			}
			return nil
		})
	}
}

// readTable returns the cells of the case's table.
func readTable(t *testing.T, c *tableCase) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile(c.file)
	if err != nil {
		t.Fatal(err)
	}
	in, skip := false, c.nth
	for line := range strings.Lines(string(text)) {
		line, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "//\t")
		cells := columnGap.Split(strings.TrimSpace(line), -1)
		switch {
		case ok && in:
			rows = append(rows, cells)
		case in:
			return rows
		case ok && strings.Join(cells, " ") == c.header:
			in = skip == 0
			skip--
		}
	}
	t.Fatalf("%s has no table %q", c.file, c.header)
	return nil
}

// hold holds a row against the operator, in as many ways as its letters allow. It
// returns 0 for a row that is not about placements one by one.
func (c *tableCase) hold(ctx context.Context, m *dtensor.Mesh, row []string) (held int, err error) {
	columns := c.columns
	for i := len(columns); i < len(c.shapes); i++ {
		columns = append(columns, i)
	}
	if len(row) <= c.result || c.note != "" && len(row) > c.result+1 && !strings.Contains(row[c.result+1], c.note) {
		return 0, nil
	}
	for _, first := range alternatives(row[columns[0]]) {
		for _, value := range c.values(first) {
			cells := slices.Clone(row)
			cells[columns[0]] = first
			in := make([]layout.Placement, len(columns))
			var letter string
			ok := true
			for i, column := range columns {
				var good bool
				if in[i], letter, good = c.place(cells[column], value, letter); !good {
					ok = false
				}
			}
			want, _, good := c.place(cells[c.result], value, letter)
			if cells[c.result] == "the same" {
				want, good = in[0], true
			} else if j := strings.HasPrefix(cells[c.result], "S(j)"); j {
				want, good = layout.Shard(c.second(value)), true
			} else if !good {
				var name string
				name, _, _ = strings.Cut(cells[c.result], " ")
				want, _, good = c.place(name, value, letter)
			}
			if !ok || !good {
				continue
			}
			if err := c.try(ctx, m, in, want); err != nil {
				return held, err
			}
			held++
		}
	}
	return held, nil
}

// alternatives divides a cell that lists placements.
func alternatives(cell string) []string {
	parts := strings.Split(cell, ", ")
	for _, p := range parts {
		if !placeCell.MatchString(p) {
			return []string{cell}
		}
	}
	return parts
}

// values returns what the letter of a cell may be; one value if it has none.
func (c *tableCase) values(cell string) []int {
	match := placeCell.FindStringSubmatch(cell)
	if match == nil || match[2] == "" {
		return []int{0}
	}
	for _, key := range []string{match[4], match[2]} {
		if list, ok := c.letters[key]; ok {
			return list
		}
	}
	return []int{0}
}

// place returns the placement of a cell; the letter of the first cell has a value.
func (c *tableCase) place(cell string, value int, first string) (p layout.Placement, letter string, ok bool) {
	match := placeCell.FindStringSubmatch(cell)
	switch {
	case match == nil:
		return p, first, false
	case match[1] == "R":
		return layout.Replicate(), first, true
	case match[1] == "P":
		return layout.Partial(layout.Sum), first, true
	case match[3] != "":
		list, err := layout.Parse(match[1])
		return list, first, err == nil
	}
	dim := 0
	if _, err := fmt.Sscan(match[2], &dim); err == nil {
		return layout.Shard(dim), first, true
	}
	if first == "" {
		first = match[2]
	}
	if match[2] == first {
		if list := c.letters[match[2]]; match[4] == "" && len(list) == 1 {
			value = list[0]
		}
		return layout.Shard(value), first, true
	}
	if list := c.letters[match[2]]; len(list) == 1 {
		return layout.Shard(list[0]), first, true
	}
	return p, first, false
}

// try runs the operator on operands with the placements.
func (c *tableCase) try(ctx context.Context, m *dtensor.Mesh, in []layout.Placement, want layout.Placement) error {
	oc := opCase{ints: c.ints}
	reduces := false
	operands := make([]T, len(in))
	for i, p := range in {
		operands[i] = oc.input(m, i, c.shapes[i], []layout.Placement{layout.Replicate()}).Redistribute(p)
		reduces = reduces || p.IsPartial() && want.IsReplicate()
	}
	return dtensor.Try(ctx, m, func() {
		var out T
		calls := counted(m, func() { out = c.f(operands) }).Total().Calls
		got := out.Placements()[0]
		if got != want && !strings.HasPrefix(got.String(), want.String()+"[") {
			failf("%v give %v, the table says %v", operands, out, want)
		}
		if calls > 0 && !reduces {
			failf("%v give %v with %d collectives, the table says that nothing moves", operands, out, calls)
		}
	})
}
