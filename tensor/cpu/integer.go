package cpu

import "github.com/gorun-spmd/gorun/tensor/kernel"

// integerForms adds the fast forms of operators that only integers have, or that are computed otherwise for integers.
func integerForms[T number](forms []func(dst, a, b []T)) []func(dst, a, b []T) {
	for op, f := range map[kernel.BinaryOp]func(dst, a, b []T){
		kernel.OpRemainder: remainderInts[T], kernel.OpFmod: fmodInts[T], kernel.OpFloorDivide: floorDivideInts[T],
		kernel.OpBitwiseAnd: andInts[T], kernel.OpBitwiseOr: orInts[T], kernel.OpBitwiseXor: xorInts[T],
	} {
		for len(forms) <= int(op) {
			forms = append(forms, nil)
		}
		forms[op] = f
	}
	return forms
}

func remainderInts[T number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		x, y := int64(a[i]), int64(b[i])
		if y != 0 {
			if x %= y; x != 0 {
				x += y & ((x ^ y) >> 63) // where the signs differ
			}
		}
		dst[i] = T(x)
	}
}

func fmodInts[T number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		x, y := int64(a[i]), int64(b[i])
		if y != 0 {
			x %= y
		}
		dst[i] = T(x)
	}
}

func floorDivideInts[T number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		x, y := int64(a[i]), int64(b[i])
		var q int64
		if y != 0 {
			q = x / y
			if rest := x - q*y; rest != 0 {
				q += (rest ^ y) >> 63 // less 1 where the signs differ
			}
		}
		dst[i] = T(q)
	}
}

func andInts[T number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = T(int64(a[i]) & int64(b[i]))
	}
}

func orInts[T number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = T(int64(a[i]) | int64(b[i]))
	}
}

func xorInts[T number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = T(int64(a[i]) ^ int64(b[i]))
	}
}
