package embedding

import (
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
)

// An Optimizer changes a table by its gradients: one of package optim, or a program's own.
type Optimizer = dtensor.Optimizer

// A FusedOptimizer is the optimizer of some tables of a Collection, which changes them in the
// backward pass.
type FusedOptimizer struct {
	// Of names tables, or features, which stand for their tables; none: all tables that no
	// other FusedOptimizer names.
	Of []string
	// New makes the optimizer of one table, whose rows are the one parameter: its Resident. It is
	// called for each table.
	New func(params []*dtensor.Tensor) Optimizer
	// Rate is the learning rate until SetRate gives another. 0: the program calls SetRate before the first backward pass.
	Rate float64
	// MaxGradient bounds each element of the gradient of a table, which is the sum over the batch, as
	// optim.ClipGradValue does: it is brought between -MaxGradient and MaxGradient. 0: there is no bound.
	MaxGradient float64
}

// FusedOptimizers are the optimizers of the tables of a Collection.
type FusedOptimizers struct {
	c          *Collection
	optimizers []Optimizer // by table; nil: none
	rates      []float64   // by table; NaN: none was given
}

// Fuse gives tables optimizers and rates of their own, and has the backward pass change each
// table as soon as its rows have arrived; see Table.Fuse for what that means.
//
//	fused := tables.Fuse(
//		embedding.FusedOptimizer{Of: []string{"users"}, Rate: 1e-3, New: optim.With(optim.NewSparseAdam, optim.SparseAdamConfig{})},
//		embedding.FusedOptimizer{Rate: 0.05, New: optim.With(optim.NewRowAdagrad, optim.RowAdagradConfig{})}) // of all others
//	...
//	value, grads, err := dtensor.ValueAndGrad(ctx, forward, append(tables.Params(), head)...)
//
// A table that no FusedOptimizer has returns its gradient, as before any Fuse; so without
// arguments Fuse undoes it for all tables. Fuse throws an *Error, and changes nothing, for a
// name that is neither a table nor a feature, for a table with two optimizers, such as that of
// two features with one each, for a rate that is negative or not a finite number, and for a MaxGradient that is negative or NaN.
//
// A table with a Store, and a Dynamic one, follows its optimizer, so it is given one only once, the former before its first lookup.
func (c *Collection) Fuse(optimizers ...FusedOptimizer) *FusedOptimizers {
	const op = "Fuse"
	f := &FusedOptimizers{c: c, optimizers: make([]Optimizer, len(c.tables)), rates: make([]float64, len(c.tables))}
	chosen, by := make([]*FusedOptimizer, len(c.tables)), make([]string, len(c.tables)) // by table: who has it, under which name
	var others *FusedOptimizer
	for i := range optimizers {
		o := &optimizers[i]
		switch {
		case o.New == nil:
			refuse(op, "the optimizer of %s has no New; give the function that makes it", quoted(o.Of, "all other tables"))
		case !validRate(o.Rate):
			refuse(op, "the rate of %s is %v; give a finite number that is not negative", quoted(o.Of, "all other tables"), o.Rate)
		case !(o.MaxGradient >= 0):
			refuse(op, "the MaxGradient of %s is %v; give a positive one, or 0 for no bound", quoted(o.Of, "all other tables"), o.MaxGradient)
		case len(o.Of) == 0 && others != nil:
			refuse(op, "two optimizers are for all other tables; name those of one of them")
		case len(o.Of) == 0:
			others = o
		}
		for _, name := range o.Of {
			t, what := c.tableOf(op, name)
			if chosen[t] != nil && chosen[t] != o {
				refuse(op, "%s and %s have two optimizers, but one table, %q; give it one, or each a table of its own", by[t], what, c.nameOf(t))
			}
			chosen[t], by[t] = o, what
		}
	}
	for t, table := range c.tables {
		if chosen[t] == nil {
			chosen[t] = others
		}
		if chosen[t] == nil {
			continue
		}
		if f.rates[t] = chosen[t].Rate; f.rates[t] == 0 {
			f.rates[t] = math.NaN()
		}
		if f.optimizers[t] = chosen[t].New([]*dtensor.Tensor{table.Resident()}); f.optimizers[t] == nil {
			refuse(op, "New returned no optimizer for table %q", c.nameOf(t))
		}
	}
	for t, table := range c.tables {
		switch {
		case f.optimizers[t] == nil:
		case c.keys[t] != nil:
			c.keys[t].Follow(f.optimizers[t].State())
		case table.stored != nil:
			table.Follow(f.optimizers[t].State())
		}
	}
	for t, table := range c.tables {
		if f.optimizers[t] == nil {
			table.Fuse(nil)
			continue
		}
		limit := chosen[t].MaxGradient
		table.Fuse(func(rows *dtensor.Rows) error {
			if math.IsNaN(f.rates[t]) {
				return fmt.Errorf("embedding: table %q has a fused optimizer and no rate; "+
					"give the FusedOptimizer a Rate, or call SetRate before the step; SetRate of 0 trains nothing", c.nameOf(t))
			}
			if limit > 0 {
				rows = rows.Distinct()
				tensor.Copy(rows.Values, tensor.Clamp(rows.Values, -limit, limit))
			}
			if err := f.optimizers[t].Step([]dtensor.Grad{dtensor.Sparse(rows)}, f.rates[t]); err != nil {
				return fmt.Errorf("embedding: table %q: %w", c.nameOf(t), err)
			}
			return nil
		})
	}
	return f
}

// tableOf returns the table that a name of a table or a feature stands for, and what the name is.
func (c *Collection) tableOf(op, name string) (t int, what string) {
	t = slices.IndexFunc(c.tables, func(t *Table) bool { return t.options.Table == name })
	f, ok := c.find(name)
	switch {
	case t < 0 && !ok:
		refuse(op, "%q is neither a table nor a feature; the tables are %s", name, c.names())
	case t >= 0 && ok && c.features[f].table != t:
		refuse(op, "%q is a table, and a feature of table %q; rename one of them", name, c.nameOf(c.features[f].table))
	case t < 0:
		return c.features[f].table, fmt.Sprintf("feature %q", name)
	}
	return t, fmt.Sprintf("table %q", name)
}

// names lists the tables for errors, the first of them if they are many.
func (c *Collection) names() string {
	if len(c.tables) == 0 {
		return "none"
	}
	names := make([]string, len(c.tables))
	for t := range c.tables {
		names[t] = c.nameOf(t)
	}
	return quoted(names, "")
}

// quoted lists names for errors, the first of them if they are many; none are called so.
func quoted(names []string, none string) string {
	if len(names) == 0 {
		return none
	}
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = fmt.Sprintf("%q", name)
	}
	return someOf(list, 60)
}

// validRate reports whether a learning rate is one.
func validRate(rate float64) bool { return rate >= 0 && !math.IsInf(rate, 0) }

// SetRate sets the learning rate of tables, or of those of features, from the next backward
// pass on; without names of all that have an optimizer. All ranks set the same. It throws an
// *Error for a rate that is negative or not a finite number, and for a name that Fuse has not given an
// optimizer.
func (f *FusedOptimizers) SetRate(rate float64, of ...string) {
	const op = "SetRate"
	if !validRate(rate) {
		refuse(op, "the rate of %s is %v; give a finite number that is not negative", quoted(of, "all tables"), rate)
	}
	tables := make([]int, len(of))
	for i, name := range of {
		t, what := f.c.tableOf(op, name)
		if f.optimizers[t] == nil {
			refuse(op, "%s has no fused optimizer; give it one by Fuse", what)
		}
		tables[i] = t
	}
	for _, t := range tables {
		f.rates[t] = rate
	}
	for t := range f.rates {
		if len(of) == 0 {
			f.rates[t] = rate
		}
	}
}

// State lists the state of all optimizers, for checkpoints: "users.m.0" is what that of table
// users calls "m.0". That of a Dynamic table is saved with its keys.
func (f *FusedOptimizers) State() iter.Seq2[string, *dtensor.Tensor] {
	return func(yield func(string, *dtensor.Tensor) bool) {
		for t, o := range f.optimizers {
			if o == nil || f.c.keys[t] != nil {
				continue
			}
			state := o.State()
			if table := f.c.tables[t]; table.stored != nil {
				state = table.State() // of all rows
			}
			for name, s := range state {
				if !yield(f.c.nameOf(t)+"."+name, s) {
					return
				}
			}
		}
	}
}
