/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a report is made of, without a mount: advice, replays, the table of epochs, axes and
 * escapes. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advice.h"
#include "html.h"
#include "report.h"
#include "say.h"
#include "svg.h"

/* --- advice -------------------------------------------------------------------------------------
 */

/* One curve: what 1/2, 1, 2 and 4 times the memory would miss. */
static struct capacities missing(double half, double now, double twice, double four)
{
	return (struct capacities){ .capacity_bytes = 8.0 * (1 << 30),
				    .data_bytes = 80.0 * (1 << 30),
				    .accesses = 1000,
				    .epochs = 3,
				    .point_count = 4,
				    .present = 1,
				    .factors = { 0.5, 1, 2, 4 },
				    .curve_count = 1,
				    .curves = { { .policy = "lru",
						  .missed_bytes = { half, now, twice, four } } } };
}

static char said[REPORT_ADVICE_MAX];

static double uses; /* that the training has told */

static void advise(double waiting, const struct capacities *capacities)
{
	struct advice_figures figures = { .accesses = 5000,
					  .waiting = waiting,
					  .reclaimed = 0,
					  .errors = 0,
					  .uses = uses,
					  .capacities = capacities };

	advice(&figures, said, sizeof(said));
}

static void check_said(const char *wanted)
{
	cr_assert_str_eq(said, wanted);
}

Test(advice, a_slow_source_wants_memory)
{
	struct capacities capacities = missing(120, 100, 69, 20);

	advise(0.41, &capacities);
	check_said(
		"The source is the limit (readers waited for it 41 % of the time): 2 x the memory "
		"(16.0 GiB) would save 31 % of its bytes.");
}

/* Twice the memory saves too little: the next one that does is named. */
Test(advice, small_gains_are_passed_over)
{
	struct capacities capacities = missing(120, 100, 97, 60);

	advise(0.41, &capacities);
	cr_assert(strstr(said, ": 4 x the memory (32.0 GiB) would save 40 % of its bytes."), "%s",
		  said);
}

Test(advice, room_for_everything_is_called_so)
{
	struct capacities capacities = missing(120, 100, 0, 0);

	capacities.point_count = 3;
	capacities.factors[2] = 1.5;
	capacities.data_bytes = 12.0 * (1 << 30);
	advise(0.2, &capacities);
	cr_assert(strstr(said,
			 "room for all the data (12.0 GiB, 1.5 x the memory) would save 100 % "
			 "of its bytes."),
		  "%s", said);
}

Test(advice, another_policy_may_be_better)
{
	struct capacities capacities = missing(120, 100, 69, 20);

	capacities.curves[capacities.curve_count++] =
		(struct capacity_curve){ .policy = "minio", .missed_bytes = { 110, 96, 80, 50 } };
	advise(0.41, &capacities);
	cr_assert(!strstr(said, "policy"), "4 %% less is not worth it: %s", said);
	capacities.curves[capacities.curve_count++] =
		(struct capacity_curve){ .policy = "shade", .missed_bytes = { 90, 75, 50, 10 } };
	advise(0.41, &capacities);
	cr_assert(strstr(said, " The policy shade would save 25 % with the memory as it is."), "%s",
		  said);
}

Test(advice, where_memory_does_not_help)
{
	struct capacities capacities = missing(101, 100, 99, 98);

	advise(0.6, &capacities);
	cr_assert(strstr(said, "more memory would hardly change that. Announce orders"), "%s",
		  said);
	capacities.ordered = 3;
	advise(0.6, &capacities);
	cr_assert(strstr(said, "hardly change that. A faster source would help, or more uses"),
		  "%s", said);
	uses = 3.25;
	advise(0.6, &capacities);
	cr_assert(strstr(said,
			 "A faster source would help; the training uses each sample 3.2 times"),
		  "%s", said);
}

Test(advice, a_source_that_keeps_up)
{
	struct capacities capacities = missing(102, 100, 50, 0);

	advise(0.01, &capacities);
	check_said(
		"The source keeps up (readers waited for it 1.0 % of the time): half of the memory "
		"would do as well.");
	capacities = missing(150, 100, 50, 0);
	advise(0.01, &capacities);
	cr_assert(strstr(said, "2 x the memory (16.0 GiB) would save 50 % of its bytes, but nobody "
			       "waits for them."),
		  "%s", said);
	capacities = missing(150, 100, 99, 98);
	advise(0.01, &capacities);
	cr_assert(strstr(said, "nothing needs to be changed."), "%s", said);
}

Test(advice, what_is_not_known_is_not_claimed)
{
	struct capacities capacities = missing(120, 100, 69, 20);

	advise(NAN, &capacities);
	cr_assert(strstr(said, "is not known: 2 x the memory"), "%s", said);
	cr_assert(!strstr(said, "nan"), "%s", said);
	capacities = missing(0, 0, 0, 0);
	advise(0.0, &capacities);
	cr_assert(strstr(said, "after the first epoch nothing was missing."), "%s", said);
	capacities = (struct capacities){ 0 };
	advise(NAN, &capacities);
	cr_assert(*said && !strstr(said, "nan"), "%s", said);
}

Test(advice, nothing_was_read)
{
	struct capacities capacities = { 0 };
	struct advice_figures figures = { .accesses = 0,
					  .waiting = NAN,
					  .capacities = &capacities };

	advice(&figures, said, sizeof(said));
	cr_assert(strstr(said, "Nothing was read yet"), "%s", said);
	figures.accesses = NAN;
	advice(&figures, said, sizeof(said));
	cr_assert(strstr(said, "Nothing was read yet"), "%s", said);
}

Test(advice, faults_come_first)
{
	struct capacities capacities = missing(120, 100, 69, 20);
	struct advice_figures figures = { .accesses = 10,
					  .waiting = 0.5,
					  .reclaimed = 0.25,
					  .errors = 0.02,
					  .capacities = &capacities };

	advice(&figures, said, sizeof(said));
	cr_assert_eq(strstr(said, "2.0 % of the reads of the source failed"), said, "%s", said);
	cr_assert(strstr(said, "The kernel took back what was to stay (25 % of"), "%s", said);
	cr_assert(strstr(said, "31 %"), "%s", said);
	for (size_t size = 0; size < 300; size++) {
		char small[300] = { [299] = 'x' };

		memset(small, 'x', sizeof(small));
		advice(&figures, small, size);
		cr_assert_eq(small[size], 'x', "%zu bytes are enough for nobody", size);
		cr_assert(!size || strlen(small) < size);
	}
}

/* --- replays ------------------------------------------------------------------------------------
 */

/* What an epoch reads: with orders by chance; else in a cycle. */
static void draw(unsigned epoch, bool ordered, unsigned ids[100])
{
	unsigned chance = epoch + 1;

	for (unsigned i = 0; i < 100; i++)
		ids[i] = ordered ? (unsigned)rand_r(&chance) % 100 : i;
}

/* EPOCHS times 100 samples of one byte. */
static char *make_history(unsigned epochs, double capacity, bool ordered)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	/* A tenth of the data: the cache is to be a tenth of the capacity, too. */
	fprintf(out,
		"# rate 0.1\n# samples 1000\n# picked 100\n# data_bytes 1000\n"
		"# picked_bytes 100\n# capacity_bytes %.0f\n",
		capacity);
	for (unsigned epoch = 0; epoch < epochs; epoch++) {
		unsigned ids[100] = { 0 };

		fprintf(out, "e %u # comment\n", epoch);
		for (unsigned ahead = epoch + (epoch > 0); ahead <= epoch + 1; ahead++) {
			if (!ordered || ahead == epochs)
				break;
			fprintf(out, "o %u", ahead);
			draw(ahead, ordered, ids);
			for (unsigned i = 0; i < 100; i++)
				fprintf(out, " %u", ids[i]);
			fputc('\n', out);
		}
		draw(epoch, ordered, ids);
		for (unsigned i = 0; i < 100; i++)
			fprintf(out, "a %u 1\n", ids[i]);
	}
	fclose(out);
	return text;
}

static struct capacities replay(unsigned epochs, double capacity, bool ordered, const char *policy)
{
	char *history = make_history(epochs, capacity, ordered);
	struct capacities capacities;

	capacities_replay(&capacities, history, "test", policy);
	free(history);
	return capacities;
}

static double hits(const struct capacities *capacities, const char *policy, double factor)
{
	for (unsigned i = 0; i < capacities->curve_count; i++)
		for (unsigned j = 0; j < capacities->point_count; j++)
			if (!strcmp(capacities->curves[i].policy, policy) &&
			    capacities->factors[j] == factor)
				return capacities->curves[i].hit_ratio[j];
	cr_assert_fail("there is no %s at %g", policy, factor);
	return NAN;
}

/* A cycle, for which the answers are known: minio keeps what came first, lru nothing until all
 * fits. */
Test(capacities, known_answers)
{
	struct capacities capacities = replay(4, 200, false, "lru");

	cr_assert_eq(capacities.epochs, 3);
	cr_assert_eq(capacities.warm_up, 1);
	cr_assert_eq(capacities.accesses, 300);
	cr_assert_eq(capacities.ordered, 0);
	cr_assert_str_eq(capacities.curves[capacities.own].policy, "lru");
	cr_assert_eq(capacities.factors[capacities.present], 1);
	cr_assert_float_eq(hits(&capacities, "minio", 1), 0.2, 1e-9);
	cr_assert_float_eq(hits(&capacities, "minio", 0.5), 0.1, 1e-9);
	cr_assert_float_eq(hits(&capacities, "minio", 4), 0.8, 1e-9);
	cr_assert_float_eq(hits(&capacities, "shade", 1), 0.2, 1e-9); /* knows nothing: minio */
	cr_assert_float_eq(hits(&capacities, "lru", 4), 0, 1e-9);
	cr_assert_float_eq(capacities.curves[0].missed_bytes[capacities.present], 240, 1e-9);
	/* lru misses all 300; minio with the same memory 240. */
	cr_assert_float_eq(capacities_saved(&capacities, 2, capacities.present), 0.2, 1e-9);
}

/* With room for a fifth of what is drawn with replacement, MIN hits 0.56 of the time, and who knows
 * nothing 0.2. */
Test(capacities, orders_help)
{
	struct capacities capacities = replay(9, 200, true, "shade");

	cr_assert_eq(capacities.ordered, 9);
	cr_assert_eq(capacities.own, 0);
	cr_assert_lt(hits(&capacities, "minio", 1), 0.3);
	cr_assert_gt(hits(&capacities, "shade", 1), 0.45);
}

/* The last point has room for everything; no more is asked for. */
Test(capacities, up_to_all_the_data)
{
	struct capacities capacities = replay(3, 400, false, "shade");

	cr_assert_float_eq(capacities.factors[capacities.point_count - 1], 2.5, 1e-9);
	cr_assert_float_eq(hits(&capacities, "lru", 2.5), 1, 1e-9);
	capacities = replay(3, 1000, false, "shade");
	cr_assert_eq(capacities.factors[capacities.point_count - 1], 1);
	cr_assert_eq(capacities.present, capacities.point_count - 1);
	cr_assert(isnan(capacities_saved(&capacities, 0, 0)));
	capacities = replay(3, 5000, false, "shade");
	cr_assert_eq(capacities.factors[capacities.present], 1);
}

Test(capacities, the_own_policy_is_always_there)
{
	struct capacities capacities = replay(3, 200, false, "fifo");

	cr_assert_eq(capacities.curve_count, 5);
	cr_assert_str_eq(capacities.curves[capacities.own].policy, "fifo");
	capacities = replay(3, 200, false, "no such policy");
	cr_assert_eq(capacities.curve_count, 4);
}

/* One epoch alone is cold: it counts, for there is nothing else. */
Test(capacities, one_epoch)
{
	struct capacities capacities = replay(1, 200, false, "lru");

	cr_assert_eq(capacities.warm_up, 0);
	cr_assert_eq(capacities.epochs, 1);
	cr_assert_eq(capacities.accesses, 100);
	cr_assert_eq(hits(&capacities, "minio", 1), 0);
}

Test(capacities, nothing_to_replay)
{
	static const char *const texts[] = {
		"",
		"# rate 1\n",
		"a 1 1\n",
		"# rate 1\n# data_bytes 10\n# picked_bytes 10\n# capacity_bytes 5\ne 0\n",
		"# rate 1\n# data_bytes 10\n# picked_bytes 0\n# capacity_bytes 5\ne 0\na 1 1\n",
		"# rate 1\n# data_bytes nan\n# picked_bytes 1\n# capacity_bytes 5\ne 0\na 1 1\n",
		"# rate 1\n# data_bytes 10\n# picked_bytes 11\n# capacity_bytes 5\ne 0\na 1 1\n",
		"# rate 1\n# data_bytes 1\n# picked_bytes 1\n# capacity_bytes 1e300\ne 0\na 1 1\n",
	};
	struct capacities capacities;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		capacities_replay(&capacities, texts[i], "test", "shade");
		cr_assert_eq(capacities.accesses, 0, "%s", texts[i]);
	}
}

/* --- the table of epochs ------------------------------------------------------------------------
 */

Test(epochs, columns_are_found_by_name)
{
	struct report_epoch epochs[8];
	unsigned count = report_parse_epochs("hits new accesses epoch begin_ms end_ms waiting_ms\n"
					     "75 x 100 3 1000 3000 500\n"
					     "0 x 0 4 3000 3000 0\n"
					     "1 x 2 5 3000 3001 999\n",
					     epochs, 8);

	cr_assert_eq(count, 2, "a row without accesses is none");
	cr_assert_eq(epochs[0].values[COLUMN_EPOCH], 3);
	cr_assert_float_eq(report_rate(&epochs[0], RATE_HIT), 0.75, 1e-9);
	cr_assert_float_eq(report_rate(&epochs[0], RATE_THROUGHPUT), 50, 1e-9);
	cr_assert_float_eq(report_rate(&epochs[0], RATE_WAITING), 0.25, 1e-9);
	cr_assert_eq(report_rate(&epochs[1], RATE_WAITING), 1);
	cr_assert(isnan(epochs[0].values[COLUMN_SAMPLES]));
	for (unsigned rate = 0; rate < RATES; rate++)
		if (rate == RATE_COVERAGE || rate == RATE_KEPT || rate == RATE_LIMITED ||
		    rate == RATE_SOURCE || rate == RATE_DELIVERED)
			cr_assert(isnan(report_rate(&epochs[0], rate)), "rate %u", rate);
}

Test(epochs, odd_tables)
{
	struct report_epoch epochs[2];

	cr_assert_eq(report_parse_epochs("", epochs, 2), 0);
	cr_assert_eq(report_parse_epochs("accesses", epochs, 2), 0);
	cr_assert_eq(report_parse_epochs("accesses\n\n\n-5\nnan\ninf\n1e999\nx\n", epochs, 2), 0);
	cr_assert_eq(report_parse_epochs("x y\n1 2\n", epochs, 2), 0);
	/* Of too many the latest stay. */
	cr_assert_eq(report_parse_epochs("epoch accesses\n1 1\n2 1\n3 1\n4 1", epochs, 2), 2);
	cr_assert_eq(epochs[0].values[COLUMN_EPOCH], 3);
	cr_assert_eq(epochs[1].values[COLUMN_EPOCH], 4);
}

/* --- axes and text ------------------------------------------------------------------------------
 */

Test(svg, axes_end_at_round_numbers)
{
	static const struct {
		double most, end;
	} cases[] = { { 0, 1 },	    { NAN, 1 },	  { 1, 1 },	 { 3, 3 },	 { 9, 10 },
		      { 100, 100 }, { 101, 150 }, { 812, 1000 }, { 0.07, 0.08 }, { 57.1, 60 } };
	unsigned steps;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		double end = svg_round_up(cases[i].most, &steps);

		cr_assert_float_eq(end, cases[i].end, 1e-9 * cases[i].end, "%g: %g", cases[i].most,
				   end);
		cr_assert(steps >= 2 && steps <= 5, "%g: %u steps", cases[i].most, steps);
	}
	for (int i = -40; i < 90; i++)
		cr_assert_geq(svg_round_up(pow(1.37, i), &steps), pow(1.37, i) * (1 - 1e-9));
}

Test(html, text_does_nothing)
{
	static const struct {
		const char *text, *shown;
	} cases[] = {
		{ "plain", "plain" },
		{ "</script><script>", "&lt;/script&gt;&lt;script&gt;" },
		{ "a' onload='x\"&", "a&#39; onload=&#39;x&quot;&amp;" },
		{ "\xc3\xa4\xe2\x82\xac", "\xc3\xa4\xe2\x82\xac" },
		{ "\x1b[2J\x7f", "\xef\xbf\xbd[2J\xef\xbf\xbd" },
		{ "\xff\xc3", "\xef\xbf\xbd\xef\xbf\xbd" },
		{ "\xc2\x9b", "\xef\xbf\xbd" },
		{ "a\xe2\x80\xae"
		  "b",
		  "a\xef\xbf\xbd"
		  "b" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char shown[200] = "";
		FILE *out = fmemopen(shown, sizeof(shown), "w");

		html_text(out, cases[i].text);
		fclose(out);
		cr_assert_str_eq(shown, cases[i].shown);
	}
}

/* JSON within a page must not end its script. */
Test(html, json_has_no_tags)
{
	char shown[100] = "";
	FILE *out = fmemopen(shown, sizeof(shown), "w");

	say_json_string(out, "</script>", 9);
	fclose(out);
	cr_assert_str_eq(shown, "\"\\u003c/script>\"");
}
