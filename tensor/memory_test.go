package tensor

import (
	"runtime"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/tensor/kernel"
)

func TestScopesNest(t *testing.T) {
	cpu := NewCPU(nil)
	outer := cpu.Open()
	inner := cpu.Open()
	a, b := Full(cpu, Float32, 1, 10), Full(cpu, Float32, 2, 10)
	inner.Keep(a, nil)
	inner.Close()
	if !a.alive() || b.alive() {
		t.Error("the inner scope kept the wrong tensor")
	}
	outer.Close()
	wantThrow[*UseError](t, func() { Neg(a) }, "Neg", "float32[10]", "scope closed", "Keep")
	wantThrow[*UseError](t, func() { outer.Keep(a) }, "Keep")
	if got := b.String(); got != "float32[10] (freed)" {
		t.Errorf("String of a freed tensor is %q", got)
	}
}

func TestMemoryIsFlatOverSteps(t *testing.T) {
	cpu := NewCPU(nil)
	w := Full(cpu, Float32, 0.01, 64, 64)
	var reserved int
	var last *Tensor
	for step := range 1000 {
		s := cpu.Open()
		y := MatMul(Gelu(MatMul(w, w, false, true)), w, false, false)
		AddScaledTo(w, -1e-3, y)
		s.Keep(y)
		s.Close()
		if last != nil {
			last.Free()
		}
		last = y
		st := cpu.Stats()
		if step == 1 {
			reserved = st.Reserved
		} else if step > 1 && (st.Reserved != reserved || st.Live > 3*w.Bytes()) {
			t.Fatalf("step %d: %+v, after step 1 %d reserved", step, st, reserved)
		}
	}
}

// A loop that opens no scope must not grow without bound: the pool asks for
// collections.
func TestLoopWithoutScopesIsBounded(t *testing.T) {
	cpu := NewCPU(nil)
	const n = 4 << 20
	for range 80 {
		New(cpu, Uint8, n)
	}
	if st := cpu.Stats(); st.Reserved > 160<<20 || st.Collected == 0 {
		t.Errorf("80 dead blocks of 4 MiB: %+v", st)
	}
}

// The same when the tensors were kept by scopes that closed, and nothing is
// allocated outside.
func TestKeptTensorsAreCollected(t *testing.T) {
	cpu := NewCPU(nil)
	const n = 4 << 20
	for range 80 {
		s := cpu.Open()
		s.Keep(New(cpu, Uint8, n))
		s.Close()
	}
	if st := cpu.Stats(); st.Reserved > 160<<20 || st.Collected == 0 {
		t.Errorf("80 dead blocks of 4 MiB: %+v", st)
	}
}

// waitFree runs the collector until live bytes are at most want, a number of
// times at most.
func waitFree(cpu Device, want, times int) int {
	for range times {
		runtime.GC()
		if cpu.Stats().Live <= want {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return cpu.Stats().Live
}

func TestViewsHoldTheirMemory(t *testing.T) {
	cpu := NewCPU(nil)
	for _, kept := range []bool{false, true} {
		s := cpu.Open()
		if !kept {
			s.Close()
		}
		x := Full(cpu, Float32, 7, 4, 64)
		view := Narrow(x.Reshape(4, 8, 8), 0, 1, 2)
		if kept {
			s.Keep(view)
			s.Close()
		}
		size := cpu.Stats().Live
		x = nil
		if live := waitFree(cpu, size-1, 3); live != size {
			t.Fatalf("kept %v: %d bytes live of %d while a view exists", kept, live, size)
		}
		if got := Data[float32](view)[127]; got != 7 {
			t.Errorf("kept %v: the view reads %v", kept, got)
		}
		runtime.KeepAlive(view)
		view = nil
		if live := waitFree(cpu, 0, 500); live != 0 {
			t.Errorf("kept %v: %d bytes live after the last view", kept, live)
		}
	}
}

func TestFreeAndPersist(t *testing.T) {
	cpu := NewCPU(nil)
	x := New(cpu, Float32, 10)
	v := x.Reshape(2, 5)
	x.Free()
	x.Free()
	wantThrow[*UseError](t, func() { Data[float32](v) }, "float32[2 5]", "freed")
	s := cpu.Open()
	s2 := cpu.Open()
	y := Full(cpu, Float32, 3, 10).Persist()
	z := New(cpu, Float32, 10)
	z.Free()
	s2.Close()
	s.Close()
	if Data[float32](y)[9] != 3 || y.Persist() != y {
		t.Error("a persistent tensor ended with its scope")
	}
}

func TestEmptyTensorsWork(t *testing.T) {
	cpu := NewCPU(nil)
	s := cpu.Open()
	x := New(cpu, Float32, 0, 5)
	if x.Ptr() == nil || len(Data[float32](x)) != 0 {
		t.Error("an empty tensor has no address")
	}
	s.Close()
	wantThrow[*UseError](t, func() { Data[float32](x) }, "float32[0 5]")
}

func TestNoMemoryIsAnError(t *testing.T) {
	cpu := NewCPU(nil)
	wantThrow[*UseError](t, func() { New(cpu, Uint8, 1<<46) }, "New", "uint8[70368744177664]", "cpu", "70368744177664 bytes")
}

// An operator on small tensors inside a scope costs one Go allocation: the Tensor.
func TestSmallOperatorsAllocateOnce(t *testing.T) {
	cpu := NewCPU(nil)
	x := Full(cpu, Float32, 1, 8, 8)
	s := cpu.Open() // fills the cache with blocks
	for range 200 {
		Add(x, x)
	}
	s.Close()
	for name, f := range map[string]func(){
		"Add":       func() { Add(x, x) },
		"Gelu":      func() { Gelu(x) },
		"MulScalar": func() { MulScalar(x, 2) },
		"AddTo":     func() { AddTo(x, x) },
		"Reshape":   func() { x.Reshape(64) },
		"MatMul":    func() { MatMul(x, x, false, true) },
	} {
		s := cpu.Open()
		if n := testing.AllocsPerRun(100, f); n > 1 {
			t.Errorf("%s makes %v Go allocations", name, n)
		}
		s.Close()
	}
}

// Attention of bfloat16 holds a few heads as float32 at a time, not all.
func TestBFloat16AttentionInPieces(t *testing.T) {
	cpu := NewCPU(nil)
	q := Zeros(cpu, BFloat16, 4, 32, 2, kernel.HeadsPiece/64)
	y, lse := Attention(q, q, q, false)
	dq, dk, dv := AttentionGrad(y, q, q, q, y, lse, false)
	st := cpu.Stats()
	if most := 2*kernel.HeadsPiece*Float32.Size() + 1<<20; st.HighWater > st.Live+most {
		t.Errorf("%d bytes beside the %d of arguments and results, want at most %d", st.HighWater-st.Live, st.Live, most)
	}
	for _, x := range []*Tensor{q, y, lse, dq, dk, dv} {
		runtime.KeepAlive(x)
	}
}
