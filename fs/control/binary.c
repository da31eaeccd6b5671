/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Binary records. A record is read as its bytes come: the head in steps, each of which says how
 * many bytes the next one needs, then the arrays, straight into the pools that will be
 * handed over. The magic is checked byte by byte, and each field and each entry once, when it is
 * complete, so a bad record is refused by the write that completes the first wrong one. Memory
 * grows with the bytes that have come, never by what a count promises.
 */
#include "control/parse_internal.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <string.h>

#define WORD ((uint64_t)sizeof(uint32_t))

_Static_assert(sizeof(struct shade_record) == 16, "the head has no padding");
_Static_assert(sizeof(struct shade_record_scores) == 24, "nor have the records");
_Static_assert(sizeof(struct shade_record_order) == 32, "nor have the records");
_Static_assert(sizeof(struct shade_record_epoch) == 24, "nor have the records");
_Static_assert(sizeof(struct shade_record_table) == 24, "nor have the records");
_Static_assert(sizeof(struct shade_ioctl_scores) < 16384, "an ioctl carries less than 16 KiB");
_Static_assert(sizeof(float) == 4, "floats are IEEE 754");

static uint64_t head_u64(const struct control_record *record, size_t at)
{
	uint64_t value;

	assert(at + sizeof(value) <= record->head_used);
	memcpy(&value, record->head + at, sizeof(value));
	return le64toh(value);
}

/* As far as it has come: what is something else is refused at its first byte that differs. */
static int check_magic(struct control_parser *p)
{
	const uint32_t magic = htole32(SHADE_RECORD_MAGIC);
	struct control_record *record = &p->record;

	for (uint32_t i = 0; i < record->head_used; i++)
		if (record->head[i] != ((const unsigned char *)&magic)[i]) {
			record->head_used = i + 1;
			return control_fail(p, "neither a command nor the beginning of a record");
		}
	if (record->head_used == sizeof(magic))
		record->head_need = offsetof(struct shade_record, type);
	return 0;
}

static int check_version(struct control_parser *p)
{
	uint16_t version;

	memcpy(&version, p->record.head + offsetof(struct shade_record, version), sizeof(version));
	if (le16toh(version) != SHADE_RECORD_VERSION)
		return control_fail(p, "version %u is not known here, only %u", le16toh(version),
				    SHADE_RECORD_VERSION);
	p->record.head_need = offsetof(struct shade_record, payload_bytes);
	return 0;
}

/* By type: the bytes of the head and of what the type adds to it. */
static const size_t head_sizes[] = {
	[SHADE_RECORD_SCORES] = sizeof(struct shade_record_scores),
	[SHADE_RECORD_ORDER] = sizeof(struct shade_record_order),
	[SHADE_RECORD_EPOCH] = sizeof(struct shade_record_epoch),
	[SHADE_RECORD_TABLE] = sizeof(struct shade_record_table),
	[SHADE_RECORD_SHARED] = sizeof(struct shade_record_order),
};

static int check_type(struct control_parser *p)
{
	uint16_t type;

	memcpy(&type, p->record.head + offsetof(struct shade_record, type), sizeof(type));
	p->record.type = le16toh(type);
	if (!p->record.type || p->record.type >= sizeof(head_sizes) / sizeof(head_sizes[0]))
		return control_fail(p, "there is no record type %u", p->record.type);
	p->record.head_need = sizeof(struct shade_record);
	return 0;
}

static int check_size(struct control_parser *p)
{
	struct control_record *record = &p->record;
	uint64_t payload = head_u64(record, offsetof(struct shade_record, payload_bytes));

	if (payload > SHADE_RECORD_BYTES_MAX)
		return control_fail(p, "%" PRIu64 " bytes, more than %llu", payload,
				    SHADE_RECORD_BYTES_MAX);
	if (payload < head_sizes[record->type] - sizeof(struct shade_record))
		return control_fail(p, "%" PRIu64 " bytes are too few for a record of type %u",
				    payload, record->type);
	record->head_need = (uint32_t)head_sizes[record->type];
	record->body_bytes = sizeof(struct shade_record) + payload - record->head_need;
	return 0;
}

/* `count` must be one that fits `body_bytes`: between `least` and `most` bytes an entry. */
static int set_count(struct control_parser *p, uint64_t count, uint32_t max, uint64_t least,
		     uint64_t most)
{
	struct control_record *record = &p->record;

	if (count > max)
		return control_fail(p, "a count of %" PRIu64 ", more than %" PRIu32, count, max);
	if (record->body_bytes < count * least || record->body_bytes > count * most)
		return control_fail(p, "%" PRIu64 " bytes do not fit a count of %" PRIu64,
				    record->body_bytes, count);
	record->count = (uint32_t)count;
	return 0;
}

/* Ids, and weights or none. */
static int set_shared_count(struct control_parser *p, uint64_t count)
{
	uint64_t entry = p->record.body_bytes == count * WORD ? WORD : 2 * WORD;

	return set_count(p, count, SHADE_ORDER_MAX, entry, entry);
}

/* What the type adds to the head is known. */
static int check_rest(struct control_parser *p)
{
	struct control_record *record = &p->record;
	uint64_t first = head_u64(record, sizeof(struct shade_record));

	record->ids_at = p->ids.used;
	record->scores_at = p->scores.used;
	switch (record->type) {
	case SHADE_RECORD_SCORES:
		return set_count(p, first, SHADE_SCORES_MAX, 2 * WORD, 2 * WORD);
	case SHADE_RECORD_ORDER:
		record->epoch = first;
		return set_count(p, head_u64(record, offsetof(struct shade_record_order, count)),
				 SHADE_ORDER_MAX, WORD, WORD);
	case SHADE_RECORD_SHARED:
		record->epoch = first;
		return set_shared_count(p, head_u64(record,
						    offsetof(struct shade_record_order, count)));
	case SHADE_RECORD_EPOCH:
		record->epoch = first;
		return set_count(p, 0, 0, 0, 0);
	default:
		assert(record->type == SHADE_RECORD_TABLE);
		/* A path of one byte at least, and its NUL. */
		return set_count(p, first, SHADE_TABLE_MAX, 2, SHADE_PATH_MAX + 1);
	}
}

static int check_step(struct control_parser *p)
{
	switch (p->record.head_used) {
	case offsetof(struct shade_record, type):
		return check_version(p);
	case offsetof(struct shade_record, payload_bytes):
		return check_type(p);
	case sizeof(struct shade_record):
		return check_size(p);
	default:
		return check_rest(p);
	}
}

/* Takes what is missing of the head, as far as it is there. */
static int take_head(struct control_parser *p, struct control_input *in)
{
	struct control_record *record = &p->record;
	int error = 0;

	if (!record->head_need)
		record->head_need = sizeof(uint32_t);
	while (!error && record->head_used < record->head_need && in->at < in->end) {
		size_t size = record->head_need - record->head_used;

		if (size > (size_t)(in->end - in->at))
			size = (size_t)(in->end - in->at);
		memcpy(record->head + record->head_used, in->at, size);
		in->at += size;
		record->head_used += (uint32_t)size;
		if (record->head_used <= sizeof(uint32_t))
			error = check_magic(p);
		else if (record->head_used == record->head_need)
			error = check_step(p);
	}
	return error;
}

static int fail_entry(struct control_parser *p, uint64_t body_at, uint32_t entry, const char *what)
{
	p->record.body_taken = body_at;
	return control_fail(p, "entry %" PRIu32 ": %s", entry, what);
}

/* Moves up to `left` bytes of an array into the pool. Returns its whole words in `words`. */
static int take_words(struct control_parser *p, struct control_input *in, struct control_pool *pool,
		      uint64_t left, size_t pool_at, uint32_t *words)
{
	size_t size = (size_t)(in->end - in->at);

	if (size > left)
		size = (size_t)left;
	if (control_pool_add(pool, in->at, size))
		return -ENOMEM;
	in->at += size;
	p->record.body_taken += size;
	*words = (uint32_t)((pool->used - pool_at) / WORD);
	return 0;
}

static int take_ids(struct control_parser *p, struct control_input *in)
{
	struct control_record *record = &p->record;
	uint64_t left = record->count * WORD - record->body_taken;
	uint32_t limit = control_id_count(p);
	uint32_t *ids, words;

	if (take_words(p, in, &p->ids, left, record->ids_at, &words))
		return -ENOMEM;
	if (!words)
		return 0;
	ids = (uint32_t *)(p->ids.data + record->ids_at);
	for (; record->checked < words; record->checked++) {
		uint32_t id = le32toh(ids[record->checked]);

		if (id >= limit)
			return fail_entry(p, record->checked * WORD, record->checked,
					  "the id is out of range");
		ids[record->checked] = control_map_id(p, id);
	}
	if (record->checked == record->count)
		record->checked = 0; /* for the array that follows */
	return 0;
}

uint32_t control_bad_score(const float *scores, uint32_t count)
{
	uint32_t i = 0;

	/* Not a number compares false. */
	while (i < count && scores[i] >= 0 && scores[i] <= FLT_MAX)
		i++;
	return i;
}

static void scores_to_host(float *scores, uint32_t count)
{
#if __BYTE_ORDER != __LITTLE_ENDIAN
	for (uint32_t i = 0; i < count; i++) {
		uint32_t word;

		memcpy(&word, &scores[i], sizeof(word));
		word = le32toh(word);
		memcpy(&scores[i], &word, sizeof(word));
	}
#else
	(void)scores;
	(void)count;
#endif
}

static int take_scores(struct control_parser *p, struct control_input *in)
{
	struct control_record *record = &p->record;
	uint64_t left = record->body_bytes - record->body_taken;
	uint32_t words;
	float *scores;

	if (take_words(p, in, &p->scores, left, record->scores_at, &words))
		return -ENOMEM;
	if (words == record->checked)
		return 0;
	scores = (float *)(p->scores.data + record->scores_at);
	scores_to_host(scores + record->checked, words - record->checked);
	record->checked += control_bad_score(scores + record->checked, words - record->checked);
	if (record->checked < words)
		return fail_entry(p, (record->count + record->checked) * WORD, record->checked,
				  record->type == SHADE_RECORD_SHARED
					  ? "a weight is a finite number of 0 or more"
					  : "a score is a finite number of 0 or more");
	return 0;
}

/* Adds the sample of a path, which ends with a NUL, to the table. */
static int add_path(struct control_parser *p, const char *path)
{
	uint32_t entry = (uint32_t)(p->next_table.used / WORD);
	const char *relative = control_relative(path);
	uint32_t id;
	int error;

	if (entry == p->record.count)
		return control_fail(p, "more than %" PRIu32 " paths", p->record.count);
	if (!relative)
		return fail_entry(p, p->record.body_taken, entry,
				  "the path is not relative to the mount");
	error = control_find_sample(p, relative, &id);
	return error ? error : control_pool_add(&p->next_table, &id, sizeof(id));
}

/* Takes the bytes up to the next NUL, or all that are there. */
static int take_path(struct control_parser *p, struct control_input *in)
{
	struct control_record *record = &p->record;
	size_t size = (size_t)(in->end - in->at);
	uint64_t left = record->body_bytes - record->body_taken;
	const char *path = in->at;
	const char *nul;
	int error;

	if (size > left)
		size = (size_t)left;
	nul = memchr(path, 0, size);
	if (nul)
		size = (size_t)(nul - path) + 1;
	if (p->partial.used + size > SHADE_PATH_MAX + 1 - !nul)
		return control_fail(p, "a path of more than %u bytes", SHADE_PATH_MAX);
	if (!nul || p->partial.used) {
		if (control_pool_add(&p->partial, path, size))
			return -ENOMEM;
		path = (const char *)p->partial.data;
	}
	error = nul ? add_path(p, path) : 0;
	if (nul)
		p->partial.used = 0;
	in->at += size;
	record->body_taken += size;
	return error;
}

static int take_body(struct control_parser *p, struct control_input *in)
{
	struct control_record *record = &p->record;
	int error = 0;

	while (!error && in->at < in->end && record->body_taken < record->body_bytes) {
		if (record->type == SHADE_RECORD_TABLE)
			error = take_path(p, in);
		else if (record->body_taken < record->count * WORD)
			error = take_ids(p, in);
		else
			error = take_scores(p, in);
	}
	return error;
}

/* The paths are complete: from here on ids mean these, unless the write fails. */
static int end_table(struct control_parser *p)
{
	if (p->partial.used || p->next_table.used != p->record.count * WORD)
		return control_fail(p, "fewer than %" PRIu32 " paths", p->record.count);
	if (p->table_changed)
		control_pool_free(&p->table);
	else
		p->old_table = p->table;
	p->table_changed = true;
	p->table = p->next_table;
	p->next_table = (struct control_pool){ 0 };
	return 0;
}

static int end_record(struct control_parser *p)
{
	static const enum control_kind kinds[] = {
		[SHADE_RECORD_SCORES] = CONTROL_SCORES,
		[SHADE_RECORD_ORDER] = CONTROL_ORDER,
		[SHADE_RECORD_EPOCH] = CONTROL_EPOCH,
		[SHADE_RECORD_SHARED] = CONTROL_SHARED,
	};
	struct control_record *record = &p->record;
	struct control_command *command;

	p->message_count++;
	if (record->type == SHADE_RECORD_TABLE)
		return end_table(p);
	if (record->type == SHADE_RECORD_SCORES && !record->count)
		return 0;
	command = control_add_command(p, kinds[record->type]);
	if (!command)
		return -ENOMEM;
	command->is_weighted = record->type == SHADE_RECORD_SHARED && record->count &&
			       record->body_bytes > record->count * WORD;
	command->count = record->count;
	command->ids_at = record->ids_at;
	command->scores_at = record->scores_at;
	command->number = record->epoch;
	return 0;
}

int control_binary_take(struct control_parser *p, struct control_input *in)
{
	struct control_record *record = &p->record;
	int error = take_head(p, in);

	if (error || record->head_used < record->head_need)
		return error;
	error = take_body(p, in);
	if (error || record->body_taken < record->body_bytes)
		return error;
	error = end_record(p);
	if (error)
		return error;
	*record = (struct control_record){ 0 };
	p->record_number++;
	return 0;
}
