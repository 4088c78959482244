package cpu

import (
	"github.com/gorun-spmd/gorun/internal/gemm"
	"github.com/gorun-spmd/gorun/internal/simd"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// An image is what the patches of a channel are taken from: for each dimension of positions the elements of one remainder by step
// behind those of another, each remainder of size elements.
type image struct {
	low  [kernel.Positions]int // zeros before the first element
	step [kernel.Positions]int
	size [kernel.Positions]int // of a remainder
	from [kernel.Positions]int // the positions of x
}

// row returns how far apart neighbours of each dimension are.
func (m *image) row() [kernel.Positions]int { return [...]int{m.size[1] * m.size[2], m.size[2], 1} }

// each returns how many elements a remainder in all dimensions has, and all how many a channel has.
func (m *image) each() int { return m.size[0] * m.size[1] * m.size[2] }
func (m *image) all() int  { return m.each() * m.step[0] * m.step[1] * m.step[2] }

// same reports whether a channel of x is an image as it lies.
func (m *image) same() bool {
	return m.size == m.from && m.all() == m.each() && m.low == [kernel.Positions]int{}
}

// fill writes channels of x to dst, but the zeros around them.
func fill[T float](m *image, dst, x []T, channels int) {
	row, from := m.row(), m.from
	for ; channels > 0; channels, dst, x = channels-1, dst[m.all():], x[from[0]*from[1]*from[2]:] {
		for d := range from[0] {
			at := d + m.low[0]
			plane := at%m.step[0]*m.step[1]*m.step[2]*m.each() + at/m.step[0]*row[0]
			if m.step[1] == 1 && m.step[2] == 1 {
				simd.CopyRows(dst[plane+m.low[1]*row[1]+m.low[2]:], row[1], x[d*from[1]*from[2]:], from[2], from[1], from[2])
				continue
			}
			for h := range from[1] {
				at := h + m.low[1]
				line := plane + at%m.step[1]*m.step[2]*m.each() + at/m.step[1]*row[1]
				src := x[(d*from[1]+h)*from[2]:][:from[2]]
				for r := range m.step[2] {
					first := ((r-m.low[2])%m.step[2] + m.step[2]) % m.step[2]
					to := dst[line+r*m.each()+(first+m.low[2])/m.step[2]:]
					for i, w := 0, first; w < len(src); i, w = i+1, w+m.step[2] {
						to[i] = src[w]
					}
				}
			}
		}
	}
}

// lay returns the images of x, which lie stride elements apart and have a number of channels, and how far apart they are: they are x itself
// if it lies so, and else are filled into room.
func lay[T float](m *image, room, x []T, images, stride, channels int) (from []T, apart int) {
	if m.same() {
		return x, stride
	}
	each := channels * m.all()
	for i := range images {
		fill(m, room[i*each:], x[i*stride:], channels)
	}
	return room, each
}

// A slide is a set of windows over images: for each element of a window, a tap, where it is in the image for the first of count
// windows. Windows that are neighbours in the last dimension have neighbours as elements.
type slide struct {
	taps     []int
	which    []int // the element of the window that each tap is
	count    [kernel.Positions]int
	row      [kernel.Positions]int
	channels int
	plane    int // elements between channels
}

// positions returns how many windows there are.
func (s *slide) positions() int { return s.count[0] * s.count[1] * s.count[2] }

// offset returns how far window j is from the first, and how many from it on are side by side.
func (s *slide) offset(j int) (at, run int) {
	w, rest := j%s.count[2], j/s.count[2]
	return rest/s.count[1]*s.row[0] + rest%s.count[1]*s.row[1] + w, s.count[2] - w
}

// pack packs patches of images that lie stride elements apart: their rows are the taps' channels, and their columns the windows of
// one image after another. It packs a few rows at a time into all panels, as package gemm does.
func pack[T float](s *slide, x []T, stride int) gemm.Packer[T] {
	n := s.positions()
	return func(dst []T, width, p, j, rows, cols int) {
		few := max(16, 4096/cols)
		for r := 0; r < rows; {
			tap, channel := (p+r)/s.channels, (p+r)%s.channels
			some := min(s.channels-channel, rows-r, few)
			from := x[channel*s.plane+s.taps[tap]:]
			for c := 0; c < cols; {
				at, run := s.offset((j + c) % n)
				at += (j + c) / n * stride
				run = min(run, cols-c, width-c%width)
				to := dst[c/width*width*rows+r*width+c%width:]
				if some < 4 {
					for i := range some {
						copy(to[i*width:][:run], from[at+i*s.plane:])
					}
				} else {
					simd.CopyPanel(to, width, from[at:], s.plane, some, run)
				}
				c += run
			}
			r += some
		}
	}
}
