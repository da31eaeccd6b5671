/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* .shade over FUSE: inside the connection of the source's files, or as a connection of its own. */
#ifndef SHADE_SHADE_H
#define SHADE_SHADE_H

#include "control/control.h"
#include "fuse/session.h"

#define SHADE_WORKERS 16 /* for .shade, at most */

/* What the handlers of .shade need; the user data of a session that has them begins with it. */
struct shade {
	struct control *control;
	double timeout_s; /* how long the kernel may remember names and attributes */
	bool is_empty;	  /* only the directory itself is there, to mount the real .shade on */
};

/* Mounts .shade as a connection of its own, or takes that over; its root is .shade. Of `options`,
 * source, mount_point, directory, connection, heritage, ended and context count. `shade` must
 * outlive the session. 0 or a negative errno. */
int shade_mount(struct session **out, struct shade *shade, const struct session_options *options);

/* files_check() for a connection of its own. */
int shade_check(const struct session_heritage *heritage);

#endif
