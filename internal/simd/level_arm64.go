package simd

// detect returns NEON: every arm64 processor has it.
func detect() Level { return NEON }

func hasTiles() bool { return false }

func pairsSlow() bool { return false }

func prefetchSlows() bool { return false }
