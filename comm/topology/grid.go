package topology

import (
	"context"
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/ints"
)

// A Grid has the ranks of a communicator in rows, columns and so on: rank r is at the
// coordinates that r has in row-major order, the last of which changes fastest. Along a periodic
// dimension the last rank is a neighbour of the first; other dimensions have open borders.
//
// Its neighbours, in Sources and Destinations, are 2 for each dimension d: number 2d is the
// rank before this one along d, number 2d+1 the rank after it.
type Grid struct {
	comm       *comm.Comm
	dims       []int
	periodic   []bool
	coords     []int
	neighbours []int
	steps      []exchange
	scratch    any // a slice that Halo packs into
}

// NewGrid arranges the ranks of c. dims are the sizes of the dimensions; Dims chooses those that
// are 0. Their product must be c.Size(). periodic says which dimensions are periodic; nil says
// that none is. All ranks must call NewGrid with the same dims and periodic.
func NewGrid(ctx context.Context, c *comm.Comm, dims []int, periodic []bool) (*Grid, error) {
	if periodic == nil {
		periodic = make([]bool, len(dims))
	}
	given := slices.Clone(dims)
	for _, p := range periodic {
		n := 0
		if p {
			n = 1
		}
		given = append(given, n)
	}
	if err := agree(ctx, c, "NewGrid (dims, then 1 for each that is periodic)", given); err != nil {
		return nil, err
	}
	if len(periodic) != len(dims) || len(dims) == 0 {
		return nil, fault.Located(fmt.Errorf("topology: NewGrid: %d dims and %d periodic; give one of each for every dimension, at least one",
			len(dims), len(periodic)))
	}
	dims, err := Dims(c.Size(), dims)
	if err != nil {
		return nil, err
	}
	own, err := c.Split(ctx, 0, c.Rank())
	if err != nil {
		return nil, err
	}
	g := &Grid{comm: own, dims: dims, periodic: slices.Clone(periodic)}
	g.coords = g.CoordsOf(own.Rank())
	for d := range dims {
		before, after := g.Shift(d, 1)
		g.neighbours = append(g.neighbours, before, after)
		down, up := g.exchange(d, -1), g.exchange(d, 1)
		down.destination, down.source = 2*d, 2*d+1
		up.destination, up.source = 2*d+1, 2*d
		g.steps = append(g.steps, down, up)
	}
	return g, nil
}

// Dims returns dims with its zeros replaced so that the product is n. The chosen sizes are as
// near to each other as possible, the larger first. It is MPI_Dims_create.
func Dims(n int, dims []int) ([]int, error) {
	if n < 1 {
		return nil, fault.Located(fmt.Errorf("topology: %d ranks in a grid of dims %v; give at least one rank", n, dims))
	}
	out, rest := slices.Clone(dims), n
	var free []int
	for i, d := range dims {
		switch {
		case d == 0:
			free = append(free, i)
		case d < 0 || rest%d != 0:
			return nil, fault.Located(fmt.Errorf("topology: %s in a grid of dims %v; give divisors of %d, or 0 for a size to be chosen",
				ints.Counted(n, "rank"), dims, n))
		default:
			rest /= d
		}
	}
	if len(free) == 0 && rest != 1 {
		return nil, fault.Located(fmt.Errorf("topology: %s in a grid of dims %v; "+
			"their product must be %d, or give 0 for a size to be chosen", ints.Counted(n, "rank"), dims, n))
	}
	for k, i := range free {
		out[i] = evenFactor(rest, len(free)-k)
		rest /= out[i]
	}
	return out, nil
}

// evenFactor returns the largest of k factors whose product is n, chosen so that it is as small
// as possible.
func evenFactor(n, k int) int {
	for f := 1; f < n; f++ {
		if n%f == 0 && fits(n/f, k-1, f) {
			return f
		}
	}
	return n
}

// fits reports whether n is a product of k factors, none larger than most.
func fits(n, k, most int) bool {
	if k == 0 {
		return n == 1
	}
	for f := min(n, most); f > 0; f-- {
		if n%f == 0 && fits(n/f, k-1, f) {
			return true
		}
	}
	return false
}

// Comm returns the grid's communicator. Its ranks have the same numbers as in the communicator
// that was given to NewGrid.
func (g *Grid) Comm() *comm.Comm { return g.comm }

// Dims returns the sizes of the dimensions.
func (g *Grid) Dims() []int { return slices.Clone(g.dims) }

// Periodic reports for each dimension whether it is periodic.
func (g *Grid) Periodic() []bool { return slices.Clone(g.periodic) }

// Coords returns the coordinates of this rank.
func (g *Grid) Coords() []int { return slices.Clone(g.coords) }

// CoordsOf returns the coordinates of a rank.
func (g *Grid) CoordsOf(rank int) []int {
	if n := g.comm.Size(); rank < 0 || rank >= n {
		panic(fmt.Sprintf("topology: Grid.CoordsOf: rank %d of a grid %v; give 0 to %d", rank, g.dims, n-1))
	}
	coords := make([]int, len(g.dims))
	for d := len(g.dims) - 1; d >= 0; d-- {
		coords[d] = rank % g.dims[d]
		rank /= g.dims[d]
	}
	return coords
}

// RankAt returns the rank at some coordinates, or None beyond an open border. Along a periodic
// dimension any number is a coordinate.
func (g *Grid) RankAt(coords []int) int {
	if len(coords) != len(g.dims) {
		panic(fmt.Sprintf("topology: Grid.RankAt: coordinates %v in a grid %v; give one for each dimension", slices.Clone(coords), g.dims))
	}
	rank := 0
	for d, n := range g.dims {
		x := coords[d]
		if g.periodic[d] {
			x = (x%n + n) % n
		}
		if x < 0 || x >= n {
			return None
		}
		rank = rank*n + x
	}
	return rank
}

// Shift returns the rank that is by places before this one along dimension dim and the rank that
// is by places after it. The function Shift receives from the first and sends to the second.
// It is MPI_Cart_shift.
func (g *Grid) Shift(dim, by int) (from, to int) {
	if dim < 0 || dim >= len(g.dims) {
		panic(fmt.Sprintf("topology: Grid.Shift: dimension %d of a grid %v; give 0 to %d", dim, g.dims, len(g.dims)-1))
	}
	at := slices.Clone(g.coords)
	at[dim] = g.coords[dim] - by
	from = g.RankAt(at)
	at[dim] = g.coords[dim] + by
	return from, g.RankAt(at)
}

// Sources returns the neighbours: see Grid.
func (g *Grid) Sources() []int { return slices.Clone(g.neighbours) }

// Destinations returns the neighbours: see Grid.
func (g *Grid) Destinations() []int { return slices.Clone(g.neighbours) }

func (g *Grid) exchanges() []exchange { return g.steps }

// exchange returns this rank's messages in a shift. The ranks of a shift form chains or circles;
// every second rank of one receives first.
func (g *Grid) exchange(dim, by int) exchange {
	e := exchange{}
	e.from, e.to = g.Shift(dim, by)
	n, x := g.dims[dim], g.coords[dim]
	position := 0 // in the chain or circle
	if g.periodic[dim] {
		by = (by%n + n) % n
		start := x
		for y := (x + by) % n; y != x; y = (y + by) % n {
			start = min(start, y)
		}
		for ; start != x; start = (start + by) % n {
			position++
		}
	} else if by != 0 {
		position = x / max(by, -by)
	}
	e.sendFirst = position%2 == 0
	return e
}

// Shift sends src to the rank that is by places after this one along dimension dim, and fills
// dst from the rank that is by places before it. Beyond an open border there is no rank: then src
// is not sent, or dst stays as it is. by may be negative. len(dst) must be the len(src)
// of the rank before.
func Shift[T any](ctx context.Context, g *Grid, dst, src []T, dim, by int) error {
	if dim < 0 || dim >= len(g.dims) {
		return refuse(g, fmt.Errorf("topology: Shift along dimension %d of a grid of %v; give one of 0 to %d", dim, g.dims, len(g.dims)-1))
	}
	return run(ctx, g.comm, []exchange{g.exchange(dim, by)}, func(int) []T { return src }, func(int) []T { return dst })
}
