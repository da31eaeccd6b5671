/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The values of options that only the simulator has. Each function exits with a sentence that names
 * the option if the value is not what it should be. */
#ifndef SHADE_SIM_ARGS_H
#define SHADE_SIM_ARGS_H

#include <stddef.h>
#include <stdint.h>

#include "size.h"

#define ARGS_POLICIES_MAX 16

struct args_policies {
	const char *names[ARGS_POLICIES_MAX];
	size_t count;
};

/* "8G", "4096" or "20%" of the data. */
struct size args_capacity(const char *option, const char *text);
/* The bytes of a capacity, at least 1. */
uint64_t args_capacity_bytes(struct size capacity, uint64_t data_bytes);
/* "lru,app" or "all"; changes `text`. */
void args_policies(struct args_policies *policies, const char *option, char *text);
/* The names for --help. */
void args_print_policies(void);

#endif
