/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A table in which what waits is found by a key, in a few steps however much waits. Callers may
 * make tens of thousands of requests at a time, and each may have to be found while a lock is held.
 * The table allocates nothing: whatever is in it begins with a struct keyed.
 */
#ifndef SHADE_KEYED_H
#define SHADE_KEYED_H

#include <stddef.h>
#include <stdint.h>

#define KEYED_BITS 12

struct keyed {
	uint64_t key;
	struct keyed *next, **before; /* in its bucket */
};

struct keyed_table {
	struct keyed *buckets[1 << KEYED_BITS];
};

/* Keys are addresses or numbers: the highest bits of the product depend on all bits below. */
static inline struct keyed **keyed_bucket(struct keyed_table *table, uint64_t key)
{
	return &table->buckets[key * UINT64_C(0x9e3779b97f4a7c15) >> (64 - KEYED_BITS)];
}

static inline void keyed_add(struct keyed_table *table, struct keyed *keyed, uint64_t key)
{
	struct keyed **bucket = keyed_bucket(table, key);

	*keyed = (struct keyed){ .key = key, .next = *bucket, .before = bucket };
	if (keyed->next)
		keyed->next->before = &keyed->next;
	*bucket = keyed;
}

static inline void keyed_remove(struct keyed *keyed)
{
	*keyed->before = keyed->next;
	if (keyed->next)
		keyed->next->before = keyed->before;
}

/* The first with this key from `keyed` on. NULL: there is none. */
static inline struct keyed *keyed_from(struct keyed *keyed, uint64_t key)
{
	while (keyed && keyed->key != key)
		keyed = keyed->next;
	return keyed;
}

static inline struct keyed *keyed_find(struct keyed_table *table, uint64_t key)
{
	return keyed_from(*keyed_bucket(table, key), key);
}

/* The next with the same key. */
static inline struct keyed *keyed_next(const struct keyed *keyed)
{
	return keyed_from(keyed->next, keyed->key);
}

#endif
