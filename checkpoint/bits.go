package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/tensor"
)

// element returns the bits of the first element of b.
func element(b []byte, dt tensor.DType) uint64 {
	switch dt.Size() {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(b))
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	case 8:
		return binary.LittleEndian.Uint64(b)
	}
	panic(fmt.Sprintf("checkpoint: no element of type %v", dt))
}

// number returns the value of an element with these bits: a float64, an int64 or a bool.
func number(dt tensor.DType, bits uint64) any {
	switch dt {
	case tensor.Float64:
		return math.Float64frombits(bits)
	case tensor.Float32:
		return math.Float32frombits(uint32(bits))
	case tensor.Float16:
		return dtype.F16(bits).Float32()
	case tensor.BFloat16:
		return dtype.BF16(bits).Float32()
	case tensor.Bool:
		return bits != 0
	case tensor.Uint8:
		return bits
	}
	shift := 64 - 8*dt.Size()
	return int64(bits<<shift) >> shift
}

// ulps returns how many numbers of type dt lie between two elements: their distance in units
// in the last place if they are floating-point numbers. ok is false if one of them is no number.
func ulps(dt tensor.DType, a, b uint64) (n uint64, ok bool) {
	x, y := order(dt, a), order(dt, b)
	if dt.Float() && (isNaN(dt, a) || isNaN(dt, b)) {
		return 0, false
	}
	if x > y {
		x, y = y, x
	}
	return uint64(y) - uint64(x), true
}

// order maps the bits of an element to an integer that grows with its value.
func order(dt tensor.DType, bits uint64) int64 {
	if dt == tensor.Uint8 || dt == tensor.Bool {
		return int64(bits)
	}
	shift := 64 - 8*dt.Size()
	x := int64(bits<<shift) >> shift
	if dt.Float() && x < 0 { // sign and magnitude
		low := int64(-1) << (8*dt.Size() - 1)
		return low - x
	}
	return x
}

func isNaN(dt tensor.DType, bits uint64) bool {
	switch x := number(dt, bits).(type) {
	case float64:
		return x != x
	case float32:
		return x != x
	}
	return false
}
