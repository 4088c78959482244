package simd

// The functions that round have the values of package math.

// Round does dst[i] = the nearest whole number, of two that are as near the even one.
func Round(dst, x []float32) { Writing(dst, x).unary("Round", Mode.round, dst, x) }

func (m Mode) round(dst, x []float32) { each(m, roundKernel, roundVec, roundEven, dst, x) }

// Floor does dst[i] = the largest whole number that is not above x[i].
func Floor(dst, x []float32) { Writing(dst, x).unary("Floor", Mode.floor, dst, x) }

func (m Mode) floor(dst, x []float32) { each(m, floorKernel, floorVec, floor, dst, x) }

// Ceil does dst[i] = the smallest whole number that is not below x[i].
func Ceil(dst, x []float32) { Writing(dst, x).unary("Ceil", Mode.ceil, dst, x) }

func (m Mode) ceil(dst, x []float32) { each(m, ceilKernel, ceilVec, ceil, dst, x) }

// Trunc does dst[i] = x[i] without its fraction.
func Trunc(dst, x []float32) { Writing(dst, x).unary("Trunc", Mode.trunc, dst, x) }

func (m Mode) trunc(dst, x []float32) { each(m, truncKernel, truncVec, trunc, dst, x) }
