/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The thread. Reads go, one by one, to the training that they follow; what nobody explains is put
 * into a window, and if there is enough of it, searched.
 *
 * Searching is limited to half a percent of a processor in the long run: the thread's time is
 * counted against a credit that grows with time.
 */
#include "predict/predict.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/threads.h"
#include "predict/readers.h"
#include "predict/training.h"

#define BUSY_MS 20		   /* between looks while there are reads, */
#define IDLE_MS 200		   /* and while there are none */
#define LIFE_MS 1000		   /* between looks at who lives */
#define READS 1024		   /* taken at a time */
#define QUICK_MAX 65536		   /* samples whose places are all looked at in a quick search */
#define SEEDS_AT_A_TIME 32	   /* before it is seen that the daemon ends */
#define LIKELY_SEEDS 1001	   /* seed + epoch, from 0 on */
#define OTHER_SEED 1234		   /* which is popular, too */
#define SEED_EPOCHS 101		   /* that are tried of a seed which is not among these */
#define CREDIT_NS 10000000000u	   /* of processor time, at most; */
#define CREDIT_LATER_NS 200000000u /* and so much once it was used in vain */
#define SEARCH_NS 8000000000u	   /* after which no further list is searched */
#define CREDIT_SHARE 200	   /* one in so many ns of time is added to it */
#define REPLACE_MS 2000		   /* a training that was not read for so long makes way */
#define FORGET_MS 3600000	   /* and goes after this, whoever lives */
#define LISTS_MS 60000		   /* lists are kept for so long after the last search */

/* What is shown of it. */
enum figure {
	KNOWN,
	RECOGNISED,
	DROPPED,
	SEARCHES,
	EPOCHS,
	CPU_MS,
	BYTES,
	NEEDED,
	EPOCH,
	SEED,
	RANKS,
	WORLD,
	FIGURES
};

static const struct control_figure figures[FIGURES] = {
	[KNOWN] = { CONTROL_GAUGE, "predict_known", 0, "Trainings that are recognised now." },
	[RECOGNISED] = { CONTROL_COUNTER, "predict_recognised", 0,
			 "Trainings that were recognised by what they read." },
	[DROPPED] = { CONTROL_COUNTER, "predict_dropped", 0,
		      "Trainings whose reads no longer followed what was expected." },
	[SEARCHES] = { CONTROL_COUNTER, "predict_searches", 0,
		       "Searches for the shuffle of a training." },
	[EPOCHS] = { CONTROL_COUNTER, "predict_epochs", 0,
		     "Epochs of recognised trainings that were seen to begin." },
	[CPU_MS] = { CONTROL_COUNTER, "predict_cpu_ms", 0,
		     "Processor time that recognising took." },
	[BYTES] = { CONTROL_GAUGE, "predict_bytes", 0, "Memory that recognising takes." },
	[NEEDED] = { CONTROL_GAUGE, "predict_reads", 0,
		     "Reads after which the last training was recognised." },
	[EPOCH] = { CONTROL_GAUGE, "predict_epoch", 0, "Epoch of the last one that is known." },
	[SEED] = { CONTROL_GAUGE, "predict_seed", 0, "Seed of the last one that is known." },
	[RANKS] = { CONTROL_GAUGE, "predict_ranks", 0,
		    "Ranks of this machine, of the last one that is known." },
	[WORLD] = { CONTROL_GAUGE, "predict_world", 0,
		    "Ranks of all machines, of the last one that is known." },
};

struct counts {
	uint64_t values[FIGURES];
	char text[PREDICT_TRAININGS * (TRAINING_TEXT + 64)]; /* a line for each training */
};

struct predict {
	struct predict_options options;
	struct thread thread;
	bool started;
	_Atomic bool stopping;

	struct lock lock;
	struct cond changed;  /* lock: `stopping` */
	struct counts counts; /* lock: what is shown */

	/* The thread's own. */
	struct counts now;
	uint64_t at;	    /* in the record of reads */
	uint64_t window_at; /* where the window began */
	struct training trainings[PREDICT_TRAININGS];
	struct shuffle_window window;
	struct lists lists;
	struct readers readers;
	int64_t credit_ns, credit_max_ns;
	uint64_t credited_ms, looked_ms, searched_ms;
	struct cache_seen seen[READS];
};

/* --- trainings
 * ----------------------------------------------------------------------------------*/

static void end_training(struct predict *predict, int number)
{
	readers_forget(&predict->readers, number);
	training_end(&predict->trainings[number], predict->options.cache, predict->options.control);
}

static void drop_training(struct predict *predict, int number, const char *why)
{
	char text[TRAINING_TEXT];

	training_describe(&predict->trainings[number], text);
	log_say(LOG_NOTES, "dropped the prediction of %s: %s", text, why);
	predict->now.values[DROPPED]++;
	end_training(predict, number);
}

static int training_of_job(const struct predict *predict, uint32_t job)
{
	for (int i = 0; i < PREDICT_TRAININGS; i++)
		if (predict->trainings[i].follow && predict->trainings[i].guess.number &&
		    predict->trainings[i].guess.job == job)
			return i;
	return READER_OF_NOBODY;
}

static void say_recognised(const struct training *training)
{
	const struct shuffle_match *match = &training->match;
	char text[TRAINING_TEXT];

	training_describe(training, text);
	if (match->within)
		log_say(LOG_NOTES,
			"recognised %s: %u of its first %u reads are among the first %u of %u "
			"files "
			"as %s numbers them",
			text, match->hits, match->possible, match->within, training->list.count,
			shuffle_listing_name(training->list.listing));
	else
		log_say(LOG_NOTES,
			"recognised %s: %u of %u reads follow each other in its shuffle of %u "
			"files "
			"as %s numbers them",
			text, match->hits, match->possible, training->list.count,
			shuffle_listing_name(training->list.listing));
}

/* Announces what is new, when all reads so far are known. */
static void announce_all(struct predict *predict)
{
	for (int i = 0; i < PREDICT_TRAININGS; i++) {
		struct training *training = &predict->trainings[i];
		bool first = !training->guess.number;
		int rc;

		if (!training->follow)
			continue;
		rc = training_announce(training, predict->options.control, predict->at);
		if (first && training->guess.number)
			say_recognised(training);
		if (rc == -ENOENT)
			drop_training(predict, i, "its job was ended");
	}
}

/* Has the claims know who reads for whom. */
static void tell_readers(struct predict *predict)
{
	for (unsigned i = 0; i < READERS_MAX; i++) {
		struct reader *reader = &predict->readers.all[i];
		const struct training *training;

		if (!reader->thread || reader->training < 0 || reader->told)
			continue;
		training = &predict->trainings[reader->training];
		if (!training->guess.number)
			continue;
		control_guess_reader(predict->options.control, &training->guess, reader->thread);
		reader->told = true;
	}
}

/* --- reads
 * --------------------------------------------------------------------------------------*/

static void feed(struct predict *predict, int number, int32_t thread, uint32_t index, bool ours)
{
	struct training *training = &predict->trainings[number];
	uint64_t epoch = training->epoch;

	if (!training_read(training, thread, index, ours, clock_now_ms())) {
		drop_training(predict, number, "reads do not follow it any more");
		return;
	}
	predict->now.values[EPOCHS] += training->epoch != epoch;
}

static void put_into_window(struct predict *predict, const struct cache_seen *seen)
{
	(void)shuffle_window_add(&predict->window, seen->thread, seen->slot, seen->when_ms);
}

/* How many of the latest reads of a thread follow each other as the training's would. */
static unsigned count_steps(const struct training *training, const struct reader *reader)
{
	uint32_t last = UINT32_MAX;
	unsigned steps = 0;

	for (unsigned i = 0; i < reader->pending_count; i++) {
		uint32_t index = list_index(&training->list, reader->pending[i].slot);

		if (index == UINT32_MAX)
			continue;
		steps += last != UINT32_MAX && shuffle_follow_fits(training->follow, last, index);
		last = index;
	}
	return steps;
}

/* The thread is the training's, and so is what it has read. */
static void adopt(struct predict *predict, int number, struct reader *reader)
{
	struct cache_seen pending[READER_PENDING];
	unsigned count = reader->pending_count;

	memcpy(pending, reader->pending, sizeof(pending));
	reader_assign(reader, number);
	for (unsigned i = 0; i < count && predict->trainings[number].follow; i++) {
		uint32_t index = list_index(&predict->trainings[number].list, pending[i].slot);

		if (index != UINT32_MAX)
			feed(predict, number, pending[i].thread, index, true);
	}
}

/* Before it is known how far reads of a thread are apart, or where threads cannot be told apart,
 * one read must be enough. */
static bool takes_any(const struct training *training, const struct cache_seen *seen)
{
	uint32_t index = list_index(&training->list, seen->slot);

	return (!shuffle_follow_has_stride(training->follow) || seen->thread <= 0) &&
	       index != UINT32_MAX && shuffle_follow_expects(training->follow, index);
}

/* A read of a thread that is nobody's yet. Whether a training has it; `only`: this one, or
 * READER_OF_NOBODY for any. */
static bool offer(struct predict *predict, struct reader *reader, const struct cache_seen *seen,
		  int only)
{
	for (int i = 0; i < PREDICT_TRAININGS; i++) {
		const struct training *training = &predict->trainings[i];

		if (!training->follow || (only >= 0 && only != i))
			continue;
		if (takes_any(training, seen)) {
			feed(predict, i, seen->thread, list_index(&training->list, seen->slot),
			     true);
			return true;
		}
		if (seen->thread > 0 && count_steps(training, reader) >= READER_STEPS) {
			adopt(predict, i, reader);
			return true;
		}
	}
	return false;
}

static bool knows_any(const struct predict *predict)
{
	for (int i = 0; i < PREDICT_TRAININGS; i++)
		if (predict->trainings[i].follow)
			return true;
	return false;
}

/* Its latest reads are kept until it is seen whether it is somebody's; the window gets the rest. */
static void take_unknown(struct predict *predict, struct reader *reader,
			 const struct cache_seen *seen, int only)
{
	if (!knows_any(predict)) {
		put_into_window(predict, seen);
		return;
	}
	if (reader->pending_count == READER_PENDING) {
		if (only < 0)
			put_into_window(predict, &reader->pending[0]);
		reader->pending_count--;
		memmove(reader->pending, reader->pending + 1,
			reader->pending_count * sizeof(*reader->pending));
	}
	reader->pending[reader->pending_count++] = *seen;
	if (offer(predict, reader, seen, only) && reader->pending_count)
		reader->pending_count--; /* it was taken alone */
}

/* What somebody has announced is none of ours, and tells that what we think of its reader is wrong.
 * What a daemon that has died had recognised was not announced. */
static bool is_announced(const struct predict *predict, const struct cache_seen *seen)
{
	return seen->expected && training_of_job(predict, seen->job) < 0 &&
	       !control_is_guess(predict->options.control, seen->job);
}

static void take_known(struct predict *predict, int number, const struct cache_seen *seen)
{
	uint32_t index = list_index(&predict->trainings[number].list, seen->slot);

	if (index != UINT32_MAX)
		feed(predict, number, seen->thread, index, !is_announced(predict, seen));
	else if (!seen->claimed)
		put_into_window(predict, seen);
}

static void take_read(struct predict *predict, const struct cache_seen *seen)
{
	struct reader *reader = readers_get(&predict->readers, seen->thread);

	if (reader->training >= 0)
		take_known(predict, reader->training, seen);
	else if (!is_announced(predict, seen) &&
		 (!seen->claimed || training_of_job(predict, seen->job) >= 0))
		take_unknown(predict, reader, seen, READER_OF_NOBODY);
}

/* Some training that is known expects it. */
static bool is_told(const struct predict *predict, const struct cache_seen *seen)
{
	return seen->expected &&
	       (training_of_job(predict, seen->job) >= 0 || is_announced(predict, seen));
}

/* Reads that were there before the training was recognised. */
static void replay(struct predict *predict, int number, uint64_t from)
{
	struct cache_seen seen;
	uint64_t lost;

	while (from < predict->at && predict->trainings[number].follow &&
	       cache_watch(predict->options.cache, &from, &seen, 1, &lost)) {
		struct reader *reader = readers_get(&predict->readers, seen.thread);

		if (seen.claimed || is_told(predict, &seen))
			continue;
		if (reader->training == number)
			take_known(predict, number, &seen);
		else if (reader->training < 0)
			take_unknown(predict, reader, &seen, number);
	}
}

/* Takes all reads up to now. Whether there were any. */
static bool take_reads(struct predict *predict)
{
	bool any = false;
	uint64_t lost;
	uint32_t count;

	do {
		count = cache_watch(predict->options.cache, &predict->at, predict->seen, READS,
				    &lost);
		for (int i = 0; lost && i < PREDICT_TRAININGS; i++)
			if (predict->trainings[i].follow)
				shuffle_follow_skip(predict->trainings[i].follow);
		for (uint32_t i = 0; i < count && !atomic_load(&predict->stopping); i++) {
			take_read(predict, &predict->seen[i]);
			if (predict->window.total <= 1)
				predict->window_at = predict->at - count + i;
		}
		any |= count > 0;
	} while (count == READS && !atomic_load(&predict->stopping));
	return any;
}

/* --- the search
 * -----------------------------------------------------------------------------------
 */

/* The best so far. */
struct finding {
	struct shuffle_match match;
	struct shuffle_trial trial;
	struct list *list;
};

static uint32_t count_seeds(const struct predict *predict)
{
	return LIKELY_SEEDS + SEED_EPOCHS * (1 + predict->options.seed_count);
}

static void search_seeds(struct predict *predict, const struct shuffle_trial *trial, uint32_t first,
			 uint32_t count, struct shuffle_match *best)
{
	for (uint32_t done = 0; done < count && !shuffle_match_is_plain(best);) {
		uint32_t some = count - done < SEEDS_AT_A_TIME ? count - done : SEEDS_AT_A_TIME;

		if (atomic_load(&predict->stopping))
			return;
		shuffle_search(trial, first + done, some, best);
		done += some;
	}
}

/* The reads of the window that are in the list. */
static struct shuffle_trial make_trial(const struct predict *predict, const struct list *list,
				       bool whole)
{
	struct shuffle_trial trial = { .n = list->count,
				       .limit = SHUFFLE_PREFIX,
				       .tries_log10 = log10((double)count_seeds(predict) *
							    predict->lists.count) };

	if (whole || list->count <= QUICK_MAX)
		trial.limit = list->count;
	for (unsigned i = 0; i < predict->window.count; i++) {
		const struct shuffle_read *read = &predict->window.reads[i];
		uint32_t index = list_index(list, read->index);

		if (index != UINT32_MAX)
			shuffle_trial_add(&trial, read->thread, index);
	}
	return trial;
}

static void search_list(struct predict *predict, struct list *list, bool whole,
			struct finding *finding)
{
	struct shuffle_match best = { .score = -HUGE_VAL };
	struct shuffle_trial trial = make_trial(predict, list, whole);

	if (trial.count < 4 || shuffle_is_sequential(&trial))
		return;
	search_seeds(predict, &trial, 0, LIKELY_SEEDS, &best);
	search_seeds(predict, &trial, OTHER_SEED, SEED_EPOCHS, &best);
	for (unsigned i = 0; i < predict->options.seed_count; i++)
		search_seeds(predict, &trial, predict->options.seeds[i], SEED_EPOCHS, &best);
	if (best.score > finding->match.score)
		*finding = (struct finding){ .match = best, .trial = trial, .list = list };
}

/* All lists first as far as it is quick; then, if the window is full, the whole permutations. */
static bool search(struct predict *predict, struct finding *finding)
{
	bool full = predict->window.count == SHUFFLE_READS;
	uint64_t until_ns = clock_thread_ns() + SEARCH_NS;

	*finding = (struct finding){ .match = { .score = -HUGE_VAL } };
	for (unsigned i = 0; i < predict->lists.count; i++)
		if (!shuffle_match_is_plain(&finding->match))
			search_list(predict, &predict->lists.all[i], false, finding);
	for (unsigned i = 0; full && i < predict->lists.count; i++)
		if (finding->match.score <= SHUFFLE_SURE &&
		    predict->lists.all[i].count > QUICK_MAX && clock_thread_ns() < until_ns)
			search_list(predict, &predict->lists.all[i], true, finding);
	return finding->match.score > SHUFFLE_SURE && !atomic_load(&predict->stopping);
}

/* How many of the reads would have been enough. */
static void count_needed(struct finding *finding)
{
	struct shuffle_trial trial = finding->trial;

	trial.count = 0;
	for (unsigned i = 0; i < finding->trial.count; i++) {
		struct shuffle_match match = { .score = -HUGE_VAL };

		shuffle_trial_add(&trial, finding->trial.reads[i].thread,
				  finding->trial.reads[i].index);
		if (trial.count < 4)
			continue;
		shuffle_search(&trial, finding->match.seed, 1, &match);
		if (match.score <= SHUFFLE_SURE)
			continue;
		finding->match.reads = match.reads;
		finding->match.hits = match.hits;
		finding->match.possible = match.possible;
		finding->match.within = match.within;
		return;
	}
}

/* A place for one more; what is known of the same training, or has ended, makes way. */
static int find_place(struct predict *predict, const struct finding *finding)
{
	uint64_t now_ms = clock_now_ms();
	int place = READER_OF_NOBODY;

	assert(finding->list); /* it has a score */
	for (int i = 0; i < PREDICT_TRAININGS; i++) {
		struct training *training = &predict->trainings[i];
		bool same, idle;

		if (training->follow) {
			same = !strcmp(training->list.root, finding->list->root) &&
			       finding->match.seed - shuffle_follow_seed(training->follow) <= 1;
			idle = now_ms > training->read_ms + REPLACE_MS;
			if (same || idle)
				drop_training(predict, i,
					      same ? "it was recognised once more"
						   : "another training has begun");
		}
		if (!training->follow)
			place = i;
	}
	return place;
}

static void take_finding(struct predict *predict, struct finding *finding)
{
	int place = find_place(predict, finding);
	struct training *training;

	if (place < 0)
		return;
	training = &predict->trainings[place];
	count_needed(finding);
	if (training_begin(training, finding->list, &finding->trial, &finding->match,
			   predict->options.cache))
		return;
	predict->now.values[RECOGNISED]++;
	predict->now.values[NEEDED] = finding->match.reads;
	replay(predict, place, predict->window_at);
	shuffle_window_restart(&predict->window);
}

/* Whether something was found. */
static bool search_if_due(struct predict *predict)
{
	struct finding finding;

	if (predict->credit_ns <= 0 ||
	    !shuffle_window_is_due(&predict->window, (uint32_t)clock_now_ms()))
		return false;
	predict->searched_ms = clock_now_ms();
	if (lists_make(&predict->lists, predict->options.cache, &predict->window,
		       &predict->stopping))
		return false;
	predict->now.values[SEARCHES]++;
	if (!search(predict, &finding)) {
		if (predict->window.count == SHUFFLE_READS)
			predict->credit_max_ns = CREDIT_LATER_NS;
		return false;
	}
	predict->credit_max_ns = CREDIT_NS;
	take_finding(predict, &finding);
	lists_free(&predict->lists);
	return true;
}

/* --- the thread
 * ---------------------------------------------------------------------------------*/

static void keep_credit(struct predict *predict, uint64_t *used_ns)
{
	uint64_t now_ms = clock_now_ms(), now_ns = clock_thread_ns();

	predict->credit_ns += (int64_t)((now_ms - predict->credited_ms) * (1000000 / CREDIT_SHARE));
	predict->credit_ns -= (int64_t)(now_ns - *used_ns);
	if (predict->credit_ns > predict->credit_max_ns)
		predict->credit_ns = predict->credit_max_ns;
	predict->credited_ms = now_ms;
	*used_ns = now_ns;
	predict->now.values[CPU_MS] = now_ns / 1000000;
}

static void look_who_lives(struct predict *predict)
{
	uint64_t now_ms = clock_now_ms();

	if (now_ms < predict->looked_ms + LIFE_MS)
		return;
	predict->looked_ms = now_ms;
	for (int i = 0; i < PREDICT_TRAININGS; i++) {
		struct training *training = &predict->trainings[i];
		bool lives;

		if (!training->follow)
			continue;
		training_compare(training, predict->options.cache);
		lives = readers_live(&predict->readers, i);
		if (now_ms > training->read_ms + FORGET_MS ||
		    (training->guess.number &&
		     !control_guess_is_there(predict->options.control, &training->guess, lives)))
			drop_training(predict, i, "nobody reads for it any more");
	}
	if (predict->lists.count && now_ms > predict->searched_ms + LISTS_MS)
		lists_free(&predict->lists);
}

static void show_training(struct counts *now, const struct training *training)
{
	const struct shuffle_layout *layout = shuffle_follow_layout(training->follow);
	size_t length = strlen(now->text);
	char text[TRAINING_TEXT];

	training_describe(training, text);
	snprintf(now->text + length, sizeof(now->text) - length, "%s: %s\n", text,
		 training->guess.number ? "known" : "being learned");
	now->values[KNOWN] += training->guess.number > 0;
	now->values[BYTES] += training_bytes(training);
	now->values[EPOCH] = shuffle_follow_seed(training->follow) - training->seed;
	now->values[SEED] = training->seed;
	now->values[RANKS] = shuffle_layout_ranks(layout);
	now->values[WORLD] = layout->world;
}

/* What others are shown. */
static void show(struct predict *predict)
{
	struct counts *now = &predict->now;

	now->values[KNOWN] = now->values[BYTES] = 0;
	*now->text = 0;
	for (int i = 0; i < PREDICT_TRAININGS; i++)
		if (predict->trainings[i].follow)
			show_training(now, &predict->trainings[i]);
	lock_acquire(&predict->lock);
	predict->counts = *now;
	lock_release(&predict->lock);
}

static void rest(struct predict *predict, uint64_t ms)
{
	lock_acquire(&predict->lock);
	if (!atomic_load(&predict->stopping))
		(void)cond_wait_until(&predict->changed, &predict->lock, clock_now_ms() + ms);
	lock_release(&predict->lock);
}

static void run(void *argument)
{
	struct predict *predict = argument;
	uint64_t used_ns = clock_thread_ns();

	thread_be_polite();
	predict->credited_ms = clock_now_ms();
	while (!atomic_load(&predict->stopping)) {
		bool any = take_reads(predict), found;

		announce_all(predict);
		tell_readers(predict);
		found = search_if_due(predict);
		look_who_lives(predict);
		keep_credit(predict, &used_ns);
		show(predict);
		/* What was read while it was searched has to be known before anything is announced.
		 */
		if (!found)
			rest(predict, any ? BUSY_MS : IDLE_MS);
	}
}

/* --- begin and end
 * ------------------------------------------------------------------------------*/

int predict_create(struct predict **out, const struct predict_options *options)
{
	struct predict *predict = calloc(1, sizeof(*predict));
	int rc;

	assert(options->cache && options->control);
	if (!predict)
		return -ENOMEM;
	predict->options = *options;
	predict->credit_ns = predict->credit_max_ns = CREDIT_NS;
	rc = cache_watch_begin(options->cache);
	if (rc) {
		free(predict);
		return rc;
	}
	lock_init(&predict->lock, LOCK_PREDICT);
	cond_init(&predict->changed);
	*out = predict;
	return 0;
}

int predict_start(struct predict *predict)
{
	int rc = thread_start(&predict->thread, "shade-predict", run, predict);

	predict->started = !rc;
	return rc;
}

void predict_stop(struct predict *predict)
{
	if (!predict)
		return;
	lock_acquire(&predict->lock);
	atomic_store(&predict->stopping, true);
	cond_wake_all(&predict->changed);
	lock_release(&predict->lock);
}

void predict_end(struct predict *predict)
{
	if (!predict)
		return;
	if (predict->started)
		thread_join(&predict->thread);
	predict->started = false;
	for (int i = 0; i < PREDICT_TRAININGS; i++)
		if (predict->trainings[i].follow)
			end_training(predict, i);
	lists_free(&predict->lists);
}

void predict_destroy(struct predict *predict)
{
	if (!predict)
		return;
	shuffle_window_free(&predict->window);
	lock_destroy(&predict->lock);
	cond_destroy(&predict->changed);
	free(predict);
}

static struct counts get_counts(struct predict *predict)
{
	struct counts counts;

	lock_acquire(&predict->lock);
	counts = predict->counts;
	lock_release(&predict->lock);
	return counts;
}

void predict_print(struct predict *predict, FILE *out, bool metrics)
{
	struct counts counts;

	if (!predict)
		return;
	counts = get_counts(predict);
	for (unsigned i = 0; i < FIGURES; i++) {
		struct control_figure figure = figures[i];

		figure.value = (double)counts.values[i];
		control_print_figure(out, metrics, &figure);
	}
}

void predict_print_trainings(struct predict *predict, FILE *out)
{
	if (predict)
		fputs(get_counts(predict).text, out);
}
