/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a client says to a mount: MNT/.shade/control, for C99 and C++.
 *
 * Bytes written to an open descriptor are messages, text lines and binary records in any
 * mixture. A message may be cut over several writes at any byte. A write is applied whole
 * or not at all: on bad input it fails with EINVAL, a read on the same descriptor then says
 * what was wrong and where, nothing of that write is applied, and a message that it left
 * unfinished or was to continue is forgotten: the next write begins with a new message.
 *
 * Text: one command a line, words between blanks, # begins a comment line.
 *
 *     score SAMPLE VALUE         how important a sample is: finite, 0 or more
 *     order EPOCH begin          from here on: what this epoch will read. Begins anew if an
 *     order EPOCH ID ID ...      order was open on this descriptor. As many lines as wanted,
 *     order EPOCH end            of any length; announced at the end, forgotten at a close
 *     epoch N                    this epoch begins
 *     uses N                     how often a sample that was fetched is used on the mean,
 *                                1 to 1000: for reports
 *     group NAME                 the job reads the orders of this group, with others; it is in
 *                                the group until this descriptor is closed, or `group` comes
 *                                without a name. Only jobs of .shade/jobs have groups
 *     order EPOCH begin group    an order of the group: EPOCH counts the group's epochs. EEXIST:
 *                                the group has one; ERANGE: no member reads it now or next
 *     order EPOCH read           what is read on this descriptor then is that order, as a record
 *                                SHADE_RECORD_SHARED by the ids of this descriptor, UINT32_MAX:
 *                                a sample that has none. ENOENT: there is no such order
 *     importance                 what is read on this descriptor then is the importance of
 *                                samples to the group, 0 to 1, as a record SHADE_RECORD_SCORES
 *     warm PATH                  fetch; evict PATH: drop; pin PATH, unpin PATH
 *     capacity SIZE              512M, 8G (of 1024), or 40%
 *     policy NAME
 *     rescan
 *     forget JOB                 the orders and scores of a job go, and the job itself unless it
 *                                has open files; 0: the job that is always there. Without JOB: all
 *                                jobs whose trainings are gone
 *     upgrade                    the program that was started is started anew, perhaps another
 *                                version, and goes on with the mount. For root and who mounted.
 *                                ENOEXEC: it cannot, as the answer says, and nothing has changed
 *
 * PATH is the rest of the line, relative to the mount; SAMPLE is an id or a path, and a path
 * of digits alone is written ./123. In both \nnn (octal) is a byte and \\ a backslash.
 *
 * Records: a `struct shade_record`, what its type adds, then its arrays. All numbers are
 * little endian, floats IEEE 754. Arrays follow without padding, so that ids and scores can
 * be sent from where they are with one writev().
 *
 * Ids are positions in the mount's list of samples, or in the table that was registered on
 * the same descriptor.
 */
#ifndef SHADE_CONTROL_H
#define SHADE_CONTROL_H

#include <linux/ioctl.h>
#include <stdint.h>

/* The bytes F5 'S' 'H' 'D'; F5 begins no text, not even in UTF-8. */
#define SHADE_RECORD_MAGIC 0x444853f5u
#define SHADE_RECORD_VERSION 1

/* Bounds of one message. */
#define SHADE_LINE_MAX 65536u /* bytes of a line, but of `order EPOCH ID ...` */
#define SHADE_PATH_MAX 4095u  /* bytes of a path */
#define SHADE_USES_MAX 1000
#define SHADE_ORDER_MAX (1u << 26)	    /* ids of an order */
#define SHADE_SCORES_MAX (1u << 24)	    /* scores of a record */
#define SHADE_TABLE_MAX (1u << 26)	    /* paths of a table */
#define SHADE_RECORD_BYTES_MAX (1ull << 32) /* payload of any record */

enum shade_record_type {
	SHADE_RECORD_SCORES = 1,
	SHADE_RECORD_ORDER = 2,
	SHADE_RECORD_EPOCH = 3,
	SHADE_RECORD_TABLE = 4,
	SHADE_RECORD_SHARED = 5
};

struct shade_record {
	uint32_t magic;
	uint16_t version;
	uint16_t type;
	uint64_t payload_bytes; /* what follows these 16 bytes */
};

/* Then uint32_t ids[count], float scores[count]. */
struct shade_record_scores {
	struct shade_record head; /* payload_bytes = 8 + 8 * count */
	uint64_t count;
};

/* Then uint32_t ids[count]. Replaces an earlier order of the same epoch. SHADE_RECORD_SHARED is an
 * order of the group, and may have float weights[count] after that, which members give to the
 * losses of its entries; it replaces nothing. */
struct shade_record_order {
	struct shade_record head; /* payload_bytes = 16 + 4 * count; 16 + 8 * count with weights */
	uint64_t epoch;
	uint64_t count;
};

struct shade_record_epoch {
	struct shade_record head; /* payload_bytes = 8 */
	uint64_t epoch;
};

/* Then `count` paths relative to the mount, a NUL after each. From then on the ids 0 to
 * count - 1 mean these, in messages and ioctls of this descriptor. Each must be a sample.
 * A table of no paths gives the mount's own ids back. */
struct shade_record_table {
	struct shade_record head; /* payload_bytes = 8 + the paths with their NULs */
	uint64_t count;
};

/*
 * ioctls on the control descriptor, for what is small and wants an answer at once. Numbers
 * are in the machine's own byte order. EINVAL as for writes, with a sentence to read.
 */
#define SHADE_IOCTL_TYPE 0xf5
#define SHADE_IOCTL_SCORES_MAX 1024

struct shade_ioctl_scores {
	uint32_t count; /* 1 to SHADE_IOCTL_SCORES_MAX of the entries below */
	uint32_t zero;
	uint32_t ids[SHADE_IOCTL_SCORES_MAX];
	float scores[SHADE_IOCTL_SCORES_MAX];
};

struct shade_ioctl_epoch {
	uint64_t epoch;
};

struct shade_ioctl_query {
	uint32_t id;	    /* in; everything else is the answer */
	uint32_t frequency; /* how often it was read */
	float score;	    /* below 0: none yet */
	uint32_t resident;  /* 1: in memory */
	uint64_t size;	    /* bytes */
};

/* The job of this descriptor begins its epoch `epoch`, and is told which stretch of its group's
 * orders that is: the order `first` from `offset` on, then the next one up to `offset`. */
struct shade_ioctl_group {
	uint64_t epoch; /* in: as the training counts */
	/* In: what the group counts from if it has no order, below 2^62; out: an order. */
	uint64_t first;
	uint64_t offset; /* out */
};

#define SHADE_IOCTL_SCORES _IOW(SHADE_IOCTL_TYPE, 1, struct shade_ioctl_scores)
#define SHADE_IOCTL_EPOCH _IOW(SHADE_IOCTL_TYPE, 2, struct shade_ioctl_epoch)
#define SHADE_IOCTL_QUERY _IOWR(SHADE_IOCTL_TYPE, 3, struct shade_ioctl_query)
#define SHADE_IOCTL_GROUP _IOWR(SHADE_IOCTL_TYPE, 4, struct shade_ioctl_group)

#endif
