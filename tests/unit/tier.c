/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What of the tier needs neither servers nor threads: replies, slots, addresses, values, and whom
 * to ask first. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "tier/choice.h"
#include "tier/resp.h"
#include "tier/slots.h"
#include "tier/survival.h"
#include "tier/url.h"
#include "tier/value.h"

/* --- replies -----------------------------------------------------------------------------------*/

static int head_of(const char *text, struct resp_head *head)
{
	return resp_head(text, strlen(text), head);
}

Test(resp, heads)
{
	struct resp_head head;

	cr_assert_eq(head_of("+OK\r\n", &head), 1);
	cr_assert(head.kind == RESP_STATUS && head.text_size == 2 && !memcmp(head.text, "OK", 2));
	cr_assert_eq(head.size, 5);
	cr_assert_eq(head_of("-MOVED 1 a:2\r\nrest", &head), 1);
	cr_assert(resp_is_error(&head, "MOVED") && !resp_is_error(&head, "MOVE"));
	cr_assert_eq(head_of(":-42\r\n", &head), 1);
	cr_assert(head.kind == RESP_INTEGER && head.number == -42);
	cr_assert_eq(head_of("$-1\r\n", &head), 1);
	cr_assert(head.kind == RESP_BULK && head.number == -1);
	cr_assert_eq(head_of("*3\r\n", &head), 1);
	cr_assert(head.kind == RESP_ARRAY && head.number == 3);
}

Test(resp, a_head_that_is_cut_waits)
{
	const char *whole[] = { "+OK\r\n", "-ERR no\r\n", ":12\r\n", "$110064\r\n", "*2\r\n" };
	struct resp_head head;

	for (unsigned i = 0; i < 5; i++)
		for (size_t size = 0; size < strlen(whole[i]); size++)
			cr_assert_eq(resp_head(whole[i], size, &head), 0, "%s %zu", whole[i], size);
}

Test(resp, what_is_no_head)
{
	const char *wrong[] = {
		"OK\r\n",	"$x\r\n",   "$\r\n",	 "$-2\r\n", "$1.5\r\n",
		"*-3\r\n",	":\r\n",    "+a\rb\r\n", "%2\r\n",  "$999999999999\r\n",
		"*9999999\r\n", ":--1\r\n", "$ 1\r\n"
	};
	char endless[RESP_LINE_MAX + 8];
	struct resp_head head;

	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		cr_assert_eq(head_of(wrong[i], &head), -EPROTO, "%s", wrong[i]);
	memset(endless, '+', sizeof(endless));
	cr_assert_eq(resp_head(endless, sizeof(endless), &head), -EPROTO);
}

Test(resp, wholes)
{
	static const char text[] = "*2\r\n*3\r\n:0\r\n$-1\r\n$3\r\nabc\r\n$0\r\n\r\n+next\r\n";
	size_t size = sizeof(text) - 1 - 7;
	struct resp_walk walk = { text, size };
	struct resp_head head;

	for (size_t cut = 0; cut < size; cut++)
		cr_assert_eq(resp_whole(text, cut), 0, "%zu", cut);
	cr_assert_eq(resp_whole(text, sizeof(text) - 1), (int64_t)size);
	cr_assert_eq(resp_skip(&walk), 0);
	cr_assert_eq(walk.left, 0);
	walk = (struct resp_walk){ text, size };
	for (unsigned i = 0; i < 5; i++)
		cr_assert_eq(resp_next(&walk, &head), 0);
	cr_assert(head.kind == RESP_BULK && head.text_size == 3 && !memcmp(head.text, "abc", 3));
	cr_assert_eq(resp_whole("$3\r\nabcde", 9), -EPROTO);
	cr_assert_eq(resp_whole("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", 36),
		     -EPROTO);
}

Test(resp, commands)
{
	char data[64];
	struct resp_out out = { data, sizeof(data), 0 };
	static const char wanted[] = "*3\r\n$6\r\nEXPIRE\r\n$1\r\nk\r\n$3\r\n120\r\n";

	resp_begin(&out, 3);
	resp_string(&out, "EXPIRE");
	resp_word(&out, "k", 1);
	resp_number(&out, 120);
	cr_assert_eq(out.size, sizeof(wanted) - 1);
	cr_assert(!memcmp(data, wanted, out.size));
	for (unsigned i = 0; i < 10; i++)
		resp_string(&out, "more than there is room for");
	cr_assert_gt(out.size, out.room);
}

/* --- slots -------------------------------------------------------------------------------------*/

Test(slots, known_answers)
{
	cr_assert_eq(slots_crc16("123456789", 9), 0x31c3);
	cr_assert_eq(slots_crc16("", 0), 0);
	cr_assert_eq(slots_of_key("foo", 3), 12182);
	cr_assert_eq(slots_of_key("somekey", 7), 11058);
	cr_assert_eq(slots_of_key("{user1000}.following", 20), slots_of_key("user1000", 8));
	cr_assert_eq(slots_of_key("foo{}{bar}", 10), slots_crc16("foo{}{bar}", 10) % SLOTS);
	cr_assert_eq(slots_of_key("foo{{bar}}zap", 13), slots_of_key("{bar", 4));
	cr_assert_eq(slots_of_key("foo{bar", 7), slots_crc16("foo{bar", 7) % SLOTS);
}

Test(slots, addresses)
{
	struct slots_address address;

	cr_assert_eq(slots_parse_address("a.b:7000", 8, &address), 0);
	cr_assert(!strcmp(address.host, "a.b") && address.port == 7000);
	cr_assert_eq(slots_parse_address("[::1]:7", 7, &address), 0);
	cr_assert(!strcmp(address.host, "::1") && address.port == 7);
	cr_assert_eq(slots_parse_address("::1:6379", 8, &address), 0);
	cr_assert(!strcmp(address.host, "::1") && address.port == 6379);
	for (unsigned i = 0; i < 10; i++) {
		const char *wrong[] = { "",	   "a",	    "a:",    ":7",     "a:0",
					"a:65536", "a b:7", "a@b:7", "a\"b:7", "a/b:7" };

		cr_assert_eq(slots_parse_address(wrong[i], strlen(wrong[i]), &address), -EINVAL,
			     "%s", wrong[i]);
	}
}

static int redirection(const char *text, const char *word, uint16_t *slot,
		       struct slots_address *address)
{
	return slots_parse_redirection(text, strlen(text), word, "here", slot, address);
}

Test(slots, redirections)
{
	struct slots_address address;
	uint16_t slot;

	cr_assert_eq(redirection("MOVED 3999 10.0.0.1:6381", "MOVED", &slot, &address), 0);
	cr_assert(slot == 3999 && !strcmp(address.host, "10.0.0.1") && address.port == 6381);
	cr_assert_eq(redirection("ASK 16383 :6381", "ASK", &slot, &address), 0);
	cr_assert(slot == 16383 && !strcmp(address.host, "here") && address.port == 6381);
	for (unsigned i = 0; i < 9; i++) {
		const char *wrong[] = { "MOVED 16384 a:1", "MOVED -1 a:1", "MOVED a:1",
					"MOVED 1 ",	   "MOVED 1",	   "MOVED",
					"MOVED 1 a:",	   "MOVED 1 :0",   "ASK 1 a:1" };

		cr_assert_eq(redirection(wrong[i], "MOVED", &slot, &address), -EPROTO, "%s",
			     wrong[i]);
	}
}

struct ranges {
	unsigned count;
	uint16_t first[4], last[4];
	struct slots_address address[4];
};

static int note_range(void *context, uint16_t first, uint16_t last,
		      const struct slots_address *address)
{
	struct ranges *ranges = context;

	ranges->first[ranges->count] = first;
	ranges->last[ranges->count] = last;
	ranges->address[ranges->count++] = *address;
	return ranges->count == 4 ? -E2BIG : 0;
}

static int map(const char *text, struct ranges *ranges)
{
	struct resp_walk walk = { text, strlen(text) };

	*ranges = (struct ranges){ 0 };
	return slots_parse_map(walk, "here", note_range, ranges);
}

/* As Redis 7 has it: with ids, and a map of what else it knows of a node. */
Test(slots, maps)
{
	struct ranges ranges;

	cr_assert_eq(map("*2\r\n*4\r\n:0\r\n:5460\r\n*4\r\n$4\r\n::1a\r\n:1\r\n$2\r\nid\r\n"
			 "*2\r\n$8\r\nhostname\r\n$1\r\nh\r\n*3\r\n$1\r\nb\r\n:2\r\n$2\r\nid\r\n"
			 "*3\r\n:5461\r\n:16383\r\n*2\r\n$-1\r\n:3\r\n",
			 &ranges),
		     0);
	cr_assert_eq(ranges.count, 2);
	cr_assert(ranges.first[0] == 0 && ranges.last[0] == 5460 && ranges.address[0].port == 1);
	cr_assert_str_eq(ranges.address[0].host, "::1a");
	cr_assert(ranges.first[1] == 5461 && ranges.last[1] == 16383);
	cr_assert(!strcmp(ranges.address[1].host, "here") && ranges.address[1].port == 3);
	cr_assert_eq(map("*0\r\n", &ranges), 0);
}

Test(slots, what_is_no_map)
{
	const char *wrong[] = {
		"+OK\r\n",
		"*1\r\n+OK\r\n",
		"*1\r\n*2\r\n:0\r\n:1\r\n",
		"*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\na\r\n:1\r\n",
		"*1\r\n*3\r\n:2\r\n:1\r\n*2\r\n$1\r\na\r\n:1\r\n",
		"*1\r\n*3\r\n:-1\r\n:1\r\n*2\r\n$1\r\na\r\n:1\r\n",
		"*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$1\r\na\r\n:0\r\n",
		"*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n:1\r\n:1\r\n",
		"*1\r\n*3\r\n:0\r\n:1\r\n*1\r\n$1\r\na\r\n",
		"*2\r\n*3\r\n:0\r\n:1\r\n*2\r\n$1\r\na\r\n:1\r\n",
	};
	struct ranges ranges;

	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		cr_assert_eq(map(wrong[i], &ranges), -EPROTO, "%s", wrong[i]);
}

/* --- URLs --------------------------------------------------------------------------------------*/

Test(url, right)
{
	const char *why;
	struct url url;

	cr_assert_eq(url_parse("redis://a:1,b:2,[::1]:3", &url, &why), 0);
	cr_assert(url.seed_count == 3 && !url.user && !url.password);
	cr_assert_str_eq(url.seeds[2].host, "::1");
	url_free(&url);
	cr_assert_eq(url_parse("redis://me:a%2Cb%40c:d@h:1", &url, &why), 0);
	cr_assert(!strcmp(url.user, "me") && !strcmp(url.password, "a,b@c:d"));
	url_free(&url);
	cr_assert_eq(url_parse("redis://me@h:1", &url, &why), 0);
	cr_assert(!strcmp(url.user, "me") && !url.password && url.seed_count == 1);
	url_free(&url);
	cr_assert_eq(url_parse("redis://:p@ss@h:1", &url, &why), 0);
	cr_assert(!url.user && !strcmp(url.password, "p@ss") && url.seed_count == 1);
	url_free(&url);
	cr_assert_eq(url_parse("redis://me:a/b:c/d@h:1,i:2", &url, &why), 0);
	cr_assert(!strcmp(url.user, "me") && !strcmp(url.password, "a/b:c/d"));
	cr_assert(url.seed_count == 2 && !strcmp(url.seeds[0].host, "h"));
	url_free(&url);
}

Test(url, wrong)
{
	const char *wrong[] = { "",
				"redis://",
				"redis:h:1",
				"rediss://h:1",
				"redis://h",
				"redis://h:1,",
				"redis://h:1/0",
				"redis://@h:1",
				"redis://user:@h:1",
				"redis://u:%zz@h:1",
				"redis://u:%00@h:1",
				"redis://u:%4@h:1" };
	const char *why;
	struct url url;

	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		cr_assert_eq(url_parse(wrong[i], &url, &why), -EINVAL, "%s", wrong[i]);
		cr_assert(why && *why && !url.seeds && !url.password);
	}
}

Test(url, the_password_is_found)
{
	size_t size;

	cr_assert_str_eq(url_find_password("redis://u:secret@h:1", &size), "secret@h:1");
	cr_assert_eq(size, 6);
	(void)url_find_password("redis://h:1", &size);
	cr_assert_eq(size, 0);
	(void)url_find_password("redis://u:p@ss@h:1,i:2", &size);
	cr_assert_eq(size, 4);
	(void)url_find_password("redis://u:p/s@h:1", &size);
	cr_assert_eq(size, 3);
}

/* --- values ------------------------------------------------------------------------------------*/

static const struct store_attr attr = {
	.ino = 0x1234, .size = 5, .mtime_ns = 0x10, .ctime_ns = -1, .ctime_era = -1
};

Test(value, keys)
{
	struct store_attr other;
	char key[VALUE_KEY_MAX], changed[VALUE_KEY_MAX], volume[VALUE_VOLUME_MAX + 1];
	char longest[VALUE_VOLUME_MAX + 2];

	cr_assert_eq(value_volume("nfs://server/export{1}", volume), 0);
	cr_assert_str_eq(volume, "nfs://server/export%7B1%7D");
	cr_assert_eq(value_key("v", &attr, key), strlen(key));
	cr_assert_str_eq(key, "shade:v:1234-5-0.10-1f.ffffffffffffffff");
#define CHANGED(field)                                                                             \
	other = attr;                                                                              \
	other.field++;                                                                             \
	value_key("v", &other, changed);                                                           \
	cr_assert_str_neq(changed, key)
	CHANGED(ino);
	CHANGED(size);
	CHANGED(mtime_ns);
	CHANGED(ctime_ns);
	CHANGED(mtime_era);
	CHANGED(ctime_era);
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = 0;
	cr_assert_eq(value_volume(longest, volume), -ENAMETOOLONG);
	cr_assert_eq(value_volume(longest + 1, volume), 0);
	memset(&other, 0xff, sizeof(other));
	other.dev = 0;
	cr_assert_lt(value_key(volume, &other, key), VALUE_KEY_MAX);
	cr_assert_eq(value_volume("", volume), -EINVAL);
	other.dev = 1;
	cr_assert(value_has_key(&attr) && !value_has_key(&other));
}

Test(value, times_to_live)
{
	cr_assert_eq(value_ttl(0), VALUE_TTL_LEAST);
	cr_assert_eq(value_ttl(1), VALUE_TTL_LEAST + VALUE_TTL_SPAN);
	cr_assert_eq(value_ttl(-1), VALUE_TTL_LEAST);
	cr_assert_eq(value_ttl(7), VALUE_TTL_LEAST + VALUE_TTL_SPAN);
	cr_assert_eq(value_ttl(NAN), VALUE_TTL_LEAST);
	cr_assert_gt(value_ttl(0.5001f), value_ttl(0.5f));
}

static void check_seal(const char *secret)
{
	unsigned char head[VALUE_HEAD], damaged[VALUE_HEAD];
	char bytes[] = "hello, world";
	struct value_seal *seal;

	cr_assert_eq(value_seal_create(&seal, secret, secret ? strlen(secret) : 0), 0);
	cr_assert_eq(value_seal(seal, "key", 3, bytes, sizeof(bytes), head), 0);
	cr_assert(value_fits(seal, "key", 3, bytes, sizeof(bytes), head));
	cr_assert(!value_fits(seal, "kez", 3, bytes, sizeof(bytes), head));
	cr_assert(!value_fits(seal, "ke", 2, bytes, sizeof(bytes), head));
	cr_assert(!value_fits(seal, "key", 3, bytes, sizeof(bytes) - 1, head));
	for (unsigned bit = 0; bit < 8 * sizeof(bytes); bit++) {
		bytes[bit / 8] = (char)(bytes[bit / 8] ^ 1 << bit % 8);
		cr_assert(!value_fits(seal, "key", 3, bytes, sizeof(bytes), head), "%u", bit);
		bytes[bit / 8] = (char)(bytes[bit / 8] ^ 1 << bit % 8);
	}
	for (unsigned bit = 0; bit < 8 * VALUE_HEAD; bit++) {
		memcpy(damaged, head, VALUE_HEAD);
		damaged[bit / 8] = (unsigned char)(damaged[bit / 8] ^ 1 << bit % 8);
		cr_assert(!value_fits(seal, "key", 3, bytes, sizeof(bytes), damaged), "%u", bit);
	}
	cr_assert(value_fits(seal, "key", 3, bytes, sizeof(bytes), head));
	value_seal_free(seal);
}

Test(value, checksums)
{
	check_seal(NULL);
}

Test(value, macs)
{
	check_seal("0123456789abcdef");
}

/* A secret is needed to make what another one takes, and a checksum does not replace a MAC. */
Test(value, secrets)
{
	static const char *const secrets[] = { NULL, "one one one one 1", "two two two two 2" };
	unsigned char head[VALUE_HEAD], again[VALUE_HEAD];
	struct value_seal *seals[3];

	for (unsigned i = 0; i < 3; i++)
		cr_assert_eq(value_seal_create(&seals[i], secrets[i],
					       secrets[i] ? strlen(secrets[i]) : 0),
			     0);
	for (unsigned i = 0; i < 3; i++) {
		cr_assert_eq(value_seal(seals[i], "k", 1, "bytes", 5, head), 0);
		for (unsigned j = 0; j < 3; j++)
			cr_assert_eq(value_fits(seals[j], "k", 1, "bytes", 5, head), i == j);
	}
	/* No two values have one nonce. */
	cr_assert_eq(value_seal(seals[2], "k", 1, "bytes", 5, again), 0);
	cr_assert(memcmp(head, again, VALUE_HEAD) != 0);
	cr_assert(value_fits(seals[2], "k", 1, "bytes", 5, again));
	for (unsigned i = 0; i < 3; i++)
		value_seal_free(seals[i]);
}

/* --- the choice --------------------------------------------------------------------------------*/

#define SIZE ((uint64_t)110000)

/* How many of `turns`, a millisecond each, the tier is asked first. */
static unsigned preferred(struct choice *choice, unsigned turns)
{
	unsigned count = 0;

	for (unsigned i = 0; i < turns; i++)
		count += choice_prefers_tier(choice, SIZE, choice->now_ms + 1);
	return count;
}

Test(choice, nothing_known_both_are_tried)
{
	struct choice choice = { 0 };

	cr_assert(preferred(&choice, 1000) > 400);
	cr_assert(preferred(&choice, 1000) < 600);
}

Test(choice, the_slow_source_is_spared)
{
	struct choice choice = { 0 };

	for (unsigned i = 0; i < 100; i++) {
		choice_source(&choice, SIZE, 590);
		choice_hit(&choice, SIZE, 36);
	}
	cr_assert_eq(preferred(&choice, CHOICE_PROBE * 100), CHOICE_PROBE * 100 - 100);
}

Test(choice, the_fast_source_is_asked)
{
	struct choice choice = { 0 };

	for (unsigned i = 0; i < 100; i++) {
		choice_source(&choice, SIZE, 100);
		choice_hit(&choice, SIZE, 150);
	}
	cr_assert_eq(preferred(&choice, CHOICE_PROBE * 100), 100);
}

/* An empty tier only costs, but it is looked at now and then. */
Test(choice, misses_count)
{
	struct choice choice = { 0 };

	for (unsigned i = 0; i < 1000; i++) {
		choice_source(&choice, SIZE, 590);
		choice_miss(&choice, 30);
	}
	cr_assert_eq(preferred(&choice, CHOICE_PROBE * 100), 100);
	/* Somebody has filled it. */
	for (unsigned i = 0; i < 100; i++)
		choice_hit(&choice, SIZE, 36);
	cr_assert_eq(preferred(&choice, CHOICE_PROBE * 100), CHOICE_PROBE * 100 - 100);
}

Test(choice, expectations)
{
	struct choice choice = { 0 };

	for (unsigned i = 0; i < 1000; i++) {
		choice_source(&choice, SIZE, 500);
		choice_hit(&choice, SIZE, 40);
		choice_miss(&choice, 20);
	}
	cr_assert_float_eq(choice.hit_rate, 0.5, 0.02);
	cr_assert_float_eq(choice_expect_tier(&choice, SIZE), 0.5 * 40 + 0.5 * 520, 12);
	/* Other sizes are others' business. */
	cr_assert_eq(choice_expect_tier(&choice, SIZE * 4) < 20, 1);
	choice_source(&choice, 0, 1);
	choice_source(&choice, UINT64_MAX, 1);
}

/* Times that change are followed. */
Test(choice, a_source_that_becomes_slow)
{
	struct choice choice = { 0 };

	for (unsigned i = 0; i < 1000; i++) {
		choice_source(&choice, SIZE, 50);
		choice_hit(&choice, SIZE, 100);
	}
	cr_assert_lt(preferred(&choice, 320), 20);
	for (unsigned i = 0; i < 64; i++)
		choice_source(&choice, SIZE, 600);
	cr_assert_gt(preferred(&choice, 320), 300);
}

/* A few reads a second are too few for one of CHOICE_PROBE: then it goes by time. */
Test(choice, slow_readers_probe_by_time)
{
	struct choice choice = { 0 };
	unsigned count = 0;

	choice_source(&choice, SIZE, 100);
	choice_hit(&choice, SIZE, 3000);
	for (unsigned i = 1; i <= CHOICE_PROBE - 1; i++) {
		bool tier = choice_prefers_tier(&choice, SIZE, i * CHOICE_PROBE_MS / 4);

		count += tier;
		if (tier)
			choice_hit(&choice, SIZE, 3000);
		else
			choice_source(&choice, SIZE, 100);
	}
	cr_assert(count >= CHOICE_PROBE / 4 - 2 && count <= CHOICE_PROBE / 4, "%u", count);
}

/* One reader, for ten minutes, whom the source gives a file in 1 ms. Returns which share of the
 * time went into asking a tier that takes `tier_us`, and has the file or is given up. */
static double share_for_tier(double tier_us, bool hits)
{
	struct choice choice = { 0 };
	double now_us = 1e9, end_us = now_us + 600e6, lost_us = 0;

	while (now_us < end_us) {
		bool tier = choice_prefers_tier(&choice, SIZE, (uint64_t)(now_us / 1000));

		if (tier && hits)
			choice_hit(&choice, SIZE, tier_us);
		else if (tier)
			choice_miss(&choice, tier_us);
		if (!tier || !hits) {
			choice_source(&choice, SIZE, 1000);
			now_us += 1000;
		}
		if (tier) {
			now_us += tier_us;
			lost_us += tier_us;
		}
	}
	return lost_us / 600e6;
}

/* It is tried again, but the dearer it is the more seldom. */
Test(choice, a_slow_tier_is_seldom_tried)
{
	for (unsigned hits = 0; hits < 2; hits++)
		for (unsigned us = 2000; us < 1000000; us *= 2) {
			double share = share_for_tier(us, hits);

			cr_assert(share > 0.001 && share < 0.08, "%u us %u: %f", us, hits, share);
		}
}

/* --- what is worth putting ---------------------------------------------------------------------*/

static uint64_t hash_of(uint64_t i)
{
	return (i + 1) * 0x9e3779b97f4a7c15u;
}

/* An epoch in which everything is asked for once, and put if it is not there: the engine keeps what
 * is worth at least `kept`. Returns how many were put. */
#define FILES 10000
static unsigned epoch(struct survival *survival, bool *present, float kept)
{
	unsigned puts = 0;

	for (unsigned i = 0; i < FILES; i++) {
		float worth = (float)(i % 100) / 100;

		survival_asked(survival, hash_of(i), present[i]);
		if (present[i] || !survival_wants(survival, worth))
			continue;
		survival_put(survival, hash_of(i), worth);
		present[i] = worth >= kept;
		puts++;
	}
	return puts;
}

Test(survival, what_never_survives_is_seldom_put)
{
	struct survival *survival = calloc(1, sizeof(*survival));
	bool *present = calloc(FILES, sizeof(*present));
	unsigned puts;

	cr_assert_eq(epoch(survival, present, 0.5f), FILES);
	puts = epoch(survival, present, 0.5f);
	cr_assert(puts >= FILES / 2 / SURVIVAL_TRIALS && puts < FILES / 4, "%u", puts);
	puts = epoch(survival, present, 0.5f);
	cr_assert(puts >= FILES / 2 / SURVIVAL_TRIALS && puts < FILES / 10, "%u", puts);
	/* The engine has got more memory: what was tried is there, and soon everything is. */
	for (unsigned i = 0; i < 6; i++)
		(void)epoch(survival, present, 0);
	cr_assert_eq(epoch(survival, present, 0), 0);
	free(present);
	free(survival);
}

Test(survival, what_survives_is_always_put)
{
	struct survival *survival = calloc(1, sizeof(*survival));
	bool *present = calloc(FILES, sizeof(*present));

	cr_assert_eq(epoch(survival, present, 0), FILES);
	cr_assert_eq(epoch(survival, present, 0), 0);
	cr_assert(survival_wants(survival, 0) && survival_wants(survival, 1));
	cr_assert(survival_wants(survival, -1) && survival_wants(survival, NAN));
	free(present);
	free(survival);
}
