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
#include <string.h>

#include "number.h"
#include "size.h"

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
	[SETTING_BANDWIDTH] = { "bandwidth", UNIT_BYTES, (UINT64_C(1) << 40) - 1 },
	[SETTING_SEEK_US] = { "seek_us", UNIT_PLAIN, HOUR_US },
	[SETTING_PASS_US] = { "pass_us", UNIT_PLAIN, HOUR_US },
	[SETTING_TIMEOUT_US] = { "timeout", UNIT_SECONDS, 24 * HOUR_US },
	[SETTING_DIRECT_IO] = { "direct_io", UNIT_PLAIN, 1 },
	[SETTING_KEEP_CACHE] = { "keep_cache", UNIT_PLAIN, 1 },
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

static int parse_bytes(const char *text, uint64_t *value)
{
	struct size size;

	if (size_parse(text, strlen(text), &size) || size.share > 0)
		return -EINVAL;
	*value = size.bytes;
	return 0;
}

static int parse_seconds(const char *text, uint64_t highest, uint64_t *value)
{
	double seconds;

	if (number_real(text, strlen(text), &seconds) ||
	    !(seconds >= 0 && seconds * 1e6 <= (double)highest))
		return -EINVAL;
	*value = (uint64_t)llround(seconds * 1e6);
	return 0;
}

static int parse_value(const struct row *row, const char *text, uint64_t *value)
{
	int ret = -EINVAL;

	switch (row->unit) {
	case UNIT_PLAIN:
		ret = number_whole(text, strlen(text), value);
		break;
	case UNIT_BYTES:
		ret = parse_bytes(text, value);
		break;
	case UNIT_SECONDS:
		ret = parse_seconds(text, row->highest, value);
		break;
	}
	return ret || *value > row->highest ? -EINVAL : 0;
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
