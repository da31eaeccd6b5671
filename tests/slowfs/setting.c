/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One table of settings: names, units, bounds and defaults. Each request loads what it
 * needs when it needs it, so a change holds from the next request on.
 */
#include "setting.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define HOUR_US UINT64_C(3600000000)

enum unit {
	UNIT_PLAIN,
	UNIT_BYTES,   /* a number with K, M or G behind it */
	UNIT_SECONDS, /* written as decimal seconds, held in microseconds */
};

static const struct row {
	const char *name;
	enum unit unit;
	uint64_t highest;
} rows[SETTING_COUNT] = {
	[SETTING_DELAY_US] = { "delay_us", UNIT_PLAIN, HOUR_US },
	[SETTING_READ_DELAY_US] = { "read_delay_us", UNIT_PLAIN, HOUR_US },
	[SETTING_META_DELAY_US] = { "meta_delay_us", UNIT_PLAIN, HOUR_US },
	[SETTING_BANDWIDTH] = { "bandwidth", UNIT_BYTES, UINT64_C(1) << 50 },
	[SETTING_TIMEOUT_US] = { "timeout", UNIT_SECONDS, 24 * HOUR_US },
	[SETTING_DIRECT_IO] = { "direct_io", UNIT_PLAIN, 1 },
};

static _Atomic uint64_t values[SETTING_COUNT] = {
	[SETTING_DIRECT_IO] = 1,
};

uint64_t setting_load(enum setting setting)
{
	assert(setting < SETTING_COUNT);
	return atomic_load_explicit(&values[setting], memory_order_relaxed);
}

void setting_store(enum setting setting, uint64_t value)
{
	assert(setting < SETTING_COUNT && value <= rows[setting].highest);
	atomic_store_explicit(&values[setting], value, memory_order_relaxed);
}

/* The power of two that a suffix of bytes stands for, or -1. */
static int suffix_shift(const char *suffix)
{
	if (suffix[0] && suffix[1])
		return -1;
	switch (suffix[0]) {
	case '\0':
		return 0;
	case 'K':
	case 'k':
		return 10;
	case 'M':
	case 'm':
		return 20;
	case 'G':
	case 'g':
		return 30;
	default:
		return -1;
	}
}

static int parse_number(const char *text, enum unit unit, uint64_t *value)
{
	char *end;
	int shift;

	errno = 0;
	*value = strtoull(text, &end, 10);
	if (errno)
		return -EINVAL;
	shift = unit == UNIT_BYTES ? suffix_shift(end) : *end ? -1 : 0;
	if (shift < 0 || *value > UINT64_MAX >> shift)
		return -EINVAL;
	*value <<= shift;
	return 0;
}

static int parse_seconds(const char *text, uint64_t highest, uint64_t *value)
{
	char *end;
	double seconds = strtod(text, &end);

	if (*end || !(seconds * 1e6 <= (double)highest))
		return -EINVAL;
	*value = (uint64_t)llround(seconds * 1e6);
	return 0;
}

static int parse_value(const struct row *row, const char *text, uint64_t *value)
{
	int ret;

	/* Neither a sign nor a blank in front, which the C library would take. */
	if (text[0] < '0' || text[0] > '9')
		return -EINVAL;
	if (row->unit == UNIT_SECONDS)
		ret = parse_seconds(text, row->highest, value);
	else
		ret = parse_number(text, row->unit, value);
	if (!ret && *value > row->highest)
		ret = -EINVAL;
	return ret;
}

int setting_parse(const char *name, const char *text, enum setting *setting, uint64_t *value)
{
	for (int i = 0; i < SETTING_COUNT; i++) {
		if (strcmp(name, rows[i].name))
			continue;
		*setting = i;
		return parse_value(&rows[i], text, value);
	}
	return -ENOENT;
}

void setting_print(FILE *out)
{
	for (int i = 0; i < SETTING_COUNT; i++) {
		uint64_t value = setting_load(i);

		if (rows[i].unit == UNIT_SECONDS)
			fprintf(out, "%s %.6g\n", rows[i].name, (double)value / 1e6);
		else
			fprintf(out, "%s %" PRIu64 "\n", rows[i].name, value);
	}
}
