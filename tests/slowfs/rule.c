/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One rule per path: a fault, and the counts of the path's requests. A rule is made by the
 * first fault or watch and stays until the end, so nobody can lose one that it waits on.
 *
 * Each setting or clearing of a fault gives the rule a new epoch. A request hangs until
 * the epoch moves on, and an open that was ended early sees the rest of the file then. A
 * fault with a count takes itself away after the last strike without a new epoch: what
 * hangs goes on hanging.
 *
 * A replaced file is the source's with all bytes changed alike and later times. Version
 * after version differs, and all who read or stat the path see the same one.
 */
#include "rule.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "escape.h"

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

/* The threads beyond these stay free for the control file and for other paths. */
#define HUNG_MAX 160

struct rule {
	UT_hash_handle hh;
	struct rule_fault fault; /* kind RULE_NONE: only watched */
	uint64_t epoch;
	uint64_t version; /* how often the content was replaced */
	uint64_t opens, reads, bytes;
	char path[];
};

/* One lock for the rules and all that is in them: a request holds it for a few lines. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* an epoch, a wait's interrupted, or closed */
	struct rule *rules;	/* lock */
	uint64_t epochs;	/* lock */
	unsigned int hung;	/* lock */
	bool closed;		/* lock */
	_Atomic bool any;	/* lets most requests pass without the lock */
} state = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.changed = PTHREAD_COND_INITIALIZER,
};

static const char *const kind_names[RULE_KIND_COUNT] = {
	[RULE_NONE] = "none",	      [RULE_EIO] = "eio",
	[RULE_ESTALE] = "estale",     [RULE_SHORT] = "short",
	[RULE_HANG] = "hang",	      [RULE_CHANGE] = "change",
	[RULE_EIOOPEN] = "eioopen",   [RULE_ESTALEOPEN] = "estaleopen",
	[RULE_HANGOPEN] = "hangopen",
};

bool rule_kind_parse(const char *name, struct rule_fault *fault)
{
	bool once = !strncmp(name, "once-", 5);

	for (int kind = RULE_NONE + 1; kind < RULE_KIND_COUNT; kind++) {
		if (strcmp(once ? name + 5 : name, kind_names[kind]))
			continue;
		fault->kind = kind;
		/* A file that is replaced at each READ is rarely meant. */
		fault->count = once || kind == RULE_CHANGE ? 1 : RULE_UNLIMITED;
		fault->after = kind == RULE_CHANGE ? RULE_FIRST_READ : 0;
		return true;
	}
	return false;
}

bool rule_kind_reads(enum rule_kind kind)
{
	return kind > RULE_NONE && kind < RULE_EIOOPEN;
}

static struct rule *find_locked(const char *path)
{
	struct rule *rule;

	HASH_FIND_STR(state.rules, path, rule);
	return rule;
}

static int make_locked(const char *path, struct rule **made)
{
	size_t length = strlen(path);
	struct rule *rule = find_locked(path);

	*made = rule;
	if (rule)
		return 0;
	if (HASH_COUNT(state.rules) >= RULE_MAX)
		return -ENOSPC;
	rule = calloc(1, sizeof(*rule) + length + 1);
	if (!rule)
		return -ENOMEM;
	memcpy(rule->path, path, length);
	HASH_ADD_KEYPTR(hh, state.rules, rule->path, length, rule);
	if (!rule->hh.tbl) {
		free(rule);
		return -ENOMEM;
	}
	atomic_store(&state.any, true);
	*made = rule;
	return 0;
}

static void renew_locked(struct rule *rule, const struct rule_fault *fault)
{
	rule->fault = *fault;
	rule->epoch = ++state.epochs;
	pthread_cond_broadcast(&state.changed);
}

int rule_set(const char *path, const struct rule_fault *fault)
{
	struct rule *rule;
	int ret;

	assert(fault->kind > RULE_NONE && fault->kind < RULE_KIND_COUNT && fault->count);
	pthread_mutex_lock(&state.lock);
	ret = make_locked(path, &rule);
	if (!ret)
		renew_locked(rule, fault);
	pthread_mutex_unlock(&state.lock);
	return ret;
}

int rule_watch(const char *path)
{
	struct rule *rule;
	int ret;

	pthread_mutex_lock(&state.lock);
	ret = make_locked(path, &rule);
	pthread_mutex_unlock(&state.lock);
	return ret;
}

static void clear_locked(struct rule *rule)
{
	renew_locked(rule, &(struct rule_fault){ .kind = RULE_NONE });
	rule->version = 0;
}

void rule_clear(const char *path)
{
	struct rule *rule, *next;

	pthread_mutex_lock(&state.lock);
	if (path) {
		rule = find_locked(path);
		if (rule)
			clear_locked(rule);
	} else {
		HASH_ITER (hh, state.rules, rule, next)
			clear_locked(rule);
	}
	pthread_mutex_unlock(&state.lock);
}

void rule_reset_counters(void)
{
	struct rule *rule, *next;

	pthread_mutex_lock(&state.lock);
	HASH_ITER (hh, state.rules, rule, next)
		rule->opens = rule->reads = rule->bytes = 0;
	pthread_mutex_unlock(&state.lock);
}

static void strike_locked(struct rule *rule)
{
	assert(rule->fault.kind != RULE_NONE && rule->fault.count);
	if (rule->fault.count != RULE_UNLIMITED && !--rule->fault.count)
		rule->fault.kind = RULE_NONE;
}

static int hang_locked(struct rule *rule, const struct rule_wait *wait)
{
	uint64_t epoch = rule->epoch;

	if (state.hung >= HUNG_MAX)
		return -EBUSY;
	state.hung++;
	while (!state.closed && !wait->interrupted && rule->epoch == epoch)
		pthread_cond_wait(&state.changed, &state.lock);
	state.hung--;
	if (state.closed)
		return -ECONNABORTED;
	return wait->interrupted ? -EINTR : 0;
}

/* Whether the fault strikes a READ of `open`, or for NULL an OPEN. */
static bool strikes_locked(const struct rule *rule, const struct rule_open *open)
{
	switch (rule->fault.kind) {
	case RULE_EIO:
	case RULE_ESTALE:
	case RULE_HANG:
		return open && open->delivered >= rule->fault.after;
	case RULE_EIOOPEN:
	case RULE_ESTALEOPEN:
	case RULE_HANGOPEN:
		return !open;
	default:
		return false;
	}
}

static int answer_locked(struct rule *rule, const struct rule_wait *wait)
{
	enum rule_kind kind = rule->fault.kind;

	strike_locked(rule);
	if (kind == RULE_HANG || kind == RULE_HANGOPEN)
		return hang_locked(rule, wait);
	return kind == RULE_EIO || kind == RULE_EIOOPEN ? -EIO : -ESTALE;
}

static int enter(const char *path, const struct rule_open *open, const struct rule_wait *wait)
{
	struct rule *rule;
	int ret = 0;

	if (!atomic_load(&state.any))
		return 0;
	pthread_mutex_lock(&state.lock);
	rule = find_locked(path);
	if (rule) {
		++*(open ? &rule->reads : &rule->opens);
		/* What is released may meet the next fault. */
		while (!ret && strikes_locked(rule, open))
			ret = answer_locked(rule, wait);
	}
	pthread_mutex_unlock(&state.lock);
	return ret;
}

int rule_enter_open(const char *path, struct rule_wait *wait)
{
	return enter(path, NULL, wait);
}

int rule_enter_read(const char *path, const struct rule_open *open, struct rule_wait *wait)
{
	assert(open);
	return enter(path, open, wait);
}

static void change_bytes(unsigned char *data, size_t size, uint64_t version)
{
	/* 0xff, 0xfe, ... 0x01, 0xff: never 0, so a replaced file always differs. */
	unsigned char mask = version ? (unsigned char)(0xff - (version - 1) % 0xff) : 0;

	for (size_t i = 0; mask && i < size; i++)
		data[i] ^= mask;
}

/* How many of the next `size` bytes come from before a replacement that is due. */
static size_t bytes_before_change(const struct rule *rule, const struct rule_open *open,
				  size_t size)
{
	uint64_t after = rule->fault.after;

	if (rule->fault.kind != RULE_CHANGE || after == RULE_FIRST_READ ||
	    open->delivered + size <= after)
		return size;
	return after > open->delivered ? (size_t)(after - open->delivered) : 0;
}

static void change_locked(struct rule *rule, const struct rule_open *open, unsigned char *data,
			  size_t size)
{
	size_t before = bytes_before_change(rule, open, size);
	bool first = rule->fault.kind == RULE_CHANGE && rule->fault.after == RULE_FIRST_READ;

	change_bytes(data, before, rule->version);
	if (before < size || (first && size)) {
		strike_locked(rule);
		rule->version++;
	}
	change_bytes(data + before, size - before, rule->version);
}

static size_t shorten_locked(struct rule *rule, struct rule_open *open, size_t size)
{
	if (open->short_epoch == rule->epoch && rule->epoch)
		return 0;
	if (rule->fault.kind != RULE_SHORT || open->delivered < rule->fault.after || !size)
		return size;
	strike_locked(rule);
	open->short_epoch = rule->epoch;
	return size / 2;
}

size_t rule_shape(const char *path, struct rule_open *open, unsigned char *data, size_t size)
{
	struct rule *rule;

	pthread_mutex_lock(&state.lock);
	rule = find_locked(path);
	if (rule) {
		size = shorten_locked(rule, open, size);
		change_locked(rule, open, data, size);
		rule->bytes += size;
	}
	open->delivered += size;
	pthread_mutex_unlock(&state.lock);
	return size;
}

void rule_stamp(const char *path, struct stat *st)
{
	struct rule *rule;

	if (!atomic_load(&state.any))
		return;
	pthread_mutex_lock(&state.lock);
	rule = find_locked(path);
	if (rule) {
		st->st_mtim.tv_sec += (time_t)rule->version;
		st->st_ctim.tv_sec += (time_t)rule->version;
	}
	pthread_mutex_unlock(&state.lock);
}

void rule_interrupt(struct rule_wait *wait)
{
	pthread_mutex_lock(&state.lock);
	wait->interrupted = true;
	pthread_cond_broadcast(&state.changed);
	pthread_mutex_unlock(&state.lock);
}

void rule_close(void)
{
	pthread_mutex_lock(&state.lock);
	state.closed = true;
	pthread_cond_broadcast(&state.changed);
	pthread_mutex_unlock(&state.lock);
}

void rule_destroy(void)
{
	struct rule *rule, *next;

	assert(!state.hung);
	/* The analyzer loses track of uthash's list and believes that `rule` was freed before. */
	HASH_ITER (hh, state.rules, rule, next) {
		HASH_DEL(state.rules, rule); /* NOLINT(clang-analyzer-unix.Malloc) */
		free(rule);
	}
}

/* So that it has neither blanks nor line ends. */
static void print_path(FILE *out, const char *path)
{
	escape_print(out, path, ESCAPE_SPACE | ESCAPE_OCTAL);
}

/* `name path value`. */
static void print_count(FILE *out, const char *name, const char *path, uint64_t value)
{
	fprintf(out, "%s ", name);
	print_path(out, path);
	fprintf(out, " %" PRIu64 "\n", value);
}

/* The line that would set the fault as it is now. */
static void print_fault(FILE *out, const struct rule *rule)
{
	const struct rule_fault *fault = &rule->fault;

	fprintf(out, "fault %s", kind_names[fault->kind]);
	if (fault->count != RULE_UNLIMITED)
		fprintf(out, ",count=%" PRIu64, fault->count);
	if (fault->after && fault->after != RULE_FIRST_READ)
		fprintf(out, ",after=%" PRIu64, fault->after);
	putc(' ', out);
	print_path(out, rule->path);
	putc('\n', out);
}

void rule_print(FILE *out)
{
	struct rule *rule, *next;

	pthread_mutex_lock(&state.lock);
	fprintf(out, "hung %u\n", state.hung);
	HASH_ITER (hh, state.rules, rule, next) {
		if (rule->fault.kind != RULE_NONE)
			print_fault(out, rule);
		print_count(out, "opens", rule->path, rule->opens);
		print_count(out, "reads", rule->path, rule->reads);
		print_count(out, "bytes", rule->path, rule->bytes);
		if (rule->version)
			print_count(out, "changed", rule->path, rule->version);
	}
	pthread_mutex_unlock(&state.lock);
}
