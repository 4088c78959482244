package embedding

import (
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
)

// A CollectionTable describes one table of a Collection.
type CollectionTable struct {
	Config
	// Features are the features whose ids are rows of this table.
	Features []string
	Mode     Mode // how Bags makes one row of a list
	// Dynamic is a table whose rows have keys: the features' ids are keys of it. It stands for a
	// Config, which stays empty. nil: a table of rows with numbers.
	Dynamic *Dynamic
}

// A Collection is a set of tables, each in a layout of its own, that are looked
// up together, by feature; several features may share a table.
//
//	c := embedding.NewCollection(mesh,
//		embedding.CollectionTable{
//			Config:   embedding.Config{Name: "users", Rows: 1e6, Dim: 16, Layout: embedding.RowWise("tp")},
//			Features: []string{"user"}},
//		embedding.CollectionTable{
//			Config:   embedding.Config{Name: "items", Rows: 1e4, Dim: 16, Layout: embedding.TableWise("tp", 1)},
//			Features: []string{"shown", "bought"}})
//	...
//	p := c.Bags(batch)              // batch: a Jagged of samples S(0)
//	x := p.Values()                 // [B, 48] S(0): user, shown, bought
//
// Whatever the number of tables and their layouts, a lookup makes one exchange
// of ids, one of rows, and its gradient one of rows:
//
//	samples   tables                     forward                            gradient
//	R         R                          nothing                            nothing
//	R         some S on the axis         the rows, once                     nothing
//	S         R on the axis              a status                           counts, then ids and rows to the replicas
//	S         some S on the axis         a status and counts, ids, rows     rows
//
// Tables with a MaxNorm add what their norms need: where samples differ and a
// table has replicas, their distinct ids; of tables whose columns are divided, one
// number for each distinct id.
//
// A rank requests each distinct row of its samples once, from the ranks that own it or
// parts of it, and they reply once. Bags are made where their samples are, so sums run
// over the ids of a bag in their order, and the layout of a table does not change a bit
// of what is looked up.
//
// Each table may have an optimizer and a rate of its own: see Fuse, or step the gradients of
// Params one by one.
//
// Some tables may be Dynamic; they are used by lookups in training as Dynamic.Lookup says, and the same exchanges
// have their keys, with a count each. Where samples differ and a Dynamic has replicas, these get all keys too, with two
// collectives more for all such tables.
//
//	visitors := embedding.NewDynamic(mesh, embedding.DynamicConfig{Name: "visitors", Axis: "tp", Dim: 16, Budget: 1 << 30})
//	c := embedding.NewCollection(mesh, embedding.CollectionTable{Dynamic: visitors, Features: []string{"visitor"}}, ...)
//	...
//	visitors.Advance() // after each step
//	state.AddGrowing("visitors.", visitors) // Weights has the other tables
//
// The tables of a collection are all of float32 or all of bfloat16. So is what Bags and
// Rows return and what replies hold. Bags of bfloat16 are rounded once. Their gradients
// are sent as float32 and rounded once, when all have been added up.
type Collection struct {
	mesh     *dtensor.Mesh
	dtype    tensor.DType // of the tables
	tables   []*Table
	modes    []Mode
	settings []settings
	features []feature
	of       [][]int         // of[t] lists the features of table t
	width    int             // of all features together
	routes   map[uint]*route // by the axes that shard samples
	asks     *asks           // nil: no table has a Store
	keys     []*Dynamic      // by table; nil: its rows have numbers
	ahead    []aheads        // by table, of its keys
	facts    uint32          // a hash of what String says
}

// A feature is one column of lists.
type feature struct {
	name  string
	table int
	at    int // of its first column in what Bags returns
	width int
}

// NewCollection makes the tables, with random rows as NewTable does. It throws
// an *Error that names the table and field if a configuration makes no sense.
func NewCollection(mesh *dtensor.Mesh, tables ...CollectionTable) *Collection {
	const op = "NewCollection"
	c := &Collection{mesh: mesh, dtype: tensor.Float32, routes: map[uint]*route{}}
	tables = slices.Clone(tables)
	for i := range tables {
		t := &tables[i]
		if t.Dynamic != nil {
			if t.Dynamic.mesh() != mesh {
				refuse(op, "%v is on mesh %v and the collection on another, %v; make it on that of the collection", t.Dynamic, t.Dynamic.mesh(), mesh)
			}
			if !reflect.ValueOf(t.Config).IsZero() {
				refuse(op, "%v has a Config too, of table %q; give one of them: the DynamicConfig says all of a table of keys", t.Dynamic, t.Name)
			}
			t.Name, t.Dim = t.Dynamic.config.Name, t.Dynamic.config.Dim
		}
		switch {
		case t.Mode >= modes:
			refuse(op, "table %q: Mode is %d; use Mean, Sum or Max", t.Name, t.Mode)
		case t.Mode == Max && t.ScaleGradByFreq:
			refuse(op, "table %q: ScaleGradByFreq is not defined for Mode Max; use Sum or Mean", t.Name)
		case slices.ContainsFunc(tables[:i], func(o CollectionTable) bool { return o.Name == t.Name }):
			refuse(op, "two tables are called %q; give each a name", t.Name)
		}
		for _, name := range t.Features {
			if f, ok := c.find(name); ok {
				refuse(op, "feature %q of table %q is one of table %q too; a feature has one table", name, t.Name, tables[c.features[f].table].Name)
			}
			c.features = append(c.features, feature{name: name, table: i, at: c.width, width: t.Dim})
			c.width += t.Dim
		}
		var table *Table
		if t.Dynamic != nil {
			table = t.Dynamic.table
		} else {
			table = NewTable(mesh, t.Config)
		}
		switch dt := table.weight.DType(); {
		case dt != tensor.Float32 && dt != tensor.BFloat16:
			refuse(op, "table %q holds %v; use float32 or bfloat16", t.Name, dt)
		case i == 0:
			c.dtype = dt
		case dt != c.dtype:
			refuse(op, "table %q holds %v and table %q %v; make a collection for each type", tables[0].Name, c.dtype, t.Name, dt)
		}
		c.tables, c.modes = append(c.tables, table), append(c.modes, t.Mode)
		its := table.settings(op)
		its.mode, its.dynamic = t.Mode, t.Dynamic
		c.settings, c.keys = append(c.settings, its), append(c.keys, t.Dynamic)
	}
	if slices.ContainsFunc(c.tables, func(t *Table) bool { return t.stored != nil }) {
		c.asks, c.ahead = &asks{}, make([]aheads, len(tables))
	}
	c.of = make([][]int, len(tables))
	for f := range c.features {
		c.of[c.features[f].table] = append(c.of[c.features[f].table], f)
	}
	c.setFacts()
	return c
}

// setFacts sets facts, by which the ranks see in a lookup that they have other tables.
func (c *Collection) setFacts() {
	var h agreed
	for t := range c.settings {
		h = h.and(uint64(c.settings[t].facts()))
	}
	for _, f := range c.features {
		h = h.and(uint64(f.table)).text(f.name)
	}
	c.facts = uint32(h)
}

// String describes the tables with their features: "2 tables: user of table "users", float32 [100, 8] S(0) …; …".
func (c *Collection) String() string {
	list := make([]string, len(c.tables))
	for t := range c.tables {
		var names []string
		for _, f := range c.of[t] {
			names = append(names, c.features[f].name)
		}
		list[t] = fmt.Sprintf("%s of %v", strings.Join(names, ", "), &c.settings[t])
	}
	return fmt.Sprintf("%s: %s", ints.Counted(len(list), "table"), strings.Join(list, "; "))
}

// find returns the feature of a name; ok is false if there is none.
func (c *Collection) find(name string) (f int, ok bool) {
	f = slices.IndexFunc(c.features, func(f feature) bool { return f.name == name })
	return f, f >= 0
}

// mustFind is find for what Bags and Rows return: it throws.
func (c *Collection) mustFind(name string) int {
	f, ok := c.find(name)
	if !ok {
		refuse("Feature", "no table has the feature %q", name)
	}
	return f
}

// Tables returns the tables in the order given, for a Dynamic one that of its Weight: its rows are looked up and
// exported by the Dynamic alone. Do not modify the slice.
func (c *Collection) Tables() []*Table { return c.tables }

// Params returns the Param of each table, in their order: what to train.
func (c *Collection) Params() []*dtensor.Tensor { return c.each((*Table).Param) }

// each returns what f returns of each table.
func (c *Collection) each(f func(t *Table) *dtensor.Tensor) []*dtensor.Tensor {
	list := make([]*dtensor.Tensor, len(c.tables))
	for i, t := range c.tables {
		list[i] = f(t)
	}
	return list
}

// Weights lists the rows of each table but Dynamic ones, those of table users as "users.weight", for checkpoints:
//
//	state.AddTensors("tables.", tables.Weights())
//	state.AddTensors("optimizer.", fused.State()) // see Fuse
func (c *Collection) Weights() iter.Seq2[string, *dtensor.Tensor] {
	return func(yield func(string, *dtensor.Tensor) bool) {
		for i, t := range c.tables {
			if c.keys[i] == nil && !yield(c.nameOf(i)+".weight", t.Weight()) {
				return
			}
		}
	}
}

// inputs returns what a lookup is recorded to depend on.
func (c *Collection) inputs() []*dtensor.Tensor { return c.each((*Table).input) }

// columns returns where each feature of the collection is in the batch. It
// throws if one is missing.
func (c *Collection) columns(op string, j *Jagged) []int {
	if j.mesh != c.mesh {
		refuse(op, "the batch is on mesh %v and the tables on another, %v; make it on theirs", j.mesh, c.mesh)
	}
	at := make([]int, len(c.features))
	for f := range c.features {
		at[f] = slices.Index(j.features, c.features[f].name)
		if at[f] < 0 {
			refuse(op, "the batch has no feature %q, which table %q needs; it has %s", c.features[f].name, c.nameOf(c.features[f].table),
				j.featureNames())
		}
		if j.weighs(at[f]) && c.modes[c.features[f].table] != Sum && op == "Bags" {
			refuse(op, "the batch has weights, but table %q has Mode %v; they are for Sum", c.nameOf(c.features[f].table),
				c.modes[c.features[f].table])
		}
	}
	return at
}

func (c *Collection) nameOf(t int) string { return c.tables[t].options.Table }

// routeFor returns the route for the samples of a batch.
func (c *Collection) routeFor(j *Jagged) *route {
	var batch, some uint
	for axis, a := range c.mesh.Axes() {
		if a.Size > 1 && j.batch.Placement(axis).IsShard() {
			batch |= 1 << axis
		}
	}
	if r, ok := c.routes[batch]; ok {
		return r
	}
	weights := make([]*dtensor.Tensor, len(c.tables))
	for t, table := range c.tables {
		weights[t] = table.weight
		some |= shardedOver(table.weight, 0, 1)
	}
	r := newRoute(c.mesh, weights, batch, batch&some, some)
	c.routes[batch] = r
	return r
}
