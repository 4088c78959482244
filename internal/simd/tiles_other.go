//go:build !linux || !amd64

package simd

// allowTiles: only Linux lets a process ask for tiles.
func allowTiles() bool { return false }
