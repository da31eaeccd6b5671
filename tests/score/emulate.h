/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * As much of CUDA as cuda/device.cu uses, on the CPU, so that the very source that nvcc compiles
 * is tested without a GPU.
 *
 * Kernels: the threads of a block are fibers. One runs until it must wait (__syncthreads, a
 * shuffle), then another is chosen at random; blocks come in random sequence. What relies on a
 * barrier that is not there comes out wrong in most runs. A barrier that some threads never
 * reach ends the program.
 *
 * Streams: calls are only queued. Work is done when somebody asks: a query does a little of it,
 * of any stream, a synchronisation what it waits for. So the host is always ahead of the device.
 */
#ifndef SHADE_EMULATE_H
#define SHADE_EMULATE_H

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <ucontext.h>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#define SHADE_EMULATE
#define __global__ static
#define __device__
#define __host__
/* One block runs at a time. */
#define __shared__ static

namespace emulate
{

/* What tests change; see emulate_set(). */
struct settings {
	uint64_t random = 1;
	long devices = 1;
	long fail_in = 0;      /* the so many-th call from now fails; 0: none */
	long no_memory_in = 0; /* the same of allocations, for want of memory */
	long skip_barrier = 0; /* 1: every odd __syncthreads of a thread is left out, 2: even */
	long switches = 0;     /* so far */
};
inline settings set;
inline int last_error; /* a cudaError_t */

inline uint64_t random_below(uint64_t bound)
{
	set.random ^= set.random << 13;
	set.random ^= set.random >> 7;
	set.random ^= set.random << 17;
	return (set.random * 0x9E3779B97F4A7C15u >> 32) % bound;
}

[[noreturn]] inline void die(const char *what)
{
	fprintf(stderr, "emulated device: %s\n", what);
	abort();
}

/* --- threads -------------------------------------------------------------------------------- */

constexpr unsigned WARP = 32;
constexpr size_t STACK = 256 << 10;

struct index {
	uint32_t x;
};

struct stack_info {
	const void *bottom = nullptr;
	size_t size = 0;
};

enum class wait { nothing, block, warp, over };

struct fiber {
	ucontext_t context;
	std::unique_ptr<char[]> stack;
	index id;
	wait waits;
	unsigned barriers;
};

struct warp {
	uint32_t values[WARP];
};

struct block {
	std::vector<fiber> fibers;
	std::vector<warp> warps;
	std::function<void()> body;
	ucontext_t scheduler;
	stack_info scheduler_stack;
	unsigned size;
};
inline block running;
inline fiber *current;
inline index block_id, block_size;

/* Leaves one stack for another, and tells ASan. `last`: the one that is left is over. */
inline void switch_stacks(ucontext_t *from, ucontext_t *to, stack_info stack, bool last)
{
	set.switches++;
#ifdef __SANITIZE_ADDRESS__
	void *fake = nullptr;

	__sanitizer_start_switch_fiber(last ? nullptr : &fake, stack.bottom, stack.size);
	swapcontext(from, to);
	__sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
	(void)stack;
	(void)last;
	swapcontext(from, to);
#endif
}

inline void yield(wait what)
{
	current->waits = what;
	switch_stacks(&current->context, &running.scheduler, running.scheduler_stack,
		      what == wait::over);
}

inline void fiber_main()
{
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_finish_switch_fiber(nullptr, &running.scheduler_stack.bottom,
					&running.scheduler_stack.size);
#endif
	running.body();
	yield(wait::over);
	die("a thread went on after its end");
}

/* Those that wait for each other and are all there go on. */
inline void release(unsigned first, unsigned count, wait what)
{
	for (unsigned i = first; i < first + count; i++)
		if (running.fibers[i].waits != what)
			return;
	for (unsigned i = first; i < first + count; i++)
		running.fibers[i].waits = wait::nothing;
}

inline unsigned warp_size(unsigned first)
{
	return running.size - first < WARP ? running.size - first : WARP;
}

/* Any thread that can run; NULL if all are over. */
inline fiber *choose()
{
	unsigned over = 0, start = (unsigned)random_below(running.size);

	for (unsigned i = 0; i < running.size; i++) {
		fiber *candidate = &running.fibers[(start + i) % running.size];

		if (candidate->waits == wait::nothing)
			return candidate;
		over += candidate->waits == wait::over;
	}
	if (over < running.size)
		die("threads wait at a barrier that others never reach");
	return nullptr;
}

/* A function of its own: getcontext() returns twice, as far as the compiler knows. */
inline void fiber_init(fiber &f, unsigned id)
{
	if (!f.stack)
		f.stack.reset(new char[STACK]);
	f.id.x = id;
	f.waits = wait::nothing;
	f.barriers = 0;
	getcontext(&f.context);
	f.context.uc_stack.ss_sp = f.stack.get();
	f.context.uc_stack.ss_size = STACK;
	f.context.uc_link = nullptr;
	makecontext(&f.context, fiber_main, 0);
}

inline void run_block()
{
	for (unsigned i = 0; i < running.size; i++)
		fiber_init(running.fibers[i], i);
	while ((current = choose())) {
		unsigned first = current->id.x / WARP * WARP;

		switch_stacks(&running.scheduler, &current->context,
			      { current->stack.get(), STACK }, false);
		release(0, running.size, wait::block);
		release(first, warp_size(first), wait::warp);
	}
}

inline void run_grid(unsigned grid, unsigned size, std::function<void()> body)
{
	std::vector<unsigned> blocks(grid);

	for (unsigned i = 0; i < grid; i++) {
		unsigned other = (unsigned)random_below(i + 1);

		blocks[i] = blocks[other];
		blocks[other] = i;
	}
	running.size = block_size.x = size;
	running.body = body;
	if (running.fibers.size() < size)
		running.fibers.resize(size);
	running.warps.resize((size + WARP - 1) / WARP);
	for (unsigned i : blocks) {
		block_id.x = i;
		run_block();
	}
}

inline void syncthreads()
{
	unsigned number = current->barriers++;

	if (set.skip_barrier && number % 2 == (unsigned)set.skip_barrier - 1)
		return;
	yield(wait::block);
}

template <typename T> T shuffle_xor(uint32_t mask, T value, int distance)
{
	warp &own = running.warps[current->id.x / WARP];
	unsigned lane = current->id.x % WARP;

	static_assert(sizeof(T) == 4, "registers have 32 bits");
	if (mask != 0xffffffff || warp_size(current->id.x / WARP * WARP) != WARP)
		die("only whole warps can shuffle here");
	memcpy(&own.values[lane], &value, 4);
	yield(wait::warp);
	memcpy(&value, &own.values[lane ^ (unsigned)distance], 4);
	/* Nobody writes the next value before all have read this one. */
	yield(wait::warp);
	return value;
}

/* --- streams ---------------------------------------------------------------------------------- */

inline std::map<void *, std::deque<std::function<void()>>> streams;

inline bool run_one(void *stream)
{
	auto &queue = streams[stream];

	if (queue.empty())
		return false;
	auto work = queue.front();

	queue.pop_front();
	work();
	return true;
}

inline void run_some()
{
	for (uint64_t i = random_below(3); i > 0 && !streams.empty(); i--) {
		auto at = streams.begin();

		std::advance(at, (long)random_below(streams.size()));
		run_one(at->first);
	}
}

inline bool fails()
{
	return set.fail_in > 0 && --set.fail_in == 0;
}

/* The arguments are taken now, as a real launch does. One that fails says so in what
 * cudaGetLastError() gives, as every call does. */
template <typename... PARAMETERS, typename... ARGUMENTS>
void launch(void (*kernel)(PARAMETERS...), unsigned grid, unsigned size, void *stream,
	    ARGUMENTS... arguments)
{
	if (fails())
		last_error = 999;
	else
		streams[stream].push_back(
			[=] { run_grid(grid, size, [=] { kernel(arguments...); }); });
}

} // namespace emulate

#define threadIdx (emulate::current->id)
#define blockIdx (emulate::block_id)
#define blockDim (emulate::block_size)
#define __syncthreads() emulate::syncthreads()
#define __shfl_xor_sync(mask, value, distance) emulate::shuffle_xor(mask, value, distance)

static inline uint32_t atomicOr(uint32_t *at, uint32_t bits)
{
	uint32_t before = *at;

	*at |= bits;
	return before;
}

#define LAUNCH(kernel, grid, block, stream, ...)                                                   \
	emulate::launch(kernel, grid, block, stream, __VA_ARGS__)

/* --- the runtime ------------------------------------------------------------------------------ */

enum cudaError_t {
	cudaSuccess = 0,
	cudaErrorMemoryAllocation = 2,
	cudaErrorNoDevice = 100,
	cudaErrorNotReady = 600,
	cudaErrorUnknown = 999
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
typedef void *cudaStream_t;
struct emulated_event {
	void *stream;
	bool pending;
};
typedef emulated_event *cudaEvent_t;
#define cudaEventDisableTiming 2

static inline cudaError_t emulated_error(cudaError_t error)
{
	emulate::last_error = error;
	return error;
}

static inline cudaError_t emulated_result()
{
	return emulate::fails() ? emulated_error(cudaErrorUnknown) : cudaSuccess;
}

static inline const char *cudaGetErrorString(cudaError_t error)
{
	return error == cudaErrorNoDevice	    ? "no CUDA-capable device is detected"
	       : error == cudaErrorMemoryAllocation ? "out of memory"
						    : "unknown error";
}

static inline cudaError_t cudaGetLastError()
{
	cudaError_t error = (cudaError_t)emulate::last_error;

	emulate::last_error = cudaSuccess;
	return error;
}

static inline cudaError_t cudaGetDeviceCount(int *count)
{
	*count = (int)emulate::set.devices;
	return *count ? emulated_result() : emulated_error(cudaErrorNoDevice);
}

static inline cudaError_t cudaGetDevice(int *number)
{
	*number = 0;
	return emulated_result();
}

static inline cudaError_t cudaSetDevice(int number)
{
	return number < emulate::set.devices ? emulated_result()
					     : emulated_error(cudaErrorNoDevice);
}

static inline cudaError_t cudaMalloc(void **out, size_t size)
{
	cudaError_t error = emulated_result();

	if (emulate::set.no_memory_in > 0 && --emulate::set.no_memory_in == 0)
		error = emulated_error(cudaErrorMemoryAllocation);
	*out = error == cudaSuccess ? malloc(size) : nullptr;
	/* Nobody may rely on zeroes. */
	if (*out)
		memset(*out, 0xa5, size);
	return error;
}

static inline cudaError_t cudaMallocHost(void **out, size_t size)
{
	return cudaMalloc(out, size);
}

static inline cudaError_t cudaFree(void *memory)
{
	free(memory);
	return cudaSuccess;
}

static inline cudaError_t cudaFreeHost(void *memory)
{
	free(memory);
	return cudaSuccess;
}

static inline cudaError_t cudaMemcpy(void *to, const void *from, size_t size, cudaMemcpyKind)
{
	memcpy(to, from, size);
	return emulated_result();
}

static inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, cudaMemcpyKind,
					  cudaStream_t stream)
{
	emulate::streams[stream].push_back([=] { memcpy(to, from, size); });
	return emulated_result();
}

static inline cudaError_t cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t stream)
{
	emulate::streams[stream].push_back([=] { memset(to, value, size); });
	return emulated_result();
}

static inline cudaError_t cudaDeviceSynchronize()
{
	for (auto &stream : emulate::streams)
		while (emulate::run_one(stream.first))
			;
	return cudaSuccess;
}

static inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned)
{
	cudaError_t error = emulated_result();

	if (error == cudaSuccess)
		*out = new emulated_event{ nullptr, false };
	return error;
}

static inline cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	delete event;
	return cudaSuccess;
}

static inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	event->stream = stream;
	event->pending = true;
	emulate::streams[stream].push_back([=] { event->pending = false; });
	return emulated_result();
}

static inline cudaError_t cudaEventQuery(cudaEvent_t event)
{
	emulate::run_some();
	if (emulate::fails())
		return emulated_error(cudaErrorUnknown);
	return event->pending ? emulated_error(cudaErrorNotReady) : cudaSuccess;
}

static inline cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	while (event->pending && emulate::run_one(event->stream))
		;
	return emulated_result();
}

#endif
