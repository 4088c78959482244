package embedding

import (
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/rowstore"
)

// turnsPiece is how many bytes of its block a rank receives at a time.
const turnsPiece = 4 << 20

// InBlocks copies rows that are dealt out in turn into files of blocks, which free gives back.
func (f storedField) InBlocks() (blocks dtensor.Stored, free func()) {
	const op = "InBlocks"
	s, mesh := f.s, f.s.weight.Mesh()
	if mesh.Size() == 1 {
		return f, func() {}
	}
	turns, block := make([]layout.Held, mesh.Size()), make([]layout.Held, mesh.Size()) // by rank
	most := 0
	for i := range turns {
		l := s.weight.Layout()
		coord := l.Axes().Coord(i)
		turns[i], block[i] = l.Held(coord), l.Blocks().Held(coord)
		most = max(most, block[i].N)
	}
	err := f.Sync()
	me := mesh.Comm().Rank()
	to := storedField{&stored{name: s.name, weight: s.weight}, 0, f.rowBytes}
	free = func() {
		if to.s.rows != nil {
			to.s.rows.Close() // what it says of a copy is of no use
			to.s.rows = nil   // the plan of a checkpoint keeps the tensor
		}
	}
	if block[me].N > 0 && err == nil {
		of := s.disk
		of.Number, of.Rows, of.Slots = block[me].Row, block[me].N, rowstore.Ways
		of.Fresh = func(_ int, data []byte) { clear(data) }
		if to.s.rows, err = rowstore.New(of); err == nil {
			to.s.rows.AddField(make([]byte, of.Slots*f.rowBytes), f.rowBytes, nil)
		}
	}
	done := false
	defer func() {
		if !done {
			free()
		}
	}()
	agreeOnDisks(mesh, op, err)
	n := max(1, turnsPiece/f.rowBytes)
	for first := 0; first < most; first += n {
		piece := func(rank int) (lo, hi int) { // of its block, in rows of the table
			b := block[rank]
			return b.Row(min(first, b.N)), b.Row(min(first+n, b.N))
		}
		send, receive := make([]int, len(turns)), make([]int, len(turns))
		var message []byte
		var err error
		lo, hi := piece(me)
		for i := range turns {
			its, end := piece(i)
			from, to := turns[me].Below(its), turns[me].Below(end)
			send[i], receive[i] = (to-from)*f.rowBytes, (turns[i].Below(hi)-turns[i].Below(lo))*f.rowBytes
			message = slices.Grow(message, send[i])[:len(message)+send[i]]
			if err == nil && send[i] > 0 {
				err = f.ReadRows(from, message[len(message)-send[i]:])
			}
		}
		agreeOnDisks(mesh, op, err)
		got, rows := make([]byte, (hi-lo)*f.rowBytes), make([]byte, (hi-lo)*f.rowBytes)
		mesh.Do(mesh.Comm(), comm.Call{Kind: comm.AllToAllVKind, Dst: comm.Of(got), Src: comm.Of(message), DstCounts: receive, SrcCounts: send,
			Cause: op + ": rows"})
		for i := range turns {
			got = spread(rows, got, f.rowBytes, f.rowBytes, turns[i], lo, hi)
		}
		if len(rows) > 0 {
			err = to.WriteRows(block[me].Below(lo), rows)
		}
		agreeOnDisks(mesh, op, err)
	}
	done = true
	return to, free
}

// spread copies n bytes of those of the rows from lo to hi that a rank has to their places among these, and returns what follows
// them in from.
func spread(to, from []byte, rowBytes, n int, its layout.Held, lo, hi int) (rest []byte) {
	for i := its.Below(lo); i < its.Below(hi); i++ {
		copy(to[(its.Row(i)-lo)*rowBytes:], from[:n])
		from = from[n:]
	}
	return from
}
