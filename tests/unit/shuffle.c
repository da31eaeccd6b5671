/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Shuffles: torch's permutation, loaders' numberings, layouts, recognition, following. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "shuffle_loader.h"

/* --- the permutation
 * ------------------------------------------------------------------------------ */

/* What torch.randperm() gave after torch.manual_seed(): tests/python/shuffle.py asks it again. */
Test(shuffle, permutes_as_torch_does)
{
	static const struct {
		uint32_t seed, n, first[6];
	} vectors[] = {
		{ 0, 10, { 4, 1, 7, 5, 3, 9 } },
		{ 0, 1000, { 44, 37, 675, 775, 947, 209 } },
		{ 0, 1281167, { 1069931, 571398, 762430, 399643, 899707, 226472 } },
	};

	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		uint32_t *out = malloc(vectors[i].n * sizeof(*out));

		shuffle_permute(vectors[i].seed, out, vectors[i].n);
		for (unsigned k = 0; k < 6; k++)
			cr_assert_eq(out[k], vectors[i].first[k], "n %u, entry %u: %u",
				     vectors[i].n, k, out[k]);
		free(out);
	}
}

Test(shuffle, locates_what_it_would_permute)
{
	uint64_t state = 7;

	for (unsigned round = 0; round < 300; round++) {
		uint32_t n = 2 + loader_random(&state) % (round % 3 ? 300 : 40000);
		uint32_t limit = 1 + loader_random(&state) % n, seed = loader_random(&state);
		uint32_t *permutation = malloc(n * sizeof(*permutation)), indices[SHUFFLE_READS];
		uint32_t places[SHUFFLE_READS];
		unsigned count = n < SHUFFLE_READS ? n : SHUFFLE_READS;

		shuffle_permute(seed, permutation, n);
		for (unsigned i = 0; i < count; i++)
			indices[i] = permutation[(uint64_t)i * n / count];
		shuffle_locate(seed, n, limit, indices, count, places);
		for (unsigned i = 0; i < count; i++) {
			uint32_t place = (uint32_t)((uint64_t)i * n / count);

			cr_assert_eq(places[i], place < limit ? place : SHUFFLE_BEYOND,
				     "round %u, n %u, limit %u, seed %u: place %u is %u", round, n,
				     limit, seed, place, places[i]);
		}
		free(permutation);
	}
}

/* --- numberings
 * ----------------------------------------------------------------------------------- */

struct listed {
	const char *const *dirs;
	const uint32_t *dir_of;
	const char *const *names;
};

static const char *name_of(const void *context, uint32_t file)
{
	return ((const char *const *)context)[file];
}

/* Lists, and compares with paths that follow each other, each ended by a space. */
static void check_list(enum shuffle_listing listing, const char *const *dirs, uint32_t dir_count,
		       const uint32_t *dir_of, const char *const *names, uint32_t count,
		       const char *expected)
{
	struct shuffle_files files = { dirs, dir_count, dir_of, count, name_of, names };
	char text[1024] = "";
	uint32_t out[64];
	int64_t listed = shuffle_list(&files, listing, out);

	for (int64_t i = 0; i < listed; i++) {
		strcat(text, dirs[dir_of[out[i]]]);
		strcat(text, names[out[i]]);
		strcat(text, " ");
	}
	cr_assert_str_eq(text, expected);
}

Test(shuffle, lists_as_image_folder_does)
{
	/* "a" comes before "a-b" as a class, but "a/x" after "a-b/..." as a string; "a/c d" is
	 * before "a/c/e" as a string though not by components. */
	static const char *const dirs[] = { "", "a/", "a/c/", "a/c/e/", "a/c d/", "a-b/", "B/" };
	static const uint32_t dir_of[] = { 0, 1, 1, 2, 3, 4, 5, 6, 6, 6, 1, 6 };
	static const char *const names[] = { "top.jpg", "2.jpg",	"10.JPG",    "x.png",
					     "y.tiff",	"z.webp",	"k.pgm",     "l.txt",
					     ".jpg",	"\xc3\xa9.bmp", "a.jpeg.gz", "\xff.ppm" };

	check_list(SHUFFLE_IMAGE_FOLDER, dirs, 7, dir_of, names, 12,
		   "B/.jpg B/\xc3\xa9.bmp B/\xff.ppm a/10.JPG a/2.jpg a/c/x.png a/c d/z.webp "
		   "a/c/e/y.tiff a-b/k.pgm ");
}

/* A byte that is no UTF-8 is U+DCFF in Python: before U+E000, though 0xff is after 0xee. */
Test(shuffle, compares_code_points)
{
	static const char *const dirs[] = { "a/" };
	static const uint32_t dir_of[] = { 0, 0, 0 };
	static const char *const names[] = { "\xee\x80\x80.jpg", "\xff.jpg",
					     "\xf0\x90\x80\x80.jpg" };

	check_list(SHUFFLE_IMAGE_FOLDER, dirs, 1, dir_of, names, 3,
		   "a/\xff.jpg a/\xee\x80\x80.jpg a/\xf0\x90\x80\x80.jpg ");
}

Test(shuffle, lists_as_timm_does)
{
	static const char *const dirs[] = { "", "n2/", "n10/", "N1/", "n02/b/" };
	static const uint32_t dir_of[] = { 0, 1, 1, 1, 2, 3, 4, 1, 0 };
	static const char *const names[] = { "top.jpg", "x10.jpg", "X9.png", "x.jpeg", "a.jpg",
					     "a.jpg",	"c.jpg",   "x.bmp",  ".jpg" };

	/* n02/b/ is where n2/b/ would be. */
	check_list(SHUFFLE_TIMM, dirs, 5, dir_of, names, 9,
		   "N1/a.jpg n02/b/c.jpg n2/X9.png n2/x10.jpg n2/x.jpeg n10/a.jpg top.jpg ");
}

/* --- recognition
 * ---------------------------------------------------------------------------------- */

static const uint32_t many_worlds[] = { 1, 2, 3, 4, 8, 16 };

static struct shuffle_trial trial_of(const struct shuffle_read *reads, unsigned count, uint32_t n)
{
	struct shuffle_trial trial = { .n = n,
				       .limit = n < 65536 ? n : SHUFFLE_PREFIX,
				       .tries_log10 = log10(1102 * 4) };

	for (unsigned i = 0; i < count; i++)
		shuffle_trial_add(&trial, reads[i].thread, reads[i].index);
	return trial;
}

Test(shuffle, recognises_the_first_reads)
{
	uint64_t state = 3;

	for (unsigned i = 0; i < 6; i++)
		for (uint32_t n = 700; n < 200000; n *= 6) {
			struct loader loader = { .n = n,
						 .world = many_worlds[i],
						 .ranks = many_worlds[i],
						 .workers = 4,
						 .batch = 32,
						 .state = loader_random(&state) };
			uint32_t count, seed = loader_random(&state) % 1001;
			struct shuffle_read *reads = loader_epoch(&loader, seed, &count);
			struct shuffle_match best = { .score = -HUGE_VAL };
			unsigned needed = 4;

			for (; best.score <= SHUFFLE_SURE && needed <= SHUFFLE_READS; needed++) {
				struct shuffle_trial trial = trial_of(reads, needed, n);

				shuffle_search(&trial, seed, 1, &best);
			}
			cr_assert_gt(best.score, SHUFFLE_SURE, "n %u, %u ranks, seed %u", n,
				     many_worlds[i], seed);
			cr_assert(n < 100000 || needed <= 21, "n %u, %u ranks: %u reads", n,
				  many_worlds[i], needed);
			free(reads);
		}
}

Test(shuffle, finds_the_seed_among_all)
{
	struct loader loader = { .n = 5000, .world = 4, .ranks = 4, .workers = 2, .batch = 16 };
	struct shuffle_match best = { .score = -HUGE_VAL };
	struct shuffle_trial trial;
	uint32_t count;
	struct shuffle_read *reads = loader_epoch(&loader, 717, &count);

	trial = trial_of(reads + 2000, 32, 5000); /* in the middle: only steps tell */
	shuffle_search(&trial, 0, 1001, &best);
	cr_assert_eq(best.seed, 717);
	cr_assert_gt(best.score, SHUFFLE_SURE);
	cr_assert_eq(best.within, 0);
	free(reads);
}

Test(shuffle, sequential_reads_are_no_shuffle)
{
	struct shuffle_trial trial = { .n = 1000, .limit = 1000 };

	for (uint32_t i = 0; i < 20; i++)
		shuffle_trial_add(&trial, (int32_t)(1 + i % 2), 100 + i * 3);
	cr_assert(shuffle_is_sequential(&trial));
	shuffle_trial_add(&trial, 1, 50);
	cr_assert_not(shuffle_is_sequential(&trial));
}

/* --- windows
 * -------------------------------------------------------------------------------------- */

Test(shuffle, windows_begin_where_epochs_do)
{
	struct shuffle_window window = { 0 };

	for (uint32_t i = 0; i < 7; i++)
		cr_assert_not(shuffle_window_add(&window, 1, i, 1000));
	cr_assert_not(shuffle_window_is_due(&window, 1000));
	shuffle_window_add(&window, 1, 3, 1000); /* a sample that comes again counts once */
	cr_assert_not(shuffle_window_is_due(&window, 1000));
	shuffle_window_add(&window, 1, 9, 1000);
	cr_assert(shuffle_window_is_due(&window, 1000));
	cr_assert_not(shuffle_window_is_due(&window, 1000));
	for (uint32_t i = 10; i < 100; i++)
		shuffle_window_add(&window, 1, i, 1001);
	cr_assert_eq(window.count, SHUFFLE_READS);
	shuffle_window_add(&window, 1, 200000, 1002);
	cr_assert_eq(window.count, SHUFFLE_READS);
	shuffle_window_add(&window, 1, 200000, 1002); /* the next epoch */
	cr_assert_eq(window.count, 1);
	shuffle_window_add(&window, 1, 5, 1003);
	cr_assert_eq(window.count, 2);
	shuffle_window_add(&window, 1, 6, 9003); /* after a pause */
	cr_assert_eq(window.count, 1);
	for (uint32_t i = 0; i < 300; i++)
		shuffle_window_add(&window, 1, 1000 + i, 9004);
	shuffle_window_add(&window, 2, 7, 9005); /* somebody else */
	cr_assert_eq(window.count, 1);
	shuffle_window_free(&window);
}

/* --- following
 * ------------------------------------------------------------------------------------ */

struct course {
	struct shuffle_follow *follow;
	uint32_t *order, *next; /* what was announced, as counts by index */
	uint32_t announced;	/* entries of this epoch when it was last announced */
	unsigned nexts, lost;
};

static void count_order(struct course *course, uint32_t n, bool next, uint32_t **counts)
{
	uint32_t *indices, count;
	int rc = shuffle_follow_order(course->follow, next, &indices, &count);

	free(*counts);
	*counts = calloc(n, sizeof(**counts));
	if (rc)
		return;
	for (uint32_t i = 0; i < count; i++)
		(*counts)[indices[i]]++;
	if (!next)
		course->announced = count;
	free(indices);
}

/* Reads a whole epoch, and returns how many reads the orders did not expect. */
static uint32_t run_epoch(struct course *course, struct loader *loader, uint32_t seed)
{
	uint32_t count, astray = 0;
	struct shuffle_read *reads = loader_epoch(loader, seed, &count);

	for (uint32_t i = 0; i < count; i++) {
		uint32_t index = reads[i].index;
		bool expected = course->order && course->order[index];
		int event;

		if (expected)
			course->order[index]--;
		else if (course->next && course->next[index]) {
			course->next[index]--;
			expected = true;
		}
		astray += !expected;
		event = shuffle_follow_read(course->follow, reads[i].thread, index, true);
		cr_assert_geq(event, 0);
		course->nexts += event == SHUFFLE_NEXT;
		course->lost += event == SHUFFLE_LOST;
		if (event == SHUFFLE_CHANGED || event == SHUFFLE_NEXT) {
			count_order(course, loader->n, false, &course->order);
			count_order(course, loader->n, true, &course->next);
		}
	}
	free(reads);
	return astray;
}

static void begin_course(struct course *course, struct loader *loader, uint32_t seed)
{
	uint64_t state = loader->state;
	uint32_t count;
	struct shuffle_read *reads = loader_epoch(loader, seed, &count);
	struct shuffle_trial trial = trial_of(reads, 32, loader->n);
	struct shuffle_match match = { .score = -HUGE_VAL };

	shuffle_search(&trial, seed, 1, &match);
	cr_assert_gt(match.score, SHUFFLE_SURE, "seed %u", seed);
	cr_assert_not(shuffle_follow_create(&course->follow, &trial, &match));
	loader->state = state; /* run_epoch() makes the same reads */
	free(reads);
}

static void end_course(struct course *course)
{
	shuffle_follow_free(course->follow);
	free(course->order);
	free(course->next);
}

/* Whatever the ranks, workers, batches and ends: from the second epoch on hardly a read is not
 * expected, and nothing is announced that does not come. */
Test(shuffle, follows_all_layouts)
{
	uint64_t state = 11;

	for (unsigned round = 0; round < 60; round++) {
		uint32_t world = many_worlds[round % 6],
			 ranks = round % 4 ? world : (world + 1) / 2;
		struct loader loader = { .n = 3000 + loader_random(&state) % 3000,
					 .world = world,
					 .ranks = ranks,
					 .first_rank = round % 4 ? 0 : world - ranks,
					 .workers = 1 + loader_random(&state) % 4,
					 .batch = 1 + loader_random(&state) % 16,
					 .drop_last = round & 1,
					 .drops_turn = round & 2,
					 .thread = 1,
					 .state = loader_random(&state) };
		struct course course = { 0 };
		uint32_t seed = loader_random(&state) % 900, each, astray;

		begin_course(&course, &loader, seed);
		(void)run_epoch(&course, &loader, seed);
		for (unsigned epoch = 1; epoch < 4; epoch++) {
			loader.thread += round % 3 ? 0 : 100; /* new workers */
			astray = run_epoch(&course, &loader, seed + epoch);
			cr_assert_eq(
				course.nexts, epoch,
				"round %u: n %u, %u of %u ranks, %u workers, batch %u: %u began",
				round, loader.n, ranks, world, loader.workers, loader.batch,
				course.nexts);
			each = loader.n / world * ranks;
			cr_assert_leq(astray, each / 20, "round %u, epoch %u: %u of %u astray",
				      round, epoch, astray, each);
		}
		cr_assert_eq(course.lost, 0, "round %u", round);
		cr_assert_leq(course.announced, (loader.n / world + 1) * ranks, "round %u", round);
		end_course(&course);
	}
}

Test(shuffle, follows_batches_that_go_round_machines)
{
	struct loader loader = { .n = 20000,
				 .world = 4,
				 .first_rank = 1,
				 .ranks = 2,
				 .workers = 2,
				 .batch = 8,
				 .by_batch = true,
				 .thread = 1 };
	const struct shuffle_layout *layout;
	struct course course = { 0 };
	uint32_t astray;

	begin_course(&course, &loader, 42);
	(void)run_epoch(&course, &loader, 42);
	layout = shuffle_follow_layout(course.follow);
	cr_assert_eq(layout->kind, SHUFFLE_BATCHES);
	cr_assert_eq(layout->world, 4);
	cr_assert_eq(layout->batch, 8);
	cr_assert_eq(layout->local[0], 6);
	astray = run_epoch(&course, &loader, 43);
	cr_assert_leq(astray, 100, "%u", astray);
	cr_assert_leq(course.announced, 10020);
	end_course(&course);
}

Test(shuffle, follows_repeated_augmentation)
{
	for (uint32_t world = 1; world <= 8; world++) {
		struct loader loader = { .n = 6000,
					 .world = world,
					 .ranks = world,
					 .workers = 2,
					 .batch = 16,
					 .repeats = 3,
					 .thread = 1,
					 .state = world };
		struct course course = { 0 };
		uint32_t astray;

		begin_course(&course, &loader, 5);
		(void)run_epoch(&course, &loader, 5);
		cr_assert_eq(shuffle_follow_layout(course.follow)->kind, SHUFFLE_REPEATED);
		astray = run_epoch(&course, &loader, 6);
		cr_assert_leq(astray, 300, "%u ranks: %u", world, astray);
		end_course(&course);
	}
}

Test(shuffle, notices_that_set_epoch_is_forgotten)
{
	struct loader loader = {
		.n = 4000, .world = 2, .ranks = 2, .workers = 2, .batch = 8, .thread = 1
	};
	struct course course = { 0 };
	uint32_t astray = 0;

	begin_course(&course, &loader, 0);
	for (unsigned epoch = 0; epoch < 4; epoch++)
		astray = run_epoch(&course, &loader, 0);
	cr_assert(shuffle_follow_is_stuck(course.follow));
	cr_assert_leq(astray, 40, "%u", astray);
	(void)run_epoch(&course, &loader, 1); /* somebody has remembered */
	cr_assert_not(shuffle_follow_is_stuck(course.follow));
	astray = run_epoch(&course, &loader, 2);
	cr_assert_leq(astray, 40, "%u", astray);
	cr_assert_eq(course.lost, 0);
	end_course(&course);
}

Test(shuffle, is_lost_when_reads_stop_following)
{
	struct loader loader = {
		.n = 4000, .world = 2, .ranks = 2, .workers = 2, .batch = 8, .thread = 1
	};
	struct course course = { 0 };

	begin_course(&course, &loader, 10);
	(void)run_epoch(&course, &loader, 10);
	cr_assert_eq(course.lost, 0);
	(void)run_epoch(&course, &loader, 3000); /* not the next one */
	cr_assert_gt(course.lost, 0);
	end_course(&course);
}
