package mem

import "math/bits"

// Sizes are handed out in classes: multiples of 64 bytes up to 512, then eight
// steps for each doubling, so that at most an eighth of a block is unused.
const (
	unitBytes   = 64
	classes     = 8 + 8*40
	smallBytes  = 64 << 10 // blocks up to here are carved from slabs
	slabBytes   = 1 << 20
	bigBytes    = 1 << 20 // blocks above are populated when they are new
	neighbours  = 2       // classes above the right one that may serve a large request
	collectFrom = 64 << 20
)

// classOf returns the class that holds bytes, and the size of its blocks.
func classOf(bytes int) (class, size int) {
	u := max((bytes+unitBytes-1)/unitBytes, 1)
	if u <= 8 {
		return u - 1, u * unitBytes
	}
	shift := bits.Len(uint(u-1)) - 4
	k := (u + 1<<shift - 1) >> shift // 9 to 16
	return 8 + shift*8 + k - 9, k << shift * unitBytes
}
