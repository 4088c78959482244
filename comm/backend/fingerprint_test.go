package backend

import "testing"

// FuzzFingerprintString prints whatever another process may have published.
func FuzzFingerprintString(f *testing.F) {
	f.Add(uint64(1), uint64(1)<<63)
	f.Add(^uint64(0), ^uint64(0))
	f.Fuzz(func(t *testing.T, what, count uint64) {
		if s := (Fingerprint{what, count}).String(); s == "" || len(s) > 200 {
			t.Errorf("%#x, %#x: %q", what, count, s)
		}
	})
}
