// Package checkpoint saves the tensors of a running job and loads them again,
// under any other number of ranks, mesh, placement or element type.
//
// The primary types are State, which names what a program has to remember, and
// Store, which keeps checkpoints of it in a folder:
//
//	var state checkpoint.State
//	state.AddTensors("model.", model.Params())
//	for _, s := range optimizer.State() {
//		state.AddTensor(fmt.Sprintf("optimizer.%s.%d", s.Name, s.Param), s.Tensor)
//	}
//	store, err := checkpoint.Open(ctx, world, dir, checkpoint.Options{Keep: 3})
//	...
//	first, _, err := store.Resume(ctx, &state) // step 0 if there is nothing yet
//	...
//	optimizer.SetSteps(first)
//	for step := first; step < steps; step++ {
//		... // one step: the tensors of state change in place
//		if (step+1)%every == 0 {
//			err := store.Save(ctx, step+1, &state) // returns once they are copied
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
// Let one job at a time save there.
//
// # What is on disk
//
//	root/step-000123/index.json               what there is, and where
//	root/step-000123/rank-00000.safetensors   the shards that rank 0 wrote
//	root/step-000123/rank-00001.safetensors   …
//
// Each shard is written once; of those that several ranks hold each rank writes
// its part. A file is an ordinary safetensors file, and one of a single rank holds
// whole tensors. The index has, for each tensor, its global shape, element type and
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
// is durable.
//
// # Errors
//
// Every error names the file and the byte or tensor, and is the same on all ranks:
// what one rank alone saw is told to the others at the end of the call, which is
// when they return it too, and the communicator stays usable. Nothing is trusted
// that comes from a file: no path leads out of the folder, and no size in it is
// believed before it was compared with the file's.
//
// # Asynchronous save
//
// Save copies this rank's shards into host memory, which it keeps for the next
// save, and returns. The rest runs in a goroutine, on a communicator of the
// store's own. A second Save waits for the first: if steps are faster than the
// disk, save less often.
//
// # Plain safetensors models
//
// Load reads models of others too, one file or several with a Hugging Face index,
// each rank only what its shards need. Export writes one file of whole tensors,
// without any rank holding them all.
package checkpoint
