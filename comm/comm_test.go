package comm

import (
	"errors"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
)

func TestFingerprintSaysWhatRanksMustAgreeOn(t *testing.T) {
	f32, i8 := Buffer{Count: 6, DType: Float32}, Buffer{Count: 3, DType: Int8}
	f, err := NewFunc("f", func(a, b int64) int64 { return a + b })
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		call Call
		want string
	}{
		{Call{Kind: AllReduceKind, Op: Max, Dst: f32, Src: f32}, "AllReduce max float32[6]"},
		{Call{Kind: ReduceKind, Op: Sum, Src: i8, Root: 300}, "Reduce sum int8[3] root 300"},
		{Call{Kind: AllGatherKind, Dst: f32, Src: Buffer{Count: 2, DType: Float32}}, "AllGather float32[2]"},
		{Call{Kind: ScatterKind, Dst: i8, Src: f32}, "Scatter float32[3] root 0"},
		{Call{Kind: BroadcastKind, Dst: i8}, "Broadcast int8[3] root 0"},
		{Call{Kind: BarrierKind}, "Barrier"},
		{Call{Kind: GatherVKind, Src: i8, Root: 1}, "GatherV int8 root 1"},
		{Call{Kind: AllToAllVKind, Src: i8}, "AllToAllV int8"},
		{Call{Kind: SendKind, Src: i8, Root: 1, Cause: "pipeline"}, "Send int8[3] for pipeline"},
		{Call{Kind: AllReduceKind, Op: Custom, Func: f, Src: Buffer{Count: 8, DType: Uint8}},
			`AllReduce custom uint8[8] by "f" on 8-byte elements`},
		{Call{Kind: ReduceKind, Op: Sum, Src: i8, Root: -1}, "Reduce sum int8[3] root -1"},
		{Call{Kind: ReduceKind, Op: Sum, Src: i8, Root: 100_000}, "Reduce sum int8[3] root 100000"},
		{funcCall[int32](Call{Kind: AllReduceKind, Src: f32}, f), "AllReduce custom float32[6]"},
	} {
		if got := c.call.String(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	send, recv := Call{Kind: SendKind, Src: i8, Root: 1}, Call{Kind: RecvKind, Dst: i8, Root: 7}
	if send.Fingerprint() != recv.Fingerprint() {
		t.Error("a Send and its Recv differ")
	}
	a, b := Call{Kind: AllGatherVKind, Src: i8, DstCounts: []int{1, 2}}, Call{Kind: AllGatherVKind, Src: i8, DstCounts: []int{2, 1}}
	if a.Fingerprint() == b.Fingerprint() {
		t.Error("AllGatherVs with other counts are the same")
	}
}

func TestErrorsSayWhoWhereAndWhat(t *testing.T) {
	cause := errors.New("disk full")
	err := &Error{Call: "Barrier", Site: "train/main.go:3", Comm: "world/1:0", Seq: 9, Rank: 2,
		Err: &AbortError{Rank: 1, Cause: cause.Error(), Err: cause}}
	if got, want := err.Error(), "comm: Barrier at train/main.go:3 (rank 2, call 9 of world/1:0): rank 1 aborted: disk full"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !errors.Is(err, ErrAborted) || !errors.Is(err, cause) || errors.Is(err, ErrEnded) {
		t.Error("an abort is not recognised")
	}
	ended := &EndedError{Rank: 3}
	if !errors.Is(ended, ErrEnded) || !strings.Contains(ended.Error(), "without an error") {
		t.Errorf("got %q", ended)
	}
}

func TestSiteIsTheCallersLine(t *testing.T) {
	c := Call{Kind: BarrierKind}
	if got := c.Site(); !strings.HasPrefix(got, "comm/comm_test.go:") {
		t.Errorf("got %q", got)
	}
}

func TestBuffers(t *testing.T) {
	x := []dtype.BF16{1, 2, 3, 4}
	b := Of(x)
	if b.Bytes() != 8 || b.DType != BFloat16 || len(b.Data()) != 8 {
		t.Errorf("%+v", b)
	}
	if p := b.Slice(1, 3); p.Count != 2 || p.Ptr != unsafe.Pointer(&x[1]) {
		t.Errorf("%+v", p)
	}
	if !b.Overlaps(b.Slice(3, 4)) || b.Slice(0, 2).Overlaps(b.Slice(2, 4)) || b.Overlaps(Buffer{}) {
		t.Error("overlaps is wrong")
	}
	if e := Of([]float64(nil)); e.Bytes() != 0 || e.Data() != nil {
		t.Errorf("%+v", e)
	}
	type pair [2]int32
	if r := Raw(make([]pair, 3)); r.Count != 24 || r.DType != Uint8 {
		t.Errorf("%+v", r)
	}
}

// The documentation of Elem names each of its types.
func TestDocumentationOfElemListsItsTypes(t *testing.T) {
	for _, pkg := range []string{".", "../tensor"} {
		out, err := exec.Command("go", "doc", pkg, "Elem").CombinedOutput()
		if err != nil {
			t.Fatalf("go doc %s Elem: %v\n%s", pkg, err, out)
		}
		for d := Float32; d.Size() > 0 && (d.Valid() || pkg == "."); d++ {
			name := d.String()
			switch d {
			case Float16:
				name = "F16"
			case BFloat16:
				name = "BF16"
			}
			if !regexp.MustCompile(`\b` + name + `\b`).Match(out) {
				t.Errorf("go doc %s Elem does not name %s:\n%s", pkg, name, out)
			}
		}
	}
}

// A group of one rank refuses a call of a kind that it does not know, instead of doing what it does for another one, or nothing.
func TestUnknownKindsOfOneRank(t *testing.T) {
	x, y := []float32{1, 2}, []float32{7, 7}
	call := Call{Kind: Kinds, Dst: Of(y), Src: Of(x)}
	if err := (&solo{}).Do(t.Context(), &call); err == nil || !strings.Contains(err.Error(), Kinds.String()) {
		t.Errorf("got %v, want an error that names %v", err, Kinds)
	}
	if y[0] != 7 {
		t.Errorf("dst is %v", y)
	}
}

// A rank that is in no group of Split has a nil communicator: calls on it say so.
func TestCallsOnNoCommunicator(t *testing.T) {
	ctx := t.Context()
	for _, c := range []*Comm{nil, {}} {
		x := []int{1}
		_, split := c.Split(ctx, 0, 0)
		_, group := c.Group(ctx, []int{0})
		_, _, hosts := c.SplitHosts(ctx)
		for want, err := range map[string]error{
			"comm: AllReduce sum int64[1] at ": AllReduce(ctx, c, x, Sum),
			"comm: Barrier at ":                Barrier(ctx, c),
			"comm: Broadcast int64[1] root 0":  c.Do(ctx, Call{Kind: BroadcastKind, Dst: Of(x)}),
			"comm: Scan":                       c.Start(ctx, Call{Kind: ScanKind, Op: Sum, Dst: Of(x), Src: Of(x)}).Wait(),
			"comm: Split int64[2] at":          split,
			"comm: Split int64[2] at ":         group,
			"comm: AllGather uint64[1] at ":    hosts,
			"comm: Send int64[1] for SendRecv": SendRecv(ctx, c, x, 0, x, 0),
		} {
			var e *Error
			if !errors.As(err, &e) || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "the communicator is nil") {
				t.Errorf("got %v, want %q", err, want)
			}
		}
	}
	if f, err := NewFunc[int]("none", nil); err == nil || f != nil {
		t.Errorf("NewFunc without a function: %v, %v", f, err)
	}
}
