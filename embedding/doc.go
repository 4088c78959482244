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
// messages are and whether some rank has an id that the table has not. So every rank
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
// # Keys instead of row numbers
//
// A Dynamic is a table whose rows have 64-bit keys, any integers, and come and go within
// a budget of memory. It is looked up and trained as a Table is.
package embedding
