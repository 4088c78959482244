package loss

// Blocks has LinearCrossEntropy work in blocks of up to rows positions that hold up to
// bytes, for every type, until the function that it returns is called.
func Blocks(rows, bytes int) (restore func()) {
	before := limits
	limits.rows, limits.bytes, limits.onCPU = rows, bytes, true
	return func() { limits = before }
}

// InBlocks reports whether Blocks has been called.
func InBlocks() bool { return limits.onCPU }
