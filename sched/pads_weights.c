/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The weights of mode pads: draws / samples / (expected entries of a sample).
 *
 * Entries are expected by the steps of pads_mixed.c, from what is known when the epoch begins:
 *
 *   - Whose turn it is, is known, but a weight for it alone would be infinite for those who come
 *     only in their turn. So a sample's chance of a turn is that of its class, the residents or
 *     the others: the share of the class whose turn it is. In a closed loop the classes differ,
 *     since who had a turn lately is more often resident.
 *   - How often a sample is drawn by score is binomial. The sum over that sees `max_repeats`.
 *   - How often residents are drawn together is binomial as well, and says what is left to the
 *     others. The sum over that sees epochs that residents fill by chance. What the bound takes
 *     from residents then varies a little more, which is taken as normally distributed.
 *   - Rounds of filling up give one entry each to all who have room, the last one to some.
 */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "array.h"
#include "bits.h"
#include "mixed.h"

#define ROUNDS 256   /* of filling up are told apart */
#define POINTS 3     /* of a curve that are computed; the others lie between them */
#define EXACT 100000 /* so many samples times points are computed at most without that */

enum { OTHERS, RESIDENTS, CLASSES };

/* What fill-up rounds give to a sample by the room that it has. */
struct rounds {
	double samples[ROUNDS + 1]; /* expected number with that room; the last: that or more */
	double whole;		    /* rounds that give one entry to everybody with room */
	double part;		    /* the share of those with room who get one in the last */
};

struct expectation {
	const struct mixed *m;
	double must[CLASSES]; /* the probability of a turn */
	double unseen;	      /* the probability that a sample comes that was never scored */
	double draws;	      /* of step 2 */
	double share;	      /* the probability that one of them is of a resident */
	double drawn;	      /* the share of the others' entries that they get */
	double repeats;	      /* the share of the residents' repeats that they get */
	double filling;	      /* the probability that there are rounds */
	struct rounds rounds;
};

/* What a sample may expect of step 2, before anybody makes way. */
struct expected {
	double once;	/* entries without repeats */
	double wanted;	/* entries with them */
	double square;	/* of these */
	double product; /* of these with how often it is drawn */
	double filled;	/* entries that rounds add */
};

/* --- one sample ------------------------------------------------------------------------- */

/* One possible outcome for a sample. */
struct outcome {
	double chance;
	double drawn;  /* how often */
	double wanted; /* with repeats: a whole number */
	double room;   /* at most */
};

static double given_by(const struct rounds *rounds, double room)
{
	if (room <= rounds->whole)
		return room;
	return rounds->whole + rounds->part;
}

static void add_outcome(struct expected *e, struct rounds *rounds, const struct rounds *known,
			struct outcome o)
{
	double wanted = fmin(o.wanted, o.room), left = o.room - wanted;

	e->once += o.chance * fmin(o.drawn, o.room);
	e->wanted += o.chance * wanted;
	e->square += o.chance * wanted * wanted;
	e->product += o.chance * wanted * o.drawn;
	if (rounds)
		rounds->samples[left < ROUNDS ? (int)left : ROUNDS] += o.chance;
	if (known)
		e->filled += o.chance * given_by(known, left);
}

/* The same with and without a turn, and with fractions of repeats up and down. */
static void add_drawn(struct expected *e, struct rounds *rounds, const struct rounds *known,
		      struct outcome o, double must)
{
	double down = floor(o.wanted), up = o.wanted - down, bound = o.room;

	for (int turn = 0; turn < 2; turn++)
		for (int rounded = 0; rounded < 2; rounded++) {
			struct outcome each = o;

			each.chance *= turn ? must : 1 - must;
			each.chance *= rounded ? up : 1 - up;
			each.wanted = down + rounded;
			each.room = bound - turn;
			if (each.chance > 0)
				add_outcome(e, rounds, known, each);
		}
}

static double must_of(const struct expectation *all, uint32_t id)
{
	const struct pads_request *r = all->m->request;

	return draw_is_unseen(r, id) ? all->unseen : all->must[draw_is_resident(r, id)];
}

/* Draws that may fall on a sample. */
struct trial {
	double draws, share;
};

/* Sums over how often a sample is drawn. `rounds`: adds its room there; `known`: what rounds
 * give. */
static struct expected expect(const struct expectation *all, uint32_t id, struct trial trial,
			      struct rounds *rounds, const struct rounds *known)
{
	const struct pads_request *r = all->m->request;
	double times = draw_is_resident(r, id) ? r->rep : 1, left = 1, must = must_of(all, id);
	double odds = trial.share / (1 - trial.share);
	struct outcome o = { .room = r->max_repeats };
	struct expected e = { 0 };

	o.chance = trial.share < 1 ? exp(trial.draws * log1p(-trial.share)) : trial.draws <= 0;
	/* Drawn so often that it is as good as certain how often. */
	if (o.chance <= 0) {
		o.chance = 1;
		o.drawn = trial.draws * trial.share;
		o.wanted = o.drawn * times;
		add_drawn(&e, rounds, known, o, must);
		return e;
	}
	for (; o.drawn < trial.draws && o.drawn < o.room && left > 1e-12; o.drawn++) {
		o.wanted = o.drawn * times;
		add_drawn(&e, rounds, known, o, must);
		left -= o.chance;
		o.chance *= (trial.draws - o.drawn) / (o.drawn + 1) * odds;
	}
	o.chance = fmax(left, 0);
	o.wanted = o.drawn * times;
	add_drawn(&e, rounds, known, o, must);
	return e;
}

/* By all draws of step 2. */
static struct trial any_draw(const struct expectation *all, uint32_t id)
{
	return (struct trial){ all->draws, multinomial_share(&all->m->weights, id) };
}

/* --- all samples ------------------------------------------------------------------------ */

/* The chances of step 1. */
static void expect_must(struct expectation *all)
{
	const struct pads_request *r = all->m->request;
	double scored[CLASSES] = { 0 }, turns[CLASSES] = { 0 }, unseen = 0, draws = r->draws, fit;

	for (uint32_t id = 0; id < r->samples; id++) {
		if (draw_is_unseen(r, id)) {
			unseen++;
			continue;
		}
		scored[draw_is_resident(r, id)]++;
		turns[draw_is_resident(r, id)] += bits_test(all->m->turn, id);
	}
	all->unseen = unseen > draws ? draws / unseen : 1;
	fit = fmin(1, fmax(0, draws - unseen) / fmax(1, turns[OTHERS] + turns[RESIDENTS]));
	for (int class = 0; class < CLASSES; class ++)
		all->must[class] = fit * turns[class] / fmax(1, scored[class]);
	all->draws = (double)mixed_missing(all->m);
}

/* What both classes want if residents are drawn `drawn` times. */
struct wish {
	double drawn;
	double once, wanted; /* entries of residents */
	double others;
};

/* How that depends on how often. */
struct curve {
	struct wish at[POINTS];
	int points;
	double deviation; /* of what residents want, for a given number of draws */
};

/* On the mean; adds the room of all samples to `rounds`. */
static void expect_mean(struct expectation *all, struct curve *curve)
{
	const struct pads_request *r = all->m->request;
	double variance = 0, covariance = 0, drawn = 0, drawn_variance = 0;
	struct wish *wish = &curve->at[0];

	for (uint32_t id = 0; id < r->samples; id++) {
		struct trial trial = any_draw(all, id);
		struct expected e = expect(all, id, trial, &all->rounds, NULL);
		double mean = trial.draws * trial.share;

		if (!draw_is_resident(r, id)) {
			wish->others += e.wanted;
			continue;
		}
		wish->once += e.once;
		wish->wanted += e.wanted;
		drawn += mean;
		variance += e.square - e.wanted * e.wanted;
		covariance += e.product - e.wanted * mean;
		drawn_variance += mean * (1 - trial.share);
	}
	wish->drawn = drawn;
	all->share = all->draws > 0 ? fmin(1, drawn / all->draws) : 0;
	if (drawn_variance > 0)
		variance -= covariance * covariance / drawn_variance;
	curve->deviation = sqrt(fmax(0, variance));
	curve->points = 1;
}

/* If residents are drawn so many times. */
static struct wish expect_at(const struct expectation *all, double drawn)
{
	const struct pads_request *r = all->m->request;
	struct wish wish = { .drawn = drawn };

	for (uint32_t id = 0; id < r->samples; id++) {
		bool resident = draw_is_resident(r, id);
		double share = resident ? all->share : 1 - all->share;
		struct trial trial = { resident ? drawn : all->draws - drawn,
				       fmin(1, multinomial_share(&all->m->weights, id) / share) };
		struct expected e = expect(all, id, trial, NULL, NULL);

		wish.once += resident ? e.once : 0;
		wish.wanted += resident ? e.wanted : 0;
		wish.others += resident ? 0 : e.wanted;
	}
	return wish;
}

/* More points, if residents may or may not fill the epoch: then it matters. */
static void refine(const struct expectation *all, struct curve *curve)
{
	double mean = curve->at[0].drawn, wanted = curve->at[0].wanted;
	double width = 4 * sqrt(mean * (1 - all->share)) + 1;
	double from = floor(fmax(0, mean - width)), to = ceil(fmin(all->draws, mean + width));

	if (all->share <= 0 || all->share >= 1 || wanted * to < all->draws * mean ||
	    wanted * from > all->draws * mean)
		return;
	curve->at[0] = expect_at(all, from);
	curve->at[1] = expect_at(all, floor((from + to) / 2));
	curve->at[2] = expect_at(all, to);
	curve->points = from + 1 < to ? POINTS : 1;
}

/* By the parabola through three points, or in proportion to one. */
static struct wish wish_for(const struct expectation *all, const struct curve *curve, double drawn)
{
	const struct wish *at = curve->at;
	struct wish wish = { .drawn = drawn };

	if ((all->draws + 1) * all->m->request->samples <= EXACT && curve->points > 1)
		return expect_at(all, drawn);
	if (curve->points == 1) {
		double times = at->drawn > 0 ? drawn / at->drawn : 0;
		double rest = all->draws - at->drawn;

		return (struct wish){ drawn, at->once * times, at->wanted * times,
				      rest > 0 ? at->others * (all->draws - drawn) / rest : 0 };
	}
	for (int i = 0; i < POINTS; i++) {
		const struct wish *a = &at[(i + 1) % POINTS], *b = &at[(i + 2) % POINTS];
		double factor = (drawn - a->drawn) * (drawn - b->drawn) /
				((at[i].drawn - a->drawn) * (at[i].drawn - b->drawn));

		wish.once += factor * at[i].once;
		wish.wanted += factor * at[i].wanted;
		wish.others += factor * at[i].others;
	}
	return wish;
}

/* Sums over how often residents are drawn together. */
struct totals {
	double chance;		/* of all terms, which are in proportion to it */
	double others, repeats; /* that are got */
	double asked_others, asked_repeats;
	double filled, filling;
};

static double below(double z)
{
	return 0.5 * erfc(-z / M_SQRT2);
}

/* The mean of a normally distributed number where it is cut off at a bound. */
static double cut_off(double mean, double deviation, double bound)
{
	double z;

	if (deviation <= 0)
		return fmin(mean, bound);
	z = (mean - bound) / deviation;
	return mean - deviation * (exp(-z * z / 2) / sqrt(2 * M_PI) + z * below(z));
}

static void add_total(const struct expectation *all, const struct curve *curve, struct totals *t,
		      double drawn, double chance)
{
	struct wish wish = wish_for(all, curve, drawn);
	double repeats = wish.wanted - wish.once, deviation = curve->deviation;
	double room = all->draws - wish.once, rest = room - wish.others;
	double got = cut_off(repeats, deviation, room);
	double filled = rest - cut_off(repeats, deviation, rest);

	t->chance += chance;
	t->asked_repeats += chance * repeats;
	t->repeats += chance * got;
	t->asked_others += chance * wish.others;
	t->others += chance * (room - got - filled);
	t->filled += chance * filled;
	t->filling +=
		chance * (deviation > 0 ? below((rest - repeats) / deviation) : rest > repeats);
}

/* The terms of a binomial distribution around its mode, as far as they count. */
static struct totals sum_totals(const struct expectation *all, const struct curve *curve)
{
	double draws = all->draws, odds = all->share / (1 - all->share), chance = 1;
	double mode = fmin(draws, floor((draws + 1) * all->share));
	struct totals t = { 0 };

	if (all->share >= 1) {
		add_total(all, curve, &t, draws, 1);
		return t;
	}
	for (double drawn = mode; drawn <= draws && chance > 1e-12; drawn++) {
		add_total(all, curve, &t, drawn, chance);
		chance *= (draws - drawn) / (drawn + 1) * odds;
	}
	chance = 1;
	for (uint64_t drawn = (uint64_t)mode; drawn > 0; drawn--) {
		chance *= (double)drawn / ((draws - (double)drawn + 1) * odds);
		if (chance <= 1e-12)
			break;
		add_total(all, curve, &t, (double)(drawn - 1), chance);
	}
	return t;
}

/* How many rounds that many entries make. */
static void plan_rounds(struct rounds *rounds, double filled)
{
	double open = 0;

	for (int room = 1; room <= ROUNDS; room++)
		open += rounds->samples[room];
	for (int round = 0; round < ROUNDS && open > 1e-9; round++) {
		if (filled <= open) {
			rounds->part = filled / open;
			return;
		}
		filled -= open;
		rounds->whole++;
		open -= rounds->samples[round + 1];
	}
}

static void expect_all(struct expectation *all)
{
	struct curve curve = { 0 };
	struct totals t;

	expect_must(all);
	expect_mean(all, &curve);
	refine(all, &curve);
	t = sum_totals(all, &curve);
	all->drawn = t.asked_others > 0 ? t.others / t.asked_others : 1;
	all->repeats = t.asked_repeats > 0 ? t.repeats / t.asked_repeats : 1;
	if (t.filled > 1e-9 * all->draws * t.chance) {
		all->filling = t.filling / t.chance;
		plan_rounds(&all->rounds, t.filled / t.filling);
	}
}

static double entries_of(const struct expectation *all, uint32_t id)
{
	struct expected e =
		expect(all, id, any_draw(all, id), NULL, all->filling > 0 ? &all->rounds : NULL);
	double entries = must_of(all, id) + all->filling * e.filled;

	if (draw_is_resident(all->m->request, id))
		return entries + e.once + all->repeats * (e.wanted - e.once);
	return entries + all->drawn * e.wanted;
}

/* If more samples are unseen than an epoch has entries, no others come, and nothing is said of
 * them: the mean is that of the unseen ones. */
static double samples_that_count(const struct pads_request *r)
{
	uint32_t unseen = 0;

	for (uint32_t id = 0; id < r->samples; id++)
		unseen += draw_is_unseen(r, id);
	return unseen >= r->draws ? unseen : r->samples;
}

int weights_pads(const struct pads_request *request, float *weights)
{
	struct mixed m = { 0 };
	struct expectation *all = calloc(1, sizeof(*all));
	int rc = all ? mixed_init(&m, request) : -ENOMEM;

	if (!rc) {
		double each = request->draws / samples_that_count(request);

		mixed_take_must(&m);
		all->m = &m;
		expect_all(all);
		for (uint32_t id = 0; id < request->samples; id++) {
			double entries = entries_of(all, id);

			weights[id] = entries > 0 ? (float)(each / entries) : 0;
		}
	}
	mixed_free(&m);
	free(all);
	return rc;
}
