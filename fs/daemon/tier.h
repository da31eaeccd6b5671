/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The options of the tier, what follows from them, and what reports say of it. */
#ifndef SHADE_DAEMON_TIER_H
#define SHADE_DAEMON_TIER_H

#include <stdbool.h>
#include <stdio.h>

#include "tier/url.h"

#define TIER_ENVIRONMENT "SHADEFS_TIER_PASSWORD"

struct store;

/* All strings are to be freed; NULL: not given. */
struct tier_settings {
	struct url url; /* without seeds there is no tier */
	char *volume;	/* what all nodes call the source */
	char *key_file, *password_file;
	double timeout_s;
	char *secret; /* what key_file has */
	size_t secret_size;
};

/* These print one sentence and exit with 1 if the value is wrong. */
void tier_set_url(struct tier_settings *settings, const char *text);
void tier_set_volume(struct tier_settings *settings, const char *text);
/* Reads passwords and secrets. `volume` is what the source is called if no option says it; NULL:
 * nothing. */
void tier_complete(struct tier_settings *settings, const char *volume);
void tier_free(struct tier_settings *settings);

/* Of a list of options, at an item that begins with "tier=": whether what follows a comma belongs
 * to its value, which has commas itself. */
bool tier_continues(const char *rest);
/* Makes the password in an option unreadable where ps(1) shows it. */
void tier_hide_password(const char *item, char *shown);
void tier_show_url(const struct tier_settings *settings, FILE *out);

/* Puts the tier over `*store`, if there is one. 0 or a negative errno. */
int tier_open(struct store **store, const struct tier_settings *settings);
/* The lines of .shade/stats, or of .shade/metrics. */
void tier_print(struct store *store, FILE *out, bool metrics);

#endif
