/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Draws orders for the demo, one for each request on standard input:
 *
 *	bench-draw MODE SAMPLES SEED REP USES CAPACITY
 *
 * A request is the epoch (64 bits), a score for each sample (float, below 0: none yet) and the
 * bitmap of the residents (whole words of 64 bits); the answer SAMPLES ids of 32 bits.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shade/pads.h"

int main(int argc, char **argv)
{
	struct pads_echo echo = { 0 };
	struct pads_request request = { .echo = &echo, .strength = 1 };
	uint64_t *resident;
	uint32_t *order;
	float *scores;
	size_t words;
	int rc = 0;

	if (argc != 7 || pads_mode_find(argv[1], &request.mode)) {
		fputs("usage: bench-draw MODE SAMPLES SEED REP USES CAPACITY\n", stderr);
		return 2;
	}
	request.samples = (uint32_t)strtoul(argv[2], NULL, 10);
	request.seed = strtoull(argv[3], NULL, 10);
	request.rep = strtod(argv[4], NULL);
	request.uses = strtod(argv[5], NULL);
	request.capacity = (uint32_t)strtoul(argv[6], NULL, 10);
	words = ((size_t)request.samples + 63) / 64;
	request.scores = scores = calloc(request.samples, sizeof(*scores));
	request.resident = resident = calloc(words, sizeof(*resident));
	order = calloc(request.samples, sizeof(*order));
	if (!scores || !resident || !order) {
		fputs("bench-draw: no memory\n", stderr);
		return 1;
	}
	while (!rc && fread(&request.epoch, sizeof(request.epoch), 1, stdin) == 1 &&
	       fread(scores, sizeof(*scores), request.samples, stdin) == request.samples &&
	       fread(resident, sizeof(*resident), words, stdin) == words) {
		rc = pads_draw(&request, order);
		if (rc)
			fprintf(stderr, "bench-draw: %s\n", strerror(-rc));
		else
			fwrite(order, sizeof(*order), request.samples, stdout);
		fflush(stdout);
	}
	pads_echo_free(&echo);
	free(scores);
	free(resident);
	free(order);
	return rc ? 1 : 0;
}
