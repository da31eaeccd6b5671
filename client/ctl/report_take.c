/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The figures of a report, from the files of a mount. It may be anybody's: whatever it says is
 * bounded, and is numbers or text that is only shown. */
#include <stdlib.h>
#include <string.h>

#include "advice.h"
#include "report.h"
#include "say.h"
#include "scores.h"

#define EPOCHS_ADVISED 16
#define SCORES_PATIENCE 20 /* seconds: whoever serves them may never end */

/* Of the latest epochs, as the replays are, and not of the first, which is cold. */
static unsigned first_advised(const struct report *report)
{
	return report->epoch_count > EPOCHS_ADVISED ? report->epoch_count - EPOCHS_ADVISED
						    : report->epoch_count > 1;
}

static void take_advice(struct report *report)
{
	struct report_epoch warm = report_sum(report, first_advised(report));
	struct advice_figures figures = {
		.accesses = pair_number(report->stats, "accesses"),
		.waiting = report_rate(&warm, RATE_WAITING),
		.reclaimed = report_ratio(pair_number(report->stats, "reclaimed"),
					  pair_number(report->stats, "accesses")),
		.errors = report_ratio(pair_number(report->stats, "fetch_errors"),
				       pair_number(report->stats, "backend_reads")),
		.uses = pair_number(report->stats, "uses"),
		.capacities = &report->capacities,
	};

	advice(&figures, report->advice, sizeof(report->advice));
}

static void take_capacities(struct report *report, const struct call *call)
{
	struct pair pair;
	char policy[64] = "", *history;

	if (mount_read(call->mount, "history", &history))
		return;
	if (pair_find(report->stats, "policy", &pair) && pair.value_length < sizeof(policy))
		memcpy(policy, pair.value, pair.value_length);
	capacities_replay(&report->capacities, history, ".shade/history", policy);
	free(history);
}

/* A mount of an older version has no epochs and no history. */
int report_take(struct report *report, const struct call *call)
{
	char *epochs;
	int code = call_read(call, "stats", &report->stats);

	if (code)
		return code;
	report->mount_point = mount_path(call->mount);
	if (mount_read(call->mount, "config", &report->config))
		report->config = NULL;
	if (!mount_read(call->mount, "epochs", &epochs)) {
		report->epoch_count =
			report_parse_epochs(epochs, report->epochs, REPORT_EPOCHS_MAX);
		free(epochs);
	}
	scores_take(call->mount, &report->scores, SCORES_PATIENCE);
	take_capacities(report, call);
	take_advice(report);
	return EXIT_OK;
}

void report_free(struct report *report)
{
	free(report->stats);
	free(report->config);
	free(report);
}
