/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Where a daemon in native mode has what nobody should see: a directory of its own below
 * /run/shadefs, with a lock that is held as long as it lives, so that the next one can tell
 * what was left behind.
 */
#ifndef SHADE_PLACE_H
#define SHADE_PLACE_H

#define PLACES "/run/shadefs"
#define PLACE_PATH_MAX 64

struct place {
	char dir[PLACE_PATH_MAX];
	char top[PLACE_PATH_MAX];   /* an empty directory: the upper layer */
	char files[PLACE_PATH_MAX]; /* where FUSE is mounted: the lower layer */
	int lock;		    /* 0: there is none */
};

/* Makes one. Remembers the mount point, to be unmounted by who finds it. */
int place_open(struct place *place, const char *mount_point);
void place_close(struct place *place);
/* Unmounts and removes all that nobody holds. */
void place_clean_up(void);

#endif
