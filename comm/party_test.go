package comm

import (
	"strings"
	"testing"
)

func TestPartyText(t *testing.T) {
	for _, want := range []Party{
		{3, "AllReduce sum float32[3]", "train/main.go:31", 1 << 31}, {},
		{1, strings.Repeat("c", 700), "s", 7}, {2, "c", strings.Repeat("s", 700), 0},
	} {
		text := want.Text()
		got := text.Party(want.Rank)
		if got.Rank != want.Rank || got.Facts != want.Facts || !strings.HasPrefix(want.Call, got.Call) ||
			!strings.HasPrefix(want.Site, got.Site) ||
			len(got.Call)+len(got.Site) < min(len(want.Call)+len(want.Site), 400) {
			t.Errorf("got %.20q, %.20q", got.Call, got.Site)
		}
	}
}
