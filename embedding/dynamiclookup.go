package embedding

import (
	"math/bits"
	"runtime"
	"slices"
	"unsafe"

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
	l := &dynamicLookup{s: settings{normType: 2, padding: -1, name: d.config.Name, weight: w, dynamic: d}}
	first, _ := d.own()
	l.x = &exchange{route: d.routeFor(places), op: op, mesh: d.mesh(), dtype: w.DType(), facts: d.facts, subject: &l.s,
		tables: []part{{settings: &l.s, weight: w, local: w.Local(), row: first, width: d.config.Dim, dynamic: d}}}
	l.x.setKeys(0, distinctKeys(keys), training)
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
	if keys := x.tables[t].keys; keys != nil && keys.counted {
		return keys.withCounts(from, n)
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
	numbers, at := tensor.Read[int64](messages), 0
	parts := make([][]*tensor.Tensor, len(x.tables))
	for i := range x.requestPeers {
		for t := range x.tables {
			n := x.tables[t].words() * x.requestCount(i, t)
			if x.tables[t].dynamic == nil {
				copy(wanted.Elems[x.begin[i*len(x.tables)+t]:], numbers[at:at+n])
			} else {
				parts[t] = append(parts[t], tensor.Narrow(messages, 0, at, n))
			}
			at += n
		}
	}
	x.lists = make([]*tensor.Tensor, len(x.tables))
	for t := range parts {
		switch {
		case len(x.tables) == 1:
			x.lists[t] = messages
		case x.tables[t].dynamic != nil:
			x.lists[t] = join(parts[t])
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
			its[t].Index = x.lists[t]
		}
		counts, k := x.countsOf(r, its), len(r.tables)
		for i, n := range counts[:k*r.group.Rank()] {
			first[r.tables[i%k]] += n
		}
		x.gather(r, its, counts, "keys of replicas")
		for _, t := range r.tables {
			all[t] = its[t].Index
		}
	}
	for t, list := range x.lists {
		d := x.tables[t].dynamic
		if d == nil {
			continue
		}
		var rows index.List[int64]
		if uses(t) {
			rows = d.use(all[t])
		} else {
			rows = d.find(list, x.tables[t].words())
		}
		at := first[t] / 2
		for i := range x.requestPeers {
			tensor.Edit(x.requests(i, t), func(wanted []int64) { at += copy(wanted, rows.Elems[at:]) })
		}
		rows.Free()
	}
}

// find returns the rows of keys, -1 of one without; the first of each words numbers of requests is a hash.
func (d *Dynamic) find(requests *tensor.Tensor, words int) index.List[int64] {
	n := requests.Numel() / words
	rows, numbers := index.New[int64](requests.Device(), n), tensor.Read[int64](requests)
	if words > 1 {
		its := index.New[int64](requests.Device(), n)
		for i := range n {
			its.Elems[i] = numbers[words*i]
		}
		defer its.Free()
		numbers = its.Elems
	}
	d.keys.Find(rows.Elems, hashesOf(numbers))
	runtime.KeepAlive(requests)
	return rows
}

// use notes that keys are used, a hash and how often each, and returns their rows as find does.
func (d *Dynamic) use(requests *tensor.Tensor) index.List[int64] {
	numbers := tensor.Read[int64](requests)
	rows := index.New[int64](requests.Device(), len(numbers)/2)
	uses := unsafe.Slice((*keytable.Use)(unsafe.Pointer(unsafe.SliceData(numbers))), len(numbers)/2)
	d.note()
	d.begin(d.keys.Use(rows.Elems, uses, int32(d.step)))
	runtime.KeepAlive(requests)
	return rows
}

// hashesOf returns numbers as hashes, in the same memory.
func hashesOf(numbers []int64) []keytable.Hash {
	return unsafe.Slice((*keytable.Hash)(unsafe.Pointer(unsafe.SliceData(numbers))), len(numbers))
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
	u := distinctKeys(all.Reshape(n))
	row, rows := d.own()
	first, end := u.begins[row/d.rows], u.begins[(row+rows)/d.rows]
	found := make([]int64, end-first)
	d.keys.Find(found, hashesOf(tensor.Read[int64](u.Index)[first:end]))
	runtime.KeepAlive(u.Index)
	its := l.x.tables[0].sumRows(ofRows(u.Uniq, first, found), dy.Redistribute(whole...).Local().Reshape(n, d.config.Dim))
	return dtensor.NewRows(d.table.weight, its.Index, tensor.Cast(its.Values, d.config.DType))
}

// distinct are the distinct ids of a list, or keys. Keys are by slice, and in a slice as they come.
type distinct struct {
	tensor.Uniq         // of keys: Index has their hashes
	begins      []int   // of keys: where those of each slice begin, and those of the last one end
	used        bool    // in training
	counted     bool    // the owners are told how often each key occurs
	counts      []int64 // that; nil: as often as it is looked up
}

// distinctKeys returns the distinct ones of keys. It divides the keys among the slices, and then looks for equal ones of a slice, so
// that what it reads is in the near caches.
func distinctKeys(keys *tensor.Tensor) distinct {
	dev, n := keys.Device(), keys.Numel()
	list := tensor.Read[int64](keys)
	var ends [keytable.Slices + 1]int
	for _, key := range list {
		ends[keytable.Mix(key).Slice()+1]++
	}
	most := slices.Max(ends[:])
	for s := range keytable.Slices {
		ends[s+1] += ends[s]
	}
	hashes, start := index.New[int64](dev, n), index.New[int64](dev, n+2)
	slot, order := index.New[int32](dev, n), index.New[int32](dev, n)
	for i, key := range list {
		h := keytable.Mix(key)
		at := ends[h.Slice()]
		hashes.Elems[at], order.Elems[at] = int64(h), int32(i)
		ends[h.Slice()]++
	}
	runtime.KeepAlive(keys)
	positions, places := index.New[int32](dev, most), index.New[int32](dev, 2<<bits.Len(uint(most)))
	start.Elems[0], start.Elems[1] = 0, 0
	begins := make([]int, keytable.Slices+1)
	first, u := 0, 0
	for s, end := range ends[:keytable.Slices] {
		its := positions.Elems[:copy(positions.Elems, order.Elems[first:end])]
		table := places.Elems[:2<<bits.Len(uint(len(its)))] // of numbers of distinct keys, plus one
		clear(table)
		for i, h := range hashes.Elems[first:end] {
			at := int(h) & (len(table) - 1)
			for table[at] != 0 && hashes.Elems[table[at]-1] != h {
				at = (at + 1) & (len(table) - 1)
			}
			if table[at] == 0 {
				hashes.Elems[u], start.Elems[u+2] = h, 0
				u++
				table[at] = int32(u)
			}
			slot.Elems[its[i]] = table[at] - 1
			start.Elems[table[at]+1]++
		}
		begins[s+1] = u
		for k := begins[s]; k < u; k++ { // start[k+1] becomes where the positions of key k begin,
			start.Elems[k+2] += start.Elems[k+1]
		}
		for _, i := range its { // and then where they end
			at := &start.Elems[slot.Elems[i]+1]
			order.Elems[*at] = i
			*at++
		}
		first = end
	}
	positions.Free()
	places.Free()
	return distinct{begins: begins, Uniq: tensor.Uniq{Index: hashes.Tensor(dev, u), Start: start.Tensor(dev, u+1),
		Slot: slot.Tensor(dev, n), Order: order.Tensor(dev, n)}}
}

// words is how many numbers a message has of each key.
func (u *distinct) words() int {
	if u.counted {
		return 2
	}
	return 1
}

// withCounts returns n of the distinct keys from the one at from on, each with how often it occurs.
func (u *distinct) withCounts(from, n int) *tensor.Tensor {
	m := tensor.New(u.Index.Device(), tensor.Int64, 2*n)
	hashes, start := tensor.Read[int64](u.Index)[from:from+n], tensor.Read[int64](u.Start)[from:]
	tensor.Edit(m, func(m []int64) {
		for k, h := range hashes {
			m[2*k] = h
			if u.counts != nil {
				m[2*k+1] = u.counts[from+k]
			} else {
				m[2*k+1] = start[k+1] - start[k]
			}
		}
	})
	runtime.KeepAlive(u)
	return m
}
