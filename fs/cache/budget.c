/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cache/budget.h"

#include <assert.h>

#define PATIENCE_MS 100
#define SPARE_MS 20 /* one that hangs must not hold up the others for long */

bool budget_fits(const struct budget *budget, struct need need)
{
	return budget->running < budget->depth &&
	       (!need.bytes || budget_used(budget) + need.bytes <= budget_limit(budget, need));
}

bool budget_fits_ahead(const struct budget *budget)
{
	return budget->running < budget->depth && budget_used(budget) <= budget->limit_bytes / 2;
}

bool budget_may_use_spare(const struct budget *budget, uint64_t now_ms)
{
	return budget->running < budget->depth && now_ms > budget->dropped_ms + PATIENCE_MS &&
	       (!budget->spare_running || now_ms > budget->spare_ms + SPARE_MS);
}

/* Pages of one file come or go. */
static void add(struct budget *budget, uint64_t *sum, uint64_t bytes)
{
	*sum += bytes;
	if (budget_is_big(budget, bytes))
		budget->big_bytes += bytes;
}

static void subtract(struct budget *budget, uint64_t *sum, uint64_t bytes)
{
	assert(*sum >= bytes);
	*sum -= bytes;
	if (budget_is_big(budget, bytes))
		budget->big_bytes -= bytes;
}

void budget_set_arriving(struct budget *budget, uint64_t before, uint64_t now)
{
	subtract(budget, &budget->arriving_bytes, before);
	add(budget, &budget->arriving_bytes, now);
}

void budget_start(struct budget *budget, uint64_t bytes, uint64_t now_ms)
{
	assert(budget->running < budget->depth);
	budget->running++;
	budget->buffer_bytes += bytes;
	budget->started_ms = now_ms;
}

void budget_finish_read(struct budget *budget)
{
	assert(budget->running > 0);
	budget->running--;
}

void budget_free_buffer(struct budget *budget, uint64_t bytes)
{
	assert(budget->buffer_bytes >= bytes);
	budget->buffer_bytes -= bytes;
}

void budget_pass(struct budget *budget, uint64_t bytes)
{
	add(budget, &budget->passing_bytes, bytes);
}

void budget_unpass(struct budget *budget, uint64_t bytes)
{
	subtract(budget, &budget->passing_bytes, bytes);
}

void budget_leave(struct budget *budget, uint64_t bytes, uint64_t now_ms)
{
	if (!budget->leaving_bytes)
		budget->dropped_ms = now_ms;
	add(budget, &budget->leaving_bytes, bytes);
}

void budget_gone(struct budget *budget, uint64_t bytes, uint64_t now_ms)
{
	budget->dropped_ms = now_ms;
	subtract(budget, &budget->leaving_bytes, bytes);
}
