package mem

import (
	"math/bits"

	"github.com/gorun-spmd/gorun/internal/ints"
)

// Sizes are rounded up to classes: multiples of 64 bytes up to 512, then eight classes
// for each doubling, so that at most an eighth of a block is unused. Above 1 MiB, where
// an eighth is much, there are 256 classes for each doubling, of whole pages.
const (
	unitBytes   = 64
	smallBytes  = 64 << 10 // blocks up to here are carved from slabs
	slabBytes   = 1 << 20
	bigBytes    = 1 << 20 // blocks above are populated when they are new, and have fine classes
	collectFrom = 64 << 20

	coarseBits = 3                            // 8 steps a doubling
	fineBits   = 8                            // 256 steps
	coarse     = 8 + 11<<coarseBits           // classes up to bigBytes, which are 64·8·2¹¹
	doublings  = 28                           // of fine steps
	classes    = coarse + doublings<<fineBits // up to 2⁴⁸ bytes
	bigUnits   = bigBytes / unitBytes         // 2¹⁴
	skipped    = (14 - fineBits) << fineBits  // fine steps below bigUnits
)

// classOf returns the class that holds bytes, and the size of its blocks.
func classOf(bytes int) (class, size int) {
	u := max(ints.DivUp(bytes, unitBytes), 1)
	switch {
	case u <= 8:
		return u - 1, u * unitBytes
	case u <= bigUnits:
		step, size := stepOf(u, coarseBits)
		return 8 + step, size * unitBytes
	}
	step, size := stepOf(u, fineBits)
	return coarse + step - skipped, size * unitBytes
}

// stepOf counts the steps from 1<<bits units to the first one of at least u,
// with 1<<bits of them for each doubling, and returns how many units that one is.
func stepOf(u, fine int) (step, units int) {
	shift := bits.Len(uint(u-1)) - fine - 1
	k := (u + 1<<shift - 1) >> shift // 1<<fine + 1 to 2<<fine
	return shift<<fine + k - 1<<fine - 1, k << shift
}

// lists are the free blocks by class. Those of a doubling of fine classes are made when a block
// comes: all take 57 kB, and a process may have thousands of pools.
type lists struct {
	coarse [coarse]*Block
	fine   [doublings]*[1 << fineBits]*Block
}

// of returns the list of a class, nil if it was not made.
func (l *lists) of(class int) **Block {
	if class < coarse {
		return &l.coarse[class]
	}
	if its := l.fine[(class-coarse)>>fineBits]; its != nil {
		return &its[(class-coarse)&(1<<fineBits-1)]
	}
	return nil
}

// make is of, and makes the list if need be.
func (l *lists) make(class int) **Block {
	if at := l.of(class); at != nil {
		return at
	}
	l.fine[(class-coarse)>>fineBits] = new([1 << fineBits]*Block)
	return l.of(class)
}

// loosest returns the largest class whose cached blocks may serve a request of a class:
// blocks of up to a quarter more.
func loosest(class int) int {
	if class < coarse {
		return min(class+2, coarse-1)
	}
	return min(class+1<<(fineBits-2), classes-1)
}
