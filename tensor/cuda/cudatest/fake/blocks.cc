// Runs the blocks of a launch: each thread of a block is a coroutine with a stack
// of its own, entered in a random order and left at every barrier. What is not
// ordered by a barrier so happens in another order each time.
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <random>
#include <string>

#include "fake.h"

dim3u threadIdx, blockIdx, blockDim, gridDim;

namespace {

enum State { READY, AT_BARRIER, AT_WARP, DONE };

struct Thread {
	State state;
	int line;     // of the barrier
	void *slot;   // what it shows its warp
	void **slots; // where it wants those of the others
	jmp_buf at;
	bool started; // it has a stack, and at is where it goes on
	ucontext_t first;
};

const size_t stackBytes = 64 << 10;
const unsigned maxThreads = 1024;
Thread threads[maxThreads];
char *stacks;
jmp_buf scheduler;
unsigned now; // the thread that runs
const FakeKernel *kernel;
char *arguments;
std::mt19937_64 chance(1);
bool seeded;

// body is a coroutine's whole life: one kernel after the other.
void body() {
	for (;;) {
		kernel->call(*kernel, arguments);
		threads[now].state = DONE;
		if (!_setjmp(threads[now].at)) _longjmp(scheduler, 1);
	}
}

// enter runs thread t until it waits or ends.
void enter(unsigned t) {
	now = t;
	threadIdx = {t, 0, 0};
	if (_setjmp(scheduler)) return;
	Thread &th = threads[t];
	if (th.started) _longjmp(th.at, 1);
	th.started = true;
	getcontext(&th.first);
	th.first.uc_stack.ss_sp = stacks + t * stackBytes;
	th.first.uc_stack.ss_size = stackBytes;
	th.first.uc_link = nullptr;
	makecontext(&th.first, body, 0);
	setcontext(&th.first);
}

void leave(State s) {
	threads[now].state = s;
	if (!_setjmp(threads[now].at)) _longjmp(scheduler, 1);
}

// release lets the threads [lo, hi) go on if all wait at one barrier, and says what
// is wrong if they cannot.
bool release(unsigned lo, unsigned hi, State s, std::string *wrong) {
	for (unsigned t = lo; t < hi; t++) {
		if (threads[t].state != s) return false;
		if (s == AT_BARRIER && threads[t].line != threads[lo].line) {
			*wrong = "threads wait at different barriers";
			return false;
		}
	}
	if (s == AT_WARP)
		for (unsigned t = lo; t < hi; t++)
			for (unsigned k = lo; k < hi; k++) threads[t].slots[k - lo] = threads[k].slot;
	for (unsigned t = lo; t < hi; t++) threads[t].state = READY;
	return true;
}

bool block(unsigned n, std::string *wrong) {
	for (unsigned t = 0; t < n; t++) {
		threads[t].state = READY;
	}
	for (;;) {
		bool ran = false;
		// A cheap random order: a random start, step and direction.
		unsigned first = chance() % n, step = (chance() % 2) ? 1 : n - 1;
		for (unsigned k = 0, t = first; k < n; k++, t = (t + step) % n)
			if (threads[t].state == READY) {
				enter(t);
				ran = true;
			}
		unsigned done = 0;
		for (unsigned t = 0; t < n; t++) done += threads[t].state == DONE;
		if (done == n) return true;
		bool freed = release(0, n, AT_BARRIER, wrong);
		for (unsigned w = 0; w < n; w += 32) freed |= release(w, w + 32 < n ? w + 32 : n, AT_WARP, wrong);
		if (!wrong->empty()) return false;
		if (!ran && !freed) {
			*wrong = done ? "some threads ended while others wait at a barrier" : "threads wait for each other";
			return false;
		}
	}
}

}  // namespace

void fake_barrier(int line) {
	threads[now].line = line;
	leave(AT_BARRIER);
}

void fake_warp(void *slots[32], void *mine) {
	threads[now].slots = slots;
	threads[now].slot = mine;
	leave(AT_WARP);
}

// fake_run carries out a launch; the result is what is wrong, empty if nothing is.
std::string fake_run(const FakeKernel &k, unsigned grid, unsigned block_, char *args) {
	if (!stacks) {
		stacks = (char *)mmap(nullptr, maxThreads * stackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (stacks == MAP_FAILED) return "no memory for stacks";
	}
	if (!seeded) {
		seeded = true;
		const char *s = getenv("GORUN_FAKE_SEED");
		chance.seed(s ? strtoull(s, nullptr, 10) : std::random_device{}());
	}
	kernel = &k;
	arguments = args;
	gridDim = {grid, 1, 1};
	blockDim = {block_, 1, 1};
	std::string wrong;
	unsigned first = chance() % grid;
	for (unsigned b = 0; b < grid; b++) {
		blockIdx = {(b + first) % grid, 0, 0};
		if (!block(block_, &wrong)) {
			for (Thread &t : threads) t.started = false; // some are still in the middle
			return wrong;
		}
	}
	return wrong;
}
