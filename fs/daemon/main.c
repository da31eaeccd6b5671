/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * shadefs: begin and end.
 *
 * In the background the parent waits until the mount answers and prints what became of it.
 * At the end the cache is stopped first, which answers all that wait while there are still
 * threads to take the answers, and only then everything is unmounted.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/threads.h"
#include "daemon/daemon.h"
#include "daemon/systemd.h"
#include "daemon/watchdog.h"
#include "fuse/session.h"
#include "names/manifest.h"
#include "native/overlay.h"

#define DEPTH 64	   /* fetches at a time */
#define END_S 15	   /* for a clean end */
#define FLUSHES 3	   /* after news */
#define SCAN_AGAIN_MS 5000 /* after a scan that failed */
#define FLUSH_MS 1000	   /* between attempts to have the overlay forget old names */

struct service {
	struct front front;
	struct manifest_keeper manifest;
	struct thread signals, scanner;
	sem_t end;     /* posted by whoever knows that it is time */
	sem_t ended;   /* all is as it should be */
	char why[512]; /* mode=auto took portable: because of that */
	int report;    /* where the parent listens; -1: in front */
};

/* --- the end ------------------------------------------------------------------------------------
 */

static void end(struct front *front)
{
	sem_post(&((struct service *)((char *)front - offsetof(struct service, front)))->end);
}

static void wake_up(int signal)
{
	(void)signal;
}

static void block_signals(void)
{
	struct sigaction action = { .sa_handler = wake_up };
	sigset_t blocked;

	sigemptyset(&blocked);
	sigaddset(&blocked, SIGINT);
	sigaddset(&blocked, SIGTERM);
	sigaddset(&blocked, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &blocked, NULL);
	sigaction(SIGUSR1, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
}

/* The main thread sends SIGTERM to this one when it knows already. */
static void wait_for_signal(void *argument)
{
	struct service *service = argument;
	sigset_t wanted;
	int signal;

	sigemptyset(&wanted);
	sigaddset(&wanted, SIGINT);
	sigaddset(&wanted, SIGTERM);
	sigaddset(&wanted, SIGHUP);
	sigwait(&wanted, &signal);
	sem_post(&service->end);
}

/* --- the beginning ------------------------------------------------------------------------------
 */

static void say_size(char *text, size_t room, uint64_t bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	double value = (double)bytes;
	unsigned unit = 0;

	for (; value >= 1024 && unit < 4; unit++)
		value /= 1024;
	snprintf(text, room, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

/* From now on nobody listens at the terminal. */
static void close_terminal(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = 0; fd < 3 && null >= 0; fd++)
		dup2(null, fd);
	if (null > 2)
		close(null);
}

/* The mount answers: tells the parent or the terminal. */
static void greet(struct service *service)
{
	const struct options *options = &service->front.options;
	char size[32], *line = NULL;
	ssize_t written = 0;

	say_size(size, sizeof(size), options->capacity_bytes);
	if (asprintf(&line, "%s on %s: capacity %s (%s), policy %s, mode %s%s%s%s\n",
		     options->source, options->mount_point, size, options->capacity_from,
		     options->policy, front_mode(&service->front), *service->why ? " (" : "",
		     service->why, *service->why ? ")" : "") > 0)
		/* The parent knows by the 0 at its end that all is well. */
		written = write(service->report >= 0 ? service->report : STDOUT_FILENO, line,
				strlen(line) + (service->report >= 0));
	(void)written;
	notify_ready(line ? line : "");
	free(line);
	if (service->report >= 0) {
		close(service->report);
		service->report = -1;
		close_terminal();
	}
}

struct audit {
	uint64_t audited_ms, flushed_ms;
	unsigned flushes; /* that are due, ghosts or not */
};

/* In native mode nobody asks whether names are still right: they are looked at in time, so that
 * none is ever older than `staleness`, and at once if there is doubt. The overlay keeps names
 * that are in use: it is told again until they are not. It also remembers which names are not
 * there, and who may enter a directory; what is on its way while it is told, it may take for true
 * once more, so it is told again. */
static void audit(struct front *front, struct audit *audit)
{
	uint64_t now = clock_now_ms(), staleness = (uint64_t)(front->options.staleness_s * 1000);
	struct tree *tree = cache_tree(front->cache);

	if (tree_is_doubted(tree) || now - audit->audited_ms > staleness / 8) {
		(void)tree_refresh(tree, now, staleness / 2, &front->stopping);
		audit->audited_ms = now;
		audit->flushed_ms = 0;
	}
	if (tree_has_news(tree)) {
		audit->flushes = FLUSHES;
		audit->flushed_ms = 0;
	}
	if (now - audit->flushed_ms > FLUSH_MS && (audit->flushes || tree_ghosts(tree))) {
		native_flush(front);
		audit->flushed_ms = now;
		audit->flushes -= audit->flushes > 0;
	}
}

/* Numbers the samples, now and whenever somebody asks. */
static void scan(void *argument)
{
	struct service *service = argument;
	struct front *front = &service->front;
	struct audit state = { .audited_ms = clock_now_ms() };
	uint64_t retry_ms = UINT64_MAX; /* when the source may have recovered */
	bool again = false;

	while (!atomic_load(&front->stopping)) {
		struct timespec moment = { .tv_nsec = 20000000 };
		int rc = 0;

		if (front->native)
			audit(front, &state);
		if (!atomic_exchange(&front->scan_wanted, false) && clock_now_ms() < retry_ms) {
			nanosleep(&moment, NULL);
			continue;
		}
		retry_ms = UINT64_MAX;
		if (again)
			rc = tree_refresh(cache_tree(front->cache), clock_now_ms(), 0,
					  &front->stopping);
		again = true;
		if (!rc)
			rc = cache_scan(front->cache, &front->stopping);
		if (rc && rc != -ECANCELED) {
			log_say(LOG_ERRORS, "scanning %s: %s", front->options.source,
				strerror(-rc));
			retry_ms = clock_now_ms() + SCAN_AGAIN_MS;
		}
		if (!rc)
			manifest_save(&service->manifest, cache_tree(front->cache),
				      &front->stopping);
		(void)malloc_trim(0); /* tables have grown and left holes */
	}
}

/* A process that waits tells its parent why it gives up; both exit with 1. */
__attribute__((noreturn)) static void give_up(struct service *service, const char *what, int rc,
					      const char *why)
{
	dprintf(service->report >= 0 ? service->report : STDERR_FILENO, "shadefs: %s: %s\n", what,
		why ? why : strerror(-rc));
	guardian_stop();
	exit(1);
}

static unsigned depth_for_files(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= 4 * DEPTH)
		return DEPTH;
	return limit.rlim_cur > 40 ? (unsigned)(limit.rlim_cur - 32) / 2 : 4;
}

static void tick(void *context)
{
	shade_trace_tick(context, false);
}

static void start_cache(struct service *service)
{
	struct front *front = &service->front;
	const struct options *o = &front->options;
	struct cache_options options = {
		.capacity_bytes = o->capacity_bytes,
		.inflight_bytes = o->inflight_bytes,
		.prefetch_bytes = o->prefetch_bytes,
		.staleness_ms = (uint64_t)(o->staleness_s * 1000),
		.deadline_ms = (uint64_t)(o->deadline_s * 1000),
		.depth = depth_for_files(),
		.policy = o->policy,
		.tick = tick,
		.tick_context = front,
	};
	int rc = store_dir_open(&front->store, o->source, options.depth);

	if (rc)
		give_up(service, o->source, rc, NULL);
	front->acls = o->allow_other && store_acl(front->store, "", NULL, 0) != -EOPNOTSUPP;
	rc = cache_create(&front->cache, front->store, &options);
	if (!rc)
		rc = cache_start(front->cache, &front_kernel, front);
	if (rc)
		give_up(service, "starting the cache", rc, NULL);
	service->manifest.path = o->manifest;
	manifest_load(&service->manifest, cache_tree(front->cache));
}

static void files_ended(void *context)
{
	end(context);
}

static int mount_portable(struct front *front)
{
	struct channel_options options = { .ops = front_files_ops(false),
					   .context = front,
					   .source = front->options.source,
					   .mount_point = front->options.mount_point,
					   .allow_other = front->options.allow_other,
					   .noexec = front->options.noexec,
					   .workers = front->options.threads,
					   .may_wait = front_may_wait,
					   .ended = files_ended };

	front->files_path = front->options.mount_point;
	return channel_open(&front->files, &options);
}

static void mount_all(struct service *service)
{
	struct front *front = &service->front;
	bool must = !strcmp(front->options.mode, "native");
	int rc = -ENOTSUP;

	if (must || !strcmp(front->options.mode, "auto")) {
		cache_set_observed(front->cache, true);
		rc = native_open(front, service->why, sizeof(service->why));
		if (rc && must)
			give_up(service, "mode=native", rc, service->why);
	}
	if (rc) {
		cache_set_observed(front->cache, false);
		rc = mount_portable(front);
		if (rc)
			give_up(service, front->options.mount_point, rc, NULL);
	}
	guardian_add(front->files_path);
	if (front->native)
		guardian_add(front->control_path);
}

static void unmount_all(struct front *front)
{
	if (front->native)
		native_close(front);
	else
		channel_close(front->files);
}

/* --- serving ------------------------------------------------------------------------------------
 */

static void start_threads(struct service *service)
{
	int rc = thread_start(&service->signals, "shade-signals", wait_for_signal, service);

	if (!rc)
		rc = thread_start(&service->scanner, "shade-scan", scan, service);
	if (rc) {
		unmount_all(&service->front);
		give_up(service, "starting threads", rc, NULL);
	}
}

/* Buffers come and go: giving their pages back to the kernel each time costs more than reading
 * into them. What is kept is part of what `inflight` sets aside. */
static void keep_memory(const struct options *options)
{
	int bytes = options->inflight_bytes < INT_MAX ? (int)options->inflight_bytes : INT_MAX;

	mallopt(M_MMAP_THRESHOLD, 1 << 25);
	mallopt(M_TRIM_THRESHOLD, bytes);
}

/* A source that hangs may keep threads in the kernel, where nothing reaches them. Whoever uses the
 * mount, and whoever waits for the end of it, need not wait as long. */
static void limit_the_end(void *argument)
{
	struct service *service = argument;
	struct front *front = &service->front;
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += END_S;
	while (sem_clockwait(&service->ended, CLOCK_MONOTONIC, &until))
		if (errno == ETIMEDOUT) {
			log_say(LOG_ERRORS,
				"the source does not answer: ended without waiting for it");
			guardian_act();
			if (front->native)
				native_abandon(front);
			else
				channel_detach(front->options.mount_point);
			_exit(1);
		}
}

static int serve(struct service *service)
{
	struct front *front = &service->front;
	struct thread limit;
	bool limited;

	keep_memory(&front->options);

	block_signals();
	sem_init(&service->end, 0, 0);
	sem_init(&service->ended, 0, 0);
	lock_init(&front->flush_lock, LOCK_FLUSH);
	lock_init(&front->jobs_lock, LOCK_JOBS);
	lock_init(&front->trace_lock, LOCK_TRACE);
	front->owner = getuid();
	front->end = end;
	atomic_store(&front->scan_wanted, true);
	(void)guardian_start(); /* without it a killed daemon may keep its readers waiting */
	start_cache(service);
	mount_all(service);
	start_threads(service);
	greet(service);

	while (sem_wait(&service->end))
		;
	notify_stopping();
	atomic_store(&front->stopping, true);
	limited = !thread_start(&limit, "shade-end", limit_the_end, service);
	cache_stop(front->cache);
	shade_trace_tick(front, true);
	unmount_all(front);
	shade_close_all(front);
	thread_interrupt(&service->signals, SIGTERM);
	thread_join(&service->signals);
	thread_join(&service->scanner);
	store_close(front->store);
	sem_post(&service->ended);
	if (limited)
		thread_join(&limit);
	cache_destroy(front->cache);
	options_free(&front->options);
	guardian_stop();
	return 0;
}

/* What the child reports is what the user sees; the mount answers if it is no error. */
static int wait_for_child(int report)
{
	static char text[16384]; /* two paths fit */
	size_t length = 0;
	ssize_t got;
	bool failed;

	while (length < sizeof(text) - 1 &&
	       (got = read(report, text + length, sizeof(text) - 1 - length)) > 0)
		length += (size_t)got;
	text[length] = 0;
	failed = !memchr(text, 0, length); /* others may have spoken before the daemon did */
	if (!length)
		fputs("shadefs: the mount did not come up\n", stderr);
	fputs(text, failed ? stderr : stdout);
	return failed ? 1 : 0;
}

int main(int argc, char **argv)
{
	static struct service service = { .report = -1 };
	int report[2];
	pid_t child;

	native_clean_up();
	options_parse(&service.front.options, argc, argv);
	if (service.front.options.foreground) {
		log_setup(service.front.options.log, false);
		return serve(&service);
	}
	if (pipe2(report, O_CLOEXEC)) {
		perror("shadefs: pipe");
		return 1;
	}
	child = fork();
	if (child < 0) {
		perror("shadefs: fork");
		return 1;
	}
	if (child > 0) {
		close(report[1]);
		return wait_for_child(report[0]);
	}
	close(report[0]);
	service.report = report[1];
	setsid();
	if (chdir("/"))
		perror("shadefs: chdir");
	log_setup(service.front.options.log, true);
	/* libfuse speaks to standard error if the mount fails: let it, until it has. */
	dup2(report[1], STDERR_FILENO);
	return serve(&service);
}
