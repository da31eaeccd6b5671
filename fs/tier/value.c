/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tier/value.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <xxhash.h>

#define SEALED 48 /* bytes of the head that the checksum and the MAC cover */
#define TAG (VALUE_HEAD - SEALED)
#define NONCE_AT 32
#define NONCE 12
#define COUNTER_AT 8 /* in the nonce: what is before it is drawn by lot */

enum kind { KIND_CHECKSUM = 1, KIND_MAC = 2 };

/* --- keys --------------------------------------------------------------------------------------*/

/* Braces would make all keys of a volume one slot's. */
static bool is_plain(unsigned char c)
{
	return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
	       (c && strchr("._-/:", c));
}

int value_volume(const char *name, char escaped[VALUE_VOLUME_MAX + 1])
{
	size_t size = 0;

	if (!*name)
		return -EINVAL;
	for (; *name; name++) {
		unsigned char c = (unsigned char)*name;

		if (size + (is_plain(c) ? 1 : 3) > VALUE_VOLUME_MAX)
			return -ENAMETOOLONG;
		if (is_plain(c))
			escaped[size++] = (char)c;
		else
			size += (size_t)sprintf(escaped + size, "%%%02X", c);
	}
	escaped[size] = 0;
	return 0;
}

bool value_has_key(const struct store_attr *attr)
{
	return !attr->dev;
}

size_t value_key(const char *volume, const struct store_attr *attr, char key[VALUE_KEY_MAX])
{
	int size;

	assert(value_has_key(attr));
	size = snprintf(key, VALUE_KEY_MAX,
			"shade:%s:%" PRIx64 "-%" PRIx64 "-%x.%" PRIx64 "-%x.%" PRIx64, volume,
			attr->ino, attr->size, (unsigned)attr->mtime_era & 31,
			(uint64_t)attr->mtime_ns, (unsigned)attr->ctime_era & 31,
			(uint64_t)attr->ctime_ns);
	assert(size > 0 && size < VALUE_KEY_MAX);
	return (size_t)size;
}

uint64_t value_hash(const char *key, size_t key_size)
{
	return XXH3_64bits(key, key_size);
}

uint32_t value_ttl(float worth)
{
	double share = worth > 0 ? (double)worth : 0; /* also if it is no number */

	if (share > 1)
		share = 1;
	return VALUE_TTL_LEAST + (uint32_t)(share * VALUE_TTL_SPAN);
}

/* --- heads -------------------------------------------------------------------------------------*/

static void put64(unsigned char *at, uint64_t value)
{
	for (unsigned i = 0; i < 8; i++)
		at[i] = (unsigned char)(value >> 8 * i);
}

struct value_seal {
	enum kind kind;
	EVP_CIPHER_CTX *cipher;	    /* has the secret */
	unsigned char nonce[NONCE]; /* of the last value */
};

static void fill_head(enum kind kind, const char *key, size_t key_size, size_t size,
		      unsigned char head[VALUE_HEAD])
{
	static const unsigned char magic[8] = { 's', 'h', 'a', 'd', 'e', 'f', 's', 1 };

	memset(head, 0, VALUE_HEAD);
	memcpy(head, magic, sizeof(magic));
	put64(head + 8, kind);
	put64(head + 16, size);
	put64(head + 24, XXH3_64bits(key, key_size));
}

static void checksum(const unsigned char head[VALUE_HEAD], const void *bytes, size_t size,
		     unsigned char tag[TAG])
{
	memset(tag, 0, TAG);
	put64(tag, XXH3_64bits_withSeed(bytes, size, XXH3_64bits(head, SEALED)));
}

static int add(EVP_CIPHER_CTX *cipher, const void *data, size_t size)
{
	int unused;

	assert(size <= INT_MAX);
	return !size || EVP_EncryptUpdate(cipher, NULL, &unused, data, (int)size) == 1 ? 0 : -EIO;
}

/* AES-GCM with nothing to encrypt: all is "additional data". */
static int mac(struct value_seal *seal, const unsigned char head[VALUE_HEAD], const char *key,
	       size_t key_size, const void *bytes, size_t size, unsigned char tag[TAG])
{
	EVP_CIPHER_CTX *cipher = seal->cipher;
	unsigned char nothing[16];
	int unused;

	if (EVP_EncryptInit_ex(cipher, NULL, NULL, NULL, head + NONCE_AT) != 1 ||
	    add(cipher, head, SEALED) || add(cipher, key, key_size) || add(cipher, bytes, size) ||
	    EVP_EncryptFinal_ex(cipher, nothing, &unused) != 1 ||
	    EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_GCM_GET_TAG, TAG, tag) != 1)
		return -EIO;
	return 0;
}

static int make_tag(struct value_seal *seal, const unsigned char head[VALUE_HEAD], const char *key,
		    size_t key_size, const void *bytes, size_t size, unsigned char tag[TAG])
{
	if (seal->kind == KIND_MAC)
		return mac(seal, head, key, key_size, bytes, size, tag);
	checksum(head, bytes, size, tag);
	return 0;
}

/* No two values may have one nonce. Each daemon draws 8 bytes by lot, and counts with the others.
 */
static int next_nonce(unsigned char nonce[NONCE])
{
	for (unsigned i = NONCE; i-- > COUNTER_AT;)
		if (++nonce[i])
			return 0;
	return RAND_bytes(nonce, COUNTER_AT) == 1 ? 0 : -EIO;
}

int value_seal(struct value_seal *seal, const char *key, size_t key_size, const void *bytes,
	       size_t size, unsigned char head[VALUE_HEAD])
{
	fill_head(seal->kind, key, key_size, size, head);
	if (seal->kind == KIND_MAC) {
		if (next_nonce(seal->nonce))
			return -EIO;
		memcpy(head + NONCE_AT, seal->nonce, NONCE);
	}
	return make_tag(seal, head, key, key_size, bytes, size, head + SEALED);
}

bool value_fits(struct value_seal *seal, const char *key, size_t key_size, const void *bytes,
		size_t size, const unsigned char head[VALUE_HEAD])
{
	unsigned char wanted[VALUE_HEAD];

	fill_head(seal->kind, key, key_size, size, wanted);
	if (seal->kind == KIND_MAC)
		memcpy(wanted + NONCE_AT, head + NONCE_AT, NONCE);
	if (memcmp(wanted, head, SEALED) != 0 ||
	    make_tag(seal, head, key, key_size, bytes, size, wanted + SEALED))
		return false;
	return !CRYPTO_memcmp(wanted + SEALED, head + SEALED, TAG);
}

static int set_secret(struct value_seal *seal, const void *secret, size_t size)
{
	unsigned char hash[32];
	int rc = -EIO;

	seal->cipher = EVP_CIPHER_CTX_new();
	if (!seal->cipher)
		return -ENOMEM;
	memset(seal->nonce, 0xff, sizeof(seal->nonce)); /* the first next_nonce() draws */
	if (EVP_Digest(secret, size, hash, NULL, EVP_sha256(), NULL) == 1 &&
	    EVP_EncryptInit_ex(seal->cipher, EVP_aes_256_gcm(), NULL, hash, NULL) == 1)
		rc = 0;
	OPENSSL_cleanse(hash, sizeof(hash));
	return rc;
}

int value_seal_create(struct value_seal **out, const void *secret, size_t size)
{
	struct value_seal *seal = calloc(1, sizeof(*seal));
	int rc = 0;

	if (!seal)
		return -ENOMEM;
	seal->kind = secret ? KIND_MAC : KIND_CHECKSUM;
	if (secret)
		rc = set_secret(seal, secret, size);
	if (rc)
		value_seal_free(seal);
	else
		*out = seal;
	return rc;
}

void value_seal_free(struct value_seal *seal)
{
	if (seal)
		EVP_CIPHER_CTX_free(seal->cipher);
	free(seal);
}
