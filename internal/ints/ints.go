// Package ints has the arithmetic of sizes and counts that the standard library lacks.
package ints

// An Int is a type of integers.
type Int interface {
	~int | ~int32 | ~int64 | ~uint64 | ~uintptr
}

// Sum returns the sum of a list, 0 for an empty one.
func Sum[T Int](list []T) (sum T) {
	for _, v := range list {
		sum += v
	}
	return sum
}

// Product returns the product of a list, 1 for an empty one: the number of elements of a shape.
func Product[T Int](list []T) T {
	product := T(1)
	for _, v := range list {
		product *= v
	}
	return product
}

// Starts returns where each of some parts begins if they lie one after the other: element i is the
// sum of counts[:i].
func Starts(counts []int) []int {
	starts := make([]int, len(counts))
	for i := 1; i < len(counts); i++ {
		starts[i] = starts[i-1] + counts[i-1]
	}
	return starts
}

// DivUp returns a/b, rounded up: how many parts of b elements hold a. a is not negative, b is positive, and
// a+b-1 does not overflow.
func DivUp[T Int](a, b T) T { return (a + b - 1) / b }

// RoundUp returns the least multiple of b that is not below a; see DivUp.
func RoundUp[T Int](a, b T) T { return DivUp(a, b) * b }
