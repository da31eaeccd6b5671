/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The arm of the one disk that holds all files. It lies behind the file that was read last: the
 * neighbour of that file, the next of its directory by inode, can be read at once, and any other
 * only after a seek. If passing over the files between takes less, the arm does that. Safe from any
 * thread.
 */
#ifndef SLOWFS_ARM_H
#define SLOWFS_ARM_H

#include <stdint.h>

/* Where a file lies. */
struct place {
	uint64_t directory; /* from 1 on; 0: it is not known, and no neighbour of anything */
	uint64_t rank;	    /* among the files of the directory, by inode */
};

/* Where the file of that path and inode lies. Returns 0 or -errno. */
int arm_find(const char *path, uint64_t inode, struct place *place);

/* The time that ways of the arm take. */
struct arm_pace {
	uint64_t seek_us;
	uint64_t pass_us; /* over one file; 0: the arm never passes over any */
};

/* Waits for the arm, and for its way to the place. As a disk does with its queue, of those that
 * wait it serves who is nearest, and of equally near ones who came first. */
void arm_move(struct place place, struct arm_pace pace);

void arm_destroy(void);

#endif
