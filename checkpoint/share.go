package checkpoint

import (
	"context"
	"hash/crc64"
	"os"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/ints"
)

// roundBytes is how much the ranks of a host hand each other at a time.
const roundBytes = 16 << 20

// hostOf returns the communicator of the ranks of this host. A Comm keeps it, as
// communicators last as long as the job does.
func hostOf(ctx context.Context, c *comm.Comm, host string) (*comm.Comm, error) {
	type key struct {
		c    *comm.Comm
		host string
	}
	kept := c.Internals().Attr(key{c, host}, func() any { return new(*comm.Comm) }).(**comm.Comm)
	if *kept != nil {
		return *kept, nil
	}
	hosts := make([]int64, c.Size())
	id := int64(crc64.Checksum([]byte(host), crc64.MakeTable(crc64.ECMA)))
	if err := comm.AllGather(ctx, c, hosts, []int64{id}); err != nil {
		return nil, err
	}
	first := map[int64]int{}
	for r, h := range hosts {
		if _, ok := first[h]; !ok {
			first[h] = r
		}
	}
	*kept = c
	if len(first) > 1 {
		var err error
		if *kept, err = c.Split(ctx, first[id], c.Rank()); err != nil {
			return nil, err
		}
	}
	return *kept, nil
}

// thisHost names the machine: what shares its memory and its cache of files.
func thisHost() string {
	name, _ := os.Hostname() // "" is a name too: ranks then share it
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return name + " " + string(boot)
}

// boxesOf returns the boxes of tensors on every rank of c, by tensor and rank.
func boxesOf(ctx context.Context, c *comm.Comm, tensors []*fileTensor) ([][][]box, error) {
	mine, dims := make([][]box, len(tensors)), make([]int, len(tensors))
	for i, t := range tensors {
		mine[i], dims[i] = t.boxes(), len(t.shape)
	}
	return tell(ctx, c, mine, dims)
}

// tell returns the boxes of every rank of c, by tensor and rank, given this rank's. dims are
// the dimensions of each tensor.
func tell(ctx context.Context, c *comm.Comm, mine [][]box, dims []int) ([][][]box, error) {
	var words []int64
	boxes := make([][][]box, len(mine))
	for i, list := range mine {
		boxes[i] = make([][]box, c.Size())
		words = append(words, int64(len(list)))
		for _, b := range list {
			for _, v := range slices.Concat(b.offset, b.size) {
				words = append(words, int64(v))
			}
		}
	}
	all, err := comm.AllGatherSlices(ctx, c, words)
	if err != nil {
		return nil, err
	}
	for r, words := range all {
		next := func(n int) []int {
			list := make([]int, n)
			for i := range list {
				list[i] = int(words[i])
			}
			words = words[n:]
			return list
		}
		for i, n := range dims {
			for range next(1)[0] {
				boxes[i][r] = append(boxes[i][r], box{offset: next(n), size: next(n)})
			}
		}
	}
	return boxes, nil
}

// A target is memory to fill with a box of a tensor, dense and row-major; nil
// data is left out.
type target struct {
	box  box
	data []byte
}

// A task is a block that some rank of the host needs.
type task struct {
	chunk, block int
	reader       int  // rank of the host
	shared       bool // others need it too
}

// A loader fills the tensors of the ranks of one host.
type loader struct {
	*reader
	host *comm.Comm
	load []int // bytes to read, by rank of the host
	err  error // the first of this rank alone; its collectives go on
	buf  []byte
}

func (l *loader) keep(err error) {
	if l.err == nil {
		l.err = err
	}
}

// fill fills the targets of this rank. Every block that any rank of the host
// needs is read by one of them; what others need too goes to all. boxes are those
// of every rank of the host. fill returns errors of the communicator only.
func (l *loader) fill(ctx context.Context, e *tensorEntry, boxes [][]box, targets []target) error {
	tasks := l.tasks(e, boxes)
	var shared []task
	for _, t := range tasks {
		switch {
		case t.shared:
			shared = append(shared, t)
		case t.reader == l.host.Rank():
			l.direct(e, t, targets)
		}
	}
	for len(shared) > 0 {
		n, bytes := 0, 0
		for n < len(shared) && (n == 0 || bytes < roundBytes) {
			bytes += l.bytes(e, shared[n])
			n++
		}
		if err := l.round(ctx, e, shared[:n], bytes, targets); err != nil {
			return err
		}
		shared = shared[n:]
	}
	return nil
}

// bytes is the size of a task's block.
func (l *loader) bytes(e *tensorEntry, t task) int {
	return l.x.blockBytes(t.block, e.Chunks[t.chunk].box().numel()*e.dtype().Size())
}

// tasks lists the blocks that the ranks of the host need, and who reads each: of
// those that need it the one that has the fewest bytes to read so far.
func (l *loader) tasks(e *tensorEntry, boxes [][]box) []task {
	var list []task
	elem := e.dtype().Size()
	for i := range e.Chunks {
		c := e.Chunks[i].box()
		var wants []want
		for r, wanted := range boxes {
			for _, b := range wanted {
				if m := meet(c, b); m.runs > 0 {
					wants = append(wants, want{m, r})
				}
			}
		}
		if len(wants) == 0 {
			continue
		}
		total := c.numel() * elem
		for block := 0; block*l.x.BlockBytes < total; block++ {
			begin, n := block*l.x.BlockBytes, l.x.blockBytes(block, total)
			reader, shared, needed := l.readerOf(wants, begin/elem, (begin+n-1)/elem+1)
			if needed {
				l.load[reader] += n
				list = append(list, task{chunk: i, block: block, reader: reader, shared: shared})
			}
		}
	}
	return list
}

// A want is what a rank of the host wants of a chunk.
type want struct {
	meeting
	rank int
}

// readerOf chooses who reads the elements [lo, hi) of a chunk, and says whether
// others need them too, and whether anybody does.
func (l *loader) readerOf(wants []want, lo, hi int) (reader int, shared, needed bool) {
	for i := range wants {
		w := &wants[i]
		if !w.touches(lo, hi) {
			continue
		}
		shared = shared || needed && reader != w.rank
		if !needed || l.load[w.rank] < l.load[reader] {
			reader, needed = w.rank, true
		}
	}
	return reader, shared, needed
}

// direct reads a block that this rank alone needs: if one target has all of it
// in one piece, to where it belongs.
func (l *loader) direct(e *tensorEntry, t task, targets []target) {
	c := &e.Chunks[t.chunk]
	n, elem := l.bytes(e, t), e.dtype().Size()
	begin := t.block * l.x.BlockBytes
	for _, to := range targets {
		m := meet(c.box(), to.box)
		k := m.from(begin / elem)
		if k >= m.runs || to.data == nil {
			continue
		}
		if u := m.run(k); u.x*elem <= begin && begin+n <= (u.x+u.n)*elem {
			at := u.y*elem + begin - u.x*elem
			l.keep(l.block(to.data[at:at+n], e, c, t.block))
			return
		}
	}
	l.buf = resize(l.buf, n)
	err := l.block(l.buf, e, c, t.block)
	if l.keep(err); err == nil {
		l.scatter(l.buf, e, t, targets)
	}
}

// scatter copies the parts of a block that are in the targets.
func (l *loader) scatter(b []byte, e *tensorEntry, t task, targets []target) {
	c, elem, begin := e.Chunks[t.chunk].box(), e.dtype().Size(), t.block*l.x.BlockBytes
	for _, to := range targets {
		if to.data == nil {
			continue
		}
		m := meet(c, to.box)
		for k := m.from(begin / elem); k < m.runs; k++ {
			u := m.run(k)
			lo, hi := max(u.x*elem, begin), min((u.x+u.n)*elem, begin+len(b))
			if lo >= hi {
				break
			}
			copy(to.data[u.y*elem+lo-u.x*elem:], b[lo-begin:hi-begin])
		}
	}
}

// round has each rank read its blocks of some tasks and hands all of them to all
// ranks of the host.
func (l *loader) round(ctx context.Context, e *tensorEntry, tasks []task, bytes int, targets []target) error {
	counts := make([]int, l.host.Size())
	for _, t := range tasks {
		counts[t.reader] += l.bytes(e, t)
	}
	me := l.host.Rank()
	src := make([]byte, counts[me])
	at := 0
	for _, t := range tasks {
		if n := l.bytes(e, t); t.reader == me {
			l.keep(l.block(src[at:at+n], e, &e.Chunks[t.chunk], t.block))
			at += n
		}
	}
	all := make([]byte, bytes)
	if err := comm.AllGatherV(ctx, l.host, all, src, counts); err != nil {
		return err
	}
	starts := ints.Starts(counts)
	for _, t := range tasks {
		n := l.bytes(e, t)
		l.scatter(all[starts[t.reader]:starts[t.reader]+n], e, t, targets)
		starts[t.reader] += n
	}
	return nil
}
