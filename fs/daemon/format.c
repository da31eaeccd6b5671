/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/format.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/estate.h"
#include "cache/cache.h"
#include "control/control.h"
#include "daemon/handover.h"
#include "daemon/heritage.h"
#include "daemon/watchdog.h"
#include "fuse/session.h"
#include "names/tree.h"
#include "native/overlay.h"
#include "source/devices.h"

#ifndef SHADE_VERSION
#error "the build says which version this is: -DSHADE_VERSION=..."
#endif
/* Raise it if something means another thing than before and the tables do not tell: bits, values,
 * units, or what one part of the program promises another. */
#ifndef SHADE_FORMAT
#define SHADE_FORMAT 1
#endif

static const struct format_line own[] = { { "format", SHADE_FORMAT },
					  { "bytes of an address", sizeof(void *) },
					  FORMAT_SIZE(struct heritage),
					  FORMAT_FIELD(struct heritage, can_notice),
					  FORMAT_FIELD(struct heritage, takeovers),
					  FORMAT_FIELD(struct heritage, upgrades),
					  FORMAT_FIELD(struct heritage, status),
					  FORMAT_FIELD(struct heritage, control),
					  FORMAT_FIELD(struct heritage, files),
					  FORMAT_FIELD(struct heritage, overlay),
					  FORMAT_END };

/* The tables of all who keep something. */
static const struct format_line *const tables[] = { own,	   handover_format, watchdog_format,
						    estate_format, devices_format,  tree_format,
						    cache_format,  said_format,	    control_format,
						    agreed_format, overlay_format };

const char *format_program(void)
{
	return SHADE_VERSION;
}

void format_write(char text[FORMAT_MAX])
{
	char *at = text, *end = text + FORMAT_MAX;

	memset(text, 0, FORMAT_MAX);
	for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++)
		for (const struct format_line *line = tables[i]; line->name; line++) {
			at += snprintf(at, (size_t)(end - at), "%s %" PRIu64 "\n", line->name,
				       line->value);
			assert(at < end);
		}
}

bool format_is_same(const char *theirs, char *why, size_t room)
{
	char text[FORMAT_MAX];
	const char *ours = text;

	format_write(text);
	while (*ours || *theirs) {
		int our_length = (int)strcspn(ours, "\n"), length = (int)strcspn(theirs, "\n");

		if (our_length != length || strncmp(ours, theirs, (size_t)length) != 0) {
			snprintf(why, room, "it has '%.*s' where the running one has '%.*s'",
				 our_length, ours, length, theirs);
			return false;
		}
		ours += our_length + (ours[our_length] != 0);
		theirs += length + (theirs[length] != 0);
	}
	return true;
}
