package exchange

import (
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/backend"
)

func TestText(t *testing.T) {
	for _, want := range []backend.Party{
		{Rank: 3, Call: "AllReduce sum float32[3]", Site: "train/main.go:31", Facts: 1 << 31, Subject: "[4] R"}, {},
		{Rank: 1, Call: strings.Repeat("c", 700), Site: "s", Facts: 7}, {Rank: 2, Call: "c", Site: strings.Repeat("s", 700)},
	} {
		text := TextOf(want)
		got := text.Party(want.Rank)
		if got.Rank != want.Rank || got.Facts != want.Facts || !strings.HasPrefix(want.Call, got.Call) ||
			!strings.HasPrefix(want.Site, got.Site) || !strings.HasPrefix(want.Subject, got.Subject) ||
			len(got.Call)+len(got.Site)+len(got.Subject) < min(len(want.Call)+len(want.Site)+len(want.Subject), 400) {
			t.Errorf("got %.20q, %.20q", got.Call, got.Site)
		}
	}
}

// Deal does not do for another kind what it does for those that move elements.
func TestDealOfAnotherKind(t *testing.T) {
	x, y := []float32{1, 2}, []float32{7, 7}
	for _, kind := range []comm.Kind{comm.Kinds, comm.AllReduceKind} {
		call := comm.Call{Kind: kind, Dst: comm.Of(y), Src: comm.Of(x)}
		err := Deal(&call, 0, make([]comm.Buffer, 1), make([]comm.Buffer, 1))
		if err == nil || !strings.Contains(err.Error(), kind.String()) {
			t.Errorf("got %v, want an error that names %v", err, kind)
		}
	}
}
