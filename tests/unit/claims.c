/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Whose access it is, by a table of processes that is made up; and the texts of /proc. */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "control/claims.h"
#include "shade/sched.h"

#define ANY SCHED_JOB_ANY
#define PEOPLE 64

/* By number; `start` is 0 where there is nobody. */
static struct process people[PEOPLE];
static unsigned looks; /* at /proc */
static struct claims claims;

static void reset(void)
{
	memset(people, 0, sizeof(people));
	memset(&claims, 0, sizeof(claims));
	looks = 0;
	people[1] = (struct process){ .pid = 1, .start = 1 };
}

static struct process *born(int32_t pid, int32_t parent, uint64_t start)
{
	people[pid] = (struct process){ .pid = pid, .parent = parent, .start = start };
	return &people[pid];
}

/* Its children are init's from now on. */
static void dies(int32_t pid)
{
	people[pid].start = 0;
	for (int32_t i = 2; i < PEOPLE; i++)
		if (people[i].parent == pid)
			people[i].parent = 1;
}

/* What control does with a thread that reads; threads have the numbers of their processes here. */
static uint32_t whose(int32_t pid, uint64_t now_ms)
{
	struct process lineage[PROCESS_DEPTH];
	unsigned length = 0;
	uint32_t job;

	if (claims_know(&claims, pid, now_ms, &job))
		return job;
	looks++;
	for (int32_t at = pid; length < PROCESS_DEPTH && at && people[at].start;)
		at = (lineage[length++] = people[at]).parent;
	return claims_decide(&claims, pid, lineage, length, now_ms);
}

static void place_all(const uint64_t *cgroups)
{
	for (int32_t pid; (pid = claims_next_unplaced(&claims));)
		claims_place(&claims, pid, cgroups[pid]);
	cr_assert_eq(claims.unplaced, 0);
}

Test(claims, nobody_claims)
{
	reset();
	born(5, 1, 50);
	cr_assert_eq(whose(5, 0), ANY);
	cr_assert_eq(whose(0, 0), ANY);
	cr_assert_eq(looks, 0, "nobody was looked at for nothing");
}

Test(claims, descendants_read_for_the_nearest_ancestor)
{
	reset();
	born(5, 1, 50);
	born(6, 5, 60); /* a loader's worker, forked before the file is opened */
	born(7, 6, 70);
	born(8, 1, 80); /* somebody else */
	cr_assert(claims_open(&claims, &people[5], 0, 3));
	cr_assert_eq(whose(5, 0), 3);
	cr_assert_eq(whose(7, 0), 3);
	cr_assert_eq(whose(8, 0), ANY);
	born(9, 5, 90); /* and one that is forked after that */
	cr_assert_eq(whose(9, 0), 3);
	/* A training that another one has started. */
	cr_assert(claims_open(&claims, &people[6], 0, 4));
	cr_assert_eq(whose(7, 1), 4);
	cr_assert_eq(whose(9, 1), 3);
}

Test(claims, a_reader_that_was_there_before_the_claim_is_looked_at_again)
{
	reset();
	born(5, 1, 50);
	born(6, 5, 60);
	born(8, 1, 80);
	cr_assert(claims_open(&claims, &people[8], 0, 1));
	cr_assert_eq(whose(6, 0), ANY);
	cr_assert(claims_open(&claims, &people[5], 0, 0));
	cr_assert_eq(whose(6, 0), 0, "job 0 is a job like the others");
}

Test(claims, each_reader_is_looked_at_once)
{
	reset();
	born(5, 1, 50);
	born(6, 5, 60);
	cr_assert(claims_open(&claims, &people[5], 0, 3));
	for (uint64_t i = 0; i < 1000; i++)
		cr_assert_eq(whose(6, i), 3);
	cr_assert_eq(looks, 1);
	/* Nor because the training closes its file and opens it again. */
	claims_close(&claims, &people[5], 3);
	cr_assert(claims_open(&claims, &people[5], 0, 3));
	cr_assert_eq(whose(6, 1000), 3);
	cr_assert_eq(looks, 1);
	cr_assert_eq(whose(6, CLAIMS_TRUST_MS), 3);
	cr_assert_eq(looks, 2);
}

Test(claims, a_number_that_is_used_again_is_another_process)
{
	reset();
	born(5, 1, 50);
	born(6, 5, 60);
	cr_assert(claims_open(&claims, &people[5], 0, 3));
	cr_assert_eq(whose(6, 0), 3);
	born(6, 1, 61);
	cr_assert_eq(whose(6, CLAIMS_TRUST_MS), ANY);
	/* The claimant's number, too. */
	claims_close(&claims, &people[5], 3);
	born(5, 1, 51);
	born(7, 5, 70);
	cr_assert_eq(whose(7, 0), ANY);
}

Test(claims, orphans_keep_what_was_decided)
{
	reset();
	born(5, 1, 50);
	born(6, 5, 60);
	born(7, 6, 70);
	born(8, 6, 80);
	cr_assert(claims_open(&claims, &people[5], 0, 3));
	cr_assert_eq(whose(7, 0), 3);
	dies(6);
	cr_assert_eq(whose(7, CLAIMS_TRUST_MS), 3);
	cr_assert_eq(whose(8, CLAIMS_TRUST_MS), ANY, "nobody has seen whose child it was");
	/* A reader that is gone when its access is told of. */
	dies(7);
	cr_assert_eq(whose(7, 2ul * CLAIMS_TRUST_MS), 3);
	claims_forget(&claims, 3);
	cr_assert_eq(whose(7, 2ul * CLAIMS_TRUST_MS), ANY);
}

Test(claims, of_several_jobs_the_open_one_counts)
{
	reset();
	born(5, 1, 50);
	cr_assert(claims_open(&claims, &people[5], 0, 3));
	cr_assert(claims_open(&claims, &people[5], 0, 4));
	cr_assert_eq(whose(5, 0), ANY);
	claims_close(&claims, &people[5], 3);
	cr_assert_eq(whose(5, 0), 4);
	claims_close(&claims, &people[5], 4);
	cr_assert_eq(whose(5, 0), ANY);
	claims_forget(&claims, 4);
	cr_assert_eq(whose(5, 0), 3);
}

Test(claims, last_as_long_as_the_file_or_the_process)
{
	struct process closed[CLAIMS_MAX];
	struct process mine;

	reset();
	mine = *born(5, 1, 50);
	cr_assert(claims_open(&claims, &mine, 0, 3));
	cr_assert_eq(claims_list_closed(&claims, closed), 0);
	claims_end(&claims, &mine); /* a child has the file open */
	cr_assert(claims_has(&claims, 3));
	claims_close(&claims, &mine, 3);
	cr_assert(claims_has(&claims, 3));
	cr_assert_eq(claims_list_closed(&claims, closed), 1);
	cr_assert_eq(closed[0].pid, 5);
	claims_end(&claims, &mine);
	cr_assert(!claims_has(&claims, 3));
}

Test(claims, a_control_group_speaks_for_one_job_only)
{
	static const uint64_t cgroups[PEOPLE] = { [5] = 100, [6] = 100, [7] = 200, [8] = 300 };

	reset();
	born(5, 1, 50);
	born(6, 1, 60); /* a rank beside it */
	born(7, 1, 70);
	born(8, 1, 80);
	cr_assert(claims_open(&claims, &people[5], cgroups[5], 3));
	cr_assert(claims_open(&claims, &people[7], cgroups[7], 4));
	cr_assert_eq(whose(6, 0), ANY, "its control group was not looked at yet");
	cr_assert_eq(whose(8, 0), ANY);
	place_all(cgroups);
	cr_assert_eq(whose(6, 0), 3);
	cr_assert_eq(whose(8, 0), ANY);
	/* What was known of its group counts until that is looked at again. */
	cr_assert_eq(whose(6, CLAIMS_TRUST_MS), 3);
	cr_assert_eq(claims_next_unplaced(&claims), 6);
	/* Another job's process comes into the group. */
	born(9, 1, 90);
	cr_assert(claims_open(&claims, &people[9], 100, 4));
	cr_assert_eq(whose(6, CLAIMS_TRUST_MS), ANY);
	cr_assert_eq(whose(5, CLAIMS_TRUST_MS), 3, "a claim of one's own counts more");
	/* The root says nothing. */
	born(10, 1, 100);
	cr_assert(claims_open(&claims, &people[10], 0, 5));
	born(11, 1, 110);
	cr_assert_eq(whose(11, 0), ANY);
	place_all(cgroups);
	cr_assert_eq(whose(11, 0), ANY);
}

Test(claims, are_bounded)
{
	struct process process = { .parent = 1 };
	unsigned opened = 0;

	reset();
	for (process.pid = 2; process.pid < 1000; process.pid++) {
		process.start = (uint64_t)process.pid;
		opened += claims_open(&claims, &process, 0, 3);
	}
	cr_assert_eq(opened, CLAIMS_MAX);
	process = (struct process){ .pid = 2, .start = 2 };
	claims_close(&claims, &process, 3);
	process = (struct process){ .pid = 2000, .start = 9 };
	cr_assert(claims_open(&claims, &process, 0, 3), "one that has no file open makes way");
	cr_assert_eq(claims.count, CLAIMS_MAX);
	/* Readers, too: the one that was looked at the longest ago goes. */
	for (int32_t thread = 1; thread < 100000; thread++)
		(void)claims_decide(&claims, thread, &process, 1, (uint64_t)thread);
	for (int32_t thread = 99999; thread > 99999 - CLAIMS_SETS * CLAIMS_WAYS; thread--) {
		uint32_t job = 0;

		cr_assert(claims_know(&claims, thread, 99999, &job));
		cr_assert_eq(job, 3);
	}
}

/* What was recognised counts where nobody claims anything, and for the very process only. */
Test(claims, a_guess_counts_less_than_a_claim)
{
	reset();
	born(5, 1, 50);
	born(6, 5, 60);
	claims.turn++;
	cr_assert_eq(whose(6, 0), ANY);
	claims_guess(&claims, 6, 9);
	claims_guess(&claims, 7, 9); /* nobody knows that one */
	cr_assert_eq(whose(6, 1), 9);
	cr_assert_eq(whose(5, 1), ANY);
	cr_assert_eq(whose(6, CLAIMS_TRUST_MS + 1), 9); /* looked at again */
	claims.guesses_yield = true; /* somebody has announced, and claims nothing */
	cr_assert_eq(whose(6, CLAIMS_TRUST_MS + 2), ANY);
	claims.guesses_yield = false;
	cr_assert(claims_open(&claims, &people[5], 0, 3)); /* its parent announces something */
	cr_assert_eq(whose(6, CLAIMS_TRUST_MS + 3), 3);
	claims_close(&claims, &people[5], 3);
	claims_forget(&claims, 3);
	cr_assert_eq(whose(6, CLAIMS_TRUST_MS + 4), 9);
	dies(6);
	born(6, 1, 70); /* another process with its number */
	cr_assert_eq(whose(6, UINT64_C(3) * CLAIMS_TRUST_MS), ANY);
	claims_guess(&claims, 6, 9);
	cr_assert_eq(whose(6, UINT64_C(3) * CLAIMS_TRUST_MS + 1), 9);
	claims_forget(&claims, 9);
	cr_assert_eq(whose(6, UINT64_C(3) * CLAIMS_TRUST_MS + 2), ANY);
}

/* --- /proc --------------------------------------------------------------------------------------
 */

Test(process, the_name_of_a_program_may_be_anything)
{
	static const char rest[] = " S 17 3 3 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 10 11\n";
	static const char *const names[] = { "42 (cat)", "42 (a) R 1 1 (b)", "42 ()", "42 ())" };
	struct process process;

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char text[256];

		strcpy(text, names[i]);
		strcat(text, rest);
		cr_assert_eq(process_parse_stat(text, &process), 0, "%s", text);
		cr_assert(process.pid == 42 && process.parent == 17 && process.start == 987654);
	}
	cr_assert_eq(process_parse_stat("", &process), -EINVAL);
	cr_assert_eq(process_parse_stat("42 (cat", &process), -EINVAL);
	cr_assert_eq(process_parse_stat("42 (cat) S 17 3 3", &process), -EINVAL);
}

Test(process, a_thread_is_of_a_process)
{
	int32_t pid = 0;

	cr_assert_eq(process_parse_status("Name:\tx\nUmask:\t0022\nTgid:\t77\nPid:\t78\n", &pid),
		     0);
	cr_assert_eq(pid, 77);
	cr_assert_eq(process_parse_status("Name:\tTgid:\t5\n", &pid), -EINVAL);
	cr_assert_eq(process_parse_status("", &pid), -EINVAL);
}

Test(process, the_root_of_control_groups_says_nothing)
{
	cr_assert_eq(process_parse_cgroup("0::/\n"), 0);
	cr_assert_eq(process_parse_cgroup("2:cpu:/\n1:name=systemd:/\n0::/\n"), 0);
	cr_assert_eq(process_parse_cgroup(""), 0);
	cr_assert_neq(process_parse_cgroup("0::/a\n"), 0);
	cr_assert_neq(process_parse_cgroup("0::/a\n"), process_parse_cgroup("0::/b\n"));
	cr_assert_eq(process_parse_cgroup("1:cpu:/\n0::/a\n"),
		     process_parse_cgroup("1:cpu:/\n0::/a\n"));
}

/* Its number stays until its parent asks how it ended, which may be at the end of a sweep. */
Test(process, one_that_nobody_waits_for_does_not_live)
{
	struct process lineage[PROCESS_DEPTH];
	int ends[2];
	siginfo_t info;
	pid_t child;

	cr_assert_eq(pipe(ends), 0);
	child = fork();
	if (!child) {
		char word;

		close(ends[1]);
		_exit((int)read(ends[0], &word, 1)); /* until the other end is closed */
	}
	cr_assert_geq(process_lineage((int32_t)child, lineage), 2);
	cr_assert(process_lives(&lineage[0]));
	close(ends[0]);
	close(ends[1]);
	cr_assert_eq(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
	cr_assert(!process_lives(&lineage[0]));
	cr_assert_eq(waitpid(child, NULL, 0), child);
}

Test(process, this_one_is_seen)
{
	struct process lineage[PROCESS_DEPTH];
	unsigned length = process_lineage((int32_t)getpid(), lineage);

	cr_assert_geq(length, 2);
	cr_assert_eq(lineage[0].pid, getpid());
	cr_assert_eq(lineage[0].parent, getppid());
	cr_assert_eq(lineage[1].pid, getppid());
	cr_assert_leq(lineage[1].start, lineage[0].start);
	cr_assert(process_lives(&lineage[0]));
	lineage[0].start++;
	cr_assert(!process_lives(&lineage[0]));
	cr_assert_eq(process_lineage(0, lineage), 0);
}

Test(process, a_child_runs_the_same_program_until_it_runs_another)
{
	int ends[2];
	pid_t child;

	cr_assert_eq(pipe(ends), 0);
	child = fork();
	if (!child) {
		char word;

		close(ends[1]);
		_exit((int)read(ends[0], &word, 1));
	}
	cr_assert(process_is_same_program((int32_t)getpid(), (int32_t)child));
	cr_assert(!process_is_same_program((int32_t)getpid(), 0));
	close(ends[0]);
	close(ends[1]);
	cr_assert_eq(waitpid(child, NULL, 0), child);
	cr_assert(!process_is_same_program((int32_t)getpid(), (int32_t)child));
}
