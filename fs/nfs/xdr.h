/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The external data representation of RFC 4506, as far as NFSv3 needs it: numbers of 4 and 8 bytes,
 * and opaque bytes that are padded to a multiple of 4.
 *
 * A cursor never leaves its bytes. Once something does not fit, `bad` is set and stays set, and
 * numbers that are read are 0: callers look at it once, at the end, before they use anything.
 * Nothing is allocated or copied; what is opaque is pointed to.
 */
#ifndef SHADE_XDR_H
#define SHADE_XDR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* For reading. */
struct xdr {
	const uint8_t *at, *end;
	bool bad;
};

uint32_t xdr_get_number(struct xdr *xdr);
uint64_t xdr_get_long(struct xdr *xdr);
/* 0 or 1; anything else is bad. */
bool xdr_get_bool(struct xdr *xdr);
/* Bytes whose length comes before them, at most `max` of them. NULL: bad. */
const uint8_t *xdr_get_opaque(struct xdr *xdr, uint32_t max, uint32_t *size);
void xdr_skip(struct xdr *xdr, size_t size);

/* For writing. */
struct xdr_out {
	uint8_t *at, *end;
	bool bad;
};

void xdr_put_number(struct xdr_out *out, uint32_t value);
void xdr_put_long(struct xdr_out *out, uint64_t value);
void xdr_put_opaque(struct xdr_out *out, const void *bytes, size_t size);

/* With its padding. */
static inline size_t xdr_padded(size_t size)
{
	return (size + 3) & ~(size_t)3;
}

/* A number that is known to be there. */
static inline uint32_t xdr_number_at(const uint8_t *at)
{
	return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

#endif
