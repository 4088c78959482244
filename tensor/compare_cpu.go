package tensor

import (
	"cmp"
	"unsafe"
)

// CompareLoop computes dst = op(a, b), one byte of 0 or 1 an element, over
// arguments that broadcast.
func (c *CPU) CompareLoop(op CompareOp, dt DType, dst, a, b unsafe.Pointer, l Loop) {
	switch dt {
	case Float32:
		compareLoop[float32](op, dst, a, b, &l)
	case Float64:
		compareLoop[float64](op, dst, a, b, &l)
	case Int8:
		compareLoop[int8](op, dst, a, b, &l)
	case Int16:
		compareLoop[int16](op, dst, a, b, &l)
	case Int32:
		compareLoop[int32](op, dst, a, b, &l)
	case Int64:
		compareLoop[int64](op, dst, a, b, &l)
	case Uint8, Bool:
		compareLoop[uint8](op, dst, a, b, &l)
	}
}

func compareLoop[T number](op CompareOp, dst, a, b unsafe.Pointer, l *Loop) {
	n, sa, sb := l.Size[l.N-1], l.A[l.N-1], l.B[l.N-1]
	l.rows(func(i, ia, ib, _ int) {
		d := unsafe.Slice(at[bool](dst, i), n)
		for k := range d {
			d[k] = compareOne(op, *at[T](a, ia+k*sa), *at[T](b, ib+k*sb))
		}
	})
}

func compareOne[T cmp.Ordered](op CompareOp, a, b T) bool {
	switch op {
	case OpEq:
		return a == b
	case OpNe:
		return a != b
	case OpLt:
		return a < b
	case OpLe:
		return a <= b
	case OpGt:
		return a > b
	default:
		return a >= b
	}
}

// Where computes dst = cond ? a : b for elements of the given bytes; the loop's C
// is cond's.
func (c *CPU) Where(elemBytes int, dst, a, b, cond unsafe.Pointer, l Loop) {
	switch elemBytes {
	case 1:
		where[uint8](dst, a, b, cond, &l)
	case 2:
		where[uint16](dst, a, b, cond, &l)
	case 4:
		where[uint32](dst, a, b, cond, &l)
	case 8:
		where[uint64](dst, a, b, cond, &l)
	}
}

func where[T any](dst, a, b, cond unsafe.Pointer, l *Loop) {
	last := l.N - 1
	n, sa, sb, sc := l.Size[last], l.A[last], l.B[last], l.C[last]
	l.rows(func(i, ia, ib, ic int) {
		d := unsafe.Slice(at[T](dst, i), n)
		for k := range d {
			if *at[bool](cond, ic+k*sc) {
				d[k] = *at[T](a, ia+k*sa)
			} else {
				d[k] = *at[T](b, ib+k*sb)
			}
		}
	})
}
