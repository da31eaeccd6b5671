/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The private directory of a mount in native mode, below /run/shadefs. A lock file in it is locked
 * as long as the supervisor lives, so that the next one can tell which directories were left
 * behind.
 */
#ifndef SHADE_RUN_DIR_H
#define SHADE_RUN_DIR_H

#include <stdint.h>
#include <sys/types.h>

#define RUN_DIRS "/run/shadefs"
#define RUN_DIR_PATH_MAX 64

struct run_dir {
	char dir[RUN_DIR_PATH_MAX];   /* empty: there is none */
	char top[RUN_DIR_PATH_MAX];   /* an empty directory: the overlay's upper layer */
	char files[RUN_DIR_PATH_MAX]; /* where FUSE is mounted: its lower layer */
	int lock;		      /* 0: somebody else has it */
};

/* Makes one, named after `owner`; `run_dir` is all zeros. 0 or a negative errno; run_dir_close() is
 * then needed all the same. */
int run_dir_open(struct run_dir *run_dir, pid_t owner);
/* Closes the lock, which somebody else has a copy of by now. */
void run_dir_hand_over(struct run_dir *run_dir);
/* What statfs() says of the upper layer. 0 or a negative errno. */
int run_dir_size(const struct run_dir *run_dir, uint64_t bytes);
void run_dir_close(struct run_dir *run_dir);
/* Locks /run/shadefs, so that nobody makes a directory while somebody else looks for those left
 * behind: one that is not finished yet would look as if nobody held it. A descriptor, which is
 * closed to unlock it, or a negative errno. */
int run_dir_lock(void);
/* Unmounts and removes what belongs to those that do not live any more. */
void run_dir_clean_up(void);

#endif
