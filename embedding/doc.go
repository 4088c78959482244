// Package embedding looks up rows of tables that are spread over a mesh.
//
//	table := embedding.NewTable(mesh, embedding.Config{Rows: V, Dim: D, Layout: embedding.RowWise("tp")})
//	...
//	h := table.Lookup(ids) // ids [B, T] S(0),R  →  h [B, T, D] S(0),MaskP
//
// A table is a dtensor of shape [V, D]; Lookup works on any such tensor. What a
// lookup communicates depends, for each axis of the mesh, on how the table and
// the ids lie there:
//
//	table  ids   result    forward                         gradient of the table
//	R      R     R         nothing                         nothing
//	R      S(d)  S(d)      nothing                         ids and rows to all replicas
//	S(0)   R     MaskP     nothing until it is reduced     nothing
//	S(0)   S(d)  S(d)      ids to their owners, rows back  rows to their owners
//	S(1)   R     S(last)   nothing                         nothing
//	S(1)   S(d)  S(d)      ids, then an all-to-all         the same back
//
// Messages hold distinct ids and requested rows only, never anything of the size of the
// table. Where ids are sharded, one more small collective tells the ranks how large the
// messages are and whether some rank has an id that the table does not have. So every rank
// reports that id, and the next batch works.
//
// # MaskP
//
// In a result that is MaskP on an axis each row has one owner: the rank that
// holds the row of the table. Redistribute to Replicate is one collective, to
// Shard one exchange. The mask belongs to the tensor: tables do not share it
// unless they are looked up with the same masked ids (ids that were
// redistributed to MaskPartial before), and a result can be reduced any number
// of times. LookupAs looks up and reduces in one, with fewer copies, where it is
// known at once how the rows are to lie.
//
// # Gradients
//
// The gradient of a table is a dtensor.Rows: the rows that were looked up and
// the sums of their gradients, in the table's own layout. Sums run over the ids
// in their order, on axes that shard the ids over the ranks in their order, so
// the same run gives the same bits.
//
// # Many tables
//
// A Collection looks up many tables at once. NewPlan chooses the layout of each from measured
// Rates; a Demand says what is known of a table, and what it may have: some kinds of layout,
// some ranks, the same as the other tables of its group. Collection.Fuse gives tables
// optimizers and rates of their own, which change them in the backward pass. JaggedOf gives
// features weights, or lists that samples share, and PositionWeights factors that are trained.
//
// # Keys instead of row numbers
//
// A Dynamic is a table whose rows have 64-bit keys, any integers, and come and go within
// a budget of memory. It is looked up and trained as a Table is, by itself or as a table of a
// Collection: see CollectionTable.Dynamic.
//
// # Tables larger than memory
//
// A table with a Store keeps its rows, and what an optimizer remembers of them, in files on
// the disks of the ranks' hosts, and some of them in memory:
//
//	users := embedding.NewTable(mesh, embedding.Config{Name: "users", Rows: 1e9, Dim: 64, Layout: embedding.RowWise("tp"),
//		Store: "/scratch", Cache: 16 << 30})
//	opt := optim.NewRowAdagrad([]*dtensor.Tensor{users.Resident()}, optim.RowAdagradConfig{})
//	users.Follow(opt.State())
//	users.Fuse(func(rows *dtensor.Rows) error { return opt.Step([]dtensor.Grad{dtensor.Sparse(rows)}, rate) })
//	state.AddTensors("users.", users.Params())
//	state.AddTensors("users.", users.State())
//	...
//	users.Prefetch(next) // what the next step needs is read while this one computes
//
// It is looked up, pooled and trained as one in memory, in a Collection too, with the same bits; one more
// collective of a number tells the ranks whether all disks have answered. It is trained by Fuse alone, with an
// optimizer that changes only the rows that were looked up: RowAdagrad, SparseAdam, and SGD and Adagrad without
// momentum and weight decay. All rows that a step changes have to fit into the Cache. Each rank has rows or parts of rows
// of its own: RowWise or ColumnWise over all axes of more than one rank, Grid, or if there is one such axis RowCyclic and TableWise.
// Where columns are divided each rank reads and writes its part of a row, of which the disks have as many more.
// Export gathers the rows some at a time.
//
// Rows that leave memory are appended to the file together, so that no write is of one row; their records before
// are dead, and are cleaned when they take a third of the file. So a file is half as large again as the rows
// that have changed or have been loaded, about, and memory has four bytes for each row of the table. On Linux
// a process maps its files, and reads from there what the system has in its cache. Such pages count as memory of the
// process in ps and in gorun top, as the system's cache, which it gives back when memory is wanted for anything else.
//
// The files are scratch: they have no names, and the disk has their room again when the process ends, however it
// does. So a crash loses what is not in a checkpoint, and nothing else. Checkpoints have the tensors
// of a table in memory; saving and loading read and write the files some megabytes at a time, and Save returns when
// that is done. As they have blocks of rows, saving a RowCyclic table first copies it into other such files. A record
// has a checksum, and the file is made durable before it is read for a checkpoint, so that writes which the system has
// lost are seen. Snapshots of an elastic job have all rows too, twice, in memory; where that does not fit, gorun's --max-restarts
// with checkpoints does without.
//
// A full disk, a disk that does not answer for two minutes, or a damaged record is a *StoreError on every
// rank, which names rank, table, row and file. No row is lost then that is still in memory: a step that could not
// bring its rows there has changed nothing, but scaled some down to their MaxNorm, and can be made again. Tables of keys
// count the keys of a step that has failed only when it is made again. StoreStats counts what the disk is asked.
package embedding
