// Package visualize draws how a tensor lies on a mesh: which ranks hold which
// part of it, as text for a terminal, as SVG and as PNG.
//
//	fmt.Print(visualize.Tensor(t))
//
//	[5, 16] S(0) on (tp=2)
//
//	    │ 0:16
//	────┼─────
//	0:3 │ 0
//	3:5 │ 1
//
// A Picture has a region for each part that some rank holds, with global index
// ranges and the world ranks that hold it. Ranks that hold the same are listed
// with commas, ranks whose parts have to be reduced are joined by a plus: "0+1,
// 2+3" is held twice, each time as two addends. The last two dimensions are the
// rows and columns of a panel; a tensor of more dimensions has one panel for each
// part of the leading ones. Ranks whose shard is empty are named below.
//
// It is drawn from the layout alone: nothing is communicated and any rank can
// draw, one outside the mesh too.
package visualize
