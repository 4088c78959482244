package simd

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// filled returns n elements from some place on in memory, all of them different
// until the type runs out.
func filled[T Elem](offset, n int, value func(i int) T) []T {
	s := make([]T, offset+n)[offset:]
	for i := range s {
		s[i] = value(i)
	}
	return s
}

// checkCopyRows compares all of dst, what lies between its rows too, with the loop.
func checkCopyRows[T Elem](t *testing.T, l Mode, r *rand.Rand, rows, n int, value func(i int) T) {
	t.Helper()
	dstStep, srcStep := n+r.IntN(3)*r.IntN(40), r.IntN(2)*(n+r.IntN(3)*r.IntN(40)) // a step of 0 repeats one row
	size := func(step int) int { return max(0, (rows-1)*step+n) }
	dst := filled(r.IntN(70), size(dstStep)+1, value)
	src := filled(r.IntN(70), size(srcStep), func(i int) T { return value(i + 77) })
	want := slices.Clone(dst)
	for i := range rows {
		for j := range n {
			want[i*dstStep+j] = src[i*srcStep+j]
		}
	}
	bytesOf := len(bytes(dst)) / len(dst)
	if rows > 0 && n > 0 {
		l.copyRows(bytes(dst), dstStep*bytesOf, r.IntN(300), bytes(src), srcStep*bytesOf, r.IntN(300), rows, n*bytesOf)
	}
	if !slices.Equal(bytes(dst), bytes(want)) {
		t.Fatalf("%d rows of %d %T, %d and %d apart: wrong", rows, n, dst[0], dstStep, srcStep)
	}
}

func TestCopyRows(t *testing.T) {
	for _, l := range modes() {
		r := rand.New(rand.NewPCG(3, uint64(l.code())))
		for _, n := range []int{1, 63, 64, 1000, 1023, 1024} { // more rows than one call copies
			for _, rows := range []int{callBytes / n, callBytes/n + 1, 2*(callBytes/n) + 3} {
				checkCopyRows(t, l, r, rows, n, func(i int) uint8 { return uint8(i) })
			}
		}
		lengths := []int{0, 1, 2, 3, 4, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 200, 513, 2048, 2049}
		for _, n := range lengths {
			for _, rows := range []int{0, 1, 2, 3, 50} {
				for range 4 {
					checkCopyRows(t, l, r, rows, n, func(i int) uint8 { return uint8(i) })
					checkCopyRows(t, l, r, rows, n, func(i int) uint16 { return uint16(i) })
					checkCopyRows(t, l, r, rows, n, func(i int) float32 { return math.Float32frombits(uint32(i) * 2654435761) }) // NaN among them
					checkCopyRows(t, l, r, rows, n, func(i int) int64 { return int64(i) << 33 })
				}
			}
		}
	}
}

// checkTranspose compares all of dst, what lies between its rows too, with the loop.
func checkTranspose[T Elem](t *testing.T, l Mode, r *rand.Rand, rows, cols int, value func(i int) T) {
	t.Helper()
	dstStep, srcStep := rows+r.IntN(3)*r.IntN(40), cols+r.IntN(3)*r.IntN(40)
	dst := filled(r.IntN(2)*r.IntN(40), max(0, (cols-1)*dstStep+rows)+1, value)
	src := filled(r.IntN(40), max(0, (rows-1)*srcStep+cols), func(i int) T { return value(i + 77) })
	want := slices.Clone(dst)
	for i := range rows {
		for j := range cols {
			want[j*dstStep+i] = src[i*srcStep+j]
		}
	}
	transpose(l, dst, dstStep, src, srcStep, rows, cols)
	if !slices.Equal(bytes(dst), bytes(want)) {
		t.Fatalf("[%d, %d] of %T, steps %d and %d: wrong", rows, cols, dst[0], srcStep, dstStep)
	}
}

func TestTranspose(t *testing.T) {
	for _, l := range modes() {
		r := rand.New(rand.NewPCG(4, uint64(l.code())))
		sizes := []int{0, 1, 2, 3, 7, 8, 9, 14, 15, 16, 17, 31, 32, 33, 255, 256, 273}
		for range 600 {
			rows, cols := sizes[r.IntN(len(sizes))], sizes[r.IntN(len(sizes))]
			checkTranspose(t, l, r, rows, cols, func(i int) uint8 { return uint8(i) })
			checkTranspose(t, l, r, rows, cols, func(i int) uint16 { return uint16(i) })
			checkTranspose(t, l, r, rows, cols, func(i int) float32 { return math.Float32frombits(uint32(i) * 2654435761) })
			checkTranspose(t, l, r, rows, cols, func(i int) float64 { return float64(i) })
		}
	}
}

func TestRowsOutsideASliceAreRefused(t *testing.T) {
	for name, f := range map[string]func(){
		"dst":       func() { CopyRows(make([]float32, 9), 5, make([]float32, 10), 5, 2, 5) },
		"src":       func() { CopyRows(make([]float32, 10), 5, make([]float32, 9), 5, 2, 5) },
		"negative":  func() { CopyRows(make([]float32, 10), -5, make([]float32, 10), 5, 2, 5) },
		"transpose": func() { Transpose(make([]float32, 9), 2, make([]float32, 10), 5, 2, 5) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}

func TestReverse(t *testing.T) {
	for _, n := range lengths() {
		src, dst := steps(n, 1), make([]float32, n+1)
		wide, bytes := make([]int64, n), make([]uint8, n)
		for i := range n {
			wide[i], bytes[i] = int64(i), uint8(i)
		}
		gotWide, gotBytes := make([]int64, n), make([]uint8, n)
		Reverse(dst[:n], src)
		Reverse(gotWide, wide)
		Reverse(gotBytes, bytes)
		for i := range n {
			if dst[i] != src[n-1-i] || gotWide[i] != wide[n-1-i] || gotBytes[i] != bytes[n-1-i] {
				t.Fatalf("%d elements: element %d is %g, %d and %d", n, i, dst[i], gotWide[i], gotBytes[i])
			}
		}
		if dst[n] != 0 {
			t.Fatalf("%d elements: wrote outside", n)
		}
	}
}
