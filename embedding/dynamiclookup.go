package embedding

import (
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/index"
	"github.com/gorun-spmd/gorun/internal/keytable"
	"github.com/gorun-spmd/gorun/tensor"
)

// A dynamicLookup is one lookup of keys on one rank. It is an exchange whose requests are
// keys: their owners find the rows.
type dynamicLookup struct {
	x    *exchange
	s    settings
	rows *tensor.Tensor // of the distinct keys, [U, D]
}

// newLookup looks up this rank's keys.
func (d *Dynamic) newLookup(op string, keys *tensor.Tensor, places []layout.Placement, training bool) *dynamicLookup {
	l := d.request(op, keys, places, training)
	l.rows = l.x.reply()[0]
	return l
}

// request sends the distinct keys to their owners, which find the rows, and in training
// give them to new keys first.
func (d *Dynamic) request(op string, keys *tensor.Tensor, places []layout.Placement, training bool) *dynamicLookup {
	w := d.table.weight
	l := &dynamicLookup{s: settings{normType: 2, padding: -1, name: d.config.Name, weight: w}}
	first, _ := d.own()
	l.x = &exchange{route: d.routeFor(places), op: op, mesh: d.mesh(), dtype: w.DType(),
		tables: []part{{settings: &l.s, weight: w, local: w.Local(), row: first, width: d.config.Dim, dynamic: d}}}
	l.x.setKeys(0, distinctKeys(keys, d.rows), training)
	numbers := l.x.appendCounts([]int64{0}) // no key is bad
	all, _ := l.x.agree(numbers, 1)
	l.x.setCounts(all, len(numbers), 1)
	l.x.request()
	l.x.findKeys()
	return l
}

// setKeys takes this rank's keys of dynamic table t, the next one. Its owners are told how often each occurs in training, and where a
// Prefetch may have asked for the same: it cannot know whether its batch is trained.
func (x *exchange) setKeys(t int, u distinct, training bool) {
	u.used, u.counted = training, training || x.asks != nil
	x.tables[t].keys, x.distinct = &u, append(x.distinct, u.Uniq)
}

// words is how many numbers a request of the table takes.
func (p *part) words() int {
	if p.keys == nil {
		return 1
	}
	return p.keys.words()
}

// asking returns what is requested of n of this rank's distinct ids of table t, beginning with the one at from.
func (x *exchange) asking(t, from, n int) *tensor.Tensor {
	if keys := x.tables[t].keys; keys != nil {
		return keys.message(from, n)
	}
	return tensor.Narrow(x.distinct[t].Index, 0, from, n)
}

// rowsOf returns the rows that the peers request of this rank, given their messages. Those of keys are set by findKeys.
func (x *exchange) rowsOf(messages *tensor.Tensor) *tensor.Tensor {
	isDynamic := func(p part) bool { return p.dynamic != nil }
	if !slices.ContainsFunc(x.tables, isDynamic) {
		return messages
	}
	wanted := index.New[int64](messages.Device(), x.begin[len(x.begin)-1])
	numbers := tensor.Read[int64](messages)
	x.lists = make([][]int64, len(x.tables))
	for t := range x.tables {
		if x.tables[t].dynamic != nil {
			n := 0
			for i := range x.requestPeers {
				n += x.requestCount(i, t)
			}
			x.lists[t] = make([]int64, 0, x.tables[t].words()*n)
		}
	}
	for i := range x.requestPeers {
		for t := range x.tables {
			n := x.requestCount(i, t)
			its := numbers[:x.tables[t].words()*n]
			numbers = numbers[len(its):]
			if x.tables[t].dynamic == nil {
				copy(wanted.Elems[x.begin[i*len(x.tables)+t]:], its)
			} else {
				x.lists[t] = append(x.lists[t], its...)
			}
		}
	}
	runtime.KeepAlive(messages)
	return wanted.Tensor(messages.Device(), x.begin[len(x.begin)-1])
}

// findKeys sets the rows of the keys that the peers request of this rank, -1 of one without. In training it uses the keys, with those
// that the replicas of this rank's rows have got, and gives rows to new ones first. It comes after all that may fail in a lookup.
func (x *exchange) findKeys() {
	all, first := slices.Clone(x.lists), make([]int, len(x.lists)) // of replicas too; where this rank's are among them
	uses := func(t int) bool { return x.tables[t].dynamic != nil && x.tables[t].keys.used }
	its := make([]tensor.Rows, len(x.lists))
	for _, r := range x.replicas {
		if r = r.where(uses); len(r.tables) == 0 {
			continue
		}
		for _, t := range r.tables {
			its[t].Index = numbersOn(x.mesh.Device(), x.lists[t])
		}
		counts, k := x.countsOf(r, its), len(r.tables)
		for i, n := range counts[:k*r.group.Rank()] {
			first[r.tables[i%k]] += n
		}
		x.gather(r, its, counts, "keys of replicas")
		for _, t := range r.tables {
			all[t] = tensor.Read[int64](its[t].Index)
		}
	}
	for t, list := range x.lists {
		d := x.tables[t].dynamic
		if d == nil {
			continue
		}
		var rows []int64
		if uses(t) {
			rows = d.use(all[t])[first[t]/2:][:len(list)/2]
		} else {
			rows = d.find(list, x.tables[t].words())
		}
		for i := range x.requestPeers {
			n := 0
			tensor.Edit(x.requests(i, t), func(wanted []int64) { n = copy(wanted, rows) })
			rows = rows[n:]
		}
	}
	runtime.KeepAlive(its)
}

// find returns the rows of keys, -1 of one without; the first of each words numbers of requests is a hash.
func (d *Dynamic) find(requests []int64, words int) []int64 {
	rows, its := make([]int64, len(requests)/words), make([]keytable.Hash, len(requests)/words)
	for i := range its {
		its[i] = keytable.Hash(requests[words*i])
	}
	d.keys.Find(rows, its)
	return rows
}

// use notes that keys are used, a hash and how often each, and returns their rows as find does.
func (d *Dynamic) use(requests []int64) []int64 {
	uses := make([]keytable.Use, len(requests)/2)
	for i := range uses {
		uses[i] = keytable.Use{Hash: keytable.Hash(requests[2*i]), Count: requests[2*i+1]}
	}
	d.note()
	rows := make([]int64, len(uses))
	d.begin(d.keys.Use(rows, uses, int32(d.step)))
	return rows
}

// routeFor returns the route of keys in the given placements; Partial stands for keys that differ too.
func (d *Dynamic) routeFor(places []layout.Placement) *route {
	var batch uint
	for axis, p := range places {
		if !p.IsReplicate() && d.mesh().Axes()[axis].Size > 1 {
			batch |= 1 << axis
		}
	}
	r, ok := d.routes[batch]
	if !ok {
		requests := batch & (1 << d.axis)
		r = newRoute(d.mesh(), []*dtensor.Tensor{d.table.weight}, batch, requests, requests)
		d.routes[batch] = r
	}
	return r
}

// backward returns the gradient of Weight for that of the row of each key.
func (l *dynamicLookup) backward(dy *tensor.Tensor) *dtensor.Rows {
	return l.x.backward([]*tensor.Tensor{dy})[0]
}

// ofRows returns the distinct ones from first on whose rows are not -1, with their rows as Index.
func ofRows(u tensor.Uniq, first int, rows []int64) tensor.Uniq {
	start, order := tensor.ToSlice[int64](u.Start), tensor.ToSlice[int32](u.Order)
	dev := u.Index.Device()
	var found, starts []int64
	var positions []int32
	for k, row := range rows {
		if row >= 0 {
			found, starts = append(found, row), append(starts, int64(len(positions)))
			positions = append(positions, order[start[first+k]:start[first+k+1]]...)
		}
	}
	starts = append(starts, int64(len(positions)))
	return tensor.Uniq{Index: tensor.FromSlice(dev, found, len(found)), Start: tensor.FromSlice(dev, starts, len(starts)), Slot: u.Slot,
		Order: tensor.FromSlice(dev, positions, len(positions))}
}

// gradientOfAll returns the gradient of Weight, with same bits, for that of the row of each key: each owner adds up those of
// all keys in their order.
func (d *Dynamic) gradientOfAll(l *dynamicLookup, keys, dy *dtensor.Tensor) *dtensor.Rows {
	whole := d.mesh().Every(layout.Replicate())
	all, n := keys.Redistribute(whole...).Local(), keys.Numel()
	u := distinctKeys(all.Reshape(n), d.rows)
	row, rows := d.own()
	slice := func(h keytable.Hash, row int) int { return h.Slice()*d.rows - row }
	first, _ := slices.BinarySearchFunc(u.hashes, row, slice)
	end, _ := slices.BinarySearchFunc(u.hashes, row+rows, slice)
	found := make([]int64, end-first)
	d.keys.Find(found, u.hashes[first:end])
	its := l.x.tables[0].sumRows(ofRows(u.Uniq, first, found), dy.Redistribute(whole...).Local().Reshape(n, d.config.Dim))
	return dtensor.NewRows(d.table.weight, its.Index, tensor.Cast(its.Values, d.config.DType))
}

// distinct are the distinct keys of a list, by slice and in a slice as they come.
type distinct struct {
	tensor.Uniq // Index has the first row of each key's slice
	hashes      []keytable.Hash
	used        bool    // in training
	counted     bool    // the owners are told how often each key occurs
	counts      []int64 // that; nil: as often as it is looked up
}

// distinctKeys returns the distinct ones of keys; slices have so many rows.
func distinctKeys(keys *tensor.Tensor, rows int) distinct {
	dev, n := keys.Device(), keys.Numel()
	slot, order := index.New[int32](dev, n), index.New[int32](dev, n)
	places := 16
	for places < 2*n {
		places *= 2
	}
	table, mask := index.New[int32](dev, places), places-1 // of numbers of distinct keys, plus one
	clear(table.Elems)
	found := make([]keytable.Hash, 0, n) // in the order in which they come
	var ends [keytable.Slices + 1]int
	for i, key := range tensor.Read[int64](keys) {
		h := keytable.Mix(key)
		at := int(h) & mask
		for table.Elems[at] != 0 && found[table.Elems[at]-1] != h {
			at = (at + 1) & mask
		}
		if table.Elems[at] == 0 {
			found = append(found, h)
			table.Elems[at] = int32(len(found))
			ends[h.Slice()+1]++
		}
		slot.Elems[i] = table.Elems[at] - 1
	}
	table.Free()
	runtime.KeepAlive(keys)
	for s := range keytable.Slices {
		ends[s+1] += ends[s]
	}
	u := distinct{hashes: make([]keytable.Hash, len(found))}
	moved := index.New[int32](dev, len(found)) // where a distinct key goes
	first, start := index.New[int64](dev, len(found)), index.New[int64](dev, len(found)+1)
	clear(start.Elems)
	for k, h := range found {
		at := ends[h.Slice()]
		ends[h.Slice()]++
		moved.Elems[k], u.hashes[at], first.Elems[at] = int32(at), h, int64(h.Slice()*rows)
	}
	for i, k := range slot.Elems[:n] {
		slot.Elems[i] = moved.Elems[k]
		start.Elems[slot.Elems[i]+1]++
	}
	for k := range found {
		start.Elems[k+1] += start.Elems[k]
		moved.Elems[k] = int32(start.Elems[k])
	}
	for i, k := range slot.Elems[:n] {
		order.Elems[moved.Elems[k]] = int32(i)
		moved.Elems[k]++
	}
	u.Uniq = tensor.Uniq{Index: first.Tensor(dev, len(found)), Start: start.Tensor(dev, len(found)+1), Slot: slot.Tensor(dev, n),
		Order: order.Tensor(dev, n)}
	return u
}

// words is how many numbers a message has of each key.
func (u *distinct) words() int {
	if u.counted {
		return 2
	}
	return 1
}

// message returns n of the distinct keys from the one at from on, and if they are counted how often each occurs.
func (u *distinct) message(from, n int) *tensor.Tensor {
	words := u.words()
	m := tensor.New(u.Index.Device(), tensor.Int64, words*n)
	start := tensor.Read[int64](u.Start)
	tensor.Edit(m, func(m []int64) {
		for k := range n {
			m[words*k] = int64(u.hashes[from+k])
			switch {
			case words == 1:
			case u.counts != nil:
				m[2*k+1] = u.counts[from+k]
			default:
				m[2*k+1] = start[from+k+1] - start[from+k]
			}
		}
	})
	runtime.KeepAlive(u.Start)
	return m
}
