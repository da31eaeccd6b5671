/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Has another version of shadefs go on with a mount, and waits until it does. The daemon answers
 * the command before it ends, so whether the new one has begun is seen by its counters.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "call.h"
#include "say.h"

#define PATIENCE_S 60
#define PAUSE_NS 20000000

/* How often the mount was upgraded; NaN: it does not tell. `rc` is 0 or a negative errno. */
static double count_upgrades(const struct call *call, int *rc)
{
	char *stats;
	double count;

	*rc = mount_read(call->mount, "stats", &stats);
	if (*rc)
		return 0;
	count = pair_number(stats, "upgrades");
	free(stats);
	return count;
}

static int say_done(const struct call *call)
{
	struct pair version;
	char *config;
	int code = call_read(call, "config", &config);

	if (code)
		return code;
	if (pair_find(config, "version", &version))
		say_line(stdout, "%s: version %.*s goes on", mount_path(call->mount),
			 (int)strcspn(version.value, " \n"), version.value);
	free(config);
	return EXIT_OK;
}

/* If the new daemon cannot begin, reading ends with an error. */
static int wait_for_it(const struct call *call, double before)
{
	double until = say_now() + PATIENCE_S;

	while (say_now() < until) {
		int rc;
		double now = count_upgrades(call, &rc);

		if (rc == -ENOTCONN || rc == -ECONNABORTED)
			return say(EXIT_FAILED,
				   "the new version could not begin, and the mount at '%s' has "
				   "ended; the log says why",
				   call->given_mount);
		if (!rc && now > before)
			return say_done(call);
		nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
	}
	return say(EXIT_FAILED, "after %d s the new version has not begun; the log says why",
		   PATIENCE_S);
}

int verb_upgrade(struct call *call)
{
	char answer[MOUNT_ANSWER_MAX];
	int rc, seen;
	double before = count_upgrades(call, &rc);

	if (rc)
		return call_say_no_file(call, "stats", rc);
	if (!(before >= 0))
		return say(EXIT_FAILED,
			   "the shadefs at '%s' is too old to be upgraded: unmount it "
			   "and mount it again",
			   call->given_mount);
	rc = mount_send(call->mount, "upgrade\n", strlen("upgrade\n"), answer);
	/* The daemon may have died when it had said yes, before anybody heard it. */
	if (rc && !(count_upgrades(call, &seen) > before))
		return call_say_refused(call->given_mount, rc, answer);
	return wait_for_it(call, before);
}
