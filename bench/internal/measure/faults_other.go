//go:build !linux

package measure

// pageFaults returns 0: the number is not known on this system.
func pageFaults() float64 { return 0 }
