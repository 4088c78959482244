// Command 11-visualize draws layouts: here those of a [2, 6, 8] tensor on a mesh of
// 2 × 2 ranks, before its middle dimension is gathered and after.
//
//	gorun ./examples/11-visualize -svg before.svg -png before.png
//
// Output:
//
//	[2, 6, 8] S(0),S(1)[4 2] on (dp=2,tp=2)
//	[0:1, …]
//	    │ 0:8
//	────┼────
//	0:4 │ 0
//	4:6 │ 1
//	[1:2, …]
//	    │ 0:8
//	────┼────
//	0:4 │ 2
//	4:6 │ 3
//	[2, 6, 8] S(0),R on (dp=2,tp=2)
//	[0:1, …]
//	    │ 0:8
//	────┼─────
//	0:6 │ 0, 1
//	[1:2, …]
//	    │ 0:8
//	────┼─────
//	0:6 │ 2, 3
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/dtensor/visualize"
	"github.com/gorun-spmd/gorun/runtime"
)

func main() {
	svg := flag.String("svg", "", "also draw the first layout to this `file`, as SVG")
	png := flag.String("png", "", "also draw the first layout to this `file`, as PNG")
	flag.Parse()
	runtime.Main(func(ctx context.Context, world *comm.Comm) error {
		if world.Rank() != 0 { // a layout is a value: one rank draws it without the others
			return nil
		}
		return draw(*svg, *png)
	})
}

func draw(svg, png string) error {
	axes, err := layout.NewAxes(layout.Axis{Name: "dp", Size: 2}, layout.Axis{Name: "tp", Size: 2})
	if err != nil {
		return err
	}
	before, err := layout.New(axes, []int{2, 6, 8}, layout.Shard(0), layout.ShardSizes(1, 4, 2))
	if err != nil {
		return err
	}
	after, err := before.With(layout.Shard(0), layout.Replicate())
	if err != nil {
		return err
	}
	for _, l := range []layout.Layout{before, after} {
		fmt.Print(strings.ReplaceAll(visualize.Layout(l, nil).String(), "\n\n", "\n"))
	}
	return write(visualize.Layout(before, nil), svg, png)
}

// write draws to the files that are named.
func write(p *visualize.Picture, svg, png string) error {
	if svg != "" {
		if err := os.WriteFile(svg, []byte(p.SVG()), 0o644); err != nil {
			return err
		}
	}
	if png == "" {
		return nil
	}
	f, err := os.Create(png)
	if err != nil {
		return err
	}
	if err := p.PNG(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
