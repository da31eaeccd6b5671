/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * libshade against a real mount: library MNT LINK NOT_A_MOUNT. MNT has 200 samples
 * classC/sampleNNNNN.bin, and links in it: linked to class0, class2/one.bin to sample00001.bin.
 * LINK is a symbolic link to it, the current directory /. `library PLACE gone -` and `library
 * PLACE other -`: the daemon is gone, something else is mounted there. Exit 0 or 1.
 */
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shade/client.h"

#define SAMPLES 200u
#define LARGE 300000u /* ids: an order of several writes */

static int failures;

#define CHECK(holds)                                                                               \
	do {                                                                                       \
		if (!(holds)) {                                                                    \
			printf("FAILED: line %d: %s (%s)\n", __LINE__, #holds, shade_error());     \
			failures++;                                                                \
		}                                                                                  \
	} while (0)

static int count_sample(void *context, uint32_t id, const char *path)
{
	uint32_t *count = context;

	CHECK(id == *count && *path && *path != '/');
	++*count;
	return 0;
}

static int stop_at_once(void *context, uint32_t id, const char *path)
{
	(void)context;
	(void)id;
	(void)path;
	return 7;
}

static void test_open(const char *mnt, const char *link, const char *plain)
{
	char below[4096];
	struct shade *shade = NULL;

	CHECK(shade_open(plain, NULL, &shade) == -ENODEV && !shade);
	CHECK(strstr(shade_error(), "no shadefs") && strstr(shade_error(), plain));
	CHECK(shade_open("/nowhere/at/all", NULL, &shade) == -ENOENT);
	CHECK(strstr(shade_error(), "there is no"));
	CHECK(shade_open("/proc/self", NULL, &shade) == -ENODEV);
	shade_close(NULL);

	snprintf(below, sizeof(below), "%s/class0", link);
	CHECK(!shade_open(below, NULL, &shade));
	CHECK(!strcmp(shade_path(shade), mnt));
	shade_close(shade);
	snprintf(below, sizeof(below), "%s/class0/sample00000.bin", mnt);
	CHECK(!shade_open(below, NULL, &shade));
	CHECK(!strcmp(shade_path(shade), mnt));
	shade_close(shade);
	CHECK(shade_open(mnt, "a/b", &shade) == -EINVAL);
	CHECK(shade_open(mnt, "..", &shade) == -EINVAL);
	CHECK(*shade_version());
}

/* Jobs are where the daemon has them; else that is what it says. */
static void test_job(const char *mnt)
{
	struct shade *shade, *other, *again;
	struct shade_sample sample;
	uint32_t id = 3;
	float score = 2.5f;
	char jobs[4096];

	snprintf(jobs, sizeof(jobs), "%s/.shade/jobs", mnt);
	if (access(jobs, F_OK)) {
		CHECK(shade_open(mnt, "one", &shade) == -EOPNOTSUPP);
		CHECK(strstr(shade_error(), "no jobs"));
		printf("no jobs in this daemon: not tested\n");
		return;
	}
	CHECK(!shade_open(mnt, "one", &shade));
	CHECK(!shade_open(mnt, "other", &other));
	CHECK(!shade_open(mnt, "one", &again));
	CHECK(!shade_scores(shade, &id, &score, 1));
	CHECK(!shade_query(again, id, &sample) && sample.score == score);
	CHECK(!shade_query(other, id, &sample) && sample.score != score);
	shade_close(shade);
	shade_close(other);
	shade_close(again);
}

static void test_hints(struct shade *shade)
{
	uint32_t ids[4] = { 5, 0, 199, 5 };
	float scores[4] = { 2.5f, 3.25f, 0, 4.5f };
	struct shade_sample sample;
	uint32_t count = 0;
	double value;

	CHECK(!shade_sample_count(shade, &count) && count == SAMPLES);
	CHECK(!shade_scores(shade, ids, scores, 4));
	CHECK(!shade_query(shade, 5, &sample) && sample.score == 4.5f && sample.size > 0);
	CHECK(!shade_query(shade, 0, &sample) && sample.score == 3.25f);
	CHECK(!shade_query(shade, 1, &sample) && sample.score < 0);
	CHECK(shade_query(shade, SAMPLES, &sample) == -EINVAL);
	CHECK(strstr(shade_error(), "no sample 200"));
	CHECK(!shade_scores(shade, ids, scores, 0));

	CHECK(!shade_order(shade, 3, ids, 4));
	CHECK(!shade_epoch(shade, 3));
	CHECK(!shade_stat(shade, "epoch", &value) && value == 3);
	CHECK(!shade_stat(shade, "order_ahead", &value) && value == 4);
	CHECK(shade_stat(shade, "no_such_key", &value) == -ENOENT);
	CHECK(shade_stat(shade, "policy", &value) == -ERANGE);
}

/* What is refused leaves everything as it was, and the daemon says what was wrong. */
static void test_refused(struct shade *shade)
{
	uint32_t ids[2] = { 7, SAMPLES };
	float scores[2] = { 1, NAN };
	uint32_t *large = calloc(LARGE, sizeof(*large));
	char answer[256];
	struct shade_sample sample;
	double value;

	CHECK(shade_scores(shade, ids, scores, 2) == -EINVAL);
	CHECK(strstr(shade_error(), "entry 1") && strstr(shade_error(), "id"));
	ids[1] = 8;
	CHECK(shade_scores(shade, ids, scores, 2) == -EINVAL);
	CHECK(strstr(shade_error(), "finite"));
	CHECK(!shade_query(shade, 7, &sample) && sample.score < 0);

	/* Wrong in the last of many writes. */
	large[LARGE - 1] = SAMPLES;
	CHECK(shade_order(shade, 4, large, LARGE) == -EINVAL);
	CHECK(strstr(shade_error(), "entry 299999"));
	CHECK(!shade_stat(shade, "order_ahead", &value) && value == 4);
	large[LARGE - 1] = 1;
	CHECK(!shade_order(shade, 4, large, LARGE));
	CHECK(!shade_stat(shade, "order_ahead", &value) && value == 4 + LARGE);
	free(large);

	CHECK(shade_command(shade, "fly\n", 4, answer, sizeof(answer)) == -EINVAL);
	CHECK(strstr(answer, "fly") && !strcmp(answer, shade_error()));
	CHECK(!shade_command(shade, "epoch 5\n", 8, answer, sizeof(answer)));
	CHECK(!strncmp(answer, "ok", 2));
	CHECK(shade_warm(shade, "class0/none.bin") == -EINVAL);
	CHECK(shade_evict(shade, "/proc") == -EXDEV && strstr(shade_error(), "not below"));
}

static void test_files(struct shade *shade)
{
	uint32_t count = 0;
	size_t length;
	char *text;

	CHECK(!shade_samples(shade, count_sample, &count) && count == SAMPLES);
	CHECK(shade_samples(shade, stop_at_once, NULL) == 7);
	CHECK(!shade_read(shade, "stats", 0, &text, &length));
	CHECK(strstr(text, "policy ") && strlen(text) == length);
	shade_free(text);
	CHECK(shade_read(shade, "samples", 100, &text, &length) == -EFBIG);
	CHECK(shade_read(shade, "none", 0, &text, &length) == -ENOENT);
}

/* An own table turned round: ids of hints, queries and residency follow it. */
static void test_table(struct shade *shade, const char *mnt, const char *link)
{
	static char names[SAMPLES][4200];
	const char *paths[SAMPLES];
	uint32_t ids[1] = { 0 }, count;
	float scores[1] = { 9 };
	struct shade_sample sample;
	uint64_t bits[4];
	double resident = 0;

	/* In every way in which a path can be given. */
	for (uint32_t i = 0; i < SAMPLES; i++) {
		uint32_t number = SAMPLES - 1 - i;

		snprintf(names[i], sizeof(names[i]), "%s%sclass%u/sample%05u.bin",
			 i % 3 == 0   ? mnt
			 : i % 3 == 1 ? link
				      : "",
			 i % 3 < 2 ? "/" : "", number % 12, number);
		paths[i] = names[i];
	}
	CHECK(!shade_register(shade, paths, SAMPLES - 1));
	CHECK(!shade_sample_count(shade, &count) && count == SAMPLES - 1);
	CHECK(!shade_scores(shade, ids, scores, 1));
	CHECK(!shade_query(shade, 0, &sample) && sample.score == 9);
	CHECK(shade_query(shade, SAMPLES - 1, &sample) == -EINVAL);

	CHECK(!shade_command(shade, "evict .\n", 8, NULL, 0));
	CHECK(!shade_warm(shade, paths[104]));
	for (int i = 0; i < 500 && resident < 1; i++) {
		usleep(10000);
		CHECK(!shade_stat(shade, "resident_samples", &resident));
	}
	CHECK(!shade_resident(shade, bits, SAMPLES));
	CHECK(!bits[0] && bits[1] == (uint64_t)1 << 40 && !bits[2] && !bits[3]);

	/* A directory whose name begins with that of another. */
	paths[0] = "class10/sample00010.bin";
	paths[1] = "class1/sample00001.bin";
	CHECK(!shade_register(shade, paths, 2));
	CHECK(!shade_sample_count(shade, &count) && count == 2);

	paths[5] = "class0/none.bin";
	CHECK(shade_register(shade, paths, SAMPLES) == -EINVAL);
	paths[5] = "/proc/version";
	CHECK(shade_register(shade, paths, SAMPLES) == -EXDEV);
	CHECK(!shade_sample_count(shade, &count) && count == 2);
	CHECK(!shade_register(shade, NULL, 0));
	CHECK(!shade_sample_count(shade, &count) && count == SAMPLES);
	CHECK(!shade_query(shade, 199, &sample));
}

/* A loader follows links, those on the way to the mount and those in it. */
static void test_links(struct shade *shade, const char *link)
{
	char names[2][4200];
	const char *paths[] = { names[0], "linked/sample00012.bin", "class2/one.bin", names[1] };
	uint32_t ids[] = { 0, 1, 2, 3 };
	float scores[] = { 11, 12, 13, 14 };
	struct shade_sample sample;

	snprintf(names[0], sizeof(names[0]), "%s/class3/../class3/sample00003.bin", link + 1);
	snprintf(names[1], sizeof(names[1]), "%s/linked/sample00024.bin", link);
	CHECK(!shade_register(shade, paths, 4));
	CHECK(!shade_scores(shade, ids, scores, 4));
	paths[0] = "class3/sample00003.bin";
	paths[1] = "class0/sample00012.bin";
	paths[2] = "class1/sample00001.bin";
	paths[3] = "class0/sample00024.bin";
	CHECK(!shade_register(shade, paths, 4));
	for (uint32_t i = 0; i < 4; i++)
		CHECK(!shade_query(shade, i, &sample) && sample.score == scores[i]);
	paths[1] = "linked/none.bin";
	CHECK(shade_register(shade, paths, 4) == -EINVAL && strstr(shade_error(), paths[1]));
	CHECK(!shade_register(shade, NULL, 0));
}

/* There is an end to orders and to jobs, and a sentence that says what to do. */
static void test_bounds(const char *mnt)
{
	struct shade *shade;
	char name[32], path[4200];
	uint32_t id = 0;
	int rc = 0, made;

	CHECK(!shade_open(mnt, "orders", &shade));
	for (uint64_t epoch = 1; !rc && epoch < 100; epoch++)
		rc = shade_order(shade, epoch, &id, 1);
	CHECK(rc == -ENOSPC && strstr(shade_error(), "order"));
	shade_close(shade);
	for (rc = made = 0; !rc && made < 100; made += !rc) {
		snprintf(name, sizeof(name), "bound%d", made);
		rc = shade_open(mnt, name, &shade);
		if (!rc)
			shade_close(shade);
	}
	CHECK(rc == -ENOSPC && strstr(shade_error(), "rmdir"));
	while (made-- > 0) {
		snprintf(path, sizeof(path), "%s/.shade/jobs/bound%d", mnt, made);
		CHECK(!rmdir(path));
	}
}

struct work {
	struct shade *shade;
	uint32_t number;
	int failures;
};

/* Half of the threads send what is wrong: each must get its own answer. */
static void *run_thread(void *context)
{
	struct work *work = context;
	uint32_t ids[64];
	float scores[64];
	char wanted[64];

	snprintf(wanted, sizeof(wanted), "entry %u", work->number);
	for (uint32_t i = 0; i < 64; i++) {
		ids[i] = i;
		scores[i] = (float)(work->number + 1);
	}
	if (work->number % 2)
		ids[work->number] = SAMPLES;
	for (int i = 0; i < 200; i++) {
		int rc = shade_scores(work->shade, ids, scores, 64);

		if (rc != (work->number % 2 ? -EINVAL : 0))
			work->failures++;
		if (rc && !strstr(shade_error(), wanted))
			work->failures++;
		if (shade_order(work->shade, 100 + work->number, ids, work->number % 2 ? 0 : 64))
			work->failures++;
	}
	return NULL;
}

static void *fail_otherwise(void *context)
{
	struct shade_sample sample;

	CHECK(shade_query(context, 12345, &sample) == -EINVAL);
	CHECK(strstr(shade_error(), "12345"));
	return NULL;
}

/* What a thread is told is its own. */
static void test_error_of_thread(struct shade *shade)
{
	struct shade_sample sample;
	pthread_t thread;

	CHECK(shade_query(shade, 54321, &sample) == -EINVAL);
	CHECK(!pthread_create(&thread, NULL, fail_otherwise, shade));
	pthread_join(thread, NULL);
	CHECK(strstr(shade_error(), "54321"));
}

static void test_threads(struct shade *shade)
{
	struct work work[6];
	pthread_t threads[6];
	struct shade_sample sample;

	for (uint32_t i = 0; i < 6; i++) {
		work[i] = (struct work){ .shade = shade, .number = i };
		CHECK(!pthread_create(&threads[i], NULL, run_thread, &work[i]));
	}
	for (uint32_t i = 0; i < 6; i++) {
		pthread_join(threads[i], NULL);
		CHECK(!work[i].failures);
	}
	CHECK(!shade_query(shade, 63, &sample));
	CHECK(sample.score == 1 || sample.score == 3 || sample.score == 5);
}

static int slow_unlock; /* whoever gives a lock back comes on a little later, or much */

/* Instead of the C library's, for libshade as well. */
int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	static int (*real)(pthread_mutex_t *);
	int rc;

	if (!real) {
		void *symbol = dlsym(RTLD_NEXT, "pthread_mutex_unlock");

		memcpy(&real, &symbol, sizeof(real));
	}
	rc = real(mutex);
	if (__atomic_load_n(&slow_unlock, __ATOMIC_RELAXED))
		usleep((useconds_t)(random() % 1000));
	return rc;
}

struct registration {
	struct shade *shade;
	pthread_barrier_t *together;
	uint32_t count;
};

static void *register_table(void *context)
{
	static const char *const paths[] = { "class0/sample00000.bin", "class1/sample00001.bin" };
	struct registration *own = context;

	pthread_barrier_wait(own->together);
	return (void *)(intptr_t)shade_register(own->shade, paths, own->count);
}

/* Two threads register at once: daemon and handle agree whose table it is. */
static void test_tables_at_once(struct shade *shade)
{
	pthread_barrier_t together;
	int disagreed = 0;

	pthread_barrier_init(&together, NULL, 2);
	__atomic_store_n(&slow_unlock, 1, __ATOMIC_RELAXED);
	for (int round = 0; round < 100; round++) {
		struct registration one = { shade, &together, 1 }, two = { shade, &together, 2 };
		struct shade_sample sample;
		pthread_t thread;
		uint32_t count;
		void *result;

		CHECK(!pthread_create(&thread, NULL, register_table, &two));
		CHECK(!register_table(&one));
		pthread_join(thread, &result);
		CHECK(!result);
		CHECK(!shade_sample_count(shade, &count));
		disagreed += (shade_query(shade, 1, &sample) == 0) != (count == 2);
	}
	__atomic_store_n(&slow_unlock, 0, __ATOMIC_RELAXED);
	CHECK(!disagreed);
	pthread_barrier_destroy(&together);
	CHECK(!shade_register(shade, NULL, 0));
}

int main(int argc, char **argv)
{
	struct shade *shade;

	if (argc != 4)
		return 2;
	if (!strcmp(argv[2], "gone"))
		return shade_open(argv[1], NULL, &shade) != -ENOTCONN ||
		       !strstr(shade_error(), "gone");
	if (!strcmp(argv[2], "other"))
		return shade_open(argv[1], NULL, &shade) != -ENODEV;
	test_open(argv[1], argv[2], argv[3]);
	if (shade_open(argv[1], NULL, &shade)) {
		printf("FAILED: %s\n", shade_error());
		return 1;
	}
	CHECK(!shade_wait(shade, 10000));
	test_hints(shade);
	test_refused(shade);
	test_files(shade);
	test_table(shade, argv[1], argv[2]);
	test_links(shade, argv[2]);
	test_threads(shade);
	test_error_of_thread(shade);
	test_tables_at_once(shade);
	test_job(argv[1]);
	test_bounds(argv[1]);
	shade_close(shade);
	printf("failures: %d\n", failures);
	return failures ? 1 : 0;
}
