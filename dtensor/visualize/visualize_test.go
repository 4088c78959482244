package visualize_test

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"image"
	"image/draw"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/dtensor/visualize"
	"github.com/gorun-spmd/gorun/internal/testenv"
	"github.com/gorun-spmd/gorun/tensor"
)

// pictures are the golden cases, by file name.
func pictures(t *testing.T) map[string]*visualize.Picture {
	R, S, P := layout.Replicate(), layout.Shard, layout.Partial(layout.Sum)
	list := map[string]*visualize.Picture{}
	for _, c := range []struct {
		name   string
		axes   []layout.Axis
		shape  []int
		ranks  []int
		places []layout.Placement
	}{
		{"rows", []layout.Axis{{Name: "tp", Size: 2}}, []int{5, 16}, nil, []layout.Placement{S(0)}},
		{"columns", []layout.Axis{{Name: "tp", Size: 3}}, []int{5, 16}, nil, []layout.Placement{S(1)}},
		{"uneven", []layout.Axis{{Name: "ranks", Size: 4}}, []int{8, 16}, nil, []layout.Placement{layout.ShardSizes(0, 1, 3, 1, 3)}},
		{"empty_shards", []layout.Axis{{Name: "ranks", Size: 4}}, []int{2, 3}, nil, []layout.Placement{S(0)}},
		{"grid", []layout.Axis{{Name: "dp", Size: 2}, {Name: "tp", Size: 2}}, []int{6, 10}, nil, []layout.Placement{S(0), S(1)}},
		{"nested", []layout.Axis{{Name: "dp", Size: 2}, {Name: "tp", Size: 2}}, []int{5, 4}, nil, []layout.Placement{S(0), S(0)}},
		{"replicated", []layout.Axis{{Name: "dp", Size: 2}, {Name: "tp", Size: 2}}, []int{4, 4}, nil, []layout.Placement{R, S(0)}},
		{"partial", []layout.Axis{{Name: "dp", Size: 2}, {Name: "tp", Size: 2}}, []int{4, 4}, nil, []layout.Placement{R, P}},
		{"masked", []layout.Axis{{Name: "dp", Size: 2}, {Name: "tp", Size: 2}}, []int{4, 4}, nil,
			[]layout.Placement{S(0), layout.MaskPartial([]int{10, 4}, 0)}},
		{"sub_mesh", []layout.Axis{{Name: "tp", Size: 2}}, []int{4, 4}, []int{3, 1}, []layout.Placement{S(0)}},
		{"vector", []layout.Axis{{Name: "tp", Size: 4}}, []int{7}, nil, []layout.Placement{S(0)}},
		{"scalar", []layout.Axis{{Name: "tp", Size: 2}}, []int{}, nil, []layout.Placement{P}},
		{"cube", []layout.Axis{{Name: "a", Size: 2}, {Name: "b", Size: 2}, {Name: "c", Size: 2}}, []int{3, 4, 6}, nil,
			[]layout.Placement{S(0), S(1), S(2)}},
		{"four_dims", []layout.Axis{{Name: "a", Size: 2}, {Name: "b", Size: 2}}, []int{2, 3, 4, 5}, nil, []layout.Placement{S(1), S(3)}},
		{"no_elements", []layout.Axis{{Name: "tp", Size: 2}}, []int{0, 4}, nil, []layout.Placement{S(1)}},
	} {
		axes, err := layout.NewAxes(c.axes...)
		if err != nil {
			t.Fatal(err)
		}
		l, err := layout.New(axes, c.shape, c.places...)
		if err != nil {
			t.Fatal(err)
		}
		list[c.name] = visualize.Layout(l, c.ranks)
	}
	return list
}

func TestText(t *testing.T) {
	for name, p := range pictures(t) {
		testenv.Golden(t, filepath.Join("testdata", name+".txt"), p.String())
		for line := range strings.Lines(p.String()) {
			if line := strings.TrimSuffix(line, "\n"); line != strings.TrimRight(line, " ") {
				t.Errorf("%s: line %q ends in a space", name, line)
			}
		}
	}
}

func TestSVG(t *testing.T) {
	for name, p := range pictures(t) {
		svg := p.SVG()
		d := xml.NewDecoder(strings.NewReader(svg))
		rects := 0
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, svg)
			}
			if e, ok := token.(xml.StartElement); ok && e.Name.Local == "rect" {
				rects++
			}
		}
		if want := len(p.Regions) + 1; rects != want { // and the background
			t.Errorf("%s: %d rectangles, want %d", name, rects, want)
		}
	}
	for _, name := range []string{"uneven", "cube", "partial"} {
		testenv.Golden(t, filepath.Join("testdata", name+".svg"), pictures(t)[name].SVG())
	}
}

func TestPNG(t *testing.T) {
	var b bytes.Buffer
	if err := pictures(t)["no_elements"].PNG(&b); err != nil {
		t.Fatal(err)
	}
	if got, err := png.Decode(&b); err != nil || got.Bounds().Empty() {
		t.Fatalf("no elements: %v of %v", err, got.Bounds())
	}
	for _, name := range []string{"uneven", "cube"} {
		comparePNG(t, name+".png", pictures(t)[name])
	}
}

// comparePNG compares pixels: encoders may pack them differently.
func comparePNG(t *testing.T, name string, p *visualize.Picture) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if testenv.RewritesGolden() {
		var b bytes.Buffer
		if err := p.PNG(&b); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	got, read := p.Image(), image.NewRGBA(want.Bounds())
	draw.Draw(read, read.Bounds(), want, image.Point{}, draw.Src)
	if got.Bounds() != want.Bounds() || !bytes.Equal(got.Pix, read.Pix) {
		t.Errorf("%s: the picture of size %v differs from that of size %v (-rewrite accepts what is new)", file, got.Bounds(), want.Bounds())
	}
}

// Every element is in exactly one region, of a rank that holds it.
func TestRegionsCoverTheTensor(t *testing.T) {
	for name, p := range pictures(t) {
		total := 1
		for _, s := range p.Shape {
			total *= s
		}
		covered := 0
		for i, r := range p.Regions {
			n := 1
			for _, s := range r.Size {
				n *= s
			}
			covered += n
			for _, o := range p.Regions[:i] {
				if overlap(r, o) {
					t.Errorf("%s: %v and %v overlap", name, r, o)
				}
			}
		}
		if covered != total {
			t.Errorf("%s: regions have %d of %d elements", name, covered, total)
		}
	}
}

func overlap(a, b visualize.Region) bool {
	for d := range a.Offset {
		if a.Offset[d] >= b.Offset[d]+b.Size[d] || b.Offset[d] >= a.Offset[d]+a.Size[d] {
			return false
		}
	}
	return true
}

// A tensor and a table of shards are drawn on every rank, one outside too.
func TestTensorAndShards(t *testing.T) {
	commtest.Run(t, 3, func(ctx context.Context, world *comm.Comm) error {
		m, err := dtensor.NewMeshOf(world, []int{2, 0}, dtensor.Axis{Name: "tp", Size: 2})
		if err != nil {
			return err
		}
		x := dtensor.Zeros(m, tensor.Float32, []int{3, 4}, layout.Shard(0))
		const want = "[3, 4] S(0) on (tp=2) of ranks 2, 0\n\n    │ 0:4\n────┼────\n0:2 │ 2\n2:3 │ 0\n"
		if got := visualize.Tensor(x).String(); got != want {
			return fmt.Errorf("got\n%s\nwant\n%s", got, want)
		}
		if !m.Inside() {
			return nil
		}
		half := func() *tensor.Tensor { return tensor.Zeros(m.Device(), tensor.Float32, 3, 2) }
		var mine []dtensor.LocalShard
		if m.Coord()[0] == 1 {
			mine = []dtensor.LocalShard{{Data: half(), Offset: [2]int{0, 2}}, {Data: half()}}
		}
		s, err := dtensor.NewLocalShards(m, tensor.Float32, [2]int{3, 4}, mine...)
		if err != nil {
			return err
		}
		const shards = "[3, 4] in 2 shards on (tp=2) of ranks 2, 0\n\n    │ 0:2 │ 2:4\n────┼─────┼────\n0:3 │ 0   │ 0\n\nrank 2 holds no " +
			"element\n"
		if got := visualize.Shards(s).String(); got != shards {
			return fmt.Errorf("got\n%s\nwant\n%s", got, shards)
		}
		return nil
	})
}
