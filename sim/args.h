/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The values of options. Each function exits with a sentence that names the option if
 * the value is not what it should be. */
#ifndef SHADE_SIM_ARGS_H
#define SHADE_SIM_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARGS_POLICIES_MAX 16
#define POLICY_MIN "min"

struct args_policies {
	const char *names[ARGS_POLICIES_MAX];
	size_t count;
};

struct args_capacity {
	double share; /* of the data; 0: `bytes` counts */
	uint64_t bytes;
};

struct option;

/* The next long option, or -1 at the end; words that are no options are errors. */
int args_next(int argc, char **argv, const struct option *table);

uint64_t args_number(const char *option, const char *text, uint64_t from, uint64_t to);
double args_real(const char *option, const char *text, double from, double to);
/* "8G", "4096" or "20%". */
struct args_capacity args_capacity(const char *option, const char *text);
/* The bytes of a capacity, at least 1. */
uint64_t args_capacity_bytes(struct args_capacity capacity, uint64_t data_bytes);
/* "lru,app" or "all"; changes `text`. */
void args_policies(struct args_policies *policies, const char *option, char *text);
/* The names for --help. */
void args_print_policies(void);

#endif
