/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/supervisor.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/threads.h"
#include "daemon/channel.h"
#include "daemon/handover.h"
#include "daemon/heritage.h"
#include "daemon/options.h"
#include "daemon/systemd.h"
#include "daemon/upgrade.h"
#include "daemon/watchdog.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define READY_MS 30000 /* these make everything several times slower */
#else
#define READY_MS 5000 /* for a successor */
#endif
#define READY_BYTES 16384 /* of the estate, for which it has a millisecond more: 100 files */
/* So many deaths of daemons that were not steady, within DEATHS_MS, are too many. */
#define DEATHS HANDOVER_DEATHS
#define DEATHS_MS 10000
#define STEADY_MS 1000	/* a daemon that has answered for so long has not died of its start */
#define LEAVE_MS 5000	/* for a daemon that makes way for another version */
#define END_MS 30000	/* for the end of the daemon, which limits it itself to less */
#define REAP_MS 100	/* from the death of one thread to that of the process */
#define LINGER_MS 2000	/* the same if nobody has to wait for it */
#define ABANDON_MS 3000 /* to unmount what a daemon has left */
#define STUCK_MAX HANDOVER_STUCK /* dead daemons whose threads are stuck in the kernel */
#define THREAD_PIDFD O_EXCL	 /* PIDFD_THREAD, which newer headers have */

enum note_kind { NOTE_KEEP, NOTE_WATCH, NOTE_READY, NOTE_UPGRADE, NOTE_ENDING, NOTE_ABORT };

/* What a daemon tells. A descriptor may come with it. */
struct note {
	enum note_kind kind;
	enum overlay_part part; /* of NOTE_KEEP */
	struct mount mount;
};

/* What it is told: whether it is to make way for another version. */
struct verdict {
	bool leaves;
	char why[UPGRADE_WHY];
};

struct supervisor {
	const struct supervisor_options *options;
	struct heritage *heritage;
	pid_t own;
	int signals; /* a signalfd */
	int parts[OVERLAY_PARTS];
	bool was_ready;		    /* a daemon, once */
	bool ending;		    /* the daemon has begun to end */
	uint64_t deaths_ms[DEATHS]; /* the latest first; 0: none */
	pid_t stuck[STUCK_MAX];	    /* dead daemons that cannot be reaped yet */
	unsigned stuck_count;
	bool repeat_due; /* one of them was reaped, and the daemon is not ready yet */

	/* Of the daemon. */
	pid_t daemon;
	int channel, sentinel; /* -1: none */
	bool is_ready, is_reaped, is_aborted;
	uint64_t since_ms;	   /* when it was ready */
	int status;		   /* if it is reaped */
	uint64_t ready_ms, end_ms; /* until when that has to happen; 0: whenever it does */

	/* Of an upgrade. */
	bool upgrade_due; /* once the daemon is ready, which has asked for it */
	struct check check;
	bool is_leaving;   /* the daemon makes way */
	uint64_t leave_ms; /* and is killed then; 0: it was, or makes no way */
};

enum outcome { DIED, TOO_LATE };

/* --- the end -----------------------------------------------------------------------------------*/

static void close_once(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* Ends what a daemon has left mounted, in a process of its own, since what is around the mount may
 * hang. As long as the connections are open here, nothing else can have the mounts' numbers. */
static void abandon(struct supervisor *s)
{
	struct heritage *heritage = s->heritage;
	int above = s->options->options->above_fd;
	uint64_t until_ms = clock_now_ms() + ABANDON_MS;
	pid_t child = fork();

	if (child == 0) {
		watchdog_leave();
		session_abandon(&heritage->files.session, s->parts[OVERLAY_FILES],
				heritage->is_native ? -1 : above);
		session_abandon(&heritage->overlay.control, s->parts[OVERLAY_CONTROL], -1);
		overlay_abandon_heritage(&heritage->overlay, s->parts[OVERLAY_FILE_SYSTEM], above);
		_exit(0);
	}
	while (child > 0 && !waitpid(child, NULL, WNOHANG) && clock_now_ms() < until_ms)
		clock_sleep_us(10000);
}

__attribute__((noreturn)) static void give_up(struct supervisor *s, const char *why)
{
	log_say(LOG_ERRORS, "%s: %s is unmounted, and readers get errors", why,
		s->options->options->mount_point);
	if (!s->is_reaped)
		kill(s->daemon, SIGKILL);
	abandon(s);
	watchdog_act();
	exit(1);
}

/* The daemon died before its mount answered. If it has ended by itself, it has said why. */
__attribute__((noreturn)) static void fail_to_start(struct supervisor *s)
{
	if (!s->is_reaped || !WIFEXITED(s->status))
		give_up(s, "the daemon died before it was ready");
	watchdog_stop();
	exit(WEXITSTATUS(s->status));
}

static void reap(struct supervisor *s);

/* The daemon has ended, as it had said. Threads of it may be stuck in the kernel, which only it had
 * to wait for. */
__attribute__((noreturn)) static void finish(struct supervisor *s)
{
	uint64_t until_ms = clock_now_ms() + LINGER_MS;

	for (; !s->is_reaped && clock_now_ms() < until_ms; reap(s))
		clock_sleep_us(1000);
	if (s->is_aborted)
		exit(1);
	if (!s->is_reaped || !WIFEXITED(s->status))
		give_up(s, "the daemon died while it ended");
	watchdog_stop();
	exit(WEXITSTATUS(s->status));
}

/* --- what happens ------------------------------------------------------------------------------*/

static void repeat_requests(const struct supervisor *s)
{
	for (enum overlay_part part = OVERLAY_FILES; part <= OVERLAY_CONTROL; part++)
		if (s->parts[part] >= 0)
			(void)session_repeat(s->parts[part]);
}

/* A thread of a dead daemon may have been reading a request when the successor had them repeated.
 * Once the process is gone, all of them can be. */
static void reap(struct supervisor *s)
{
	if (!s->is_reaped && waitpid(s->daemon, &s->status, WNOHANG) == s->daemon)
		s->is_reaped = true;
	for (unsigned i = s->stuck_count; i-- > 0;) {
		if (!waitpid(s->stuck[i], NULL, WNOHANG))
			continue;
		s->stuck[i] = s->stuck[--s->stuck_count];
		if (s->is_ready)
			repeat_requests(s);
		else
			s->repeat_due = true;
	}
}

static void take_part(struct supervisor *s, const struct note *note, int fd)
{
	close_once(&s->parts[note->part]);
	s->parts[note->part] = fd;
	if (fd >= 0 && note->mount.id)
		watchdog_add(note->part == OVERLAY_FILES ? WATCHDOG_FILES : WATCHDOG_CONTROL,
			     &note->mount);
}

static void say_history(const struct heritage *heritage, char *text, size_t room)
{
	uint64_t takeovers = atomic_load(&heritage->takeovers);
	uint64_t upgrades = atomic_load(&heritage->upgrades);
	char upgraded[64] = "", taken_over[64] = "";

	if (upgrades)
		snprintf(upgraded, sizeof(upgraded), "upgraded %" PRIu64 " times; ", upgrades);
	if (takeovers)
		snprintf(taken_over, sizeof(taken_over), "taken over %" PRIu64 " times; ",
			 takeovers);
	snprintf(text, room, "%s%s%s", taken_over, upgraded, heritage->status);
}

static void become_ready(struct supervisor *s)
{
	const struct heritage *heritage = s->heritage;
	char text[sizeof(heritage->status) + 128];

	s->is_ready = true;
	s->since_ms = clock_now_ms();
	s->ready_ms = 0;
	close_once(&s->options->options->mount_fd); /* or what it is in would be busy */
	if (s->was_ready) {
		say_history(heritage, text, sizeof(text));
		systemd_status(text);
	} else {
		systemd_ready(heritage->status);
	}
	s->was_ready = true;
	if (s->repeat_due)
		repeat_requests(s);
	s->repeat_due = false;
}

/* A connection ends when its last descriptor is closed, and that is to be the daemon's. The lock is
 * kept: nobody else may clean up what the daemon is about to remove. */
static void begin_to_end(struct supervisor *s)
{
	s->ending = true;
	if (!s->end_ms)
		s->end_ms = clock_now_ms() + END_MS;
	for (enum overlay_part part = 0; part < OVERLAY_PARTS; part++)
		if (part != OVERLAY_LOCK)
			close_once(&s->parts[part]);
	close_once(&s->options->options->source_fd);
	systemd_stopping();
}

/* --- upgrades ----------------------------------------------------------------------------------*/

/* All that another program needs to go on. */
static struct handover describe(const struct supervisor *s)
{
	struct handover handover = { .supervisor = s->own,
				     .estate = estate_place(s->options->estate),
				     .watchdog = watchdog_place(),
				     .stuck_count = s->stuck_count,
				     .repeat_due = s->repeat_due,
				     .ready_ms = s->ready_ms,
				     .end_ms = s->end_ms };

	memcpy(handover.parts, s->parts, sizeof(handover.parts));
	memcpy(handover.deaths_ms, s->deaths_ms, sizeof(handover.deaths_ms));
	memcpy(handover.stuck, s->stuck, sizeof(handover.stuck));
	options_hand_over(s->options->options, &handover);
	return handover;
}

static bool can_repeat(const struct supervisor *s)
{
	return atomic_load(&s->heritage->can_notice) &&
	       session_can_repeat(&s->heritage->files.session);
}

/* Why there can be no upgrade now, whatever the new file is. NULL: there can. */
static const char *find_hindrance(const struct supervisor *s)
{
	const struct options *options = s->options->options;

	if (!can_repeat(s))
		return "this kernel cannot repeat requests (Linux 6.9 and later can), so unmount "
		       "and mount again instead";
	if (s->ending || s->end_ms)
		return "the mount is about to end";
	if (s->check.pid || s->is_leaving)
		return "another upgrade is under way";
	if (options->again.is_elsewhere)
		return "it was mounted into another mount namespace, where the program's name may "
		       "mean another file, so unmount and mount again instead";
	if (!options->again.program || options->again.word_count > HANDOVER_WORDS)
		return "it is not known how the program was started, so unmount and mount again "
		       "instead";
	return NULL;
}

/* Whoever asked may be dead by now. */
static void tell_verdict(struct supervisor *s, bool leaves, const char *why)
{
	struct verdict verdict = { .leaves = leaves };

	snprintf(verdict.why, sizeof(verdict.why), "%s", why);
	if (!leaves)
		log_say(LOG_ERRORS, "no upgrade of %s: %s", s->options->options->mount_point, why);
	if (s->channel >= 0)
		(void)channel_send(s->channel, &verdict, sizeof(verdict), -1);
}

static void begin_upgrade(struct supervisor *s)
{
	const char *hindrance = find_hindrance(s);
	struct handover handover;
	char why[UPGRADE_WHY];

	s->upgrade_due = !s->is_ready;
	if (s->upgrade_due)
		return;
	if (hindrance) {
		tell_verdict(s, false, hindrance);
		return;
	}
	handover = describe(s);
	if (check_start(&s->check, &handover, why))
		tell_verdict(s, false, why);
}

static void look_at_upgrade(struct supervisor *s)
{
	const char *program = s->options->options->again.program;
	char why[UPGRADE_WHY];
	enum check_result result = CHECK_RUNS;

	if (s->check.pid)
		result = check_look(&s->check, program, why);
	if (result == CHECK_REFUSED) {
		tell_verdict(s, false, why);
	} else if (result == CHECK_PASSED && (s->ending || s->end_ms)) {
		check_end(&s->check);
		tell_verdict(s, false, "the mount is about to end");
	} else if (result == CHECK_PASSED) {
		log_say(LOG_WARNINGS, "%s becomes version %s of %s",
			s->options->options->mount_point, why, program);
		s->is_leaving = true;
		s->leave_ms = clock_now_ms() + LEAVE_MS;
		tell_verdict(s, true, why);
	}
	/* Its successor has the requests that it had. */
	if (s->leave_ms && clock_now_ms() >= s->leave_ms) {
		log_say(LOG_WARNINGS, "the daemon does not make way: it is killed");
		s->leave_ms = 0;
		kill(s->daemon, SIGKILL);
	}
}

/* Returns if that fails, and then everything is as before. */
static void become_new_program(struct supervisor *s)
{
	struct handover handover = describe(s);
	int rc = upgrade_become(&s->check, &handover, s->options->options->again.shown);

	log_say(LOG_ERRORS, "%s cannot be started: %s; the running version goes on",
		s->options->options->again.program, strerror(-rc));
}

/* --- notes and signals -------------------------------------------------------------------------*/

static void take_note(struct supervisor *s, const struct note *note, int fd)
{
	switch (note->kind) {
	case NOTE_KEEP:
		if (!s->ending)
			take_part(s, note, fd);
		else if (fd >= 0)
			close(fd);
		break;
	case NOTE_WATCH:
		close_once(&s->sentinel);
		s->sentinel = fd;
		break;
	case NOTE_READY:
		become_ready(s);
		if (s->upgrade_due)
			begin_upgrade(s);
		break;
	case NOTE_UPGRADE:
		begin_upgrade(s);
		break;
	case NOTE_ENDING:
		begin_to_end(s);
		break;
	case NOTE_ABORT:
		s->is_aborted = true;
		watchdog_act();
		break;
	}
}

static void take_notes(struct supervisor *s)
{
	struct note note;
	int fd;

	while (channel_receive(s->channel, &note, sizeof(note), &fd))
		take_note(s, &note, fd);
}

/* Whoever wants an end tells the process that was started. */
static void take_signals(struct supervisor *s)
{
	struct signalfd_siginfo info;

	while (read(s->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			continue;
		if (!s->is_reaped)
			kill(s->daemon, (int)info.ssi_signo);
		if (!s->end_ms)
			s->end_ms = clock_now_ms() + END_MS;
	}
	reap(s);
}

/* --- waiting -----------------------------------------------------------------------------------*/

/* In milliseconds; -1: for ever. */
static int time_left(const struct supervisor *s)
{
	const uint64_t ends[] = { s->ready_ms, s->end_ms, s->check.until_ms, s->leave_ms };
	uint64_t now_ms = clock_now_ms(), until_ms = 0;

	for (unsigned i = 0; i < sizeof(ends) / sizeof(*ends); i++)
		if (ends[i] && (!until_ms || ends[i] < until_ms))
			until_ms = ends[i];
	if (!until_ms)
		return -1;
	return until_ms > now_ms ? (int)(until_ms - now_ms) : 0;
}

static bool is_too_late(const struct supervisor *s)
{
	uint64_t now_ms = clock_now_ms();

	return (s->ready_ms && s->ready_ms <= now_ms) || (s->end_ms && s->end_ms <= now_ms);
}

/* Threads of a killed process may be stuck in the kernel, and then the process cannot be reaped: so
 * the death of one thread counts, which never is. Another one may run for a moment longer, on
 * another processor: without being reaped, the process is taken for dead only after a while. */
static void wait_for_reaping(struct supervisor *s)
{
	uint64_t until_ms = clock_now_ms() + REAP_MS, now_ms;

	kill(s->daemon, SIGKILL);
	while (!s->is_reaped && (now_ms = clock_now_ms()) < until_ms) {
		struct pollfd polled = { .fd = s->signals, .events = POLLIN };

		(void)poll(&polled, 1, (int)(until_ms - now_ms));
		take_signals(s);
	}
}

static enum outcome watch(struct supervisor *s)
{
	for (;;) {
		struct pollfd polled[] = { { .fd = s->signals, .events = POLLIN },
					   { .fd = s->sentinel, .events = POLLIN },
					   { .fd = s->channel, .events = POLLIN },
					   { .fd = s->check.output, .events = POLLIN } };
		bool is_dead;

		if (poll(polled, 4, time_left(s)) < 0)
			continue;
		take_signals(s);
		is_dead = polled[1].revents && !s->is_reaped;
		if (is_dead)
			wait_for_reaping(s);
		take_notes(s); /* all that it has said before */
		if (polled[2].revents & POLLHUP)
			close_once(&s->channel); /* or poll() would not wait any more */
		if (is_dead || s->is_reaped)
			return DIED;
		look_at_upgrade(s);
		if (is_too_late(s))
			return TOO_LATE;
	}
}

/* --- daemons -----------------------------------------------------------------------------------*/

static int to_supervisor = -1; /* a daemon's channel */

/* What a daemon inherits, and does not need. */
static void become_daemon(struct supervisor *s, int channel, struct succession *succession)
{
	sigset_t blocked;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != s->own)
		_exit(1); /* it was dead before that */
	prctl(PR_SET_NAME, "shadefs-daemon");
	to_supervisor = channel;
	close(s->signals);
	watchdog_leave();
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGCHLD);
	sigprocmask(SIG_UNBLOCK, &blocked, NULL);
	*succession = (struct succession){ .is_successor = s->was_ready, .supervisor = s->own };
	memcpy(succession->parts, s->parts, sizeof(succession->parts));
}

/* True: the caller is the daemon. */
static bool fork_daemon(struct supervisor *s, struct succession *succession)
{
	int ends[2];

	if (channel_open(ends))
		give_up(s, "no channel for a daemon");
	s->daemon = fork();
	if (s->daemon == 0) {
		close(ends[0]);
		become_daemon(s, ends[1], succession);
		return true;
	}
	close(ends[1]);
	s->channel = ends[0];
	s->is_reaped = s->daemon < 0;
	if (s->daemon < 0)
		give_up(s, "no process for a daemon");
	return false;
}

/* If what the daemon inherits or what is repeated to it kills it, it dies at once, and so will all
 * that follow. Others may die as often as they do: readers get on meanwhile. */
static bool is_too_often(struct supervisor *s)
{
	if (s->is_ready && clock_now_ms() - s->since_ms >= STEADY_MS)
		return false;
	memmove(s->deaths_ms + 1, s->deaths_ms, sizeof(s->deaths_ms) - sizeof(*s->deaths_ms));
	s->deaths_ms[0] = clock_now_ms();
	return s->deaths_ms[DEATHS - 1] && s->deaths_ms[0] - s->deaths_ms[DEATHS - 1] < DEATHS_MS;
}

static void judge_death(struct supervisor *s)
{
	if (s->is_reaped && WIFEXITED(s->status))
		give_up(s, "the daemon has ended");
	if (!can_repeat(s))
		give_up(s, "the daemon died, and this kernel cannot repeat requests");
	if (s->end_ms)
		give_up(s, "the daemon died while it ended");
	if (is_too_often(s))
		give_up(s, "the daemon died several times within a few seconds");
}

/* Returns if there is to be a successor. */
static void judge(struct supervisor *s, enum outcome outcome)
{
	if (outcome == TOO_LATE)
		give_up(s, s->end_ms ? "the daemon does not end"
				     : "the daemon was not taken over in time");
	if (s->ending)
		finish(s);
	if (!s->was_ready)
		fail_to_start(s);
	if (!s->is_leaving)
		judge_death(s);
	if (!s->is_reaped && s->stuck_count == STUCK_MAX)
		give_up(s, "dead daemons cannot end");
}

static void note_death(struct supervisor *s)
{
	atomic_fetch_add(&s->heritage->takeovers, 1);
	if (s->is_reaped)
		log_say(LOG_ERRORS, "the daemon died of signal %d: another one takes over",
			WTERMSIG(s->status));
	else
		log_say(LOG_ERRORS, "the daemon died: another one takes over");
	check_end(&s->check); /* nobody waits for it any more */
}

static void prepare_successor(struct supervisor *s)
{
	if (!s->is_leaving)
		note_death(s);
	if (!s->is_reaped)
		s->stuck[s->stuck_count++] = s->daemon;
	close_once(&s->channel);
	close_once(&s->sentinel);
	s->is_ready = s->upgrade_due = false;
	s->ready_ms = clock_now_ms() + READY_MS + estate_bytes(s->options->estate) / READY_BYTES;
	s->leave_ms = 0;
	if (s->is_leaving)
		become_new_program(s);
	if (s->is_leaving)
		check_end(&s->check);
	s->is_leaving = false;
}

static void begin(struct supervisor *s, const struct supervisor_options *options)
{
	sigset_t wanted;

	*s = (struct supervisor){ .options = options,
				  .heritage = estate_front(options->estate),
				  .own = getpid(),
				  .channel = -1,
				  .sentinel = -1,
				  .is_reaped = true };
	for (enum overlay_part part = 0; part < OVERLAY_PARTS; part++)
		s->parts[part] = -1;
	check_init(&s->check);
	sigemptyset(&wanted);
	sigaddset(&wanted, SIGINT);
	sigaddset(&wanted, SIGTERM);
	sigaddset(&wanted, SIGHUP);
	sigaddset(&wanted, SIGCHLD);
	sigprocmask(SIG_BLOCK, &wanted, NULL);
	s->signals = signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC);
	if (s->signals < 0)
		give_up(s, "no descriptor for signals");
}

/* Returns in each successor. */
static void supervise(struct supervisor *s, struct succession *succession)
{
	do {
		judge(s, watch(s));
		prepare_successor(s);
	} while (!fork_daemon(s, succession));
	estate_inherit(s->options->estate);
}

void supervisor_run(const struct supervisor_options *options, struct succession *succession)
{
	static struct supervisor s;

	(void)watchdog_start(); /* without it a killed daemon may keep its readers waiting */
	begin(&s, options);
	if (fork_daemon(&s, succession))
		return;
	options->forked(options->context);
	supervise(&s, succession);
}

/* Signals that came meanwhile still wait. */
static void go_on(struct supervisor *s, const struct handover *handover)
{
	memcpy(s->parts, handover->parts, sizeof(s->parts));
	memcpy(s->deaths_ms, handover->deaths_ms, sizeof(s->deaths_ms));
	memcpy(s->stuck, handover->stuck, sizeof(s->stuck));
	s->stuck_count = handover->stuck_count;
	s->repeat_due = handover->repeat_due;
	s->ready_ms = handover->ready_ms;
	s->end_ms = handover->end_ms;
	s->was_ready = true;
	watchdog_take(&handover->watchdog);
	handover_keep_open(handover, false);
	upgrade_has_begun();
	prctl(PR_SET_NAME, "shadefs"); /* started by a descriptor, it has no name */
	atomic_fetch_add(&s->heritage->upgrades, 1);
}

void supervisor_go_on(const struct supervisor_options *options, const struct handover *handover,
		      struct succession *succession)
{
	static struct supervisor s;

	begin(&s, options);
	go_on(&s, handover);
	if (fork_daemon(&s, succession)) {
		estate_inherit(options->estate);
		return;
	}
	if (s.end_ms)
		kill(s.daemon, SIGTERM); /* its predecessor was told */
	supervise(&s, succession);
}

/* --- the daemon's side -------------------------------------------------------------------------*/

static void tell(const struct note *note, int fd)
{
	int rc = channel_send(to_supervisor, note, sizeof(*note), fd);

	if (rc)
		log_say(LOG_ERRORS, "the supervisor cannot be told: %s", strerror(-rc));
}

void supervisor_keep(enum overlay_part part, int fd, const struct mount *mount)
{
	struct note note = { .kind = NOTE_KEEP, .part = part };

	if (mount)
		note.mount = *mount;
	tell(&note, fd);
}

/* Asks the kernel for nothing that could keep it: it dies at once when the process is killed. */
static void be_sentinel(void *argument)
{
	const struct note note = { .kind = NOTE_WATCH };
	int fd = (int)syscall(SYS_pidfd_open, gettid(), THREAD_PIDFD);

	(void)argument;
	if (fd >= 0) {
		tell(&note, fd);
		close(fd);
	}
	for (;;)
		pause();
}

int supervisor_watch(void)
{
	static struct thread thread;
	int fd = (int)syscall(SYS_pidfd_open, gettid(), THREAD_PIDFD);

	if (fd < 0)
		return -errno;
	close(fd);
	return thread_start(&thread, "shade-sentinel", be_sentinel, NULL);
}

void supervisor_ready(void)
{
	tell(&(struct note){ .kind = NOTE_READY }, -1);
}

void supervisor_ending(void)
{
	tell(&(struct note){ .kind = NOTE_ENDING }, -1);
}

void supervisor_abort(void)
{
	tell(&(struct note){ .kind = NOTE_ABORT }, -1);
}

/* Answers to what nobody waits for any more are left out. */
static bool wait_for_verdict(struct verdict *verdict)
{
	uint64_t until_ms = clock_now_ms() + UPGRADE_CHECK_MS + LEAVE_MS, now_ms;
	int fd;

	while ((now_ms = clock_now_ms()) < until_ms) {
		struct pollfd polled = { .fd = to_supervisor, .events = POLLIN };

		(void)poll(&polled, 1, (int)(until_ms - now_ms));
		if (channel_receive(to_supervisor, verdict, sizeof(*verdict), &fd))
			return true;
	}
	return false;
}

int supervisor_upgrade(char *why, size_t room)
{
	struct verdict verdict;
	int fd;

	while (channel_receive(to_supervisor, &verdict, sizeof(verdict), &fd))
		;
	tell(&(struct note){ .kind = NOTE_UPGRADE }, -1);
	if (!wait_for_verdict(&verdict))
		verdict = (struct verdict){ .why = "the supervisor does not answer" };
	snprintf(why, room, "%s", verdict.why);
	return verdict.leaves ? 0 : -ENOEXEC;
}
