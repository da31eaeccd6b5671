/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tier/url.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tier/engine.h"

static const char scheme[] = "redis://";

/* Hosts have no @, so the last one ends the password, whatever else that has in it. NULL: there is
 * no user. */
static const char *end_of_user(const char *text)
{
	return strrchr(text, '@');
}

const char *url_find_password(const char *text, size_t *size)
{
	const char *user = text + sizeof(scheme) - 1, *end, *colon;

	*size = 0;
	if (strncmp(text, scheme, sizeof(scheme) - 1) != 0)
		return text;
	end = end_of_user(user);
	colon = end ? memchr(user, ':', (size_t)(end - user)) : NULL;
	if (!colon)
		return text;
	*size = (size_t)(end - colon - 1);
	return colon + 1;
}

static int hex(char c)
{
	return isdigit((unsigned char)c) ? c - '0' : tolower((unsigned char)c) - 'a' + 10;
}

/* NULL: no memory, or (with `*why`) not well-formed. */
static char *decode(const char *text, size_t size, const char **why)
{
	char *out = malloc(size + 1), *at = out;

	for (size_t i = 0; out && i < size; i++) {
		if (text[i] != '%') {
			*at++ = text[i];
			continue;
		}
		if (size - i < 3 || !isxdigit((unsigned char)text[i + 1]) ||
		    !isxdigit((unsigned char)text[i + 2]) || !strncmp(text + i, "%00", 3)) {
			*why = "has a % that two hexadecimal digits do not follow";
			free(out);
			return NULL;
		}
		*at++ = (char)(hex(text[i + 1]) * 16 + hex(text[i + 2]));
		i += 2;
	}
	if (out)
		*at = 0;
	return out;
}

static int parse_user(const char *text, const char *end, struct url *url, const char **why)
{
	const char *colon = memchr(text, ':', (size_t)(end - text));

	const char *end_of_name = colon ? colon : end;

	*why = "has an empty user or password";
	if ((colon && colon + 1 == end) || end == text)
		return -EINVAL;
	*why = NULL;
	if (colon)
		url->password = decode(colon + 1, (size_t)(end - colon - 1), why);
	if (!*why && end_of_name > text)
		url->user = decode(text, (size_t)(end_of_name - text), why);
	if ((colon && !url->password) || (end_of_name > text && !url->user))
		return *why ? -EINVAL : -ENOMEM;
	*why = "has too long a user or password";
	if ((url->password && strlen(url->password) > ENGINE_PASSWORD_MAX) ||
	    (url->user && strlen(url->user) > ENGINE_USER_MAX))
		return -EINVAL;
	return 0;
}

static int parse_seeds(const char *text, struct url *url, const char **why)
{
	*why = "takes redis://HOST:PORT, and more ,HOST:PORT";
	for (;;) {
		size_t size = strcspn(text, ",");

		if (url->seed_count == URL_SEEDS_MAX ||
		    slots_parse_address(text, size, &url->seeds[url->seed_count]))
			return -EINVAL;
		url->seed_count++;
		if (!text[size])
			return 0;
		text += size + 1;
	}
}

int url_parse(const char *text, struct url *url, const char **why)
{
	const char *end;
	int rc = 0;

	*url = (struct url){ 0 };
	*why = "takes redis://HOST:PORT, and more ,HOST:PORT";
	if (strncmp(text, scheme, sizeof(scheme) - 1) != 0)
		return -EINVAL;
	text += sizeof(scheme) - 1;
	url->seeds = calloc(URL_SEEDS_MAX, sizeof(*url->seeds));
	if (!url->seeds)
		return -ENOMEM;
	end = end_of_user(text);
	if (end)
		rc = parse_user(text, end, url, why);
	if (!rc)
		rc = parse_seeds(end ? end + 1 : text, url, why);
	if (rc)
		url_free(url);
	return rc;
}

void url_free(struct url *url)
{
	if (url->password)
		explicit_bzero(url->password, strlen(url->password));
	free(url->password);
	free(url->user);
	free(url->seeds);
	*url = (struct url){ 0 };
}
