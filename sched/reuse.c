/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The demand is the time that the source needs for what the training reads in a second of its own,
 * if each sample were used once. With as many uses as that, the source is busy all the time and the
 * training waits for nothing: that is where the number of uses goes at once, with a little to
 * spare. It is known in two ways: from what was read, as if no sample had been in memory, and from
 * what came from the source, times the uses. The second is less where more hits than those that
 * reuse makes. It is more while the cache is still being filled, or just after a change: then reuse
 * has not begun to work, and nothing follows from how much the training waits.
 *
 * Measurements are noisy, so it stays where it is while the training waits for less than
 * REUSE_WAIT and the source could not serve clearly fewer uses; and a number that has turned out to
 * be too low is not tried again unless the demand has fallen.
 *
 * A source that is never the limit shows nothing of how fast it is: it may have just enough to do,
 * or have become much faster. So fewer uses are tried now and then, a few less at first, and half
 * of them if these were enough. Each time that they were not, it takes twice as long until the
 * next, up to PATIENCE_MOST spans.
 */
#include "shade/reuse.h"

#include <math.h>
#include <stdbool.h>

#define LOAD 0.95    /* of the time the source may be busy */
#define LEAST_UP 1.1 /* a step up is worth it from here on */
#define LEAST_DOWN 0.9
#define MOST_DOWN 0.5 /* the next measurement may tell another story */
#define ONCE 1.05     /* less than that is one use */
#define LIMITED 0.02  /* of the time: enough to know the rate */
#define FASTER 1.25   /* a source that was never the limit may be so much faster */
#define PATIENCE 6    /* spans in which it was not, until that is tried */
#define PATIENCE_MOST 24
#define FALLEN 0.7 /* the demand is another one */
#define HICCUP 0.3 /* seconds: a wait that says nothing about the source */
#define COLD 1.2   /* reuse does not work yet */
/* Who waits for a source that could serve so much less reuse waits for something else. */
#define SLACK 0.7

static bool shows_rate(const struct reuse_span *span)
{
	return span->limited > LIMITED * span->seconds && span->limited_bytes > 0;
}

/* Whoever was the limit for a fifth of the time has shown what it gives; a short while may be a
 * burst. */
double reuse_rate(double before, const struct reuse_span *span)
{
	double now = span->limited_bytes / span->limited, trust = 5 * span->limited / span->seconds;

	if (!shows_rate(span))
		return before;
	if (before <= 0 || trust > 1)
		return now;
	return before * (1 - trust) + now * trust;
}

static bool tells(const struct reuse_span *span)
{
	return span->seconds > 0 && span->waited >= 0 && span->bytes >= 0 &&
	       isfinite(span->seconds) && isfinite(span->bytes);
}

static double share_waited(const struct reuse_span *span)
{
	return fmin(span->waited / span->seconds, 1);
}

/* The same for the decision whether that is too much. */
static double share_beyond_hiccup(const struct reuse_span *span)
{
	return share_waited(span) - HICCUP / span->seconds;
}

/* The seconds that the source needs for what it gave. If its rate is not known, because it was
 * never the limit, it needs less than all of them: how much less will show with fewer uses. */
static double source_seconds(const struct reuse_span *span)
{
	if (span->rate > 0)
		return span->bytes / span->rate;
	return share_waited(span) > REUSE_WAIT ? span->seconds : LOAD * span->seconds / FASTER;
}

static double demand_of(const struct reuse_span *span, double uses)
{
	double own = span->seconds * fmax(1 - share_waited(span), 1e-3);
	double demand = uses * source_seconds(span) / own;

	if (span->read > 0 && span->rate > 0)
		demand = fmin(demand, span->read / span->rate / own);
	return demand;
}

/* What was read comes from the source more often than it would if each sample had its uses. */
static bool is_cold(const struct reuse_span *span, double uses)
{
	return span->read > 0 && uses * span->bytes > COLD * span->read;
}

static double at_least_once(double uses)
{
	return uses < ONCE ? 1 : uses;
}

/* Reuse does not work yet, and what was decided may have been a guess. */
static void guess_again(struct reuse *reuse, double wanted)
{
	if (wanted > reuse->uses * LEAST_UP || wanted < reuse->uses * LEAST_DOWN)
		reuse->uses = fmin(at_least_once(wanted), reuse->most);
}

/* So many were too few. What was decided since then may be enough. */
static void step_up(struct reuse *reuse, double used, double demand)
{
	double wanted = fmax(demand / LOAD, used * LEAST_UP);

	if (reuse->tries && reuse->patience < PATIENCE_MOST)
		reuse->patience *= 2;
	reuse->tries = false;
	reuse->calm = 0;
	reuse->too_few = used;
	reuse->demand = demand;
	reuse->uses = fmin(fmax(wanted, reuse->uses), reuse->most);
}

/* What is tried if nothing shows that fewer uses would do, and nothing that they would not. */
static double try_fewer(struct reuse *reuse, double used)
{
	unsigned patience = reuse->tries ? 1 : reuse->patience;
	double wanted = reuse->tries ? used * MOST_DOWN : used / FASTER;

	if (reuse->calm < patience || used <= 1 || used > reuse->uses)
		return used;
	reuse->calm = 0;
	reuse->tries = true;
	return wanted;
}

/* So many were enough. So are those that were decided since then, if they are fewer. `shown`: the
 * demand is that of now. */
static void step_down(struct reuse *reuse, double used, double demand, bool shown)
{
	double wanted;

	reuse->calm = shown ? 0 : reuse->calm + 1;
	reuse->tries &= !shown;
	if (demand < reuse->demand * FALLEN)
		reuse->too_few = reuse->demand = 0;
	wanted = fmax(fmax(demand / LOAD, reuse->too_few * LEAST_UP), used * MOST_DOWN);
	if (wanted > used * LEAST_DOWN)
		wanted = try_fewer(reuse, used);
	reuse->uses = at_least_once(fmin(wanted, reuse->uses));
}

void reuse_adapt(struct reuse *reuse, double used, const struct reuse_span *spans, uint32_t count)
{
	double beyond = -1, demand = 0;
	bool any = false, cold = false, shown = false;

	if (!reuse->patience)
		reuse->patience = PATIENCE;

	for (uint32_t i = 0; i < count; i++) {
		if (!tells(&spans[i]))
			continue;
		any = true;
		beyond = fmax(beyond, share_beyond_hiccup(&spans[i]));
		demand = fmax(demand, demand_of(&spans[i], used));
		cold |= is_cold(&spans[i], used);
		shown |= shows_rate(&spans[i]);
	}
	if (!any)
		return;
	if (beyond <= REUSE_WAIT)
		step_down(reuse, used, demand, shown);
	else if (cold)
		guess_again(reuse, demand / LOAD);
	else if (demand / LOAD > used * SLACK)
		step_up(reuse, used, demand);
}
