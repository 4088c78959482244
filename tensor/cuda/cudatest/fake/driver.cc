// A CUDA driver without a GPU: libcuda's entry points over the memory of the
// process. It is stricter than a real one where that finds mistakes:
//
//   - what lies on the device has addresses that the process cannot touch;
//   - fresh memory is 0xff, and the bytes around an allocation are checked;
//   - a stream does nothing before somebody waits for it;
//   - a kernel's parameters must be those of the PTX, of its own source and of the
//     launch, and each address among them one of a live allocation;
//   - a kernel with a race, an access outside an allocation or a wrong barrier fails,
//     see check.cc;
//   - a call without a current context fails;
//   - what another process has mapped can be read, not written.
//
// GORUN_FAKE_GPUS is the number of devices (2), GORUN_FAKE_MEMORY the bytes of each
// (256 MiB), GORUN_FAKE_SEED chooses the order of threads, GORUN_FAKE_FAIL names a
// kernel that is to fail, and with GORUN_FAKE_REACHABLE=1 the process can touch what
// lies on the device, as a CUDA-aware library can. With GORUN_FAKE_IPC=1 the processes
// on device 1 cannot map the memory of others. GORUN_FAKE_VERSION=11040 and
// GORUN_FAKE_CAPABILITY=75 are what driver and devices say of themselves,
// GORUN_FAKE_CUBLAS=1 is the status of cublasCreate.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "fake.h"

typedef int CUresult;
enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, NO_BINARY_FOR_GPU = 209, PEER_ACCESS_UNSUPPORTED = 217, INVALID_PTX = 218, NOT_FOUND = 500, ILLEGAL_ADDRESS = 700, LAUNCH_FAILED = 719 };

struct Event {
	uint64_t mark;
	struct Stream *stream;
	double at;
};

struct Stream {
	std::deque<std::function<void()>> work;
	uint64_t queued = 0, done = 0;
	void drain(uint64_t to) {
		while (done < to && !work.empty()) {
			auto f = std::move(work.front());
			work.pop_front();
			done++;
			f();
		}
	}
};

struct Module {
	std::map<std::string, std::vector<std::pair<size_t, size_t>>> entries; // size and alignment of each parameter
};

static std::recursive_mutex lock;
#define LOCKED std::lock_guard<std::recursive_mutex> guard(lock)

static std::map<std::string, FakeKernel> &kernels() {
	static std::map<std::string, FakeKernel> k;
	return k;
}
void fake_register(FakeKernel k) { kernels()[k.name] = k; }

static const uint64_t guardBytes = 256;
static bool initialized;
static int count;
static uint64_t capacity; // of a device
static char *shown, *real; // what the process is told, and where it is
static int memory;         // the file that is there, which others map
static CUresult broken;    // sticky, as on a device
static std::string why;    // the last error, and its code
static CUresult whyCode;
static thread_local int current = -1;

struct Piece {
	uint64_t bytes;
};
struct Device {
	std::map<uint64_t, Piece> live; // by offset in the device
	uint64_t used = 0;
};
static Device devices[16];

static std::map<char *, size_t> registered; // host memory

// A Mapped is memory of another process, by the address that this one is told.
struct Mapped {
	uint64_t bytes;
	char *real;
	size_t length; // of the mapping
};
static std::map<uint64_t, Mapped> mapped;

// A Handle is what a CUipcMemHandle holds.
struct Handle {
	int pid, fd;
	uint64_t offset, bytes;
	char rest[64 - 24];
};

static CUresult fail(CUresult code, const std::string &what) {
	fprintf(stderr, "fake CUDA driver: %s\n", what.c_str());
	why = what;
	return whyCode = code;
}
static void crash(CUresult code, const std::string &what) {
	if (!broken) broken = fail(code, what);
}

char *fake_real(uint64_t address, uint64_t bytes) {
	uint64_t at = address - (uint64_t)shown;
	if (at >= capacity * count) return nullptr;
	Device &d = devices[at / capacity];
	uint64_t off = at % capacity;
	auto it = d.live.upper_bound(off);
	if (it == d.live.begin()) return nullptr;
	--it;
	if (off + bytes > it->first + it->second.bytes) return nullptr;
	return real + at;
}

// readable is fake_real for memory that may be another process's.
static const char *readable(uint64_t address, uint64_t bytes) {
	auto it = mapped.upper_bound(address);
	if (it != mapped.begin()) {
		--it;
		if (address + bytes <= it->first + it->second.bytes) return it->second.real + (address - it->first);
	}
	return fake_real(address, bytes);
}

#define BEGIN                                   \
	LOCKED;                                     \
	if (!initialized) return NOT_INITIALIZED;   \
	if (broken) return broken;                  \
	if (current < 0) return INVALID_CONTEXT;

// A CUdevice is not the ordinal that it is got by.
static const int firstHandle = 70;
#define DEVICE                                        \
	if (!initialized) return NOT_INITIALIZED;     \
	d -= firstHandle;                             \
	if (d < 0 || d >= count) return INVALID_DEVICE;

static Stream defaultStream;
static Stream *on(Stream *s) { return s ? s : &defaultStream; }

static void later(Stream *s, std::function<void()> f) {
	s = on(s);
	s->work.push_back(std::move(f));
	s->queued++;
}

#pragma GCC visibility push(default)
extern "C" {

CUresult cuInit(unsigned) {
	LOCKED;
	if (initialized) return count ? OK : NO_DEVICE;
	const char *n = getenv("GORUN_FAKE_GPUS"), *m = getenv("GORUN_FAKE_MEMORY"), *v = getenv("CUDA_VISIBLE_DEVICES");
	count = n ? atoi(n) : 2;
	if (v) { // as many as there are numbers in it, up to the first that no GPU has
		int listed = 0;
		for (const char *p = v; *p; p++) {
			if (*p < '0' || *p > '9' || (p != v && p[-1] != ',')) continue;
			if (atoi(p) >= count) break;
			listed++;
		}
		count = listed;
	}
	if (!count) return NO_DEVICE;
	capacity = m ? strtoull(m, nullptr, 10) : 256ull << 20;
	const char *reachable = getenv("GORUN_FAKE_REACHABLE");
	memory = memfd_create("fake device", MFD_CLOEXEC);
	if (memory < 0 || ftruncate(memory, capacity * count)) return OUT_OF_MEMORY;
	real = (char *)mmap(nullptr, capacity * count, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory, 0);
	shown = reachable && atoi(reachable) ? real : (char *)mmap(nullptr, capacity * count, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (shown == MAP_FAILED || real == MAP_FAILED) return OUT_OF_MEMORY;
	fake_memory(real, capacity * count);
	initialized = true;
	return OK;
}

CUresult cuDriverGetVersion(int *v) {
	const char *as = getenv("GORUN_FAKE_VERSION");
	*v = as ? atoi(as) : 11080;
	return OK;
}

CUresult cuDeviceGetCount(int *n) {
	if (!initialized) return NOT_INITIALIZED;
	*n = count;
	return OK;
}

CUresult cuDeviceGet(int *d, int ordinal) {
	if (!initialized) return NOT_INITIALIZED;
	if (ordinal < 0 || ordinal >= count) return INVALID_DEVICE;
	*d = ordinal + firstHandle;
	return OK;
}

CUresult cuDeviceGetName(char *name, int n, int d) {
	DEVICE
	snprintf(name, n, "fake GPU %d", d);
	return OK;
}

CUresult cuDeviceGetAttribute(int *v, int attribute, int d) {
	DEVICE
	const char *as = getenv("GORUN_FAKE_CAPABILITY");
	int capability = as ? atoi(as) : 80;
	switch (attribute) {
	case 16: *v = 2; return OK; // multiprocessors
	case 75: *v = capability / 10; return OK;
	case 76: *v = capability % 10; return OK;
	}
	return INVALID_VALUE;
}

CUresult cuDevicePrimaryCtxRetain(void **ctx, int d) {
	DEVICE
	*ctx = (void *)(intptr_t)(d + 1);
	return OK;
}

// What was broken works again; the allocations are gone.
CUresult cuDevicePrimaryCtxReset_v2(int d) {
	LOCKED;
	DEVICE
	for (auto &it : devices[d].live) fake_live(real + d * capacity + it.first, it.second.bytes, false);
	devices[d] = Device();
	broken = OK;
	return OK;
}

CUresult cuCtxSetCurrent(void *ctx) {
	current = (int)(intptr_t)ctx - 1;
	return OK;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
	BEGIN
	*free = capacity - devices[current].used;
	*total = capacity;
	return OK;
}

CUresult cuMemAlloc_v2(uint64_t *p, size_t bytes) {
	BEGIN
	if (!bytes) return INVALID_VALUE;
	Device &d = devices[current];
	uint64_t need = (bytes + 255) / 256 * 256 + 2 * guardBytes, at = 0;
	for (auto &it : d.live) { // first fit
		if (it.first - guardBytes >= at + need) break;
		at = it.first + (it.second.bytes + 255) / 256 * 256 + guardBytes;
	}
	if (at + need > capacity) return OUT_OF_MEMORY;
	d.live[at + guardBytes] = {bytes};
	d.used += bytes;
	memset(real + current * capacity + at, 0xff, need);
	fake_live(real + current * capacity + at + guardBytes, bytes, true);
	if (shown == real) fake_written(real + current * capacity + at + guardBytes, bytes); // who knows by whom
	*p = (uint64_t)(shown + current * capacity + at + guardBytes);
	return OK;
}

CUresult cuMemFree_v2(uint64_t p) {
	BEGIN
	uint64_t at = p - (uint64_t)shown;
	if (at >= capacity * count) return INVALID_VALUE;
	Device &d = devices[at / capacity];
	auto it = d.live.find(at % capacity);
	if (it == d.live.end()) return INVALID_VALUE;
	defaultStream.drain(defaultStream.queued);
	const unsigned char *before = (unsigned char *)real + at - guardBytes, *after = (unsigned char *)real + at + it->second.bytes;
	for (uint64_t i = 0; i < guardBytes; i++)
		if (before[i] != 0xff || after[i] != 0xff) {
			crash(ILLEGAL_ADDRESS, "something was written outside an allocation of " + std::to_string(it->second.bytes) + " bytes");
			return broken;
		}
	fake_live(real + at, it->second.bytes, false);
	d.used -= it->second.bytes;
	d.live.erase(it);
	return OK;
}

CUresult cuMemHostAlloc(void **p, size_t bytes, unsigned flags) {
	BEGIN
	if (flags || !bytes) return INVALID_VALUE;
	*p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
	return *p ? OK : OUT_OF_MEMORY;
}

CUresult cuMemHostRegister_v2(void *p, size_t bytes, unsigned flags) {
	BEGIN
	if (flags || !bytes) return INVALID_VALUE;
	for (auto &it : registered)
		if ((char *)p < it.first + it.second && it.first < (char *)p + bytes) return INVALID_VALUE;
	registered[(char *)p] = bytes;
	return OK;
}

CUresult cuMemHostUnregister(void *p) {
	BEGIN
	return registered.erase((char *)p) ? OK : INVALID_VALUE;
}

CUresult cuIpcGetMemHandle(Handle *h, uint64_t p) {
	BEGIN
	uint64_t at = p - (uint64_t)shown;
	if (at >= capacity * count) return INVALID_VALUE;
	Device &d = devices[at / capacity];
	auto it = d.live.find(at % capacity);
	if (it == d.live.end()) return INVALID_VALUE; // the real one takes any address of an allocation
	*h = Handle{getpid(), memory, at, it->second.bytes, {}};
	return OK;
}

CUresult cuIpcOpenMemHandle_v2(uint64_t *p, Handle h, unsigned flags) {
	BEGIN
	const char *deny = getenv("GORUN_FAKE_IPC");
	if (flags != 1 || !h.bytes) return INVALID_VALUE;
	if (deny && atoi(deny) == current) return PEER_ACCESS_UNSUPPORTED;
	if (h.pid == getpid()) return INVALID_CONTEXT;
	std::string path = "/proc/" + std::to_string(h.pid) + "/fd/" + std::to_string(h.fd);
	int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
	if (fd < 0) return INVALID_VALUE;
	uint64_t before = h.offset % 4096;
	size_t length = before + h.bytes;
	char *there = (char *)mmap(nullptr, length, PROT_READ, MAP_SHARED, fd, h.offset - before);
	char *told = (char *)mmap(nullptr, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	close(fd);
	if (there == MAP_FAILED || told == MAP_FAILED) return OUT_OF_MEMORY;
	*p = (uint64_t)told;
	mapped[*p] = Mapped{h.bytes, there + before, length};
	return OK;
}

CUresult cuIpcCloseMemHandle(uint64_t p) {
	BEGIN
	auto it = mapped.find(p);
	if (it == mapped.end()) return INVALID_VALUE;
	defaultStream.drain(defaultStream.queued);
	uint64_t before = (uint64_t)it->second.real % 4096;
	munmap(it->second.real - before, it->second.length);
	munmap((void *)p, it->second.length);
	mapped.erase(it);
	return OK;
}

CUresult cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t bytes, Stream *s) {
	BEGIN
	later(s, [=] {
		char *d = fake_real(dst, bytes);
		if (!d) return crash(ILLEGAL_ADDRESS, "copy to an address that is not the device's");
		memcpy(d, src, bytes);
		fake_written(d, bytes);
	});
	return OK;
}

CUresult cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t bytes, Stream *s) {
	BEGIN
	later(s, [=] {
		const char *from = readable(src, bytes);
		if (!from) return crash(ILLEGAL_ADDRESS, "copy from an address that is not the device's");
		memcpy(dst, from, bytes);
	});
	return OK;
}

CUresult cuMemcpyDtoDAsync_v2(uint64_t dst, uint64_t src, size_t bytes, Stream *s) {
	BEGIN
	later(s, [=] {
		char *d = fake_real(dst, bytes);
		const char *from = readable(src, bytes);
		if (!d || !from) return crash(ILLEGAL_ADDRESS, "copy within the device from or to an address that is not its");
		memmove(d, from, bytes);
		fake_copied(d, from, bytes);
	});
	return OK;
}

// A Rectangle is a CUDA_MEMCPY2D.
struct Rectangle {
	size_t srcX, srcY;
	unsigned srcType;
	const void *srcHost;
	uint64_t srcDevice;
	void *srcArray;
	size_t srcPitch, dstX, dstY;
	unsigned dstType;
	void *dstHost;
	uint64_t dstDevice;
	void *dstArray;
	size_t dstPitch, width, height;
};

// Only rectangles whose rows lie together.
CUresult cuMemcpy2DAsync_v2(const Rectangle *r, Stream *s) {
	const unsigned host = 1, device = 2; // CUmemorytype
	if (r->srcX || r->srcY || r->dstX || r->dstY || r->srcPitch != r->width || r->dstPitch != r->width || !r->width || !r->height) return INVALID_VALUE;
	size_t bytes = r->width * r->height;
	if (r->srcType == host && r->dstType == device) return cuMemcpyHtoDAsync_v2(r->dstDevice, r->srcHost, bytes, s);
	if (r->srcType == device && r->dstType == device) return cuMemcpyDtoDAsync_v2(r->dstDevice, r->srcDevice, bytes, s);
	return INVALID_VALUE;
}

CUresult cuMemsetD8Async(uint64_t dst, unsigned char v, size_t n, Stream *s) {
	BEGIN
	later(s, [=] {
		char *d = fake_real(dst, n);
		if (!d) return crash(ILLEGAL_ADDRESS, "fill of an address that is not the device's");
		memset(d, v, n);
		fake_written(d, n);
	});
	return OK;
}

CUresult cuStreamCreate(Stream **s, unsigned flags) {
	BEGIN
	if (flags != 1) return INVALID_VALUE; // CU_STREAM_NON_BLOCKING, the only one that is used
	*s = new Stream;
	return OK;
}

CUresult cuStreamSynchronize(Stream *s) {
	BEGIN
	s = on(s);
	s->drain(s->queued);
	return broken;
}

CUresult cuEventCreate(Event **e, unsigned flags) {
	BEGIN
	if (flags != 2) return INVALID_VALUE; // CU_EVENT_DISABLE_TIMING
	*e = new Event{0, nullptr, 0};
	return OK;
}

CUresult cuEventRecord(Event *e, Stream *s) {
	BEGIN
	e->stream = on(s);
	e->mark = e->stream->queued;
	return OK;
}

CUresult cuStreamWaitEvent(Stream *s, Event *e, unsigned flags) {
	BEGIN
	if (flags) return INVALID_VALUE;
	Stream *of = e->stream;
	uint64_t mark = e->mark;
	if (of && of != on(s)) later(s, [=] { of->drain(mark); });
	return OK;
}

// cuModuleLoadDataEx reads the entries of a module and their parameters.
CUresult cuModuleLoadDataEx(Module **m, const void *image, unsigned n, const int *options, void **values) {
	BEGIN
	if (n != 2 || options[0] != 5 || options[1] != 6) return INVALID_VALUE; // CU_JIT_ERROR_LOG_BUFFER, _SIZE_BYTES
	if (!memcmp(image, "\177ELF", 4)) return NO_BINARY_FOR_GPU; // this GPU is a CPU
	std::string text((const char *)image);
	Module *made = new Module;
	size_t at = 0;
	while ((at = text.find(".visible .entry ", at)) != std::string::npos) {
		at += strlen(".visible .entry ");
		size_t open = text.find('(', at), close = text.find(')', open);
		std::string name = text.substr(at, open - at);
		auto &params = made->entries[name];
		for (size_t p = open; (p = text.find(".param ", p)) < close;) {
			p += strlen(".param ");
			size_t align = 0, size = 0;
			if (text.compare(p, 7, ".align ") == 0) align = atoi(text.c_str() + p + 7);
			size_t end = text.find_first_of(",\n", p), bracket = text.find('[', p);
			if (align) {
				size = atoi(text.c_str() + bracket + 1);
			} else {
				size = atoi(text.c_str() + p + 2) / 8; // .u64, .f32
				align = size;
			}
			params.push_back({size, align});
			p = end;
		}
		at = close;
	}
	if (made->entries.empty()) {
		snprintf((char *)values[0], (size_t)values[1], "ptxas fatal : a module without a kernel\n");
		return INVALID_PTX;
	}
	*m = made;
	return OK;
}

CUresult cuModuleGetFunction(const FakeKernel **f, Module *m, const char *name) {
	BEGIN
	auto entry = m->entries.find(name);
	auto own = kernels().find(name);
	if (entry == m->entries.end() || own == kernels().end()) return NOT_FOUND;
	FakeKernel &k = own->second;
	size_t at = 0, i = 0;
	for (auto p : entry->second) {
		at = (at + p.second - 1) / p.second * p.second;
		if (i >= k.sizes.size() || p.first != k.sizes[i] || at != k.offsets[i])
			return fail(INVALID_PTX, std::string(name) + ": parameter " + std::to_string(i) + " of the PTX is not that of the source; run go generate");
		at += p.first;
		i++;
	}
	if (i != k.sizes.size()) return fail(INVALID_PTX, std::string(name) + ": the PTX and the source have different numbers of parameters; run go generate");
	*f = &k;
	return OK;
}

CUresult cuLaunchKernel(const FakeKernel *k, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, Stream *s, void **params, void **extra) {
	BEGIN
	if (shared || params) return INVALID_VALUE;
	if (!gx || gy != 1 || gz != 1 || bx != 256 || by != 1 || bz != 1) return INVALID_VALUE;
	if (!extra || extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4]) return INVALID_VALUE;
	size_t bytes = *(size_t *)extra[3];
	if (bytes != k->bytes) return fail(INVALID_VALUE, std::string(k->name) + ": launched with " + std::to_string(bytes) + " bytes of parameters, it has " + std::to_string(k->bytes));
	std::string args((char *)extra[1], bytes);
	later(s, [=]() mutable {
		if (broken) return;
		const char *bad = getenv("GORUN_FAKE_FAIL");
		if (bad && !strcmp(bad, k->name)) return crash(ILLEGAL_ADDRESS, std::string(k->name) + " fails, as asked");
		for (size_t i = 0; i < k->sizes.size(); i++) {
			if (!(k->pointers >> i & 1)) continue;
			uint64_t *p = (uint64_t *)&args[k->offsets[i]];
			if (!*p) continue;
			char *r = fake_real(*p, 0);
			if (!r) return crash(ILLEGAL_ADDRESS, std::string(k->name) + ": parameter " + std::to_string(i) + " is not an address of the device");
			*p = (uint64_t)r;
		}
		std::string wrong = fake_run(*k, gx, bx, &args[0]);
		if (!wrong.empty()) crash(LAUNCH_FAILED, std::string(k->name) + ": " + wrong);
	});
	return OK;
}

CUresult cuGetErrorName(CUresult code, const char **text) {
	switch (code) {
	case INVALID_VALUE: *text = "CUDA_ERROR_INVALID_VALUE"; break;
	case OUT_OF_MEMORY: *text = "CUDA_ERROR_OUT_OF_MEMORY"; break;
	case NOT_INITIALIZED: *text = "CUDA_ERROR_NOT_INITIALIZED"; break;
	case NO_DEVICE: *text = "CUDA_ERROR_NO_DEVICE"; break;
	case INVALID_CONTEXT: *text = "CUDA_ERROR_INVALID_CONTEXT"; break;
	case PEER_ACCESS_UNSUPPORTED: *text = "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"; break;
	case INVALID_PTX: *text = "CUDA_ERROR_INVALID_PTX"; break;
	case NOT_FOUND: *text = "CUDA_ERROR_NOT_FOUND"; break;
	case ILLEGAL_ADDRESS: *text = "CUDA_ERROR_ILLEGAL_ADDRESS"; break;
	case LAUNCH_FAILED: *text = "CUDA_ERROR_LAUNCH_FAILED"; break;
	default: *text = "CUDA_ERROR_UNKNOWN";
	}
	return OK;
}

CUresult cuGetErrorString(CUresult code, const char **text) {
	*text = code == whyCode ? why.c_str() : "said the fake driver";
	return OK;
}

// cuBLAS, in the same library: products by definition.

int cublasCreate_v2(void **h) {
	const char *status = getenv("GORUN_FAKE_CUBLAS");
	if (status && atoi(status)) return atoi(status);
	if (current < 0) return 1; // CUBLAS_STATUS_NOT_INITIALIZED
	*h = new Stream *(nullptr);
	return 0;
}

int cublasSetStream_v2(void *h, Stream *s) {
	*(Stream **)h = s;
	return 0;
}

int cublasSetMathMode(void *, int mode) {
	return mode == 16 ? 0 : 7; // CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
}
}

struct Half { // bfloat16
	uint16_t bits;
	operator float() const { return fake_bits<float>((uint32_t)bits << 16); }
	void operator=(float f) {
		uint32_t b = fake_bits<uint32_t>(f);
		bits = f != f ? b >> 16 | 0x40 : (b + 0x7fff + (b >> 16 & 1)) >> 16;
	}
};

template <class T, class E = T, class C = T>
static int gemm(void *h, int ta, int tb, int m, int n, int k, const T *alpha, uint64_t a, int lda, long long sa, uint64_t b, int ldb, long long sb, const T *beta, uint64_t c, int ldc, long long sc, int batch) {
	LOCKED;
	if (m < 0 || n < 0 || k < 0 || batch < 0 || lda < (ta ? k : m) || ldb < (tb ? n : k) || ldc < m || lda < 1 || ldb < 1 || ldc < 1) return 7; // CUBLAS_STATUS_INVALID_VALUE
	T al = *alpha, be = *beta;
	later(*(Stream **)h, [=] {
		const E *pa = (E *)fake_real(a, 0), *pb = (E *)fake_real(b, 0);
		C *pc = (C *)fake_real(c, 0);
		if (!pa || !pb || !pc) return crash(ILLEGAL_ADDRESS, "cuBLAS was given an address that is not the device's");
		for (int z = 0; z < batch; z++)
			for (int j = 0; j < n; j++)
				for (int i = 0; i < m; i++) {
					T sum = 0;
					for (int p = 0; p < k; p++) sum += (T)pa[z * sa + (ta ? p + (long long)i * lda : i + (long long)p * lda)] * (T)pb[z * sb + (tb ? j + (long long)p * ldb : p + (long long)j * ldb)];
					C *to = pc + z * sc + i + (long long)j * ldc;
					*to = be == 0 ? al * sum : al * sum + be * (T)*to;
					fake_written(to, sizeof *to);
				}
	});
	return 0;
}

#pragma GCC visibility push(default)
extern "C" {
int cublasSgemmStridedBatched(void *h, int ta, int tb, int m, int n, int k, const float *alpha, uint64_t a, int lda, long long sa, uint64_t b, int ldb, long long sb, const float *beta, uint64_t c, int ldc, long long sc, int batch) { return gemm(h, ta, tb, m, n, k, alpha, a, lda, sa, b, ldb, sb, beta, c, ldc, sc, batch); }
int cublasDgemmStridedBatched(void *h, int ta, int tb, int m, int n, int k, const double *alpha, uint64_t a, int lda, long long sa, uint64_t b, int ldb, long long sb, const double *beta, uint64_t c, int ldc, long long sc, int batch) { return gemm(h, ta, tb, m, n, k, alpha, a, lda, sa, b, ldb, sb, beta, c, ldc, sc, batch); }

int cublasGemmStridedBatchedEx(void *h, int ta, int tb, int m, int n, int k, const void *alpha, uint64_t a, int at, int lda, long long sa, uint64_t b, int bt, int ldb, long long sb, const void *beta, uint64_t c, int ct, int ldc, long long sc, int batch, int compute, int algo) {
	const int real32 = 0, realBF16 = 14, compute32 = 68, algoDefault = -1;
	if (at != realBF16 || bt != realBF16 || (ct != real32 && ct != realBF16) || compute != compute32 || algo != algoDefault) return 15; // CUBLAS_STATUS_NOT_SUPPORTED
	auto f = ct == real32 ? gemm<float, Half, float> : gemm<float, Half, Half>;
	return f(h, ta, tb, m, n, k, (const float *)alpha, a, lda, sa, b, ldb, sb, (const float *)beta, c, ldc, sc, batch);
}
}
