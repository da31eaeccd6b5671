/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The supervisor: the process that was started, whose child is the daemon.
 *
 * It holds what must outlive a daemon that is killed or crashes: the descriptors of the
 * connections, of fanotify and of the overlay, the estate, and the lock of the mount's directory in
 * /run/shadefs. If the daemon dies, it forks another one, the successor, which takes all that over.
 * The kernel keeps the requests meanwhile, so readers notice nothing but a pause. Since it forks
 * without exec, it has one thread, allocates nothing and waits for no file system.
 *
 * In an upgrade it becomes another version of the program, see upgrade.h, and the daemon that it
 * forks then takes over from the last one, which has ended in order.
 *
 * It gives up, so that readers get errors instead of waiting, if within ten seconds three daemons
 * die that have not answered for a second, if a successor is not ready within five and a second for
 * each 100,000 files, or if the kernel cannot repeat requests (before Linux 6.9). A daemon that
 * ends by itself has no successor. If the supervisor dies, the kernel kills the daemon, and the
 * watchdog ends the connections.
 */
#ifndef SHADE_SUPERVISOR_H
#define SHADE_SUPERVISOR_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/estate.h"
#include "base/mount.h"
#include "native/overlay.h"

struct options;

struct supervisor_options {
	struct options *options; /* its descriptors are closed when no successor needs them */
	struct estate *estate;	 /* its front is a struct heritage */
	/* In the supervisor, when the first daemon was forked. */
	void (*forked)(void *context);
	void *context;
};

struct handover;

/* What a daemon is told by the supervisor. */
struct succession {
	bool is_successor;
	pid_t supervisor;
	int parts[OVERLAY_PARTS]; /* what was kept, -1: nothing; the daemon's own descriptors */
};

/* Returns in each daemon, and never in the supervisor, which exits. To be called while there is one
 * thread, with the signals blocked that end the daemon. */
void supervisor_run(const struct supervisor_options *options, struct succession *succession);

/* The same in a program that the supervisor has become. */
void supervisor_go_on(const struct supervisor_options *options, const struct handover *handover,
		      struct succession *succession);

/* --- what a daemon tells the supervisor; any thread may call these */

/* The descriptor is to be kept, in place of one that there was; -1: none. Connections have a
 * mount. */
void supervisor_keep(enum overlay_part part, int fd, const struct mount *mount);
/* From now on the daemon's death is noticed even if some of its threads are stuck in the kernel. 0,
 * or a negative errno: the kernel cannot tell that (before Linux 6.9). */
int supervisor_watch(void);
/* The mount answers. */
void supervisor_ready(void);
/* An end begins that is not a crash: nobody is to take over. */
void supervisor_ending(void);
/* Has the file tried that the program was started from. 0: the supervisor becomes it when the
 * daemon has ended, which is to be soon. -ENOEXEC with a reason: nothing has changed. Waits for
 * some seconds; one caller at a time. */
int supervisor_upgrade(char *why, size_t room);
/* The daemon exits, but cannot end well: the connections are to be ended. */
void supervisor_abort(void);

#endif
