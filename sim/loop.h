/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Sampler, cache and losses in a closed loop. What is resident shapes the next order, what is read
 * is scored, and scores shape both.
 *
 * Each policy runs its own loop, because each makes its own stream. To compare policies on one and
 * the same stream, freeze it and replay it.
 */
#ifndef SHADE_SIM_LOOP_H
#define SHADE_SIM_LOOP_H

#include "losses.h"
#include "run.h"

/* Runs all epochs from an empty cache on; `name` is for whoever watches. `periods` gets the figures
 * of each epoch if the options say so, else those of the first half and of the second. */
void loop_run(const struct run_options *options, struct losses *losses, const char *name,
	      const char *policy, struct figures *periods);

#endif
