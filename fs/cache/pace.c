/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cache/pace.h"

/* Adds the window to the sums. The longer it was, the more they fade before that. */
static void end_window(struct pace *pace)
{
	double kept = PACE_MEMORY_MS / (PACE_MEMORY_MS + (double)pace->window_ms);

	pace->ms = pace->ms * kept + (double)pace->window_ms;
	pace->steps = pace->steps * kept + (double)pace->window_steps;
	pace->window_ms = pace->window_steps = 0;
}

/* Threads read the clock before they acquire the lock: time may seem to go back a little. */
bool pace_access(struct pace *pace, uint64_t now_ms)
{
	uint64_t gap_ms = pace->begun && now_ms > pace->last_ms ? now_ms - pace->last_ms : 0;

	if (pace->begun && gap_ms <= PACE_PAUSE_MS) {
		pace->window_ms += gap_ms;
		pace->window_steps++;
	}
	pace->begun = true;
	if (now_ms > pace->last_ms)
		pace->last_ms = now_ms;
	if (pace->window_ms < PACE_WINDOW_MS)
		return false;
	end_window(pace);
	return true;
}

/* The mean of all until there are PACE_MISSES of them. */
void pace_miss(struct pace *pace, double wait_s)
{
	pace->misses++;
	pace->wait_s += (wait_s - pace->wait_s) /
			(double)(pace->misses < PACE_MISSES ? pace->misses : PACE_MISSES);
}

double pace_step_s(const struct pace *pace)
{
	return pace->steps > 0 ? pace->ms / pace->steps / 1000 : 0;
}

double pace_benefit(const struct pace *pace)
{
	double step_s = pace_step_s(pace);

	return step_s > 0 ? pace->wait_s / step_s : 0;
}
