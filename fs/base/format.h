/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How what outlives the daemon is laid out, as names and numbers: a program of another version may
 * take it over only if all of them are the same there. Whoever owns such a struct has a table of
 * these; daemon/format.c lists the tables.
 */
#ifndef SHADE_FORMAT_H
#define SHADE_FORMAT_H

#include <stddef.h>
#include <stdint.h>

struct format_line {
	const char *name; /* NULL: the table ends */
	uint64_t value;
};

#define FORMAT_SIZE(type)                                                                          \
	{                                                                                          \
		"sizeof(" #type ")", sizeof(type)                                                  \
	}
#define FORMAT_FIELD(type, field)                                                                  \
	{                                                                                          \
#type "." #field, offsetof(type, field)                                            \
	}
#define FORMAT_NUMBER(number)                                                                      \
	{                                                                                          \
#number, (uint64_t)(number)                                                        \
	}
#define FORMAT_END                                                                                 \
	{                                                                                          \
		NULL, 0                                                                            \
	}

#endif
