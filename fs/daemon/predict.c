/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/predict.h"

#include <inttypes.h>
#include <string.h>

#include "fail.h"
#include "number.h"

void predict_set_mode(struct predict_settings *settings, const char *text)
{
	if (strcmp(text, "auto") && strcmp(text, "off"))
		give_up("option predict takes auto or off, not '%s'", text);
	settings->off = !strcmp(text, "off");
}

void predict_set_seeds(struct predict_settings *settings, const char *text)
{
	settings->seed_count = 0;
	for (const char *at = text;; at++) {
		size_t length = strcspn(at, ":");
		uint64_t seed;

		if (settings->seed_count == PREDICT_SEEDS_MAX)
			give_up("option predict_seed takes at most %u seeds", PREDICT_SEEDS_MAX);
		if (number_whole(at, length, &seed))
			give_up("option predict_seed takes whole numbers with colons between, not "
				"'%s'",
				text);
		/* torch uses the low 32 bits. */
		settings->seeds[settings->seed_count++] = (uint32_t)seed;
		at += length;
		if (!*at)
			return;
	}
}

void predict_show_seeds(const struct predict_settings *settings, FILE *out)
{
	for (unsigned i = 0; i < settings->seed_count; i++)
		fprintf(out, "%s%" PRIu32, i ? ":" : "", settings->seeds[i]);
	if (!settings->seed_count)
		fputs("-", out);
}

int predict_open(struct predict **out, const struct predict_settings *settings, struct cache *cache,
		 struct control *control)
{
	struct predict_options options = { .cache = cache,
					   .control = control,
					   .seed_count = settings->seed_count };

	*out = NULL;
	memcpy(options.seeds, settings->seeds, sizeof(options.seeds));
	return settings->off ? 0 : predict_create(out, &options);
}
