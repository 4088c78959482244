// Package gorun is SPMD in Go: one program, started as N ranks that compute
// together. It holds no code; its parts are
//
//	cmd/gorun    starts N copies of a program and watches over them
//	runtime      what a rank runs in: Main, the world communicator, logs
//	comm         collectives between ranks, over goroutines, shared memory or MPI
//	tensor       dense arrays on one rank
//	dtensor      tensors over a mesh of ranks: placements, Redistribute, operators, gradients
//	embedding    sharded tables;  loss  sharded losses;  optim  optimizers;  nn  layers
//	checkpoint   sharded saves that survive a crash and load under any other layout
//	examples     numbered, each adds one idea; examples/train is the main job
//
// # Notation
//
// The comment beside a tensor is its global shape and one placement for each
// axis of its mesh:
//
//	h := table.Lookup(ids)   // [B, T, C] S(0),MaskP
//	h = h.Reduced()          // [B, T, C] S(0),R
//
// S(i) shards dimension i, R replicates, P(sum) is a sum of what the ranks hold,
// and in MaskP each row is held by one rank. B is the batch, T time, C channels,
// V the vocabulary, N rows, D features, H hidden features.
//
// # The rule
//
// A layout never changes a result: an operator on shards gives what it gives on
// the whole, or refuses with an error that says what to do.
package gorun
