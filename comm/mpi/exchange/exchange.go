// Package exchange says what ranks that carry out collectives by messages send each other: parts
// of buffers, and the text of calls that differ. Packages mpi and blocking use it.
package exchange

import (
	"encoding/binary"

	"github.com/gorun-spmd/gorun/comm/backend"
)

// Deal sets sends[q] to the buffer that rank me of a PatternMove call sends to rank q, and
// recvs[q] to the one that it receives from rank q. Both must hold empty buffers. It returns an
// error for calls of other patterns.
func Deal(call *backend.Call, me int, sends, recvs []backend.Buffer) error {
	if err := call.Carried("comm/mpi/exchange.Deal", 1<<backend.PatternMove); err != nil {
		return err
	}
	s, source := call.Kind.Shape(), call.Source(me)
	switch {
	case s.Src == backend.Whole || s.Src == backend.Unused:
		for q := range sends {
			if call.Sends(me, q) {
				sends[q] = source
			}
		}
	case s.Root != backend.RootSends || me == call.Root:
		Divide(sends, source, call.SrcCounts)
	}
	switch {
	case s.Dst == backend.Whole:
		if call.Sends(call.Root, me) {
			recvs[call.Root] = call.Dst
		}
	case call.Fills(me, len(recvs)):
		Divide(recvs, call.Dst, call.DstCounts)
	}
	return nil
}

// Divide sets into[q] to rank q's part of b, which has counts[q] elements. Without counts all
// parts have the same length.
func Divide(into []backend.Buffer, b backend.Buffer, counts []int) {
	lo, n := 0, b.Count/len(into)
	for q := range into {
		if counts != nil {
			n = counts[q]
		}
		into[q] = b.Slice(lo, lo+n)
		lo += n
	}
}

// Share divides b into nearly equal parts, one for each rank, each a whole number of the
// operation's elements.
func Share(call *backend.Call, into []backend.Buffer, b backend.Buffer) {
	n, unit := len(into), call.Unit()/call.DType().Size()
	units := b.Count / unit
	for q := range into {
		into[q] = b.Slice(units*q/n*unit, units*(q+1)/n*unit)
	}
}

// A Text is a backend.Party in the form in which ranks send it to each other, without the rank:
// the lengths of its three texts, 2 bytes each, the facts, and the texts, truncated to fit.
type Text [512]byte

const textHead = 10

// TextOf returns p as it is sent.
func TextOf(p backend.Party) (t Text) {
	at := textHead
	for i, text := range []string{p.Call, p.Site, p.Subject} {
		n := copy(t[at:], text)
		binary.LittleEndian.PutUint16(t[2*i:], uint16(n))
		at += n
	}
	binary.LittleEndian.PutUint32(t[6:], p.Facts)
	return t
}

// Party returns what rank has sent. A damaged text gives some Party.
func (t *Text) Party(rank int) backend.Party {
	p := backend.Party{Rank: rank, Facts: binary.LittleEndian.Uint32(t[6:])}
	rest := t[textHead:]
	for i, text := range []*string{&p.Call, &p.Site, &p.Subject} {
		n := min(int(binary.LittleEndian.Uint16(t[2*i:])), len(rest))
		*text, rest = string(rest[:n]), rest[n:]
	}
	return p
}
