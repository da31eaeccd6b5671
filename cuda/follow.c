/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * shade-score follow: losses come in as a training computes them; scores, orders and epochs go
 * to the mount. Nothing is lost if this process is killed: the mount goes on with what it was told,
 * and the next process begins with the scores that the mount has.
 *
 * An epoch ends when its end is said, when a record of a later one comes, or with the input.
 */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "pace.h"
#include "shade/client.h"

/* A binary record: 16 bytes, little endian. */
struct record {
	uint64_t epoch;
	uint32_t id; /* or one of the marks */
	float loss;
};

#define SCAN_WAIT_MS 600000

#define MARK_BATCH UINT32_MAX	     /* the batch ends, as with a blank line */
#define MARK_EPOCH (UINT32_MAX - 1u) /* the epoch ends */

struct follow {
	const struct command_options *options;
	struct shade *mount;
	uint32_t samples;
	struct shade_scorer *scorer;
	struct pace pace;
	double told_uses;   /* what the mount was told; 0: nothing */
	struct lines lines; /* binary: only to count records */
	uint64_t *resident; /* little endian, so its bytes are the scorer's bitmap */
	uint32_t *order;
	uint64_t epoch;	    /* the one that runs */
	uint64_t records;   /* of it so far */
	uint64_t announced; /* the last epoch whose order the mount has */
	bool any;	    /* it has one */
	uint32_t *ids;	    /* of the batch */
	float *losses, *scores;
	uint32_t count;
};

/* The answer of libshade: exits with its sentence if it is negative. */
static void must_mount(int rc)
{
	if (rc < 0)
		give_up("%s", shade_error());
}

/* --- out ------------------------------------------------------------------------------------ */

static void write_order(const struct follow *f, uint64_t epoch, uint32_t length)
{
	char path[4096], *text = must(malloc(length * (size_t)11 + 1));
	size_t used = 0;

	if (snprintf(path, sizeof(path), "%s/order.%" PRIu64, f->options->orders, epoch) >=
	    (int)sizeof(path))
		fail("the name %s is too long", f->options->orders);
	for (uint32_t i = 0; i < length; i++)
		used += (size_t)sprintf(text + used, "%" PRIu32 "\n", f->order[i]);
	file_write(path, text, used);
	free(text);
}

static void announce(struct follow *f, uint64_t epoch)
{
	uint32_t length;
	int64_t rc;

	if (f->any && epoch <= f->announced)
		return;
	rc = shade_scorer_order(f->scorer, epoch, 0, 1, f->order, f->samples);
	if (rc == -ENOENT) /* the first time mode auto draws nothing ahead */
		return;
	must_score(rc);
	length = (uint32_t)rc;
	must_mount(shade_order(f->mount, epoch, f->order, length));
	if (f->options->orders)
		write_order(f, epoch, length);
	printf("order %" PRIu64 " %" PRIu32 "\n", epoch, length);
	if (fflush(stdout))
		give_up("cannot write to standard output: %s", strerror(errno));
	f->announced = epoch;
	f->any = true;
}

/* How often samples are used follows what the epoch that has ended was like. */
static void adapt(struct follow *f)
{
	struct shade_scorer_options options = { .size = sizeof(options) };
	struct shade_score_span span;
	char line[64];
	int rc = pace_end(&f->pace, &span);

	must_mount(rc);
	if (rc)
		must_score(shade_scorer_measured(f->scorer, &span, 1));
	must_score(shade_scorer_get_options(f->scorer, &options));
	if (options.mode != SHADE_SCORE_ADAPT && options.mode != SHADE_SCORE_ECHO)
		return;
	if (options.uses <= f->told_uses && options.uses >= f->told_uses)
		return;
	snprintf(line, sizeof(line), "uses %.4g\n", options.uses);
	must_mount(shade_command(f->mount, line, strlen(line), NULL, 0));
	if (f->told_uses > 0)
		printf("uses %.2f\n", options.uses); /* goes out with the order that follows */
	f->told_uses = options.uses;
}

static void begin(struct follow *f, uint64_t epoch)
{
	adapt(f);
	must_mount(shade_resident(f->mount, f->resident, f->samples));
	must_score(shade_scorer_begin(f->scorer, epoch, (const uint8_t *)f->resident));
	/* A training that begins anew: the mount takes no order of an epoch that has passed. */
	if (!f->any)
		must_mount(shade_epoch(f->mount, epoch));
	announce(f, epoch);
	if (f->options->scorer.lookahead)
		announce(f, epoch + 1);
	must_mount(shade_epoch(f->mount, epoch));
	f->epoch = epoch;
	f->records = 0;
}

static void flush(struct follow *f)
{
	if (!f->count)
		return;
	if (shade_scorer_update(f->scorer, f->ids, f->losses, f->count, f->scores))
		lines_fail(&f->lines, "%s", shade_score_error());
	must_mount(shade_scores(f->mount, f->ids, f->scores, f->count));
	must_mount(pace_step(&f->pace));
	f->count = 0;
}

/* --- in --------------------------------------------------------------------------------------- */

static uint32_t batch_max(const struct follow *f)
{
	return f->options->batch ? f->options->batch : SHADE_SCORE_BATCH_MAX;
}

static void need_epoch(struct follow *f, uint64_t epoch)
{
	if (epoch == f->epoch)
		return;
	if (epoch < f->epoch)
		lines_fail(&f->lines, "epoch %" PRIu64 " is over, %" PRIu64 " has begun", epoch,
			   f->epoch);
	if (epoch >= UINT64_MAX - 1)
		lines_fail(&f->lines, "epoch %" PRIu64 " is too large", epoch);
	flush(f);
	begin(f, epoch);
}

static void end_epoch(struct follow *f, uint64_t epoch)
{
	need_epoch(f, epoch);
	flush(f);
	begin(f, epoch + 1);
}

static void take(struct follow *f, uint64_t epoch, uint32_t id, float loss)
{
	need_epoch(f, epoch);
	if (f->count == batch_max(f))
		lines_fail(&f->lines,
			   "no blank line has ended the batch, and it has %u records;"
			   " or say --batch",
			   f->count);
	f->ids[f->count] = id;
	f->losses[f->count++] = loss;
	f->records++;
	if (f->options->batch && f->count == f->options->batch)
		flush(f);
}

static void read_text(struct follow *f)
{
	uint32_t last = f->samples - 1;

	lines_open(&f->lines, "-");
	while (lines_next(&f->lines)) {
		uint64_t epoch;
		uint32_t id;
		float loss;

		if (!lines_has_word(&f->lines)) {
			flush(f);
			continue;
		}
		epoch = lines_take_number(&f->lines, "an epoch", UINT64_MAX - 2);
		if (lines_take_word(&f->lines, "end")) {
			lines_end(&f->lines);
			end_epoch(f, epoch);
			continue;
		}
		id = (uint32_t)lines_take_number(&f->lines, "an id", last);
		loss = (float)lines_take_real(&f->lines, "a loss");
		lines_end(&f->lines);
		take(f, epoch, id, loss);
	}
}

static void take_record(struct follow *f, const struct record *record)
{
	uint64_t epoch = le64toh(record->epoch);
	uint32_t id = le32toh(record->id), bits;
	float loss;

	memcpy(&bits, &record->loss, sizeof(bits));
	bits = le32toh(bits);
	memcpy(&loss, &bits, sizeof(loss));
	if (id == MARK_BATCH) {
		flush(f);
		return;
	}
	if (id == MARK_EPOCH) {
		end_epoch(f, epoch);
		return;
	}
	if (id >= f->samples)
		lines_fail(&f->lines, "an id is at most %" PRIu32 ", not %" PRIu32, f->samples - 1,
			   id);
	if (isnan(loss))
		lines_fail(&f->lines, "a loss is not a number");
	take(f, epoch, id, loss);
}

static void read_binary(struct follow *f)
{
	struct record record;
	size_t got;

	f->lines = (struct lines){ .name = "record", .file = stdin };
	while ((got = fread(&record, 1, sizeof(record), stdin)) == sizeof(record)) {
		f->lines.number++;
		take_record(f, &record);
	}
	f->lines.number++;
	if (ferror(stdin))
		fail("cannot read standard input: %s", strerror(errno));
	if (got)
		lines_fail(&f->lines, "it is cut off after %zu of 16 bytes", got);
}

/* --- all of it ----------------------------------------------------------------------------------
 */

/* Takes over the scores that an earlier process has sent to the mount. */
static void take_over(struct follow *f)
{
	int fd = shade_open_file(f->mount, "scores");
	struct lines lines = { .name = "the mount's scores" };

	must_mount(fd);
	lines.file = must(fdopen(fd, "r"));
	scores_read(&lines, f->scorer, f->samples);
	lines_close(&lines);
}

static void follow_init(struct follow *f)
{
	struct shade_scorer_options options = f->options->scorer;
	int64_t capacity;

	must_mount(shade_open(f->options->mount, f->options->job, &f->mount));
	must_mount(shade_wait(f->mount, SCAN_WAIT_MS));
	must_mount(shade_sample_count(f->mount, &f->samples));
	if (!f->samples)
		give_up("%s has no samples", f->options->mount);
	options.samples = f->samples;
	capacity = pace_init(&f->pace, f->mount, f->samples);
	must_mount((int)capacity);
	if (!options.capacity)
		options.capacity = (uint32_t)capacity;
	must_score(shade_scorer_create(&f->scorer, &options));
	must_score(shade_scorer_batch(f->scorer, f->options->batch));
	if (f->options->neighbours)
		neighbours_read(f->options->neighbours, f->scorer, f->samples);
	take_over(f);
	f->resident = must(calloc((options.samples + (size_t)63) / 64, 8));
	f->order = must(malloc(options.samples * sizeof(*f->order)));
	f->ids = must(malloc(batch_max(f) * sizeof(*f->ids)));
	f->losses = must(malloc(batch_max(f) * sizeof(*f->losses)));
	f->scores = must(malloc(batch_max(f) * sizeof(*f->scores)));
}

static void follow_free(struct follow *f)
{
	shade_scorer_destroy(f->scorer);
	shade_close(f->mount);
	lines_close(&f->lines);
	free(f->resident);
	free(f->order);
	free(f->ids);
	free(f->losses);
	free(f->scores);
}

int command_follow(const struct command_options *options)
{
	struct follow f = { .options = options };

	if (!options->mount)
		fail("follow needs the directory where shadefs is mounted");
	follow_init(&f);
	begin(&f, options->epoch);
	if (options->binary)
		read_binary(&f);
	else
		read_text(&f);
	/* The input ends with an epoch, unless its end was said. */
	if (f.records)
		end_epoch(&f, f.epoch);
	follow_free(&f);
	return 0;
}
