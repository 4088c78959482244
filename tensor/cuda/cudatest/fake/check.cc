// Looks at every access that a kernel makes to global and shared memory. The kernels
// are compiled with -fsanitize=thread, which calls a function before each, and with
// -fsanitize=bounds-strict, which calls one where the index of an array is too large;
// the functions are these, not those of the compiler's runtime. Reported are
//
//   - two accesses to the same byte by different threads, one of them at least not
//     atomic and one at least no read, that nothing orders: in one block a barrier
//     does, in one warp __syncwarp, between blocks nothing. Shuffles order no memory,
//     and lanes of a warp do not run in step;
//   - accesses outside a live allocation, or of a wrong alignment;
//   - reads of what nothing has written: since the allocation, or in shared memory
//     since the block began.
//
// Where a struct that a function returns goes straight to memory, as in a[i] = f(), the
// compiler calls nothing: the store is not seen. It has to have a name first.
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <string>

#include "fake.h"

namespace {

enum Kind : uint8_t { READ, WRITE, ATOMIC };

// An Access is one of those to a word that later ones are compared with.
struct Access {
	uint32_t block, time; // see FakeNow
	uint32_t pc;          // in this library
	uint16_t thread;
	uint8_t bytes; // of the word, a bit each
	Kind kind;
};

// A Word is 8 bytes of memory, with the accesses to it that are not done with: first
// those of this launch, or in shared memory of this block. When there is no room for
// one more, one is forgotten.
struct Word {
	Access seen[4];
};

// A Space is a kind of memory.
struct Space {
	const char *name;
	uint64_t start, bytes;
	Word *words;
	uint8_t *live;        // the bytes of each word that are in an allocation; null if all are
	uint8_t *written;     // those that something has written
	uint32_t *written_by; // the block that has; null: any
};
Space global = {"global"}, shared = {"shared"}, unknown = {"unknown"};

uint64_t base; // where this library lies

template <class T>
T *zeros(uint64_t n) {
	void *p = mmap(nullptr, n * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED) {
		perror("fake CUDA driver: memory for the checks");
		abort();
	}
	return (T *)p;
}

// find_shared finds the variables of this library, among them those that are shared.
int find_shared(dl_phdr_info *info, size_t, void *here) {
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) &p = info->dlpi_phdr[i];
		uint64_t start = info->dlpi_addr + p.p_vaddr;
		if (p.p_type != PT_LOAD || !(p.p_flags & PF_W) || (uint64_t)here - start >= p.p_memsz) continue;
		base = info->dlpi_addr;
		shared.start = start / 8 * 8;
		shared.bytes = start + p.p_memsz - shared.start;
		return 1;
	}
	return 0;
}

// place says where in the source a call was made.
std::string place(uint32_t pc) {
	Dl_info self;
	char command[4200], line[4096];
	if (!dladdr((void *)find_shared, &self)) return "?";
	snprintf(command, sizeof command, "addr2line -e '%s' %#x 2>&1", self.dli_fname, pc - 1);
	FILE *f = popen(command, "r");
	std::string at = f && fgets(line, sizeof line, f) ? line : "?";
	if (f) pclose(f);
	at = at.substr(at.rfind('/') + 1);
	return at.substr(0, at.find_first_of(" \n"));
}

std::string who(uint32_t block, unsigned thread) {
	return "thread " + std::to_string(thread) + " of block " + std::to_string((block - fake_now.launch + fake_now.first) % gridDim.x);
}

const char *verb(Kind k) { return k == READ ? "reads" : k == WRITE ? "writes" : "updates"; }

[[noreturn]] void report(const std::string &what) {
	fake_now.running = false;
	fake_stop(who(fake_now.block, fake_now.thread) + " " + what);
}

[[noreturn]] void report(const Space &s, uint64_t size, Kind k, uint32_t pc, const std::string &what) {
	report(verb(k) + (" " + std::to_string(size)) + " bytes of " + s.name + " memory at " + place(pc) + ", " + what);
}

// ordered reports whether what the thread that runs does now comes after a for sure.
bool ordered(const Access &a) {
	return a.block == fake_now.block &&
	       (a.thread == fake_now.thread || a.time < fake_now.barrier ||
	        (a.thread / 32 == fake_now.thread / 32 && a.time < fake_now.met[a.thread % 32]));
}

// look compares an access to some bytes of a word with those before.
void look(const Space &s, Word &w, uint8_t bytes, uint64_t size, Kind kind, uint32_t pc) {
	static unsigned chance;
	uint32_t since = s.written_by ? fake_now.block : fake_now.launch;
	Access *room = nullptr;
	for (Access &a : w.seen) {
		if (a.block < since) {
			if (!room) room = &a;
			break;
		}
		if (ordered(a)) {
			if (!(a.bytes & ~bytes) && (kind == WRITE || a.kind == kind)) room = &a; // the new one stands for it
		} else if (a.bytes & bytes && (a.kind != kind || kind == WRITE)) {
			report(s, size, kind, pc, "which " + who(a.block, a.thread) + " " + verb(a.kind) + " at " + place(a.pc) + ": nothing orders them");
		}
	}
	if (!room) room = &w.seen[chance++ % 4];
	*room = Access{fake_now.block, fake_now.time, pc, (uint16_t)fake_now.thread, bytes, kind};
}

void access(uint64_t address, uint64_t size, Kind kind, uint64_t caller) {
	if (!fake_now.running || address - fake_now.stacks < fake_now.stack_bytes) return;
	uint32_t pc = (uint32_t)(caller - base);
	Space &s = address - global.start < global.bytes ? global : shared;
	if (address - s.start >= s.bytes) report(unknown, size, kind, pc, "which is none of the device's");
	if (!s.words) s.words = zeros<Word>(s.bytes / 8 + 1);
	if (size <= 16 && address % size) report(s, size, kind, pc, "whose address is no multiple of that");
	for (uint64_t at = address - s.start, end = at + size; at < end;) {
		uint64_t w = at / 8, from = at % 8, to = end - w * 8 < 8 ? end - w * 8 : 8;
		uint8_t bytes = (uint8_t)((1u << to) - (1u << from));
		if (s.live && bytes & ~s.live[w]) report(s, size, kind, pc, "outside of what is allocated");
		if (s.written_by && s.written_by[w] != fake_now.block) {
			s.written_by[w] = fake_now.block;
			s.written[w] = 0;
		}
		if (kind == WRITE) s.written[w] |= bytes;
		else if (bytes & ~s.written[w]) report(s, size, kind, pc, "which nothing has written");
		look(s, s.words[w], bytes, size, kind, pc);
		at = (w + 1) * 8;
	}
}

// mark sets or clears bytes of global memory.
void mark(uint8_t *of, uint64_t at, uint64_t bytes, bool set) {
	for (uint64_t end = at + bytes; at < end;) {
		uint64_t w = at / 8, from = at % 8, to = end - w * 8 < 8 ? end - w * 8 : 8;
		uint8_t m = (uint8_t)((1u << to) - (1u << from));
		of[w] = set ? of[w] | m : of[w] & ~m;
		at = (w + 1) * 8;
	}
}

}  // namespace

void fake_memory(const void *start, uint64_t bytes) {
	global.start = (uint64_t)start;
	global.bytes = bytes;
	global.live = zeros<uint8_t>(bytes / 8 + 1);
	global.written = zeros<uint8_t>(bytes / 8 + 1);
	static int here;
	dl_iterate_phdr(find_shared, &here);
	shared.written = zeros<uint8_t>(shared.bytes / 8 + 1);
	shared.written_by = zeros<uint32_t>(shared.bytes / 8 + 1);
}

void fake_live(const void *p, uint64_t bytes, bool live) {
	mark(global.live, (uint64_t)p - global.start, bytes, live);
	mark(global.written, (uint64_t)p - global.start, bytes, false);
}

void fake_written(const void *p, uint64_t bytes) { mark(global.written, (uint64_t)p - global.start, bytes, true); }

void fake_copied(const void *to, const void *from, uint64_t bytes) {
	uint64_t t = (uint64_t)to - global.start, f = (uint64_t)from - global.start;
	if (f >= global.bytes) return fake_written(to, bytes); // another process's
	uint64_t i = 0;
	if (t % 8 == 0 && f % 8 == 0) {
		memmove(global.written + t / 8, global.written + f / 8, bytes / 8);
		i = bytes / 8 * 8;
	}
	for (; i < bytes; i++) mark(global.written, t + i, 1, global.written[(f + i) / 8] >> (f + i) % 8 & 1);
}

void fake_atomic(const void *p, uint64_t bytes, void *caller) { access((uint64_t)p, bytes, ATOMIC, (uint64_t)caller); }
void fake_read(const void *p, uint64_t bytes, void *caller) { access((uint64_t)p, bytes, READ, (uint64_t)caller); }
void fake_write(const void *p, uint64_t bytes, void *caller) { access((uint64_t)p, bytes, WRITE, (uint64_t)caller); }

// What the compiler calls.
#define CALLER (uint64_t) __builtin_return_address(0)
#define ACCESSES(n)                                                                                \
	void __tsan_read##n(void *p) { access((uint64_t)p, n, READ, CALLER); }                         \
	void __tsan_write##n(void *p) { access((uint64_t)p, n, WRITE, CALLER); }                       \
	void __tsan_unaligned_read##n(void *p) { access((uint64_t)p, n, READ, CALLER); }               \
	void __tsan_unaligned_write##n(void *p) { access((uint64_t)p, n, WRITE, CALLER); }

extern "C" {
// A volatile read is one that waits for another thread's atomic.
#define VOLATILE(n) void __tsan_volatile_read##n(void *p) { access((uint64_t)p, n, ATOMIC, CALLER); }
VOLATILE(4)
VOLATILE(8)
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
void __tsan_read_range(void *p, long n) { access((uint64_t)p, n, READ, CALLER); }
void __tsan_write_range(void *p, long n) { access((uint64_t)p, n, WRITE, CALLER); }
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __ubsan_handle_out_of_bounds(void *, void *index) {
	if (fake_now.running) report("takes element " + std::to_string((long long)index) + " of an array that has none, at " + place((uint32_t)(CALLER - base)));
}
}
