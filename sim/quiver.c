/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "quiver.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "philox.h"

#define HELD 2 /* chunks in the cache */

struct held {
	uint32_t chunk;
	uint32_t loaded; /* how far its members have been loaded ahead */
};

/* What is left of a rank's epoch, from `first` to `end`. What is put back goes to the end. */
struct pending {
	uint32_t *ids;
	size_t first, end, room;
};

struct quiver {
	struct quiver_cache cache;
	uint32_t samples, ranks, window;
	uint32_t size; /* of a chunk; the last may be smaller */
	uint32_t chunks;
	uint32_t *members;  /* chunk after chunk */
	uint32_t *chunk_of; /* by id */
	uint32_t *left;	    /* by chunk: what this epoch has not read yet */
	struct held held[HELD];
	uint32_t newest;	 /* the chunk that came last */
	struct pending *pending; /* by rank */
	uint32_t *passed;	 /* scratch: looked at, and not resident */
};

/* Ids in a random sequence, which the chunks are cut from. */
static void shuffle(uint32_t *ids, uint32_t count, uint64_t seed)
{
	struct philox_stream stream = { seed, 0, PHILOX_CHOOSE };

	for (uint32_t i = 0; i < count; i++)
		ids[i] = i;
	for (uint32_t i = count; i > 1; i--) {
		uint32_t at = (uint32_t)((uint64_t)philox_u32(stream, i) * i >> 32);
		uint32_t id = ids[at];

		ids[at] = ids[i - 1];
		ids[i - 1] = id;
	}
}

struct quiver *quiver_new(struct quiver_cache cache, uint32_t samples, uint32_t ranks,
			  uint32_t batch, uint64_t seed)
{
	struct quiver *q = must(calloc(1, sizeof(*q)));
	uint64_t size = cache.capacity / HELD;

	q->cache = cache;
	q->samples = samples;
	q->ranks = ranks;
	q->window = batch < samples / QUIVER_WINDOW ? batch * QUIVER_WINDOW : samples;
	q->size = size < 1 ? 1 : size < samples ? (uint32_t)size : samples;
	q->chunks = (samples + q->size - 1) / q->size;
	q->members = must(malloc(samples * sizeof(*q->members)));
	q->chunk_of = must(malloc(samples * sizeof(*q->chunk_of)));
	q->left = must(calloc(q->chunks, sizeof(*q->left)));
	q->pending = must(calloc(ranks, sizeof(*q->pending)));
	q->passed = must(malloc(q->window * sizeof(*q->passed)));
	shuffle(q->members, samples, seed);
	for (uint32_t i = 0; i < samples; i++)
		q->chunk_of[q->members[i]] = i / q->size;
	q->newest = q->chunks > 1;
	q->held[1].chunk = q->newest;
	return q;
}

void quiver_free(struct quiver *q)
{
	for (uint32_t rank = 0; rank < q->ranks; rank++)
		free(q->pending[rank].ids);
	free(q->members);
	free(q->chunk_of);
	free(q->left);
	free(q->pending);
	free(q->passed);
	free(q);
}

void quiver_begin(struct quiver *q)
{
	memset(q->left, 0, q->chunks * sizeof(*q->left));
}

void quiver_add(struct quiver *q, uint32_t rank, const uint32_t *ids, uint32_t count)
{
	struct pending *pending = &q->pending[rank];
	/* Twice the entries, so that moving them back to the beginning is rare. */
	size_t room = 2 * (size_t)count + q->window;

	if (pending->room < room) {
		free(pending->ids);
		pending->room = room;
		pending->ids = must(malloc(room * sizeof(*pending->ids)));
	}
	memcpy(pending->ids, ids, count * sizeof(*ids));
	pending->first = 0;
	pending->end = count;
	for (uint32_t i = 0; i < count; i++)
		q->left[q->chunk_of[ids[i]]]++;
}

/* Makes room for `more` that are put back. */
static void compact(struct pending *pending, size_t more)
{
	if (pending->end + more <= pending->room)
		return;
	memmove(pending->ids, pending->ids + pending->first,
		(pending->end - pending->first) * sizeof(*pending->ids));
	pending->end -= pending->first;
	pending->first = 0;
}

static struct sched *cache_of(const struct quiver *q, uint32_t id)
{
	return q->cache.caches[q->cache.keeper_of[id]];
}

void quiver_take(struct quiver *q, uint32_t rank, uint32_t count, uint32_t *ids)
{
	struct pending *pending = &q->pending[rank];
	uint32_t taken = 0, passed = 0, put_back = 0;

	assert(count <= pending->end - pending->first);
	compact(pending, q->window);
	for (uint32_t i = 0; i < q->window && taken < count && pending->first < pending->end; i++) {
		uint32_t id = pending->ids[pending->first++];

		if (sched_resident(cache_of(q, id), id))
			ids[taken++] = id;
		else
			q->passed[passed++] = id;
	}
	while (taken < count && put_back < passed)
		ids[taken++] = q->passed[put_back++];
	assert(taken == count);
	while (put_back < passed)
		pending->ids[pending->end++] = q->passed[put_back++];
}

bool quiver_keeps(const struct quiver *q, uint32_t id)
{
	return q->chunk_of[id] == q->held[0].chunk || q->chunk_of[id] == q->held[1].chunk;
}

/* Where a chunk ends in `members`. */
static uint32_t end_of(const struct quiver *q, uint32_t chunk)
{
	uint64_t end = ((uint64_t)chunk + 1) * q->size;

	return end < q->samples ? (uint32_t)end : q->samples;
}

/* The next chunk, round and round, that this epoch needs something of and that is not there; the
 * number of chunks if there is none. */
static uint32_t next_chunk(const struct quiver *q)
{
	for (uint32_t step = 1; step < q->chunks; step++) {
		uint32_t chunk = (uint32_t)(((uint64_t)q->newest + step) % q->chunks);

		if (q->left[chunk] && chunk != q->held[0].chunk && chunk != q->held[1].chunk)
			return chunk;
	}
	return q->chunks;
}

static void replace(struct quiver *q, struct held *held)
{
	uint32_t next = next_chunk(q);

	if (next == q->chunks)
		return;
	for (uint32_t i = held->chunk * q->size; i < end_of(q, held->chunk); i++) {
		struct sched *cache = cache_of(q, q->members[i]);

		if (sched_resident(cache, q->members[i]))
			must_do(sched_evict(cache, q->members[i]), "evicting a chunk");
	}
	*held = (struct held){ .chunk = next };
	q->newest = next;
}

/* Loads one more sample of a chunk. False: it has them all. */
static bool load_one(struct quiver *q, struct held *held)
{
	uint32_t from = held->chunk * q->size, to = end_of(q, held->chunk);
	struct sched_verdict verdict;

	while (from + held->loaded < to) {
		uint32_t id = q->members[from + held->loaded++];

		must_do(sched_warm(cache_of(q, id), id, 1, &verdict), "loading a chunk");
		if (verdict.action != SCHED_ADMIT)
			continue;
		must_do(sched_commit(cache_of(q, id), id), "loading a chunk");
		return true;
	}
	return false;
}

void quiver_read(struct quiver *q, uint32_t id)
{
	q->left[q->chunk_of[id]]--;
	for (uint32_t i = 0; i < HELD; i++)
		if (!q->left[q->held[i].chunk])
			replace(q, &q->held[i]);
	/* The older chunk first. */
	for (uint32_t i = 0; i < HELD; i++)
		if (load_one(q, &q->held[q->held[0].chunk == q->newest ? 1 - i : i]))
			return;
}
