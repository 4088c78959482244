// Package meta is a device whose tensors have shapes and types, and no numbers.
//
// A program that computes on it makes the tensors, the memory and the kernels that it makes on
// a CPU, and none of the work: memory is addresses that nobody touches, and a kernel counts what
// it would have computed and moved. What a program decides by is real:
//
//	integers, Bool   what the program wrote; kernels compute with them as on a CPU
//	floats           nothing: the host reads zeros, if it may read (see Config.Read)
//	integers from    TopK: the first classes, spread evenly over the rows;
//	floats           comparisons and casts: zeros
//
// A Device is the memory of one rank, as one of another kind is: one goroutine computes on it.
package meta
