//go:build !unix

package snapshot

// mapped returns nil: files are not mapped here.
func mapped(Memory, int64, int) []byte { return nil }
