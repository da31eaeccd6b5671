/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "multinomial.h"

#include <errno.h>
#include <stdlib.h>

#include "array.h"

#define WEIGHT_TOP 1048576.0f

/* Where in [0, total) a uniform number falls. */
static uint64_t scale(uint64_t uniform, uint64_t total)
{
	return (uint64_t)((unsigned __int128)uniform * total >> 64);
}

static float largest_score(const float *scores, uint32_t count, float unseen)
{
	float largest = unseen > 0 ? unseen : 0;

	for (uint32_t i = 0; scores && i < count; i++)
		if (scores[i] > largest)
			largest = scores[i];
	return largest;
}

static uint64_t weight_of(float score, float largest, float unseen)
{
	if (score < 0)
		score = unseen < 0 ? largest : unseen;
	if (largest <= 0)
		return 1;
	return 1 + (uint64_t)(score / largest * WEIGHT_TOP);
}

/* guide[b] is the first id whose end lies beyond the b-th part of the range. */
static void fill_guide(struct multinomial *m)
{
	uint32_t id = 0;

	for (uint32_t b = 0; b < m->count; b++) {
		uint64_t start = (uint64_t)((unsigned __int128)m->total * b / m->count);

		while (m->ends[id] <= start)
			id++;
		m->guide[b] = id;
	}
}

int multinomial_init(struct multinomial *m, const float *scores, uint32_t count, float unseen)
{
	float largest = largest_score(scores, count, unseen);

	*m = (struct multinomial){ .count = count };
	m->ends = array_new(count, sizeof(*m->ends));
	m->guide = array_new(count, sizeof(*m->guide));
	if (!m->ends || !m->guide) {
		multinomial_free(m);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < count; i++) {
		m->total += weight_of(scores ? scores[i] : -1, largest, unseen);
		m->ends[i] = m->total;
	}
	fill_guide(m);
	return 0;
}

void multinomial_free(struct multinomial *m)
{
	free(m->ends);
	free(m->guide);
	*m = (struct multinomial){ 0 };
}

void multinomial_pick(const struct multinomial *m, struct philox_stream stream, uint64_t first,
		      uint32_t ids[MULTINOMIAL_BATCH])
{
	uint64_t uniform[MULTINOMIAL_BATCH];

	for (unsigned i = 0; i < MULTINOMIAL_BATCH; i++) {
		uniform[i] = philox_u64(stream, first + i);
		__builtin_prefetch(&m->guide[scale(uniform[i], m->count)]);
	}
	for (unsigned i = 0; i < MULTINOMIAL_BATCH; i++) {
		ids[i] = m->guide[scale(uniform[i], m->count)];
		__builtin_prefetch(&m->ends[ids[i]]);
	}
	for (unsigned i = 0; i < MULTINOMIAL_BATCH; i++)
		while (m->ends[ids[i]] <= scale(uniform[i], m->total))
			ids[i]++;
}

double multinomial_share(const struct multinomial *m, uint32_t id)
{
	uint64_t start = id ? m->ends[id - 1] : 0;

	return (double)(m->ends[id] - start) / (double)m->total;
}
