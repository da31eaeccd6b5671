/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "advice.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#include "say.h"

#define RECLAIMED_MUCH 0.05
#define ERRORS_MUCH 0.01

/* More is said as long as it fits. */
struct speech {
	char *text;
	size_t room;
};

__attribute__((format(printf, 2, 3))) static void add(struct speech *speech, const char *format,
						      ...)
{
	va_list args;
	int length;

	va_start(args, format);
	length = vsnprintf(speech->text, speech->room, format, args);
	va_end(args);
	if (length < 0 || (size_t)length >= speech->room)
		length = speech->room ? (int)speech->room - 1 : 0;
	speech->text += length;
	speech->room -= (size_t)length;
}

static struct figure percent(double share)
{
	struct figure text;

	snprintf(text.text, sizeof(text.text), "%.0f %%", 100 * share);
	return text;
}

/* The smallest capacity of twice the present one or more that saves enough; if there is none that
 * large, the largest that does. 0: none does. */
static unsigned worthwhile(const struct capacities *capacities)
{
	unsigned found = 0;

	for (unsigned i = capacities->point_count; i-- > capacities->present + 1;) {
		double saved = capacities_saved(capacities, capacities->own, i);

		if (saved >= ADVICE_SAVED && (!found || capacities->factors[i] >= 2))
			found = i;
	}
	return found;
}

static void say_memory(struct speech *speech, const struct capacities *capacities, unsigned point)
{
	double factor = capacities->factors[point];
	double bytes = factor * capacities->capacity_bytes;

	if (bytes >= capacities->data_bytes * 0.99)
		add(speech, "room for all the data (%s, %.2g x the memory)",
		    say_bytes(capacities->data_bytes).text, factor);
	else
		add(speech, "%.2g x the memory (%s)", factor, say_bytes(bytes).text);
	add(speech, " would save %s of its bytes",
	    percent(capacities_saved(capacities, capacities->own, point)).text);
}

/* Which of the other policies would save most with the memory as it is; the own one: none would
 * save enough. */
static unsigned better_policy(const struct capacities *capacities)
{
	unsigned best = capacities->own;
	double most = ADVICE_SAVED;

	for (unsigned i = 0; i < capacities->curve_count; i++) {
		double saved = capacities_saved(capacities, i, capacities->present);

		if (saved >= most) {
			best = i;
			most = saved;
		}
	}
	return best;
}

static void say_policy(struct speech *speech, const struct capacities *capacities)
{
	unsigned best = better_policy(capacities);

	if (best != capacities->own)
		add(speech, " The policy %s would save %s with the memory as it is.",
		    capacities->curves[best].policy,
		    percent(capacities_saved(capacities, best, capacities->present)).text);
}

static void say_what_else(struct speech *speech, const struct advice_figures *figures)
{
	if (!figures->capacities->ordered)
		add(speech,
		    " Announce orders (shade.Sampler does): then samples are fetched before "
		    "they are read.");
	else if (figures->uses > 1)
		add(speech,
		    " A faster source would help; the training uses each sample %.2g times "
		    "already.",
		    figures->uses);
	else
		add(speech,
		    " A faster source would help, or more uses of each sample (mode auto of "
		    "shade.Sampler).");
}

/* What more or less memory, or another policy, would change. `wanted`: the source is too slow. */
static void say_capacity(struct speech *speech, const struct advice_figures *figures, bool wanted)
{
	const struct capacities *capacities = figures->capacities;
	unsigned point = worthwhile(capacities);
	double half = -capacities_saved(capacities, capacities->own,
					capacities->present ? capacities->present - 1 : 0);

	if (wanted && point) {
		say_memory(speech, capacities, point);
		add(speech, ".");
		say_policy(speech, capacities);
	} else if (wanted) {
		add(speech, "more memory would hardly change that.");
		say_policy(speech, capacities);
		say_what_else(speech, figures);
	} else if (half >= 0 && half < ADVICE_SAVED) {
		add(speech, "half of the memory would do as well.");
	} else if (point) {
		say_memory(speech, capacities, point);
		add(speech, ", but nobody waits for them.");
	} else {
		add(speech, "nothing needs to be changed.");
	}
}

static bool knows_capacities(const struct advice_figures *figures)
{
	const struct capacities *capacities = figures->capacities;

	return capacities->accesses &&
	       capacities->curves[capacities->own].missed_bytes[capacities->present] > 0;
}

static void say_source(struct speech *speech, const struct advice_figures *figures)
{
	bool wanted = !(figures->waiting < ADVICE_WAITING);

	if (isnan(figures->waiting))
		add(speech, "How long readers wait for the source is not known: ");
	else if (wanted)
		add(speech, "The source is the limit (readers waited for it %s of the time): ",
		    percent(figures->waiting).text);
	else
		add(speech, "The source keeps up (readers waited for it %s of the time): ",
		    say_percent(figures->waiting).text);
	if (knows_capacities(figures))
		say_capacity(speech, figures, wanted);
	else
		add(speech, "after the first epoch nothing was missing.");
}

void advice(const struct advice_figures *figures, char *sentence, size_t size)
{
	struct speech speech = { sentence, size };

	if (size)
		*sentence = '\0';
	if (!(figures->accesses > 0)) {
		add(&speech, "Nothing was read yet: look again after an epoch.");
		return;
	}
	if (figures->errors >= ERRORS_MUCH)
		add(&speech, "%s of the reads of the source failed: the log says why. ",
		    say_percent(figures->errors).text);
	if (figures->reclaimed >= RECLAIMED_MUCH)
		add(&speech,
		    "The kernel took back what was to stay (%s of the accesses found it gone): "
		    "protect the memory or lower the capacity, see docs/memory.md. ",
		    percent(figures->reclaimed).text);
	say_source(&speech, figures);
}
