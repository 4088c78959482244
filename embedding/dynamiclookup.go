package embedding

import (
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
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
		tables: []part{{settings: &l.s, weight: w, local: w.Local(), row: first, width: d.config.Dim}}}
	u := distinctKeys(keys, d.rows)
	l.x.distinct = []tensor.Uniq{u.Uniq}
	numbers := l.x.appendCounts([]int64{0}) // no key is bad
	all, _ := l.x.agree(numbers, 1)
	l.x.setCounts(all, len(numbers), 1)
	l.x.setOrder()
	send, receive := counters(l.x.requestPeers)
	words := 1
	if training {
		words = 2
	}
	for i := range l.x.requestPeers {
		_, n := l.x.segment(&l.x.requestPeers[i], 0)
		send[i], receive[i] = words*n, words*l.x.requestCount(i, 0)
	}
	got := l.x.swap(l.x.requestGroup, u.message(words), send, receive, "keys")
	requests := tensor.Read[int64](got)
	wanted := index.New[int64](got.Device(), len(requests)/words)
	if training {
		d.use(l.x, requests, wanted.Elems)
	} else {
		hashes := make([]keytable.Hash, len(requests))
		for i, h := range requests {
			hashes[i] = keytable.Hash(h)
		}
		d.keys.Find(wanted.Elems, hashes)
	}
	runtime.KeepAlive(got)
	l.x.wanted = wanted.Tensor(got.Device(), len(requests)/words)
	return l
}

// use notes that the keys of requests, each with how often it occurs, are used, with those
// that the replicas of this rank's rows have got, and sets rows to those of the requests.
func (d *Dynamic) use(x *exchange, requests, rows []int64) {
	first, n := 0, len(requests) // where they are among those of the replicas
	for _, r := range x.replicas {
		counts, mine, all := make([]int, r.group.Size()), []int64{int64(len(requests))}, make([]int64, r.group.Size())
		x.do(r.group, comm.Call{Kind: comm.AllGatherKind, Dst: comm.Of(all), Src: comm.Of(mine), Cause: "counts of replicas"})
		for i, n := range all {
			counts[i] = int(n)
		}
		gathered := make([]int64, sum(counts))
		x.do(r.group, comm.Call{Kind: comm.AllGatherVKind, Dst: comm.Of(gathered), Src: comm.Of(requests), DstCounts: counts,
			Cause: "keys of replicas"})
		requests, first = gathered, first+sum(counts[:r.group.Rank()])
	}
	uses, all := make([]keytable.Use, len(requests)/2), rows
	for i := range uses {
		uses[i] = keytable.Use{Hash: keytable.Hash(requests[2*i]), Count: requests[2*i+1]}
	}
	if len(requests) > n {
		all = make([]int64, len(uses))
	}
	d.begin(d.keys.Use(all, uses, int32(d.step)))
	if len(requests) > n {
		copy(rows, all[first/2:])
	}
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
	if len(l.x.requestPeers) == 1 {
		l.dropMissing()
	}
	return l.x.backward([]*tensor.Tensor{dy})[0]
}

// dropMissing takes the keys that have no row out of distinct, where that is all that was
// requested. Where there are other ranks, sums of their requests leave them out.
func (l *dynamicLookup) dropMissing() {
	wanted := tensor.ToSlice[int64](l.x.wanted)
	if u := ofRows(l.x.distinct[0], 0, wanted); u.Index.Numel() < len(wanted) {
		l.x.wanted, l.x.distinct[0], l.x.begin = u.Index, u, []int{0, u.Index.Numel()}
	}
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

// message returns the distinct keys, and with two words a key how often each occurs.
func (u *distinct) message(words int) *tensor.Tensor {
	m := tensor.New(u.Index.Device(), tensor.Int64, words*len(u.hashes))
	start := tensor.Read[int64](u.Start)
	tensor.Edit(m, func(m []int64) {
		for k, h := range u.hashes {
			m[words*k] = int64(h)
			if words == 2 {
				m[2*k+1] = start[k+1] - start[k]
			}
		}
	})
	runtime.KeepAlive(u.Start)
	return m
}
