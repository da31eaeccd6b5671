/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Cross-entropy on the CPU. */
#ifndef SHADE_LOSS_H
#define SHADE_LOSS_H

#include <stdint.h>

#include "shade/score.h"

/* The label of a row. */
int64_t loss_label(const struct shade_score_batch *batch, uint32_t row);

/* The losses of a batch of logits in host memory, whose labels are in range. */
void loss_rows(const struct shade_score_batch *batch, float *losses);

#endif
