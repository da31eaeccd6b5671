/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* shade-sim run: the closed loop of one sampler, with one policy after the other. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "loop.h"
#include "sim.h"

/* The names of the periods, up to a NULL. */
static char **name_periods(const struct run_options *options)
{
	uint32_t count = options->by_epoch ? options->epochs : 2;
	char **names = must(calloc(count + 1, sizeof(*names)));

	for (uint32_t i = 0; i < count; i++)
		if (!options->by_epoch)
			names[i] = must(strdup(i ? "warm" : "cold"));
		else if (asprintf(&names[i], "%" PRIu32, i) < 0)
			fail("out of memory");
	return names;
}

int run_main(int argc, char **argv)
{
	struct report_row rows[ARGS_POLICIES_MAX] = { 0 };
	struct run_options options;
	struct losses losses;
	char **periods;

	run_parse(&options, argc, argv);
	losses_begin(&losses, options.losses, options.samples, options.request.seed);
	for (size_t i = 0; i < options.policies.count; i++) {
		rows[i].policy = options.policies.names[i];
		rows[i].periods = must(calloc((size_t)options.epochs + 1, sizeof(struct figures)));
		loop_run(&options, &losses, rows[i].policy, rows[i].policy, rows[i].periods);
	}
	periods = name_periods(&options);
	report_print(options.format, rows, options.policies.count, (const char *const *)periods,
		     options.samples);
	for (size_t i = 0; periods[i]; i++)
		free(periods[i]);
	free(periods);
	for (size_t i = 0; i < options.policies.count; i++)
		free(rows[i].periods);
	losses_free(&losses);
	return 0;
}
