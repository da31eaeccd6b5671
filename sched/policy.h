/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a policy is: one file that fills in one `const struct policy`, one row in
 * registry.c, one line in meson.build.
 *
 * The core (sched.c) owns the control flow and the byte accounting; a policy only ranks.
 * It knows exactly the samples that may leave: resident, committed, not pinned. Each
 * enters once and leaves once.
 */
#ifndef SHADE_POLICY_H
#define SHADE_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SAMPLE_NONE UINT32_MAX
#define POLICY_SAMPLE_BYTES 16

struct sched;

struct policy {
	const char *name;
	const char *summary; /* a line for --help */
	bool reference;	     /* for the simulator and the tests, not for a mount */
	bool follows_orders; /* ranks by the horizon, so that prefetch makes sense */
	size_t state_bytes;  /* zeroed at the start */
	size_t sample_bytes; /* of POLICY_SAMPLE_BYTES for each sample; 0xff at the start */

	/* Makes sure that `held` samples can have entered. 0 or -ENOMEM. NULL: always. */
	int (*reserve)(struct sched *s, uint32_t held);
	void (*finish)(struct sched *s);

	void (*enter)(struct sched *s, uint32_t id);
	void (*leave)(struct sched *s, uint32_t id);
	/* Takes back a leave; undone last to first. NULL: enter does. */
	void (*restore)(struct sched *s, uint32_t id);
	/* A resident was read, or its score changed. NULL: nothing to do. */
	void (*touch)(struct sched *s, uint32_t id);
	void (*rescore)(struct sched *s, uint32_t id);
	/* Who leaves for `newcomer`, or SAMPLE_NONE if nobody deserves to. With SAMPLE_NONE as
	 * the newcomer, somebody must: the least valuable. */
	uint32_t (*victim)(struct sched *s, uint32_t newcomer);
	/* The sample is read soon: have the policy's data of it fetched from memory. NULL: the
	 * core's own doing is enough. */
	void (*look_ahead)(const struct sched *s, uint32_t id);
	/* An epoch begins. NULL: nothing to do. */
	void (*epoch)(struct sched *s);
	/* Orders or jobs changed: rank everything anew. NULL: nothing to do. */
	void (*rebuild)(struct sched *s);
	/* The first broken invariant, or NULL. */
	const char *(*check)(const struct sched *s);
};

/* NULL: there is none of that name. */
const struct policy *policy_find(const char *name);
const struct policy *policy_default(void);

extern const struct policy policy_app;
extern const struct policy policy_fifo;
extern const struct policy policy_icache;
extern const struct policy policy_lfu;
extern const struct policy policy_lru;
extern const struct policy policy_minio;
extern const struct policy policy_naive;
extern const struct policy policy_shade;

#endif
