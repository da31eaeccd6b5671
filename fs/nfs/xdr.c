/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "nfs/xdr.h"

#include <string.h>

/* The next `size` bytes; NULL: there are fewer. */
static const uint8_t *take(struct xdr *xdr, size_t size)
{
	const uint8_t *at = xdr->at;

	if (xdr->bad || size > (size_t)(xdr->end - at)) {
		xdr->bad = true;
		return NULL;
	}
	xdr->at += size;
	return at;
}

uint32_t xdr_get_number(struct xdr *xdr)
{
	const uint8_t *at = take(xdr, 4);

	return at ? xdr_number_at(at) : 0;
}

uint64_t xdr_get_long(struct xdr *xdr)
{
	uint64_t high = xdr_get_number(xdr);

	return high << 32 | xdr_get_number(xdr);
}

bool xdr_get_bool(struct xdr *xdr)
{
	uint32_t value = xdr_get_number(xdr);

	if (value > 1)
		xdr->bad = true;
	return value == 1;
}

const uint8_t *xdr_get_opaque(struct xdr *xdr, uint32_t max, uint32_t *size)
{
	*size = xdr_get_number(xdr);
	if (*size > max)
		xdr->bad = true;
	return take(xdr, xdr_padded(*size));
}

void xdr_skip(struct xdr *xdr, size_t size)
{
	(void)take(xdr, size);
}

static uint8_t *make_room(struct xdr_out *out, size_t size)
{
	uint8_t *at = out->at;

	if (out->bad || size > (size_t)(out->end - at)) {
		out->bad = true;
		return NULL;
	}
	out->at += size;
	return at;
}

void xdr_put_number(struct xdr_out *out, uint32_t value)
{
	uint8_t *at = make_room(out, 4);

	if (!at)
		return;
	for (int i = 0; i < 4; i++)
		at[i] = (uint8_t)(value >> (24 - 8 * i));
}

void xdr_put_long(struct xdr_out *out, uint64_t value)
{
	xdr_put_number(out, (uint32_t)(value >> 32));
	xdr_put_number(out, (uint32_t)value);
}

void xdr_put_opaque(struct xdr_out *out, const void *bytes, size_t size)
{
	uint8_t *at;

	xdr_put_number(out, (uint32_t)size);
	at = make_room(out, xdr_padded(size));
	if (!at)
		return;
	memcpy(at, bytes, size);
	memset(at + size, 0, xdr_padded(size) - size);
}
