/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a successor takes over besides descriptors: the front of the estate. Rooms say what theirs
 * is. It is constant once the mount answers, but for what is marked. */
#ifndef SHADE_HERITAGE_H
#define SHADE_HERITAGE_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/estate.h"
#include "control/control.h"
#include "fuse/files.h"
#include "native/overlay.h"

struct heritage {
	bool is_native;
	_Atomic bool can_notice;    /* the kernel tells when a daemon dies, whatever it waits for */
	_Atomic uint64_t takeovers; /* the supervisor's: how many daemons died */
	_Atomic uint64_t upgrades;  /* the supervisor's: how often it became another program */
	char status[4096];	    /* the line that was printed when the mount answered */
	struct control_heritage control;
	struct files_heritage files;
	struct overlay_heritage overlay; /* native mode; .shade may be mounted again */
};

static_assert(sizeof(struct heritage) <= ESTATE_FRONT, "it is all that has a fixed place");

#endif
