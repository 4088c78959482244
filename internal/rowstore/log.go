package rowstore

import (
	"fmt"
	"math"
	"slices"
)

// A log says where in the file the records of rows are. The file is divided into segments. Records are appended to
// one segment after the other, so that rows which lose their slots at about the same time are one write, wherever
// they are in the table. The record that a row had before is dead then. A segment whose records are all dead is
// used again; of others clean.go moves what lives, so that dead records take a third of the file, about.
type log struct {
	size    int      // records of a segment
	where   []uint32 // by row: the number of its record in the file plus one, 0: the file has none
	written int      // rows that the file has
	live    []int32  // by segment: records that where names, and those that are being written
	state   []uint8  // by segment
	free    []int    // segments to write
	resting []int    // segments that are free, but may still be read
	next    int      // the number of the next record
	left    int      // how many records the segment has room for, from next on
}

// The states of a segment.
const (
	unused = iota // it is in free or resting
	active        // records are appended to it
	full          // all of it has been given away
	moved         // as full, and its records are being moved, or could not be
)

// segmentBytes is how large a segment of a large table is, at most.
const segmentBytes = 1 << 20

// A run is consecutive records in the file.
type run struct{ at, n int }

func newLog(rows, record int) *log {
	return &log{size: max(1, min(segmentBytes/record, max(16, rows/64))), where: make([]uint32, rows)}
}

// find returns the number of a row's record in the file; ok is false if the file has none.
func (l *log) find(row int) (at int, ok bool) {
	return int(l.where[row]) - 1, l.where[row] != 0
}

// give returns where to write n records. It uses segments again only if nothing is being read.
func (l *log) give(n int, reading bool) (runs []run, err error) {
	if !reading {
		l.free, l.resting = append(l.free, l.resting...), l.resting[:0]
	}
	for n > 0 {
		if l.left == 0 {
			if err := l.turn(); err != nil {
				l.takeBack(runs)
				return nil, err
			}
		}
		r := run{l.next, min(n, l.left)}
		l.live[l.segment(r.at)] += int32(r.n)
		l.next, l.left, n = l.next+r.n, l.left-r.n, n-r.n
		runs = append(runs, r)
	}
	return runs, nil
}

// turn begins another segment.
func (l *log) turn() error {
	segment := len(l.live)
	if n := len(l.free); n == 0 && (segment+1)*l.size >= math.MaxUint32 {
		return fmt.Errorf("it has %d records, and there can be no more", segment*l.size)
	} else if n > 0 {
		segment, l.free = l.free[n-1], l.free[:n-1]
	} else {
		l.live, l.state = append(l.live, 0), append(l.state, unused)
	}
	if l.next > 0 {
		last := l.segment(l.next - 1)
		l.state[last] = full
		l.rest(last)
	}
	l.state[segment], l.next, l.left = active, segment*l.size, l.size
	return nil
}

// takeBack says that nothing has been written to runs.
func (l *log) takeBack(runs []run) {
	for _, r := range runs {
		for at := r.at; at < r.at+r.n; at++ {
			l.drop(at)
		}
	}
}

func (l *log) segment(at int) int { return at / l.size }

// set says that the record of a row has been written.
func (l *log) set(row, at int) {
	l.forget(row)
	l.where[row] = uint32(at) + 1
	l.written++
}

// forget says that the file's record of a row is not wanted, if there is one.
func (l *log) forget(row int) {
	if at, ok := l.find(row); ok {
		l.where[row] = 0
		l.written--
		l.drop(at)
	}
}

// drop says that a record is dead.
func (l *log) drop(at int) {
	segment := l.segment(at)
	l.live[segment]--
	l.rest(segment)
}

// rest has a segment be used again if no record of it lives.
func (l *log) rest(segment int) {
	if l.live[segment] == 0 && l.state[segment] != active {
		l.state[segment] = unused
		l.resting = append(l.resting, segment)
	}
}

// excess returns how many segments there are beyond those that hold the file's rows and half as many dead records.
func (l *log) excess() int {
	enough := (l.written+l.written/2)/l.size + 2
	return len(l.live) - len(l.free) - len(l.resting) - enough
}

// swollen reports whether the excess is more than a quarter of the file's rows.
func (l *log) swollen() bool { return l.excess()*l.size > l.written/4 }

// emptiest returns at most n full segments of which the fewest records live, in the order of the file. It leaves out
// those for which busy is true.
func (l *log) emptiest(n int, busy func(segment int) bool) []int {
	var best []int
	fewer := func(a, b int) int { return int(l.live[a]) - int(l.live[b]) }
	for segment, state := range l.state {
		if state != full || len(best) == n && l.live[segment] >= l.live[best[n-1]] || busy(segment) {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, segment, fewer)
		best = slices.Insert(best, at, segment)[:min(len(best)+1, n)]
	}
	slices.Sort(best)
	return best
}
