// Package serve answers lookups in embedding tables that a training job exports: in
// another process, from files that are mapped, without copying a row.
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
//	users.table.1    Update: the rows that had changed by then, and the keys that were gone
//	users.table.2    Update again: those that had changed since
//
// Each is written under another name, made durable and then renamed. So a reader finds all
// of it or none, whatever happens to the writer, and a Table is what the files were when it
// was opened or reloaded: no lookup sees half an update. Write begins anew; updates of the
// table before it have another number in them and do not count any more. One process at a
// time may write a table.
//
// A file is little-endian: a header of 4096 bytes, the rows in float32, their keys in
// int64, and places of a hash table in uint32, the row plus one or 0. A table whose keys
// are 0, 1, 2, … has neither keys nor places. The header has its own CRC-32C and the size
// of the file, which Open compares: files that are cut off, of another format or version,
// and damaged headers are errors. Verify compares the checksum of all the rest, which takes
// as long as to read it.
//
// A file must not be changed in place or cut while it is mapped: the system ends processes
// that read what is not there. Write and Update never do that.
package serve
