/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Blocks follow one another without gaps, each behind a head that says how long it is, so all of
 * them can be found. A block never changes its length. Free blocks of one length are a list, which
 * is the process's own: a successor makes it anew. Lengths above SMALL are rounded up to four
 * steps an octave, so that there are few lists, and the pages of such a block are given back to the
 * kernel when it is freed.
 */
#include "base/estate.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/threads.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#define POISON(at, bytes) ASAN_POISON_MEMORY_REGION(at, bytes)
#define UNPOISON(at, bytes) ASAN_UNPOISON_MEMORY_REGION(at, bytes)
#else
#define POISON(at, bytes) ((void)(at), (void)(bytes))
#define UNPOISON(at, bytes) ((void)(at), (void)(bytes))
#endif

#define ROOM ((uint64_t)16 << 30)      /* of addresses; memory is taken as it is used */
#define ROOM_LEAST ((uint64_t)1 << 26) /* where addresses are limited */
/* A place that nothing else has: a program that takes the estate over needs it at the same address.
 * The kernel puts libraries and stacks above, and heaps far below; sanitizers leave it alone. */
#define PLACES_FROM 0x7e9000000000
#define PLACES ((uint64_t)1 << 24) /* pages that it may begin at: nobody is to know the address */
#define UNIT 8
#define SMALL 128 /* units: up to here each length has a list */
#define LISTS (SMALL + 4 * 32)

/* In front of each block. */
struct head {
	uint32_t units; /* of the block, without this */
	_Atomic uint32_t kind;
};

/* At the begin of the mapping. */
struct shared {
	_Atomic uint64_t end; /* from here on no block was ever made; an offset */
	uint64_t unused[7];
	char front[ESTATE_FRONT];
};

/* A free block. */
struct free_block {
	struct free_block *next;
};

struct estate {
	struct shared *shared;
	uint64_t room;
	int fd; /* of the memory */
	struct lock lock;
	struct free_block *lists[LISTS]; /* lock */
};

static_assert(sizeof(struct head) == UNIT && sizeof(struct shared) % UNIT == 0, "no gaps");

static struct head *head_of(const void *block)
{
	return (struct head *)block - 1;
}

/* A length of a list, at least `units`, and the list's number. */
static uint32_t round_up(uint64_t units, unsigned *list)
{
	unsigned shift;
	uint64_t steps;

	if (units <= SMALL) {
		*list = (unsigned)units - 1;
		return (uint32_t)units;
	}
	shift = 61 - (unsigned)__builtin_clzll(units - 1); /* leaves three bits: 4 to 7 */
	steps = ((units - 1) >> shift) + 1;		   /* 5 to 8 */
	*list = SMALL + (shift - 5) * 4 + (unsigned)steps - 5;
	return (uint32_t)(steps << shift);
}

static void put_free_locked(struct estate *estate, void *block)
{
	struct free_block *free_block = block;
	unsigned list;

	lock_assert_held(&estate->lock);
	round_up(head_of(block)->units, &list);
	free_block->next = estate->lists[list];
	estate->lists[list] = free_block;
	POISON(free_block + 1, (size_t)head_of(block)->units * UNIT - sizeof(*free_block));
}

static void *take_free_locked(struct estate *estate, unsigned list)
{
	struct free_block *block = estate->lists[list];

	lock_assert_held(&estate->lock);
	if (!block)
		return NULL;
	estate->lists[list] = block->next;
	UNPOISON(block, (size_t)head_of(block)->units * UNIT);
	memset(block, 0, (size_t)head_of(block)->units * UNIT);
	return block;
}

/* The head is written before the end moves: a successor sees whole blocks only. */
static void *extend_locked(struct estate *estate, uint32_t units)
{
	struct shared *shared = estate->shared;
	uint64_t end = atomic_load(&shared->end), next = end + ((uint64_t)units + 1) * UNIT;
	struct head *head = (struct head *)((char *)shared + end);

	lock_assert_held(&estate->lock);
	if (next > estate->room)
		return NULL;
	head->units = units;
	atomic_store(&head->kind, ESTATE_NOTHING);
	atomic_store(&shared->end, next);
	return head + 1;
}

void *estate_new(struct estate *estate, size_t size)
{
	unsigned list;
	uint32_t units;
	void *block;

	if (size > estate->room)
		return NULL;
	units = round_up((size + UNIT - 1) / UNIT + !size, &list);
	lock_acquire(&estate->lock);
	block = take_free_locked(estate, list);
	if (!block)
		block = extend_locked(estate, units);
	lock_release(&estate->lock);
	return block;
}

void estate_keep(void *block, enum estate_kind kind)
{
	assert(kind != ESTATE_NOTHING);
	atomic_store(&head_of(block)->kind, kind);
}

/* Whole pages inside of a large block. */
static void give_back(void *block)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t from = ((uintptr_t)block + sizeof(struct free_block) + page - 1) / page * page;
	uintptr_t to = ((uintptr_t)block + (uintptr_t)head_of(block)->units * UNIT) / page * page;

	if (to > from)
		(void)madvise((void *)from, to - from, MADV_REMOVE);
}

void estate_free(struct estate *estate, void *block)
{
	if (!block)
		return;
	atomic_store(&head_of(block)->kind, ESTATE_NOTHING);
	if (head_of(block)->units > SMALL)
		give_back(block);
	lock_acquire(&estate->lock);
	put_free_locked(estate, block);
	lock_release(&estate->lock);
}

/* The block after this one, whatever it is. NULL: there is none. */
static void *follow(const struct estate *estate, const void *block)
{
	const char *base = (const char *)estate->shared;
	const char *at = block ? (const char *)block + (size_t)head_of(block)->units * UNIT
			       : base + sizeof(struct shared);

	return at < base + atomic_load(&estate->shared->end) ? (struct head *)at + 1 : NULL;
}

void *estate_next(const struct estate *estate, enum estate_kind kind, const void *block)
{
	void *next = follow(estate, block);

	while (next && atomic_load(&head_of(next)->kind) != kind)
		next = follow(estate, next);
	return next;
}

uint64_t estate_bytes(struct estate *estate)
{
	return atomic_load(&estate->shared->end);
}

void *estate_front(struct estate *estate)
{
	return estate->shared->front;
}

void estate_inherit(struct estate *estate)
{
	lock_acquire(&estate->lock);
	for (void *block = follow(estate, NULL); block; block = follow(estate, block))
		if (atomic_load(&head_of(block)->kind) == ESTATE_NOTHING)
			put_free_locked(estate, block);
	lock_release(&estate->lock);
}

static void *choose_address(void)
{
	uint64_t place = 0;

	if (getrandom(&place, sizeof(place), 0) != (ssize_t)sizeof(place))
		place = 0;
	return (void *)(uintptr_t)(PLACES_FROM + place % PLACES * (uint64_t)sysconf(_SC_PAGESIZE));
}

/* The largest that there are addresses for. */
static struct shared *map_room(int fd, uint64_t *room)
{
	void *at = MAP_FAILED, *wanted = choose_address();

	for (*room = ROOM; *room >= ROOM_LEAST; *room /= 2) {
		if (!ftruncate(fd, (off_t)*room))
			at = mmap(wanted, *room, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
				  fd, 0);
		if (at != MAP_FAILED)
			return at;
	}
	return NULL;
}

static struct estate *make(int fd, struct shared *shared, uint64_t room)
{
	struct estate *estate = calloc(1, sizeof(*estate));

	if (!estate)
		return NULL;
	estate->fd = fd;
	estate->shared = shared;
	estate->room = room;
	lock_init(&estate->lock, LOCK_ESTATE);
	return estate;
}

int estate_create(struct estate **out)
{
	int fd = memfd_create("shadefs-estate", MFD_CLOEXEC);
	uint64_t room;
	struct shared *shared = fd < 0 ? NULL : map_room(fd, &room);

	*out = shared ? make(fd, shared, room) : NULL;
	if (*out) {
		atomic_store(&shared->end, sizeof(*shared));
		return 0;
	}
	if (shared)
		munmap(shared, room);
	if (fd >= 0)
		close(fd);
	return -ENOMEM;
}

struct estate_place estate_place(const struct estate *estate)
{
	return (struct estate_place){ .fd = estate->fd,
				      .address = (uintptr_t)estate->shared,
				      .room = estate->room };
}

int estate_take(struct estate **out, const struct estate_place *place, bool only_reads)
{
	void *wanted = (void *)(uintptr_t)place->address;
	void *at = mmap(wanted, place->room, only_reads ? PROT_READ : PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, place->fd, 0);
	int rc = at == MAP_FAILED ? -errno : at == wanted ? 0 : -EEXIST;

	*out = rc ? NULL : make(place->fd, at, place->room);
	if (!rc && !*out)
		rc = -ENOMEM;
	if (rc && at != MAP_FAILED)
		munmap(at, place->room);
	return rc;
}

void estate_destroy(struct estate *estate)
{
	if (!estate)
		return;
	UNPOISON(estate->shared, atomic_load(&estate->shared->end));
	close(estate->fd);
	munmap(estate->shared, estate->room);
	lock_destroy(&estate->lock);
	free(estate);
}

const struct format_line estate_format[] = {
	FORMAT_SIZE(struct head),    FORMAT_FIELD(struct head, kind),
	FORMAT_SIZE(struct shared),  FORMAT_FIELD(struct shared, front),
	FORMAT_NUMBER(UNIT),	     FORMAT_NUMBER(ESTATE_FRONT),
	FORMAT_NUMBER(ESTATE_KINDS), FORMAT_END
};
