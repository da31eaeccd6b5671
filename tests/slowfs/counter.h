/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* How many requests of each kind arrived. Safe from any thread. */
#ifndef SLOWFS_COUNTER_H
#define SLOWFS_COUNTER_H

#include <stdint.h>
#include <stdio.h>

enum counter {
	COUNTER_OPENS,
	COUNTER_DIRECT_OPENS, /* of these, with O_DIRECT */
	COUNTER_READS,
	COUNTER_BYTES, /* delivered in answers to READ */
	COUNTER_SEEKS, /* of the arm, with seek_us */
	COUNTER_LOOKUPS,
	COUNTER_GETATTRS,
	COUNTER_READDIRS,
	COUNTER_READDIRPLUS,
	COUNTER_COUNT
};

void counter_add(enum counter counter, uint64_t amount);
void counter_reset(void);

/* One `name value` line each. */
void counter_print(FILE *out);

#endif
