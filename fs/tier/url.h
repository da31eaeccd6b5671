/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* redis://[USER[:PASSWORD]@]HOST:PORT[,HOST:PORT...], as the option tier= has it. */
#ifndef SHADE_TIER_URL_H
#define SHADE_TIER_URL_H

#include "tier/slots.h"

#define URL_SEEDS_MAX 64

struct url {
	char *user, *password; /* NULL: none */
	struct slots_address *seeds;
	unsigned seed_count;
};

/* 0, -ENOMEM, or -EINVAL with a sentence's end in `why`. In user and password %XX stands for a
 * byte, which needs it if it is one of @ : , / %. `redis://:PASSWORD@...` has no user. */
int url_parse(const char *text, struct url *url, const char **why);
void url_free(struct url *url);

/* Where the password is in a text that begins as such a URL, so that it can be made unreadable; its
 * size may be 0. */
const char *url_find_password(const char *text, size_t *size);

#endif
