//go:build linux && !nolibs

package mpi

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/mpi/exchange"
)

func silentJob(rank int) *job {
	return &job{rank: rank, groups: map[uint64]*group{}, dead: map[uint64]*comm.AbortError{}, ended: map[int]*ending{}}
}

// What one rank writes of an abort another reads.
func TestLetterOfAbort(t *testing.T) {
	for _, test := range []struct {
		subject byte
		text    string
		is      error
		says    string
	}{
		{causePlain, "out of patience", comm.ErrAborted, "rank 3 aborted: out of patience"},
		{causeMismatch, "ranks disagree: a, b", comm.ErrMismatch, "rank 3 aborted: ranks disagree: a, b"},
		{causeEnded, "killed", comm.ErrEnded, "rank 3 aborted: rank 5 ended: killed"},
		{causePlain, strings.Repeat("x", 2*controlBytes), comm.ErrAborted, strings.Repeat("x", controlBytes-controlHead)},
	} {
		from, to := silentJob(3), silentJob(0)
		g, other := to.join(&Rank{job: to, group: &group{id: 9}}), to.join(&Rank{job: to, group: &group{id: 8}})
		child := to.join(&Rank{job: to, group: &group{id: 10}, parent: g})
		to.read(from.write(controlAbort, test.subject, 5, 9, []byte(test.text)))
		e := child.dead()
		if e == nil || !errors.Is(e, test.is) || !errors.Is(e, comm.ErrAborted) || !strings.Contains(e.Error(), test.says) {
			t.Errorf("%.40q: got %v", test.text, e)
		}
		if other.dead() != nil {
			t.Errorf("%.40q: another group died of it", test.text)
		}
		to.read(from.write(controlAbort, causePlain, 0, 9, []byte("a second cause")))
		if g.dead() != e {
			t.Errorf("%.40q: the second cause counts", test.text)
		}
		// A group that is made after its abort has come.
		to.read(from.write(controlAbort, causePlain, 0, 77, []byte("early")))
		if late := to.join(&Rank{job: to, group: &group{id: 77}}); late.dead() == nil {
			t.Errorf("%.40q: an abort that came early is lost", test.text)
		}
	}
}

func TestLettersOfEnd(t *testing.T) {
	from, to := silentJob(1), silentJob(0)
	counts := binary.LittleEndian.AppendUint64(nil, 9)
	counts = binary.LittleEndian.AppendUint64(counts, 3)
	g := to.join(&Rank{job: to, group: &group{id: 9}, world: []int{0, 1}})
	to.read(from.write(controlCalls, 0, 0, 0, counts))
	g.calls.Store(4)
	call := &comm.Call{Kind: comm.BarrierKind}
	if err := g.vain(call); err != nil {
		t.Errorf("before its end: %v", err)
	}
	to.read(from.write(controlEnd, 1, 0, 0, []byte("tired")))
	if err := g.vain(call); !errors.Is(err, comm.ErrEnded) || !strings.Contains(err.Error(), "rank 1 ended: tired") {
		t.Errorf("a call that it did not make: %v", err)
	}
	g.calls.Store(3)
	if err := g.vain(call); err != nil {
		t.Errorf("a call that it made: %v", err)
	}
	if !to.ended[1].stuck {
		t.Error("that requests were given up is lost")
	}
}

// Damaged control messages and texts of parties are read without a panic.
func TestDamaged(t *testing.T) {
	j := silentJob(0)
	j.groups[^uint64(0)] = &group{stuck: &stuck{passed: map[int]uint64{}}}
	for kind := range byte(controlStacks + 2) {
		for _, fill := range []byte{0, 0x7f, 0xff} {
			data := make([]byte, controlBytes)
			for i := range data {
				data[i] = fill
			}
			data[0] = kind
			j.read(data)
			var text exchange.Text
			copy(text[:], data[1:])
			text.Party(0)
		}
	}
}
