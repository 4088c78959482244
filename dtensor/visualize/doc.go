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
// ranges and the world ranks that hold it. Commas separate ranks with the same elements;
// a plus joins ranks whose parts have to be reduced: a region of "0+1, 2+3" is held twice,
// each time as two addends. The last two dimensions are the rows and columns of a panel; a
// tensor of more dimensions has one panel for each part of the leading ones. Ranks whose
// shard is empty are named below.
//
// A Picture needs the layout alone: drawing communicates nothing, and any rank can draw,
// even one outside the mesh.
package visualize
