/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Results as an aligned table, JSON or CSV. */
#ifndef SHADE_SIM_REPORT_H
#define SHADE_SIM_REPORT_H

#include <stddef.h>

#include "meter.h"

enum report_format { REPORT_TABLE, REPORT_JSON, REPORT_CSV };

/* What one policy did, in one period or in several. */
struct report_row {
	const char *policy;
	struct figures *periods;
};

/* `periods` are their names, up to a NULL; a single nameless one is {"", NULL}.
 * `samples` is what coverage is a share of. */
void report_print(enum report_format format, const struct report_row *rows, size_t count,
		  const char *const periods[], uint32_t samples);

#endif
