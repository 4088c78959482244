package testenv

// Fewer returns all, and under the race detector only those at the indexes: sizes and layouts whose ranks
// share memory in each way. The others differ in numbers, which the tests without the detector compare.
func Fewer[T any](all []T, indexes ...int) []T {
	if !Race {
		return all
	}
	some := make([]T, len(indexes))
	for i, at := range indexes {
		some[i] = all[at]
	}
	return some
}
