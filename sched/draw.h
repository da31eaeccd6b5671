/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the files behind pads.h share. Past draw_complete() a request is valid and has no
 * zeroes left that stand for defaults. */
#ifndef SHADE_DRAW_H
#define SHADE_DRAW_H

#include <stdbool.h>
#include <stddef.h>

#include "philox.h"
#include "shade/pads.h"

/* Ids with sort keys: the list that a draw is made of. */
struct draw_list {
	uint64_t *entries;
	uint64_t *scratch;
	size_t count;
	size_t room;
};

int draw_list_init(struct draw_list *list, size_t room);
void draw_list_free(struct draw_list *list);
/* There must be room. */
void draw_list_add(struct draw_list *list, uint32_t key, uint32_t id);
void draw_list_sort(struct draw_list *list);
/* Gives every entry a fresh key from `stream` and sorts. */
void draw_list_shuffle(struct draw_list *list, struct philox_stream stream);
static inline uint32_t draw_list_id(const struct draw_list *list, size_t index)
{
	return (uint32_t)list->entries[index];
}
static inline uint32_t draw_list_key(const struct draw_list *list, size_t index)
{
	return (uint32_t)(list->entries[index] >> 32);
}

/* The bits of a float, so that they compare as unsigned numbers; -0 and 0 are equal. */
uint32_t draw_sortable(float value);

/* Fills in the defaults of a request. 0 or -EINVAL. */
int draw_complete(struct pads_request *request);

/* The entries of this rank's part. */
static inline uint32_t draw_length(const struct pads_request *request)
{
	return request->draws / request->world + (request->rank < request->draws % request->world);
}

struct philox_stream draw_stream(const struct pads_request *request, enum philox_purpose purpose);

bool draw_is_resident(const struct pads_request *request, uint32_t id);
bool draw_is_unseen(const struct pads_request *request, uint32_t id);

/* Fills `order` with this rank's entries of a whole order. */
void draw_take_part(const struct pads_request *request, const struct draw_list *whole,
		    uint32_t *order);

/* Each mode: 0 or a negative errno. */
int draw_uniform(const struct pads_request *request, uint32_t *order);
int draw_replacement(const struct pads_request *request, uint32_t *order);
int draw_paper(const struct pads_request *request, uint32_t *order);
int draw_pads(const struct pads_request *request, uint32_t *order);
int draw_echo(const struct pads_request *request, uint32_t *order);

/* pads_weights() of the modes that have weights. */
int weights_pads(const struct pads_request *request, float *weights);
int weights_echo(const struct pads_request *request, float *weights);

#endif
