/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "losses.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "grow.h"
#include "lines.h"
#include "philox.h"

#define DIFFICULTY_SIGMA 1.0
#define DECAY 0.05 /* of the logarithm of the loss, a visit */
#define NOISE_SIGMA 0.1

/* A normally distributed number: Box and Muller. */
static double normal(uint64_t seed, uint64_t stream, uint64_t index)
{
	struct philox_stream philox = { seed, stream, PHILOX_MODEL };
	struct philox_block block = philox_at(philox, index);
	double u = ((double)block.word[0] + 1) * 0x1p-32, v = (double)block.word[1] * 0x1p-32;

	return sqrt(-2 * log(u)) * cos(2 * M_PI * v);
}

void losses_model(struct losses *losses, uint32_t samples, uint64_t seed)
{
	*losses = (struct losses){ .seed = seed, .samples = samples };
	losses->difficulty = must(malloc(samples * sizeof(*losses->difficulty)));
	losses->visits = must(calloc(samples, sizeof(*losses->visits)));
	for (uint32_t id = 0; id < samples; id++)
		losses->difficulty[id] = (float)(DIFFICULTY_SIGMA * normal(seed, 0, id));
}

static int by_id_and_epoch(const void *a, const void *b)
{
	const struct recorded *x = a, *y = b;

	if (x->id != y->id)
		return x->id < y->id ? -1 : 1;
	return x->epoch < y->epoch ? -1 : x->epoch > y->epoch;
}

static struct recorded read_record(struct lines *lines, uint32_t samples)
{
	struct recorded record;
	uint64_t id;

	record.epoch = lines_take_number(lines, "the epoch", UINT64_MAX);
	id = lines_take_number(lines, "the sample id", UINT64_MAX);
	if (id >= samples)
		lines_fail(lines, "sample %llu is not below --samples %u", (unsigned long long)id,
			   samples);
	record.id = (uint32_t)id;
	record.loss = (float)lines_take_amount(lines, "the loss");
	lines_end(lines);
	return record;
}

void losses_read(struct losses *losses, const char *path, uint32_t samples)
{
	size_t count = 0, room = 0;
	struct lines lines;

	*losses = (struct losses){ .samples = samples };
	lines_open(&lines, path);
	while (lines_next(&lines)) {
		if (!lines_has_word(&lines))
			continue;
		must_do(grow(losses->recorded, room, count, 1), "reading the losses");
		losses->recorded[count++] = read_record(&lines, samples);
	}
	if (!count)
		fail("%s has no loss", lines.name);
	lines_close(&lines);
	qsort(losses->recorded, count, sizeof(*losses->recorded), by_id_and_epoch);
	losses->first = must(calloc((size_t)samples + 1, sizeof(*losses->first)));
	for (size_t i = 0; i < count; i++)
		losses->first[losses->recorded[i].id + 1]++;
	for (uint32_t id = 0; id < samples; id++)
		losses->first[id + 1] += losses->first[id];
}

void losses_begin(struct losses *losses, const char *path, uint32_t samples, uint64_t seed)
{
	if (path)
		losses_read(losses, path, samples);
	else
		losses_model(losses, samples, seed);
}

void losses_free(struct losses *losses)
{
	free(losses->difficulty);
	free(losses->visits);
	free(losses->recorded);
	free(losses->first);
}

void losses_restart(struct losses *losses)
{
	if (losses->visits)
		memset(losses->visits, 0, losses->samples * sizeof(*losses->visits));
}

static bool recorded_loss(const struct losses *losses, uint64_t epoch, uint32_t id, float *loss)
{
	size_t from = losses->first[id], to = losses->first[id + 1];

	if (from == to)
		return false;
	while (to - from > 1 && losses->recorded[to - 1].epoch > epoch)
		to--;
	*loss = losses->recorded[to - 1].loss;
	return true;
}

bool losses_next(struct losses *losses, uint64_t epoch, uint32_t id, float *loss)
{
	uint32_t visit;

	if (losses->recorded)
		return recorded_loss(losses, epoch, id, loss);
	visit = ++losses->visits[id];
	*loss = (float)exp(losses->difficulty[id] - DECAY * visit +
			   NOISE_SIGMA * normal(losses->seed, visit, id));
	return true;
}
