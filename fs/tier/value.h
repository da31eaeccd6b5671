/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the engine keeps of a version: under a key that names the version, a head and the bytes.
 *
 * The key is "shade:VOLUME:INO-SIZE-MTIME-CTIME", the numbers in hexadecimal. `dev` of struct
 * store_attr is not in it, since its numbers hold only while one daemon runs; so only files of the
 * source's top file system, whose number is always 0, have a key.
 *
 * The head of VALUE_HEAD bytes; numbers are little-endian:
 *
 *     0  8  "shadefs" and the format's version, 1
 *     8  8  1: a checksum; 2: a MAC
 *    16  8  how many bytes follow the head
 *    24  8  XXH3 of the key
 *    32 12  the nonce of the MAC
 *    44  4  0
 *    48 16  the checksum, in the first 8 bytes; or the MAC
 *
 * The checksum is XXH3 of the bytes, seeded with XXH3 of the head's first 48 bytes: it finds
 * damage, and is no protection against people. The MAC is AES-256-GMAC over the head's first 48
 * bytes, the key and the bytes, so whoever has not got the secret can neither make a value nor move
 * one to another key. Neither hides the bytes.
 */
#ifndef SHADE_VALUE_H
#define SHADE_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "source/attr.h"

#define VALUE_HEAD 64
#define VALUE_VOLUME_MAX 200 /* bytes of a volume's name, escaped */
#define VALUE_KEY_MAX 288

/* 0, or -ENAMETOOLONG: escaped as keys need it, the name is too long. -EINVAL: it is empty. */
int value_volume(const char *name, char escaped[VALUE_VOLUME_MAX + 1]);

bool value_has_key(const struct store_attr *attr);
/* Returns the key's length; it is terminated, too. */
size_t value_key(const char *volume, const struct store_attr *attr, char key[VALUE_KEY_MAX]);

/* The same on all nodes. */
uint64_t value_hash(const char *key, size_t key_size);

/* What seals and checks values. One thread at a time. */
struct value_seal;

/* A secret of `size` bytes makes it a MAC; NULL: a checksum. 0 or a negative errno. */
int value_seal_create(struct value_seal **out, const void *secret, size_t size);
void value_seal_free(struct value_seal *seal);

/* Fills in the head. 0 or a negative errno. */
int value_seal(struct value_seal *seal, const char *key, size_t key_size, const void *bytes,
	       size_t size, unsigned char head[VALUE_HEAD]);
/* Whether this head belongs to this key and these bytes. */
bool value_fits(struct value_seal *seal, const char *key, size_t key_size, const void *bytes,
		size_t size, const unsigned char head[VALUE_HEAD]);

/* Seconds to live, by which the engine evicts: a day more is a bit more worth. */
#define VALUE_TTL_LEAST (2 * 86400)
#define VALUE_TTL_SPAN (20 * 86400)
uint32_t value_ttl(float worth);

#endif
