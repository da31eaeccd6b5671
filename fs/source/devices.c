/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "source/devices.h"

#include <stdlib.h>

#include "base/estate.h"

static_assert(DEVICES_KNOWN < STORE_DEV_ELSEWHERE, "some numbers are left to be shared");

struct devices *devices_open(struct estate *estate)
{
	struct devices *devices;

	if (!estate)
		return calloc(1, sizeof(*devices));
	devices = estate_next(estate, ESTATE_DEVICES, NULL);
	if (!devices) {
		devices = estate_new(estate, sizeof(*devices));
		if (devices)
			estate_keep(devices, ESTATE_DEVICES);
	}
	return devices;
}

void devices_close(struct devices *devices, const struct estate *estate)
{
	if (!estate)
		free(devices);
}

static uint64_t key_of(uint32_t major, uint32_t minor)
{
	return ((uint64_t)major << 32 | minor) + 1;
}

void devices_replace_top(struct devices *devices, uint32_t major, uint32_t minor)
{
	atomic_store(&devices->keys[0], key_of(major, minor));
}

/* A device of the table never leaves it and never moves, so it is searched without a lock. Nearly
 * all files are in the first. */
unsigned devices_number(struct devices *devices, uint32_t major, uint32_t minor)
{
	uint64_t key = key_of(major, minor);

	for (unsigned i = 0; i < DEVICES_KNOWN; i++) {
		uint64_t found = atomic_load(&devices->keys[i]);

		if (!found && atomic_compare_exchange_strong(&devices->keys[i], &found, key))
			found = key;
		if (found == key)
			return i;
	}
	return DEVICES_KNOWN + (unsigned)(key % (STORE_DEV_ELSEWHERE - DEVICES_KNOWN));
}

const struct format_line devices_format[] = { FORMAT_SIZE(struct devices),
					      FORMAT_NUMBER(STORE_DEVICES),
					      FORMAT_SIZE(struct store_attr),
					      FORMAT_FIELD(struct store_attr, ino),
					      FORMAT_FIELD(struct store_attr, size),
					      FORMAT_FIELD(struct store_attr, mtime_ns),
					      FORMAT_FIELD(struct store_attr, ctime_ns),
					      FORMAT_FIELD(struct store_attr, uid),
					      FORMAT_FIELD(struct store_attr, gid),
					      FORMAT_END };
