/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A read of a whole file, and who has its buffer:
 *
 * OP_TIER    the engine, which receives into it
 * OP_SOURCE  the store below
 *
 * It begins as either, as choice.c says, or tier_read() where the tier has no chance; OP_TIER
 * becomes OP_SOURCE when the engine has answered without the value, and so has left the buffer.
 * Whoever has it last calls `done`.
 *
 * What has come from below is copied before `done` and put into the tier after it. If the tier was
 * not asked before, it may have the file already, so it is first asked for that (EXPIRE, which sets
 * the time to live): a question is cheaper than a value.
 */
#include "tier/tier.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "tier/choice.h"
#include "tier/ratings.h"
#include "tier/survival.h"

struct tier_store {
	struct store store;
	struct store *below;
	struct engine *engine;
	struct value_seal *seal; /* the engine's thread */
	struct tier_ratings *ratings;
	char volume[VALUE_VOLUME_MAX + 1];

	struct lock lock;
	struct choice choice;	  /* lock */
	struct survival survival; /* lock */
	uint64_t losses;	  /* lock: of the engine, when `survival` began */
	uint64_t put_bytes;	  /* lock: that wait */

	/* atomic */
	uint64_t hits, misses, puts, puts_spared, puts_dropped, errors, fallbacks;
};

enum op_state { OP_TIER, OP_SOURCE };

struct op {
	struct tier_store *tier;
	struct store_read *read;       /* the caller's */
	struct store_read inner;       /* for the store below */
	struct engine_request request; /* for the engine */
	enum op_state state;	       /* lock */
	bool cancelled;		       /* lock */
	bool asked;		       /* the tier; `answer` is what it said */
	enum engine_result answer;
	uint64_t hash; /* of the key */
	uint64_t began_ns;
};

struct put {
	struct tier_store *tier;
	float worth;
	uint64_t hash; /* of the key */
	struct engine_request request;
};

static void count(uint64_t *counter)
{
	__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

static struct tier_store *tier_of(struct store *store)
{
	return (struct tier_store *)store;
}

/* A server that was started again has nothing, whatever the worth. */
static struct survival *survival_locked(struct tier_store *tier)
{
	uint64_t losses = engine_losses(tier->engine);

	lock_assert_held(&tier->lock);
	if (losses != tier->losses)
		memset(&tier->survival, 0, sizeof(tier->survival));
	tier->losses = losses;
	return &tier->survival;
}

static double us_since(uint64_t began_ns)
{
	return (double)(clock_now_ns() - began_ns) / 1000;
}

/* --- puts --------------------------------------------------------------------------------------*/

static void end_put(struct put *put)
{
	struct tier_store *tier = put->tier;

	lock_acquire(&tier->lock);
	tier->put_bytes -= put->request.body_size;
	lock_release(&tier->lock);
	free(put->request.body);
	free(put);
}

static int seal_put(struct engine_request *request)
{
	struct put *put = request->context;

	return value_seal(put->tier->seal, request->key, request->key_size, request->body,
			  request->body_size, request->head);
}

static void on_put(struct engine_request *request, enum engine_result result)
{
	struct put *put = request->context;
	struct tier_store *tier = put->tier;

	count(result == ENGINE_YES ? &tier->puts : &tier->puts_dropped);
	if (result == ENGINE_YES) {
		lock_acquire(&tier->lock);
		survival_put(survival_locked(tier), put->hash, put->worth);
		lock_release(&tier->lock);
	}
	end_put(put);
}

static void submit_put(struct put *put)
{
	put->request.verb = ENGINE_SET;
	put->request.prepare = seal_put;
	put->request.done = on_put;
	engine_submit(put->tier->engine, &put->request);
}

/* Whether the tier has it already. */
static void on_presence(struct engine_request *request, enum engine_result result)
{
	struct put *put = request->context;
	struct tier_store *tier = put->tier;
	bool wanted = false;

	if (result == ENGINE_YES || result == ENGINE_NO) {
		lock_acquire(&tier->lock);
		choice_presence(&tier->choice, result == ENGINE_YES);
		survival_asked(survival_locked(tier), put->hash, result == ENGINE_YES);
		wanted = survival_wants(survival_locked(tier), put->worth);
		lock_release(&tier->lock);
	}
	if (result == ENGINE_NO && wanted) {
		submit_put(put);
		return;
	}
	if (result == ENGINE_NO)
		count(&tier->puts_spared);
	else if (result != ENGINE_YES)
		count(&tier->puts_dropped);
	end_put(put);
}

static bool reserve(struct tier_store *tier, size_t bytes)
{
	bool fits;

	lock_acquire(&tier->lock);
	fits = tier->put_bytes + bytes <= TIER_PUTS_MAX;
	if (fits)
		tier->put_bytes += bytes;
	lock_release(&tier->lock);
	return fits;
}

/* Before the file is copied, where the tier is known not to have it. */
static bool is_wanted(struct tier_store *tier, float worth)
{
	bool wanted;

	lock_acquire(&tier->lock);
	wanted = survival_wants(survival_locked(tier), worth);
	lock_release(&tier->lock);
	if (!wanted)
		count(&tier->puts_spared);
	return wanted;
}

/* A copy of what the op has read. NULL: it is dropped. */
static struct put *make_put(const struct op *op, bool known_absent)
{
	struct tier_store *tier = op->tier;
	const struct engine_request *request = &op->request;
	size_t size = op->read->size;
	struct put *put;

	if (known_absent && !is_wanted(tier, op->read->worth))
		return NULL;
	if (!engine_reaches(tier->engine, request->key, request->key_size) ||
	    !reserve(tier, size)) {
		count(&tier->puts_dropped);
		return NULL;
	}
	put = calloc(1, sizeof(*put));
	if (put)
		put->request.body = malloc(size);
	if (!put || !put->request.body) {
		free(put);
		lock_acquire(&tier->lock);
		tier->put_bytes -= size;
		lock_release(&tier->lock);
		count(&tier->puts_dropped);
		return NULL;
	}
	put->tier = tier;
	put->worth = op->read->worth;
	put->hash = op->hash;
	memcpy(put->request.key, request->key, request->key_size);
	put->request.key_size = request->key_size;
	memcpy(put->request.body, op->read->buffer, size);
	put->request.body_size = size;
	put->request.ttl = request->ttl;
	put->request.context = put;
	return put;
}

static void start_put(struct put *put, bool known_absent)
{
	if (known_absent) {
		submit_put(put);
		return;
	}
	put->request.verb = ENGINE_EXPIRE;
	put->request.done = on_presence;
	engine_submit(put->tier->engine, &put->request);
}

/* --- reads -------------------------------------------------------------------------------------*/

/* The read is over for us: from now on nobody may cancel it. */
static void let_go(struct op *op)
{
	struct tier_store *tier = op->tier;

	lock_acquire(&tier->lock);
	op->read->progress = NULL;
	lock_release(&tier->lock);
}

static bool is_absent(enum engine_result answer)
{
	return answer == ENGINE_NO || answer == ENGINE_MISFIT;
}

static void on_source(struct store_read *inner, int rc)
{
	struct op *op = inner->context;
	struct tier_store *tier = op->tier;
	struct store_read *read = op->read;
	bool whole = !rc && inner->got == read->size;
	bool known_absent = op->asked && is_absent(op->answer);
	struct put *put = NULL;

	if (whole) {
		lock_acquire(&tier->lock);
		choice_source(&tier->choice, read->size, us_since(op->began_ns));
		lock_release(&tier->lock);
	}
	if (whole && (!op->asked || known_absent))
		put = make_put(op, known_absent);
	read->got = inner->got;
	let_go(op);
	free(op);
	read->done(read, rc);
	if (put)
		start_put(put, known_absent);
}

static void ask_source(struct op *op)
{
	op->began_ns = clock_now_ns();
	store_read(op->tier->below, &op->inner);
}

static void end_hit(struct op *op)
{
	struct store_read *read = op->read;

	read->got = read->size;
	read->unchecked = true;
	let_go(op);
	free(op);
	read->done(read, 0);
}

static void measure(struct op *op, enum engine_result result)
{
	struct tier_store *tier = op->tier;
	double us = us_since(op->began_ns);

	count(result == ENGINE_YES ? &tier->hits
				   : (is_absent(result) ? &tier->misses : &tier->fallbacks));
	if (result == ENGINE_MISFIT)
		count(&tier->errors);
	lock_acquire(&tier->lock);
	if (result == ENGINE_YES)
		choice_hit(&tier->choice, op->read->size, us);
	else
		choice_miss(&tier->choice, us);
	if (result == ENGINE_YES || result == ENGINE_NO)
		survival_asked(survival_locked(tier), op->hash, result == ENGINE_YES);
	lock_release(&tier->lock);
}

/* The engine has answered, and has no hand in the buffer any more. */
static void on_tier(struct engine_request *request, enum engine_result result)
{
	struct op *op = request->context;
	struct tier_store *tier = op->tier;
	bool cancelled;

	if (result == ENGINE_YES && !value_fits(tier->seal, request->key, request->key_size,
						request->body, request->body_size, request->head))
		result = ENGINE_MISFIT;
	measure(op, result);
	op->answer = result;
	if (result == ENGINE_YES) {
		end_hit(op);
		return;
	}
	lock_acquire(&tier->lock);
	op->state = OP_SOURCE;
	cancelled = op->cancelled;
	lock_release(&tier->lock);
	if (cancelled)
		store_cancel(tier->below, &op->inner); /* which then ends at once */
	ask_source(op);
}

/* The cache may cancel a read before it has a buffer, so that does not count. */
static bool is_ours(const struct store_read *read)
{
	return read->size && !read->offset && read->size == read->expected->size &&
	       read->size <= TIER_FILE_MAX && !read->from_source && value_has_key(read->expected);
}

static bool prefers_tier(struct op *op)
{
	struct tier_store *tier = op->tier;
	bool prefers = true;

	if (!engine_reaches(tier->engine, op->request.key, op->request.key_size))
		return false;
	if (!op->read->awaited)
		return true;
	lock_acquire(&tier->lock);
	prefers = choice_prefers_tier(&tier->choice, op->read->size, clock_now_ms());
	lock_release(&tier->lock);
	return prefers;
}

static struct op *make_op(struct tier_store *tier, struct store_read *read)
{
	struct op *op = calloc(1, sizeof(*op));

	if (!op)
		return NULL;
	op->tier = tier;
	op->read = read;
	op->inner = (struct store_read){ .path = read->path,
					 .expected = read->expected,
					 .buffer = read->buffer,
					 .size = read->size,
					 .done = on_source,
					 .context = op,
					 .awaited = read->awaited,
					 .worth = read->worth,
					 .from_source = read->from_source };
	op->request.verb = ENGINE_GET;
	op->request.key_size = value_key(tier->volume, read->expected, op->request.key);
	op->hash = value_hash(op->request.key, op->request.key_size);
	op->request.body = read->buffer;
	op->request.body_size = read->size;
	op->request.ttl = value_ttl(read->worth);
	op->request.done = on_tier;
	op->request.context = op;
	op->began_ns = clock_now_ns();
	return op;
}

static void tier_read(struct store *store, struct store_read *read)
{
	struct tier_store *tier = tier_of(store);
	bool cancelled, asks;
	struct op *op;

	if (!is_ours(read)) {
		store_read(tier->below, read);
		return;
	}
	assert(read->buffer);
	op = make_op(tier, read);
	if (!op) {
		read->done(read, -ENOMEM);
		return;
	}
	asks = prefers_tier(op);
	lock_acquire(&tier->lock);
	read->progress = op;
	cancelled = read->cancelled;
	op->asked = asks && !cancelled;
	op->state = op->asked ? OP_TIER : OP_SOURCE;
	lock_release(&tier->lock);
	if (asks && !cancelled) {
		engine_submit(tier->engine, &op->request);
		return;
	}
	count(&tier->fallbacks);
	if (cancelled)
		store_cancel(tier->below, &op->inner);
	ask_source(op);
}

static void tier_cancel(struct store *store, struct store_read *read)
{
	struct tier_store *tier = tier_of(store);
	struct op *op;

	if (!is_ours(read)) {
		store_cancel(tier->below, read);
		return;
	}
	lock_acquire(&tier->lock);
	op = read->progress;
	if (!op) {
		read->cancelled = true;
	} else if (op->state == OP_SOURCE) {
		store_cancel(tier->below, &op->inner);
	} else if (!op->cancelled) {
		op->cancelled = true;
		engine_cancel(tier->engine, &op->request);
	}
	lock_release(&tier->lock);
}

/* --- what passes through -----------------------------------------------------------------------*/

static int tier_stat(struct store *store, const char *path, struct store_attr *attr)
{
	return store_stat(tier_of(store)->below, path, attr);
}

static int tier_acl(struct store *store, const char *path, const struct store_attr *expected,
		    void *value, size_t size)
{
	return store_acl(tier_of(store)->below, path, expected, value, size);
}

static int tier_readlink(struct store *store, const char *path, const struct store_attr *expected,
			 char **target)
{
	return store_readlink(tier_of(store)->below, path, expected, target);
}

/* From then on the directory is the store's below. */
static int tier_open_dir(struct store_dir *dir, const char *path, const struct store_attr *expected,
			 struct store_attr *attr)
{
	return store_open_dir(tier_of(dir->store)->below, path, expected, dir, attr);
}

static int tier_statfs(struct store *store, struct statvfs *out)
{
	return store_statfs(tier_of(store)->below, out);
}

static void tier_stop(struct store *store)
{
	store_stop(tier_of(store)->below);
}

static unsigned tier_count(struct store *store, struct store_count *counts, unsigned room)
{
	return store_get_counts(tier_of(store)->below, counts, room);
}

static bool tier_revive(struct store *store)
{
	return store_revive(tier_of(store)->below);
}

static enum store_life tier_life(const struct store *store)
{
	return store_life(((const struct tier_store *)store)->below);
}

static void tier_forget(struct store *store, const struct store_attr *attr)
{
	store_forget(tier_of(store)->below, attr);
}

static size_t tier_rate(struct store *store, const struct store_rating *ratings,
			size_t rating_count)
{
	struct tier_store *tier = tier_of(store);
	size_t taken = tier_ratings_add(tier->ratings, ratings, rating_count);

	engine_wake(tier->engine);
	return taken;
}

/* --- begin and end -----------------------------------------------------------------------------*/

static void free_tier(struct tier_store *tier)
{
	if (tier->ratings)
		tier_ratings_destroy(tier->ratings);
	value_seal_free(tier->seal);
	lock_destroy(&tier->lock);
	free(tier);
}

/* The store below first: its thread hands puts to the engine. */
static void tier_close(struct store *store)
{
	struct tier_store *tier = tier_of(store);

	store_close(tier->below);
	engine_destroy(tier->engine);
	free_tier(tier);
}

static const struct store_ops tier_ops = {
	.stat = tier_stat,
	.acl = tier_acl,
	.readlink = tier_readlink,
	.open_dir = tier_open_dir,
	.statfs = tier_statfs,
	.read = tier_read,
	.cancel = tier_cancel,
	.close = tier_close,
	.stop = tier_stop,
	.count = tier_count,
	.forget = tier_forget,
	.life = tier_life,
	.revive = tier_revive,
	.rate = tier_rate,
};

static uint64_t on_tick(void *context, uint64_t now_ms)
{
	struct tier_store *tier = context;

	return tier_ratings_tick(tier->ratings, tier->engine, now_ms);
}

static int start(struct tier_store *tier, const struct tier_options *options)
{
	struct engine_options engine = { .seeds = options->seeds,
					 .seed_count = options->seed_count,
					 .user = options->user,
					 .password = options->password,
					 .timeout_ms = options->timeout_ms,
					 .tick = on_tick,
					 .context = tier };
	int rc = value_volume(options->volume, tier->volume);

	if (!rc)
		rc = value_seal_create(&tier->seal, options->secret, options->secret_size);
	if (rc)
		return rc;
	tier->ratings = tier_ratings_create(tier->volume);
	return tier->ratings ? engine_create(&tier->engine, &engine) : -ENOMEM;
}

int store_tier_open(struct store **out, struct store *below, const struct tier_options *options)
{
	struct tier_store *tier = calloc(1, sizeof(*tier));
	int rc;

	if (!tier)
		return -ENOMEM;
	tier->store.ops = &tier_ops;
	tier->below = below;
	lock_init(&tier->lock, LOCK_TIER);
	rc = start(tier, options);
	if (rc)
		free_tier(tier);
	else
		*out = &tier->store;
	return rc;
}

static uint64_t get(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

/* Of files as large as the last one that somebody waited for. */
static void get_times(struct tier_store *tier, struct tier_stats *stats)
{
	const struct choice *choice = &tier->choice;

	lock_acquire(&tier->lock);
	stats->miss_us = choice->miss_us;
	if (choice->last) {
		stats->hit_us = choice->last->hit_us;
		stats->source_us = choice->last->source_us;
	}
	lock_release(&tier->lock);
}

void store_tier_stats(struct store *store, struct tier_stats *stats)
{
	struct tier_store *tier = tier_of(store);

	assert(store->ops == &tier_ops);
	*stats = (struct tier_stats){ .hits = get(&tier->hits),
				      .misses = get(&tier->misses),
				      .puts = get(&tier->puts),
				      .puts_spared = get(&tier->puts_spared),
				      .puts_dropped = get(&tier->puts_dropped),
				      .errors = get(&tier->errors) + engine_errors(tier->engine),
				      .fallbacks = get(&tier->fallbacks),
				      .ratings = tier_ratings_count(tier->ratings) };
	get_times(tier, stats);
	stats->server_count = engine_stats(tier->engine, stats->servers, TIER_SERVERS_SHOWN);
	if (stats->server_count > TIER_SERVERS_SHOWN)
		stats->server_count = TIER_SERVERS_SHOWN;
}
