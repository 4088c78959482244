// Package ints has the arithmetic of sizes and counts that the standard library lacks.
package ints

import "fmt"

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

// Range returns the numbers 0 to n-1.
func Range(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// Pick returns the elements of a list at these places.
func Pick[T any](list []T, places []int) []T {
	picked := make([]T, len(places))
	for i, place := range places {
		picked[i] = list[place]
	}
	return picked
}

// IndexIn returns the flat index, in an array of shape whole, of the element whose flat index is i in a part of the array: the
// part of this shape that begins at offset. Arrays are row-major.
func IndexIn(whole, offset, part []int, i int) (flat int) {
	stride := 1
	for d := len(whole) - 1; d >= 0; d-- {
		flat += (offset[d] + i%part[d]) * stride
		i /= part[d]
		stride *= whole[d]
	}
	return flat
}

// DivUp returns a/b, rounded up: how many parts of b elements hold a. a is not negative, b is positive, and
// a+b-1 does not overflow.
func DivUp[T Int](a, b T) T { return (a + b - 1) / b }

// RoundUp returns the least multiple of b that is not below a; see DivUp.
func RoundUp[T Int](a, b T) T { return DivUp(a, b) * b }

// Mix returns a number that looks like a random one, and another for each x: the last step of SplitMix64 (Steele, Lea, Flood, "Fast
// splittable pseudorandom number generators", OOPSLA 2014).
func Mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Counted returns a number with its noun: "1 rank", "4 ranks".
func Counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprint(n, " ", noun, "s")
}
