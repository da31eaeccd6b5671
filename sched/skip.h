/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the files behind shade/skip.h share. Past skip_complete() a request is valid and has no
 * zeroes left that stand for defaults. */
#ifndef SHADE_SKIP_INTERNAL_H
#define SHADE_SKIP_INTERNAL_H

#include "draw.h"
#include "shade/skip.h"

/* Fills in the defaults. 0, -EINVAL or -ENOMEM. */
int skip_complete(struct skip_request *request);

/* Whether the sample was in no order for so long that it must come. */
bool skip_is_overdue(const struct skip_request *request, uint32_t id);

/* The samples whose loss is known, sorted by it. 0 or -ENOMEM; free the list. */
int skip_rank_losses(const struct skip_request *request, struct draw_list *ranked);

#endif
