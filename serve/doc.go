// Package serve looks rows up in embedding tables that a training job exports. It runs in
// another process and maps the files, so that no row is copied.
//
//	live, err := serve.Open("users.table")
//	...
//	live.View(func(t *serve.Table) {
//		row, ok := t.Row(key)                          // []float32, in the file's memory
//		t.Bag(x, serve.Mean, key1, key2)               // x [D]
//		best := t.TopK(query, 10)                      // the keys with the largest inner products
//	})
//	...
//	changed, err := live.Reload() // now and then: takes what was exported since
//
// The package needs nothing else of this module, and nothing outside Go's library.
//
// # Files
//
//	users.table      Write: all rows
//	users.table.1    Update: the rows that changed since Write, and the keys that were removed
//	users.table.2    Update again: those since the first update
//
// Each file is written under another name, made durable and then renamed. So a reader finds
// a whole file or none, whatever happens to the writer, and a Table stays as the files were
// when it was opened or reloaded: no lookup sees half an update. Write begins a new table
// with a number of its own; readers ignore updates of the old table, which carry the old
// number. One process at a time may write a table.
//
// A file is little-endian: a header of 4096 bytes, the rows in float32, their keys in
// int64, and the slots of a hash table in uint32, each the number of a row plus one, or 0.
// A table whose keys are 0, 1, 2, … has neither keys nor slots. The header has its own
// CRC-32C and the size of the file, which Open checks: a truncated file, another format or
// version and a damaged header are errors. Verify checks the CRC-32C of the rest, for which
// it reads the whole file.
//
// A file must not be changed in place or truncated while it is mapped: the system kills a
// process that reads a page that the file no longer has. Write and Update never do that.
package serve
