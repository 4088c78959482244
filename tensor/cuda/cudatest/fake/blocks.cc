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
#include <vector>

#include "fake.h"

// What the kernels see as constants.
dim3u thread_index asm("threadIdx"), block_index asm("blockIdx"), block_size asm("blockDim"), grid_size asm("gridDim");

FakeNow fake_now;

namespace {

// A Copy is one that a thread has begun and not waited for.
struct Copy {
	void *to;
	unsigned bytes;
	char what[16];
};

enum State { READY, AT_BARRIER, AT_WARP, DONE };

struct Thread {
	State state;
	int line;         // of the barrier
	unsigned mask;    // of the lanes that it waits for
	bool orders;      // it does so for the sake of memory
	uint32_t met[32]; // see FakeNow
	jmp_buf at;
	std::vector<Copy> copies;
	bool started; // it has a stack, and at is where it goes on
	ucontext_t first;
};

const size_t stackBytes = 64 << 10;
const unsigned maxThreads = 1024;
Thread threads[maxThreads];
void *shown[maxThreads]; // by each thread to its warp
char *stacks;
jmp_buf scheduler;
unsigned now; // the thread that runs
const FakeKernel *kernel;
char *arguments;
std::mt19937_64 chance(1);
bool seeded;
std::string wrong; // with the launch

// body is a coroutine's whole life: one kernel after the other.
void body() {
	for (;;) {
		kernel->call(*kernel, arguments);
		if (!threads[now].copies.empty()) wrong = "a thread has ended before its copies were done";
		threads[now].state = DONE;
		if (!_setjmp(threads[now].at)) _longjmp(scheduler, 1);
	}
}

// enter runs thread t until it waits or ends.
void enter(unsigned t) {
	now = t;
	thread_index = {t, 0, 0};
	fake_now.thread = t;
	fake_now.met = threads[t].met;
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

std::string in_line(int line) { return " in line " + std::to_string(line); }

// meet lets the threads of a block of n go on if all wait at one barrier.
bool meet(unsigned n) {
	for (unsigned t = 0; t < n; t++)
		if (threads[t].state != AT_BARRIER) return false;
	for (unsigned t = 0; t < n; t++) {
		if (threads[t].line != threads[0].line) wrong = "threads wait at different barriers, lines " + std::to_string(threads[t].line) + " and " + std::to_string(threads[0].line);
		threads[t].state = READY;
	}
	fake_now.barrier = ++fake_now.time;
	return true;
}

// meet_lanes lets thread t go on, together with those that its mask names, if all of
// them wait for each other.
bool meet_lanes(unsigned t, unsigned n) {
	Thread &own = threads[t];
	unsigned first = t / 32 * 32, mask = own.mask;
	for (unsigned l = 0; l < 32; l++) {
		if (!(mask >> l & 1)) continue;
		if (first + l >= n || threads[first + l].state == DONE) wrong = "a mask names a lane that has ended" + in_line(own.line);
		if (!wrong.empty() || threads[first + l].state != AT_WARP) return false;
		if (threads[first + l].mask != mask || threads[first + l].line != own.line) wrong = "lanes of a warp wait for each other in different places or with different masks" + in_line(own.line);
	}
	fake_now.time++;
	for (unsigned l = 0; l < 32; l++) {
		if (!(mask >> l & 1)) continue;
		Thread &th = threads[first + l];
		th.state = READY;
		for (unsigned k = 0; own.orders && k < 32; k++)
			if (mask >> k & 1) th.met[k] = fake_now.time;
	}
	return true;
}

bool block(unsigned n) {
	fake_now.block++;
	fake_now.time = fake_now.barrier = 1;
	for (unsigned t = 0; t < n; t++) {
		threads[t].state = READY;
		memset(threads[t].met, 0, sizeof threads[t].met);
		threads[t].copies.clear();
	}
	for (;;) {
		bool ran = false;
		// A cheap random order: a random start, step and direction.
		unsigned first = chance() % n, step = (chance() % 2) ? 1 : n - 1;
		for (unsigned k = 0, t = first; k < n; k++, t = (t + step) % n)
			if (threads[t].state == READY) {
				enter(t);
				if (!wrong.empty()) return false;
				ran = true;
			}
		unsigned done = 0;
		for (unsigned t = 0; t < n; t++) done += threads[t].state == DONE;
		if (done == n) return true;
		bool freed = meet(n);
		for (unsigned t = 0; t < n; t++)
			if (threads[t].state == AT_WARP) freed |= meet_lanes(t, n);
		if (!wrong.empty()) return false;
		if (!ran && !freed) {
			wrong = done ? "some threads ended while others wait at a barrier" : "threads wait for each other";
			return false;
		}
	}
}

}  // namespace

void fake_barrier(int line) {
	threads[now].line = line;
	leave(AT_BARRIER);
}

void *fake_warp(int line, unsigned mask, void *mine, unsigned lane) {
	Thread &th = threads[now];
	if (!(mask >> now % 32 & 1)) fake_stop("a mask does not name its own lane" + in_line(line));
	if (!(mask >> lane % 32 & 1)) fake_stop("a shuffle reads from a lane that its mask does not name" + in_line(line));
	th.line = line;
	th.mask = mask;
	th.orders = !mine;
	shown[now] = mine;
	leave(AT_WARP);
	return shown[now / 32 * 32 + lane % 32];
}

void *fake_shown(unsigned lane) { return shown[now / 32 * 32 + lane]; }

void fake_copy(void *to, const void *from, unsigned bytes, bool zeros, void *caller) {
	Copy c = {to, bytes, {}};
	if (!zeros) {
		fake_read(from, bytes, caller);
		memcpy(c.what, from, bytes);
	}
	fake_write(to, bytes, caller);
	memset(to, 0xff, bytes);
	threads[now].copies.push_back(c);
}

void fake_copies_done(void *caller) {
	for (const Copy &c : threads[now].copies) {
		fake_write(c.to, c.bytes, caller);
		memcpy(c.to, c.what, c.bytes);
	}
	threads[now].copies.clear();
}

void fake_stop(const std::string &why) {
	wrong = why;
	leave(DONE);
	abort();
}

void fake_trap() { fake_stop("it was asked for an operation, a type or a size that it does not have"); }

std::string fake_run(const FakeKernel &k, unsigned grid, unsigned threads_, char *args) {
	if (!stacks) {
		stacks = (char *)mmap(nullptr, maxThreads * stackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (stacks == MAP_FAILED) return "no memory for stacks";
	}
	fake_now.stacks = (uint64_t)stacks;
	fake_now.stack_bytes = maxThreads * stackBytes;
	if (!seeded) {
		seeded = true;
		const char *s = getenv("GORUN_FAKE_SEED");
		chance.seed(s ? strtoull(s, nullptr, 10) : std::random_device{}());
	}
	kernel = &k;
	arguments = args;
	grid_size = {grid, 1, 1};
	block_size = {threads_, 1, 1};
	wrong.clear();
	fake_now.launch = fake_now.block + 1;
	fake_now.running = true;
	unsigned first = chance() % grid;
	fake_now.first = first;
	for (unsigned b = 0; b < grid && wrong.empty(); b++) {
		block_index = {(b + first) % grid, 0, 0};
		if (!block(threads_))
			for (Thread &t : threads) t.started = false; // some are still in the middle
	}
	fake_now.running = false;
	return wrong;
}
