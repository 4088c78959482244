//go:build 386 || arm || mips || mipsle

package dtype

// Sizes, offsets and ids are ints, and have to count more than 2³¹ elements.
var _ = gorun_needs_a_64_bit_processor_such_as_amd64_or_arm64
