// Package checkpoint saves the tensors of a running job and loads them again,
// under any other number of ranks, mesh, placement or element type.
//
// The primary types are State, which names what a program has to remember, and
// Store, which keeps checkpoints of it in a folder:
//
//	var state checkpoint.State
//	state.AddTensors("model.", model.Params())
//	state.AddTensors("optimizer.", optimizer.State())
//	store, err := checkpoint.Open(ctx, world, dir, checkpoint.Options{Keep: 3})
//	...
//	first, _, err := store.Resume(ctx, &state) // step 0 if there is nothing yet
//	...
//	for step := first; step < steps; step++ {
//		... // one step: the tensors of state change in place
//		if (step+1)%every == 0 {
//			started, err := store.TrySave(ctx, step+1, &state) // returns once they are copied
//			...
//		}
//	}
//	err = store.Wait()
//
// # Your duties
//
// All ranks of the communicator make the same calls in the same order, with
// States of the same names. Load and Resume write into tensors, so make these
// first, as if to begin afresh. Call Wait before the program ends, or the last
// save may not complete. On several hosts the folder is one that all of them see.
// One job at a time may save there: it has a lock, and Open refuses the others.
//
// # What is on disk
//
//	root/lock                                 which process saves here, and its lock
//	root/step-000123/index.json               what there is, and where
//	root/step-000123/rank-00000.safetensors   the shards that rank 0 wrote
//	root/step-000123/rank-00001.safetensors   …
//
// Each shard is written once; of those that several ranks hold each rank writes
// its part. Tables of several shards a rank (dtensor.LocalShards) are written
// shard by shard, and a tensor on a sub-mesh by the ranks of that alone. A file is
// an ordinary safetensors file, and one of a single rank holds whole tensors. The
// index has, for each tensor, its global shape, element type and
// chunks: file, byte, offset and shape, and a CRC-32C for each MiB, so that what
// is read is checked even if it is a small part of a chunk. It has the CRC-32C of
// every file, and its own in its last line. Values, small things such as counters,
// are in the index. See type index for the fields.
//
// # What a crash leaves
//
// A checkpoint is written as step-000123.tmp. Its files are made durable, then the
// index, then the folder gets its name: until then it does not count, and List and
// Resume do not see it. So whatever happens at whatever point of a save, the last
// complete checkpoint is there and loads. The next save removes what is left of
// one that failed. Old checkpoints go, if Options.Keep says so, after the new one
// is durable. If a disk has damaged the last one, Resume says so and loads the one
// before.
//
// # Errors
//
// Every error names the file and the byte and tensor, and is the same on all ranks:
// what one rank alone saw is told to the others at the end of the call, which is
// when they return it too, and the communicator stays usable. Nothing is trusted
// that comes from a file: no path leads out of the folder, nor does a symbolic
// link there, and no size in it is believed before it was compared with the
// file's. An index has 1 GiB at most, the header of a safetensors file and the index
// of a model 100 MB.
//
// # Asynchronous save
//
// Save copies this rank's shards into host memory, which it keeps for the next
// save, and returns. The rest runs in a goroutine, on a communicator of the
// store's own. A second Save waits for the first; TrySave does not, and saves
// nothing if the first is still under way: so no step ever takes longer than the
// copy does, and a disk that is too slow makes checkpoints rarer, not steps
// slower.
//
// # Reading
//
// The ranks of a host divide what they need of a checkpoint among themselves, so
// that each byte is read, and its checksum made, once on each host, by the rank
// that has read least so far; what others of the host need too it hands to them,
// 16 MiB at a time.
//
// # Plain safetensors models
//
// Load reads models of others too, one file or several with a Hugging Face index,
// each rank only what its shards need. Export writes them, without any rank
// holding all of a model. A Mapping tells both of them what the file has under another
// name, transposed, or as a part of a larger tensor:
//
//	o := checkpoint.LoadOptions{Map: []checkpoint.Mapping{
//		{Name: "layers.*.up.weight", File: "h.*.mlp.c_fc.weight", Transpose: true},
//	}}
package checkpoint
