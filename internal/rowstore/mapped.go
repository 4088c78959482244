package rowstore

import (
	"os"

	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// A mapping is a file as memory. A read of it takes no call of the system, but where the system has to fetch a page from the disk
// it stops a processor of Go's, which no other goroutine gets meanwhile. So only pages that the system has in its cache are read here.
type mapping struct {
	bytes []byte // longer than the file
	// cached sets the lowest bit of pages[i] if the system has page i of bytes in its cache. ok is false if it does not say.
	cached func(bytes, pages []byte) (ok bool)
}

const (
	askedPages = 1 << 13 // that cached is asked for at a time, at most
	nearPages  = 128     // between two records for which it is asked at once: to ask for more takes longer than to read a record
	fewRecords = 4       // are read from the file: to ask takes as long
)

// mapFile maps a file with room for twice the records of all rows, which is more than the file grows to.
func (s *Store) mapFile() {
	if f, ok := s.file.(*os.File); ok {
		s.mapped = newMapping(f, 2*s.c.Rows*s.record+64*segmentBytes)
	}
}

// readMapped reads those of the items, sorted by at, that lie close to each other and in the system's cache, and calls take for each.
// It returns the others, in order, and those whose records are damaged, for read to say so.
// pages is memory for it.
func (s *Store) readMapped(items []item, pages *[askedPages]byte, take func(it item, record []byte)) (bytes int, rest []item) {
	m := s.mapped
	if m == nil {
		return 0, items
	}
	page := os.Getpagesize()
	for len(items) > 0 {
		n, first := 1, items[0].at*s.record/page
		for n < len(items) && (items[n].at-items[n-1].at)*s.record <= nearPages*page && (items[n].at+1)*s.record <= (first+askedPages)*page {
			n++
		}
		near, end := items[:n], items[n-1].at*s.record+s.record
		items = items[n:]
		if n < fewRecords || end > len(m.bytes) || !m.cached(m.bytes[first*page:end], pages[:]) {
			rest = append(rest, near...)
			continue
		}
		next := 0 // of near
		ok := fault.Reads(func() {
			for ; next < n; next++ {
				if next+early < n {
					simd.PrefetchRow(m.bytes, near[next+early].at, s.record)
				}
				it := near[next]
				begin := it.at * s.record
				end := begin + s.record
				record, cached := m.bytes[begin:end], true
				for p := begin / page; p <= (end-1)/page; p++ {
					cached = cached && pages[p-first]&1 != 0
				}
				if !cached || s.check(record, it.row) != nil {
					rest = append(rest, it)
					continue
				}
				take(it, record)
				bytes += s.record
			}
		})
		if !ok {
			rest = append(rest, near[next:]...)
		}
	}
	return bytes, rest
}
