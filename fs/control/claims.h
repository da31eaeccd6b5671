/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Whose access is it? A process that opens the control file of a job claims what it reads, and what
 * its descendants read, for that job, as long as it has the file open or lives. The nearest
 * ancestor with a claim decides; where there is none, the control group does, if only one job has
 * claims in it. What nobody claims is for the policy core to guess: SCHED_JOB_ANY.
 *
 * A process that has claimed for several jobs reads for the one whose file it has open, and for
 * nobody knows whom if that are several.
 *
 * A job that was recognised and not announced has no claims: its readers are guessed, one by one.
 *
 * Pure bookkeeping: the caller has a lock, reads /proc without it, and says what time it is. What
 * was decided for a thread is remembered, so that /proc is read when a thread is new and every few
 * seconds after that: its number may be another one's by then. A process whose parents have ended
 * keeps what was decided before.
 */
#ifndef SHADE_CLAIMS_H
#define SHADE_CLAIMS_H

#include "base/process.h"

#define CLAIMS_MAX 128
#define CLAIMS_SETS 256
#define CLAIMS_WAYS 4 /* readers are remembered in sets, by a hash of their thread */
#define CLAIMS_TRUST_MS 5000

/* One process and one job. */
struct claim {
	struct process process;
	uint32_t job;
	unsigned opens;	 /* control files; 0: all are closed, and the process may live */
	uint64_t cgroup; /* 0: it says nothing */
	uint64_t turn;	 /* when it was made; 0: there is no such claim */
};

/* What was decided for a thread. */
struct claims_reader {
	int32_t thread;	     /* 0: nobody */
	uint32_t job;	     /* or SCHED_JOB_ANY */
	uint32_t guess;	     /* then this one, or SCHED_JOB_ANY */
	uint64_t start;	     /* of its process; 0: it could not be seen */
	uint64_t checked_ms; /* when its parents were looked at */
	uint64_t turn;	     /* of the claims that they were compared with */
	uint64_t cgroup;     /* as it was when it was last looked at */
	bool descends;	     /* the job is an ancestor's */
	bool unplaced;	     /* its control group is to be looked at */
};

struct claims {
	struct claim all[CLAIMS_MAX];
	unsigned count;
	uint64_t turn; /* one more with each change */
	struct claims_reader readers[CLAIMS_SETS * CLAIMS_WAYS];
	unsigned unplaced;  /* readers */
	bool guesses_yield; /* somebody has announced an order and claims nothing: it may be theirs
			     */
};

/* A process opens a control file of the job; and closes it. False: there are too many, and it
 * claims nothing. */
bool claims_open(struct claims *claims, const struct process *process, uint64_t cgroup,
		 uint32_t job);
void claims_close(struct claims *claims, const struct process *process, uint32_t job);
/* Whether the job has a process that has its file open, or may live. */
bool claims_has(const struct claims *claims, uint32_t job);
/* The same without one process. */
bool claims_has_besides(const struct claims *claims, uint32_t job, const struct process *process);
/* The job has ended, or its training: nobody reads for it. */
void claims_forget(struct claims *claims, uint32_t job);
/* Copies the processes that have no file open; those that are found to be gone are to be told of.
 */
unsigned claims_list_closed(const struct claims *claims, struct process gone[CLAIMS_MAX]);
void claims_end(struct claims *claims, const struct process *process);

/* True: it is known whose the thread's accesses are. Else claims_decide() is to be called. */
bool claims_know(const struct claims *claims, int32_t thread, uint64_t now_ms, uint32_t *job);
/* Decides by a lineage of process_lineage(), without the lock's being held while that was read. */
uint32_t claims_decide(struct claims *claims, int32_t thread, const struct process *lineage,
		       unsigned length, uint64_t now_ms);
/* The thread, which was just decided about, seems to read for a job that nobody has claimed
 * anything for. What somebody claims counts more. */
void claims_guess(struct claims *claims, int32_t thread, uint32_t job);
/* A reader whose control group is to be looked at; 0: there is none. */
int32_t claims_next_unplaced(const struct claims *claims);
void claims_place(struct claims *claims, int32_t thread, uint64_t cgroup);

#endif
