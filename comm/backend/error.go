package backend

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gorun-spmd/gorun/internal/ints"
)

// ErrAborted is what errors.Is finds in the error of a call that ended because
// a rank called Abort, or made a call that could not be carried out.
var ErrAborted = errors.New("communicator aborted")

// ErrMismatch is what errors.Is finds when ranks made different calls.
var ErrMismatch = errors.New("ranks disagree")

// ErrEnded is what errors.Is finds when a rank that was needed has ended.
var ErrEnded = errors.New("rank has ended")

// An AbortError says which rank ended a communicator, and why.
type AbortError struct {
	Rank  int    // world number
	Cause string // its error's text
	Err   error  // its error itself, on that rank only
}

// Error names the rank and the cause.
func (e *AbortError) Error() string { return fmt.Sprintf("rank %d aborted: %s", e.Rank, e.Cause) }

// Is makes an AbortError an ErrAborted.
func (e *AbortError) Is(target error) bool { return target == ErrAborted }

// Unwrap returns the cause on the rank that aborted, nil on the others.
func (e *AbortError) Unwrap() error { return e.Err }

// An EndedError says that a rank ended while a call still needed it.
type EndedError struct {
	Rank  int    // world number
	Cause string // "" if it ended without an error

	kind Kind // of the call that needed it, if that is known
}

// Error names the rank and the cause.
func (e *EndedError) Error() string {
	if e.Cause != "" {
		return fmt.Sprintf("rank %d ended: %s", e.Rank, e.Cause)
	}
	remedy := "before it made this call; make the same calls on all ranks"
	switch {
	case e.kind == LockKind:
		remedy = "while this rank waited; Unlock what a rank has locked before it returns"
	case e.kind.PointToPoint() || e.kind.Tagged():
		remedy = "while this rank waited; give each message a send and a receive, and Wait for each request before a rank returns"
	}
	return fmt.Sprintf("rank %d ended, without an error, %s", e.Rank, remedy)
}

// During returns e as the error of a call of a kind.
func (e *EndedError) During(kind Kind) *EndedError {
	return &EndedError{Rank: e.Rank, Cause: e.Cause, kind: kind}
}

// Is makes an EndedError an ErrEnded.
func (e *EndedError) Is(target error) bool { return target == ErrEnded }

// An UnreceivedError says that a rank sent messages which their receiver had not received when both had ended.
type UnreceivedError struct {
	From, To int // world numbers
	Messages int
	What     string // the first of them; "" if unknown
}

// Error names the two ranks and the remedy.
func (e *UnreceivedError) Error() string {
	what := e.What
	if what != "" {
		what = ": " + what
	}
	return fmt.Sprintf("comm: rank %d has sent rank %d %s that it did not receive%s; give each Send a Recv before the ranks return",
		e.From, e.To, ints.Counted(e.Messages, "message"), what)
}

// A Party is one side of a mismatch.
type Party struct {
	Rank int    // world number
	Call string // as Call.String
	Site string // as Call.Site, "" if unknown

	Facts   uint32 // as Call.Facts
	Subject string // as Call.Subject, shortened to 160 bytes; "" if unknown
}

// Party returns the call as one side of a mismatch: that of rank, by world number.
func (c *Call) Party(rank int) Party {
	user := c.user()
	p := Party{Rank: rank, Call: c.String(), Site: c.Site(), Facts: user.Facts}
	if user.Subject != nil {
		p.Subject = user.Subject.String()
		if most := 160; len(p.Subject) > most {
			p.Subject = strings.ToValidUTF8(p.Subject[:most], "") + "…"
		}
	}
	return p
}

// String is "rank 1 called Barrier at train.go:31".
func (p Party) String() string {
	if p.Site == "" {
		return fmt.Sprintf("rank %d called %s", p.Rank, p.Call)
	}
	return fmt.Sprintf("rank %d called %s at %s", p.Rank, p.Call, p.Site)
}

// A MismatchError says that two ranks made different calls.
type MismatchError struct {
	A, B Party // the lower rank first
}

// Mismatch returns the error of two ranks that made different calls.
func Mismatch(a, b Party) error {
	if a.Rank > b.Rank {
		a, b = b, a
	}
	return &MismatchError{a, b}
}

// Error names both calls and says what to do.
func (e *MismatchError) Error() string {
	remedy := "make the same calls in the same order on all ranks"
	switch {
	case isMessage(e.A.Call) && isMessage(e.B.Call) && e.A.Facts != e.B.Facts:
		remedy = "what they are of differs: give tensors of the same shape, and as many parts of the batch, on both ranks"
	case isMessage(e.A.Call) && isMessage(e.B.Call):
		remedy = "give Send and Recv as many elements of one type"
	case e.A.Site != e.B.Site || withoutCount(e.A.Call) != withoutCount(e.B.Call):
	case e.A.Facts != e.B.Facts && e.A.Subject != e.B.Subject:
		remedy = fmt.Sprintf("rank %d's is of %s, rank %d's of %s; give the same on all ranks", e.A.Rank, e.A.Subject, e.B.Rank, e.B.Subject)
	case strings.Contains(e.A.Call, countsHash) && e.A.Call != e.B.Call:
		remedy = "their lists of counts differ (" + countsHash +
			"… is a hash of one): give the same list, or tensors of the same shape, on all ranks"
	case e.A.Call != e.B.Call:
		remedy = "give as many elements on all ranks"
	case e.A.Facts != e.B.Facts:
		remedy = "what they are of differs: give tensors of the same shape and placements on all ranks, and parameters in one order"
	}
	return fmt.Sprintf("%v: %v, %v; %s", ErrMismatch, e.A, e.B, remedy)
}

// Is makes a MismatchError an ErrMismatch.
func (e *MismatchError) Is(target error) bool { return target == ErrMismatch }

// isMessage reports whether a call is a Send or a Recv. A Send and its Recv can differ in
// count, type and Facts alone.
func isMessage(call string) bool {
	return strings.HasPrefix(call, SendKind.String()+" ") || strings.HasPrefix(call, RecvKind.String()+" ")
}

// withoutCount returns the text of a call without its count, which is in the first brackets.
func withoutCount(call string) string {
	before, rest, _ := strings.Cut(call, "[")
	_, after, _ := strings.Cut(rest, "]")
	return before + after
}

// Uneven returns the error of a call with counts in which rank from, by world number, does
// not send as many elements as rank to expects.
func (c *Call) Uneven(from, sent, to, expected int) error {
	return fmt.Errorf("%w: in %v rank %d sends %d elements to rank %d, which expects %d; make the two counts equal",
		ErrMismatch, c.Kind, from, sent/c.Width(), to, expected/c.Width())
}

// Late returns the error of a call that gave up (cause is the context's)
// waiting for ranks, by world number, that had not made it.
func Late(cause error, ranks []int) error {
	if len(ranks) == 0 {
		return cause
	}
	return fmt.Errorf("%w while waiting for %s, which had not made this call; look there for what is slow or stuck", cause, list(ranks))
}

// list is "rank 3" or "ranks 1, 2 and 4".
func list(ranks []int) string {
	last := len(ranks) - 1
	if last == 0 {
		return fmt.Sprintf("rank %d", ranks[0])
	}
	s := fmt.Sprintf("ranks %d", ranks[0])
	for _, r := range ranks[1:last] {
		s += fmt.Sprintf(", %d", r)
	}
	return s + fmt.Sprintf(" and %d", ranks[last])
}
