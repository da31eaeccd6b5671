/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The options about prediction. */
#ifndef SHADE_PREDICT_SETTINGS_H
#define SHADE_PREDICT_SETTINGS_H

#include "predict/predict.h"

struct predict_settings {
	bool off;
	uint32_t seeds[PREDICT_SEEDS_MAX];
	unsigned seed_count;
};

/* auto or off; numbers with colons between. Something else ends the program. */
void predict_set_mode(struct predict_settings *settings, const char *text);
void predict_set_seeds(struct predict_settings *settings, const char *text);
void predict_show_seeds(const struct predict_settings *settings, FILE *out);
/* NULL if it is off. 0 or a negative errno. */
int predict_open(struct predict **out, const struct predict_settings *settings, struct cache *cache,
		 struct control *control);

#endif
