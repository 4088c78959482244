package simd

// PhiloxBlocks writes blocks of package philox, first, first+1, … of a stream, one after the other into dst, for which keys are those of
// the ten rounds. It returns how many words it has written: a multiple of 4, and none without a kernel.
func (m Mode) PhiloxBlocks(dst []uint32, first, stream uint64, keys *[20]uint64) (n int) {
	each := 8 // blocks at a time
	if m.wide() {
		each = 16
	}
	if !m.has(philoxKernel) {
		return 0
	}
	for n+4*each <= len(dst) {
		words := min(len(dst)-n, chunk)
		words -= words % (4 * each)
		philoxVec(m.wide(), &dst[n], words/4, first+uint64(n/4), stream, &keys[0])
		n += words
	}
	return n
}

// Normals maps words to normal numbers as philox.Normal does, where tail has its coefficients, the highest power first and of each power
// those of all octaves. It returns how many it has mapped.
func (m Mode) Normals(dst []float32, words []uint32, mean, std float64, tail *[9][32]float64) (n int) {
	same("Normals", len(dst), len(words))
	const each = 8
	if !m.has(normalsKernel) {
		return 0
	}
	for n+each <= len(dst) {
		k := min(len(dst)-n, chunk)
		k -= k % each
		normalsVec(&dst[n], &words[n], k, mean, std, &tail[0][0])
		n += k
	}
	return n
}
