#pragma once
#include <string>

#include "shim.h"

// fake_run carries out a launch of one-dimensional grids and blocks; the result is
// what is wrong, empty if nothing is.
std::string fake_run(const FakeKernel &k, unsigned grid, unsigned block, char *args);

// fake_real returns where device memory really is, nullptr for an address that is
// not n bytes of a live allocation.
char *fake_real(uint64_t address, uint64_t bytes);

// A FakeNow is what the checks know of the thread of a kernel that runs.
struct FakeNow {
	bool running;           // a kernel does
	uint32_t launch, block; // the first block of the launch, and this one; blocks are numbered from 1 on
	unsigned first;         // blockIdx of the launch's first block
	uint32_t time, barrier; // the block's clock, and what it said when all met at a barrier
	unsigned thread;
	uint32_t *met; // what it said when each lane of the thread's warp last met it in __syncwarp
	uint64_t stacks, stack_bytes; // of all threads
};
extern FakeNow fake_now;

// fake_stop ends a launch because something is wrong.
[[noreturn]] void fake_stop(const std::string &wrong);

// The checks are told of the memory that all devices have, of what is allocated of it
// and given back, and of what is written by others than kernels.
void fake_memory(const void *start, uint64_t bytes);
void fake_live(const void *p, uint64_t bytes, bool live);
void fake_written(const void *p, uint64_t bytes);
void fake_copied(const void *to, const void *from, uint64_t bytes);
