package main

import (
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
)

// Comments that each leaves in the code for weave, which takes them out.
const (
	strand = "strand"
	woven  = "woven"
)

// each writes body for 0 ≤ u < n; with inTurns the instructions of all n in
// turns: the first of each, the second of each and so on.
//
// The processor looks only so far ahead for instructions whose operands are
// there. Where one vector takes a long chain of them, the chains of several
// vectors run side by side only if they lie side by side.
func each(c *build.Context, n int, inTurns bool, body func(u int)) {
	for u := range n {
		if inTurns {
			c.Comment(strand)
		}
		body(u)
	}
	if inTurns {
		c.Comment(woven)
	}
}

// weave puts the instructions of strands in turns. Strands are the same code on
// different elements, without labels.
func weave(nodes []ir.Node) []ir.Node {
	var out []ir.Node
	var strands [][]ir.Node
	for _, n := range nodes {
		c, ok := n.(*ir.Comment)
		switch {
		case ok && len(c.Lines) == 1 && c.Lines[0] == strand:
			strands = append(strands, nil)
		case ok && len(c.Lines) == 1 && c.Lines[0] == woven:
			for i := range strands[0] {
				for _, s := range strands {
					out = append(out, s[i])
				}
			}
			strands = nil
		case strands != nil:
			strands[len(strands)-1] = append(strands[len(strands)-1], n)
		default:
			out = append(out, n)
		}
	}
	return out
}
