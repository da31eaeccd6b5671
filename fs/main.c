/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * shadefs: begin and end.
 *
 * In the background the parent waits until the mount answers and prints what became of it.
 * A signal first stops the cache, which answers all that wait while there are still threads
 * to take the answers, and only then ends the session.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "front.h"

#define DEPTH 64 /* fetches at a time */

struct service {
	struct front front;
	pthread_t main_thread, signals, scanner, greeter;
	pthread_mutex_t stop_lock;
	bool stopped; /* stop_lock */
	int report;   /* where the parent listens; -1: in front */
};

/* --- the end
 * ------------------------------------------------------------------------------------------ */

static void stop_once(struct service *service)
{
	pthread_mutex_lock(&service->stop_lock);
	if (!service->stopped) {
		atomic_store(&service->front.stopping, true);
		cache_stop(service->front.cache);
		service->stopped = true;
	}
	pthread_mutex_unlock(&service->stop_lock);
}

static void wake_up(int signal)
{
	(void)signal;
}

/* Ends the session when a signal says so. The main thread sends SIGTERM to this one when the
 * session has ended by itself. */
static void *wait_for_signal(void *argument)
{
	struct service *service = argument;
	sigset_t wanted;
	int signal;

	sigemptyset(&wanted);
	sigaddset(&wanted, SIGINT);
	sigaddset(&wanted, SIGTERM);
	sigaddset(&wanted, SIGHUP);
	sigwait(&wanted, &signal);
	stop_once(service);
	fuse_session_exit(service->front.session);
	pthread_kill(service->main_thread, SIGUSR1);
	return NULL;
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

/* --- the beginning
 * --------------------------------------------------------------------------------------- */

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

/* Waits until the mount answers, and tells the parent or the terminal. */
static void *greet(void *argument)
{
	struct service *service = argument;
	const struct options *options = &service->front.options;
	char line[8192], size[32];
	struct stat stat_buffer;
	ssize_t written;
	int length;

	if (stat(options->mount_point, &stat_buffer))
		return NULL; /* ended already, and said why */
	say_size(size, sizeof(size), options->capacity_bytes);
	length = snprintf(line, sizeof(line),
			  "%s on %s: capacity %s (%s), policy %s, mode portable\n", options->source,
			  options->mount_point, size, options->capacity_from, options->policy);
	written =
		write(service->report >= 0 ? service->report : STDOUT_FILENO, line, (size_t)length);
	(void)written;
	if (service->report >= 0) {
		close(service->report);
		service->report = -1;
		close_terminal();
	}
	return NULL;
}

/* Numbers the samples, now and whenever somebody asks. */
static void *scan(void *argument)
{
	struct service *service = argument;
	struct front *front = &service->front;

	while (!atomic_load(&front->stopping)) {
		struct timespec moment = { .tv_nsec = 20000000 };
		int rc;

		if (!atomic_exchange(&front->scan_wanted, false)) {
			nanosleep(&moment, NULL);
			continue;
		}
		rc = cache_scan(front->cache, &front->stopping);
		if (rc && rc != -ECANCELED)
			log_say(LOG_ERRORS, "scanning %s: %s", front->options.source,
				strerror(-rc));
	}
	return NULL;
}

/* A process that waits tells its parent why it gives up; both exit with 1. */
__attribute__((noreturn)) static void give_up(struct service *service, const char *what, int rc)
{
	dprintf(service->report >= 0 ? service->report : STDERR_FILENO, "shadefs: %s: %s\n", what,
		strerror(-rc));
	exit(1);
}

static unsigned depth_for_files(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= 4 * DEPTH)
		return DEPTH;
	return limit.rlim_cur > 40 ? (unsigned)(limit.rlim_cur - 32) / 2 : 4;
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
	};
	int rc = store_open(&front->store, o->source, options.depth);

	if (rc)
		give_up(service, o->source, rc);
	rc = cache_create(&front->cache, front->store, &options);
	if (!rc)
		rc = cache_start(front->cache, &front_kernel, front);
	if (rc)
		give_up(service, "starting the cache", rc);
}

static void mount_session(struct service *service)
{
	struct front *front = &service->front;
	char options[8192];
	char program[] = "shadefs", flag[] = "-o";
	char *argv[] = { program, flag, options, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(3, argv);

	snprintf(options, sizeof(options), "default_permissions,subtype=shadefs,fsname=%.4000s%s",
		 front->options.source, front->options.allow_other ? ",allow_other" : "");
	/* Commas would end the name. */
	for (char *at = strstr(options, "fsname=") + 7; *at; at++)
		if (*at == ',' && strcmp(at, ",allow_other"))
			*at = '_';
	front->session = fuse_session_new(&args, &front_ops, sizeof(front_ops), front);
	if (!front->session || fuse_session_mount(front->session, front->options.mount_point))
		give_up(service, front->options.mount_point, errno ? -errno : -EIO);
	fuse_opt_free_args(&args);
}

static void start_threads(struct service *service)
{
	int rc = -pthread_create(&service->signals, NULL, wait_for_signal, service);

	if (!rc)
		rc = -pthread_create(&service->scanner, NULL, scan, service);
	if (!rc)
		rc = -pthread_create(&service->greeter, NULL, greet, service);
	if (rc)
		give_up(service, "starting threads", rc);
}

/* --- serving
 * ------------------------------------------------------------------------------------------------
 */

static int serve(struct service *service)
{
	struct front *front = &service->front;
	struct fuse_loop_config *config;
	int rc;

	block_signals();
	service->main_thread = pthread_self();
	pthread_mutex_init(&service->stop_lock, NULL);
	front->owner = getuid();
	atomic_store(&front->scan_wanted, true);
	start_cache(service);
	mount_session(service);
	start_threads(service);

	config = fuse_loop_cfg_create();
	fuse_loop_cfg_set_max_threads(config, front->options.threads);
	fuse_loop_cfg_set_idle_threads(config, front->options.threads);
	rc = fuse_session_loop_mt(front->session, config);
	fuse_loop_cfg_destroy(config);

	pthread_kill(service->signals, SIGTERM);
	pthread_join(service->signals, NULL);
	pthread_join(service->scanner, NULL);
	pthread_join(service->greeter, NULL);
	fuse_session_unmount(front->session);
	fuse_session_destroy(front->session);
	store_close(front->store);
	cache_destroy(front->cache);
	free(front->options.source);
	free(front->options.mount_point);
	return rc < 0 ? 1 : 0;
}

/* What the child reports is what the user sees; the mount answers if it is no error. */
static int wait_for_child(int report)
{
	char text[8192];
	size_t length = 0;
	ssize_t got;
	bool failed;

	while (length < sizeof(text) - 1 &&
	       (got = read(report, text + length, sizeof(text) - 1 - length)) > 0)
		length += (size_t)got;
	text[length] = 0;
	failed = !length || !strncmp(text, "shadefs: ", 9);
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
