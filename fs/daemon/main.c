/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * shadefs: begin and end.
 *
 * The process that is started becomes the supervisor, and forks the daemon, which is what this file
 * is about. If they run in the background, their parent waits until the mount answers and prints
 * the result. At the end the cache is stopped first, which answers all requests that wait while
 * there are still sessions to take the answers; only then everything is unmounted.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/threads.h"
#include "daemon/background.h"
#include "daemon/format.h"
#include "daemon/handover.h"
#include "daemon/heritage.h"
#include "daemon/options.h"
#include "daemon/scan.h"
#include "daemon/supervisor.h"
#include "daemon/upgrade.h"
#include "fuse/session.h"
#include "native/overlay.h"

#define DEPTH 64	/* fetches at a time */
#define END_MS 15000	/* for a clean end */
#define ABANDON_MS 3000 /* for an unmount if that fails */

/* The later ones have the last word. */
enum end { END_NOT_WANTED, END_FOR_SUCCESSOR, END_OF_MOUNT };

struct daemon {
	struct options options;
	struct estate *estate;
	struct heritage *heritage; /* the estate's front */
	bool is_successor;	   /* both are a dead daemon's */
	struct succession succession;
	struct store *store;
	struct cache *cache;
	struct control *control;
	struct files *files;
	struct overlay *overlay; /* NULL: portable mode */
	struct scan *scan;
	struct predict *predict; /* NULL: off */
	struct thread signals;
	char why[512]; /* mode=auto took portable: the reason */
	int report;    /* a pipe to the parent; -1: the daemon runs in the foreground */
	_Atomic bool is_upgrading;

	struct lock end_lock;
	struct cond end_changed;
	enum end end_wanted; /* end_lock */
	bool ended;	     /* end_lock: nothing is left that could hang */
	bool abandoned;	     /* end_lock: what there was is unmounted, or cannot be */
};

/* --- the end -----------------------------------------------------------------------------------*/

static void want(struct daemon *daemon, enum end end)
{
	lock_acquire(&daemon->end_lock);
	if (daemon->end_wanted < end)
		daemon->end_wanted = end;
	cond_wake_all(&daemon->end_changed);
	lock_release(&daemon->end_lock);
}

static void want_end(void *context)
{
	want(context, END_OF_MOUNT);
}

/* At least that one. */
static enum end wait_for_end(struct daemon *daemon, enum end least)
{
	enum end end;

	lock_acquire(&daemon->end_lock);
	while (daemon->end_wanted < least)
		cond_wait(&daemon->end_changed, &daemon->end_lock);
	end = daemon->end_wanted;
	lock_release(&daemon->end_lock);
	return end;
}

/* What is at hand is answered; what waits for the source comes again, to the successor. Nothing
 * else has to end in order: a successor can go on from any moment. */
static void make_way(struct daemon *daemon)
{
	if (daemon->overlay)
		overlay_pause(daemon->overlay);
	else
		files_pause(daemon->files);
	if (wait_for_end(daemon, END_FOR_SUCCESSOR) == END_FOR_SUCCESSOR)
		_exit(0);
}

/* Does nothing: SIGUSR1 only ends a system call of the thread that gets it. */
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

/* The main thread sends SIGTERM to this one if the end has another reason. */
static void wait_for_signal(void *daemon)
{
	sigset_t wanted;
	int signal;

	sigemptyset(&wanted);
	sigaddset(&wanted, SIGINT);
	sigaddset(&wanted, SIGTERM);
	sigaddset(&wanted, SIGHUP);
	sigwait(&wanted, &signal);
	want_end(daemon);
}

/* Unmounts even if threads still use it: the process ends soon. */
static void abandon(void *argument)
{
	struct daemon *daemon = argument;
	int root = -1;

	if (daemon->overlay)
		overlay_abandon(daemon->overlay);
	else
		root = files_reach(daemon->files);
	if (root >= 0)
		session_detach(root);
	lock_acquire(&daemon->end_lock);
	daemon->abandoned = true;
	cond_wake_all(&daemon->end_changed);
	lock_release(&daemon->end_lock);
}

/* Whether `flag`, one of end_lock, is set before that much time has passed. */
static bool wait_for(struct daemon *daemon, const bool *flag, uint64_t ms)
{
	uint64_t until_ms = clock_now_ms() + ms;
	bool set;

	lock_acquire(&daemon->end_lock);
	while (!*flag && cond_wait_until(&daemon->end_changed, &daemon->end_lock, until_ms))
		;
	set = *flag;
	lock_release(&daemon->end_lock);
	return set;
}

/* A source that hangs may keep threads in the kernel, where nothing reaches them. Whoever uses the
 * mount, or waits for its end, is not to wait for the source, too. The connections are
 * ended after the unmount, since nothing tells that a connection is ours once it has ended it. */
static void limit_the_end(void *argument)
{
	struct daemon *daemon = argument;
	struct thread thread;

	if (wait_for(daemon, &daemon->ended, END_MS))
		return;
	log_say(LOG_ERRORS, "the source does not answer: ended without waiting for it");
	/* Where the mount is may hang as well. */
	if (!thread_start(&thread, "shade-abandon", abandon, daemon))
		(void)wait_for(daemon, &daemon->abandoned, ABANDON_MS);
	supervisor_abort();
	_exit(1);
}

/* --- the beginning -----------------------------------------------------------------------------*/

static void say_size(char *text, size_t room, uint64_t bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	double value = (double)bytes;
	unsigned unit = 0;

	for (; value >= 1024 && unit < 4; unit++)
		value /= 1024;
	snprintf(text, room, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

/* The pipe to the parent ends when nobody has it any more. */
static void forget_report(void *context)
{
	struct daemon *daemon = context;

	if (daemon->report < 0)
		return;
	close(daemon->report);
	daemon->report = -1;
	background_close_terminal();
}

/* What the mount is, in a line; the caller frees it. NULL: no memory. */
static char *describe(struct daemon *daemon)
{
	const struct options *options = &daemon->options;
	char size[32], *line;

	say_size(size, sizeof(size), options->capacity_bytes);
	if (asprintf(&line, "%s on %s: capacity %s (%s), policy %s, mode %s%s%s%s\n",
		     options->source, options->mount_point, size, options->capacity_from,
		     options->policy, daemon->overlay ? "native" : "portable",
		     *daemon->why ? " (" : "", daemon->why, *daemon->why ? ")" : "") < 0)
		line = NULL;
	snprintf(daemon->heritage->status, sizeof(daemon->heritage->status), "%s",
		 line ? line : "");
	return line;
}

/* The mount answers: tells the parent, or whoever reads standard output. The supervisor knows
 * already, so whoever has read this can rely on a successor. */
static void greet(struct daemon *daemon, const char *line)
{
	ssize_t written = 0;

	if (line)
		/* The parent knows by the 0 at the end that the mount answers. */
		written = write(daemon->report >= 0 ? daemon->report : STDOUT_FILENO, line,
				strlen(line) + (daemon->report >= 0));
	(void)written;
	forget_report(daemon);
}

/* Tells the parent, which waits, or standard error why there is no mount. All processes exit
 * with 1. */
__attribute__((noreturn)) static void give_up(struct daemon *daemon, const char *what, int rc,
					      const char *why)
{
	if (!why || !*why)
		why = strerror(-rc);
	if (daemon->is_successor)
		log_say(LOG_ERRORS, "%s: %s", what, why);
	else
		dprintf(daemon->report >= 0 ? daemon->report : STDERR_FILENO, "shadefs: %s: %s\n",
			what, why);
	exit(1);
}

/* --- what control needs of the daemon ----------------------------------------------------------*/

static void print_config(void *context, FILE *out)
{
	const struct daemon *daemon = context;
	struct options now = daemon->options;
	struct cache_stats stats;

	fprintf(out, "version %s # program\n", format_program());
	cache_get_stats(daemon->cache, &stats);
	if (stats.capacity_bytes != now.capacity_bytes)
		now.capacity_from = "control";
	if (strcmp(stats.policy, now.policy))
		now.policy_from = "control";
	now.capacity_bytes = stats.capacity_bytes;
	now.policy = stats.policy;
	options_print(&now, out);
}

static uint64_t memory_bytes(void *context)
{
	const char *which;

	(void)context;
	return options_memory(&which);
}

static void rescan(void *context)
{
	scan_want(((struct daemon *)context)->scan);
}

static void catch_up(void *context)
{
	struct daemon *daemon = context;

	if (daemon->overlay)
		overlay_catch_up(daemon->overlay);
}

static uint64_t accesses_lost(void *context)
{
	const struct daemon *daemon = context;

	return daemon->overlay ? overlay_accesses_lost(daemon->overlay) : 0;
}

/* A request that is repeated has been handled by a daemon that died meanwhile. */
static int upgrade(void *context, char *why, size_t room)
{
	struct daemon *daemon = context;
	bool is_first = !atomic_exchange(&daemon->is_upgrading, true);
	int rc = -ENOEXEC;

	if (session_is_repeated())
		snprintf(why, room, "the daemon died meanwhile");
	else if (!is_first)
		snprintf(why, room, "another upgrade is under way");
	else
		rc = supervisor_upgrade(why, room);
	if (is_first)
		atomic_store(&daemon->is_upgrading, false);
	if (!rc)
		want(daemon, END_FOR_SUCCESSOR);
	return rc;
}

/* The kernel's first request says whether it can repeat others. */
static bool can_be_taken_over(const struct daemon *daemon)
{
	return atomic_load(&daemon->heritage->can_notice) &&
	       session_can_repeat(&daemon->heritage->files.session);
}

static void print_takeovers(const struct daemon *daemon, FILE *out, bool metrics)
{
	const struct heritage *heritage = daemon->heritage;
	struct control_figure count = { .kind = CONTROL_COUNTER,
					.name = "takeovers",
					.value = (double)atomic_load(&heritage->takeovers),
					.help = "Daemons that died and were taken over." };
	struct control_figure possible = { .kind = CONTROL_GAUGE,
					   .name = "takeover_possible",
					   .value = can_be_taken_over(daemon),
					   .help = "1 if a daemon that dies can be taken over." };

	struct control_figure upgrades = { .kind = CONTROL_COUNTER,
					   .name = "upgrades",
					   .value = (double)atomic_load(&heritage->upgrades),
					   .help = "Times that another version of shadefs went on "
						   "with the mount." };

	control_print_figure(out, metrics, &count);
	control_print_figure(out, metrics, &possible);
	control_print_figure(out, metrics, &upgrades);
}

/* What the source counts, and the tier. */
static void print_more(void *context, FILE *out, bool metrics)
{
	const struct daemon *daemon = context;
	struct control_figure life = { .kind = CONTROL_GAUGE,
				       .name = "source_gone",
				       .value = store_life(daemon->store),
				       .help = "1 if the source's file system has ended, 2 if "
					       "another is mounted there." };
	struct store_count counts[STORE_COUNTS_MAX];
	unsigned count = store_get_counts(daemon->store, counts, STORE_COUNTS_MAX);

	print_takeovers(daemon, out, metrics);
	control_print_figure(out, metrics, &life);
	for (unsigned i = 0; i < count; i++) {
		struct control_figure figure = { .kind = CONTROL_COUNTER,
						 .name = counts[i].name,
						 .value = (double)counts[i].value,
						 .help = counts[i].help };

		control_print_figure(out, metrics, &figure);
	}
	if (daemon->options.tier.url.seed_count)
		tier_print(daemon->store, out, metrics);
	predict_print(daemon->predict, out, metrics);
}

static void print_predictions(void *context, FILE *out)
{
	predict_print_trainings(((const struct daemon *)context)->predict, out);
}

static int create_control(struct daemon *daemon)
{
	static const struct control_hooks hooks = { .print_config = print_config,
						    .memory_bytes = memory_bytes,
						    .rescan = rescan,
						    .upgrade = upgrade,
						    .catch_up = catch_up,
						    .accesses_lost = accesses_lost,
						    .print_more = print_more,
						    .print_predictions = print_predictions };
	struct control_options options = { .cache = daemon->cache,
					   .estate = daemon->estate,
					   .heritage = &daemon->heritage->control,
					   .is_successor = daemon->is_successor,
					   .hooks = &hooks,
					   .context = daemon,
					   .inflight_bytes = daemon->options.inflight_bytes,
					   .grace_ms =
						   (uint64_t)(daemon->options.job_grace_s * 1000),
					   .owner = getuid(),
					   .has_group = daemon->options.group_name,
					   .group = daemon->options.group };

	return control_create(&daemon->control, &options);
}

/* --- the parts ---------------------------------------------------------------------------------*/

static int create_files(struct daemon *daemon)
{
	const struct options *o = &daemon->options;
	struct files_options options = { .cache = daemon->cache,
					 .store = daemon->store,
					 .control = daemon->control,
					 .source = o->source,
					 .staleness_s = o->staleness_s,
					 .allow_other = o->allow_other,
					 .noexec = o->noexec,
					 .workers = o->threads,
					 .heritage = &daemon->heritage->files,
					 .is_successor = daemon->is_successor,
					 .ended = want_end,
					 .context = daemon };

	return files_create(&daemon->files, &options);
}

static void flush(void *context)
{
	overlay_flush(((struct daemon *)context)->overlay);
}

static int create_scan(struct daemon *daemon)
{
	const struct options *o = &daemon->options;
	struct scan_options options = { .cache = daemon->cache,
					.store = daemon->store,
					.source = o->source,
					.manifest = o->manifest,
					.manifest_fd = o->manifest_fd,
					.staleness_ms = (uint64_t)(o->staleness_s * 1000),
					.flush = flush,
					.context = daemon };

	return scan_create(&daemon->scan, &options);
}

/* A fetch has a descriptor of its file, and so has each thread that asks the source for names. */
static unsigned depth_for_files(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= (rlim_t)4 * DEPTH)
		return DEPTH;
	return limit.rlim_cur > 40 ? (unsigned)(limit.rlim_cur - 24) / 4 : 4;
}

static void tick(void *context)
{
	struct daemon *daemon = context;

	control_tick(daemon->control);
	files_tick(daemon->files);
}

static void open_directory(struct daemon *daemon, unsigned depth)
{
	const struct options *o = &daemon->options;
	char source[64];
	int rc;

	snprintf(source, sizeof(source), "/proc/self/fd/%d", o->source_fd);
	rc = store_dir_open(&daemon->store, source, depth, daemon->estate);
	close(o->source_fd);
	if (rc)
		give_up(daemon, o->source, rc, NULL);
}

static void open_export(struct daemon *daemon, unsigned depth)
{
	const struct options *o = &daemon->options;
	struct nfs_options options = { .url = &o->url,
				       .name = o->source,
				       .nfs_port = (uint16_t)o->nfs_port,
				       .mount_port = (uint16_t)o->mount_port,
				       .connections = o->connections,
				       .identity = { o->uid, o->gid },
				       .depth = depth,
				       .deadline_ms = (uint64_t)(o->deadline_s * 1000),
				       .estate = daemon->estate };
	char why[512];
	int rc = store_nfs_open(&daemon->store, &options, why, sizeof(why));

	if (rc)
		give_up(daemon, o->source, rc, why);
}

static void start_cache(struct daemon *daemon)
{
	const struct options *o = &daemon->options;
	struct cache_options options = {
		.capacity_bytes = o->capacity_bytes,
		.inflight_bytes = o->inflight_bytes,
		.prefetch_bytes = o->prefetch_bytes,
		.staleness_ms = (uint64_t)(o->staleness_s * 1000),
		.deadline_ms = (uint64_t)(o->deadline_s * 1000),
		.readers = o->threads,
		.depth = depth_for_files(),
		.policy = o->policy,
		.estate = daemon->estate,
		.is_successor = daemon->is_successor,
		.tick = tick,
		.tick_context = daemon,
	};
	int rc;

	if (o->source_fd >= 0)
		open_directory(daemon, options.depth);
	else
		open_export(daemon, options.depth);
	rc = tier_open(&daemon->store, &o->tier);
	if (rc)
		give_up(daemon, "option tier", rc, NULL);
	rc = cache_create(&daemon->cache, daemon->store, &options);
	if (!rc)
		rc = create_control(daemon);
	if (!rc)
		rc = create_files(daemon);
	if (!rc)
		rc = cache_start(daemon->cache, &files_kernel, daemon->files);
	if (!rc)
		rc = create_scan(daemon);
	if (!rc)
		rc = predict_open(&daemon->predict, &o->predict, daemon->cache, daemon->control);
	if (rc)
		give_up(daemon, "starting the cache", rc, NULL);
}

/* --- mounts ------------------------------------------------------------------------------------*/

static void keep(void *context, enum overlay_part part, int fd, const struct mount *mount)
{
	(void)context;
	supervisor_keep(part, fd, mount);
}

static int mount_native(struct daemon *daemon)
{
	const struct options *o = &daemon->options;
	struct overlay_options options = { .files = daemon->files,
					   .cache = daemon->cache,
					   .store = daemon->store,
					   .control = daemon->control,
					   .source = o->source,
					   .mount_point = o->mount_point,
					   .directory = o->mount_fd,
					   .above = o->above_fd,
					   .staleness_s = o->staleness_s,
					   .allow_other = o->allow_other,
					   .noexec = o->noexec,
					   .owner = daemon->succession.supervisor,
					   .heritage = &daemon->heritage->overlay,
					   .keep = keep,
					   .ended = want_end,
					   .context = daemon };

	cache_set_observed(daemon->cache, true);
	control_set_mode(daemon->control, "native");
	if (daemon->is_successor)
		return overlay_take_over(&daemon->overlay, &options, daemon->succession.parts,
					 daemon->why, sizeof(daemon->why));
	return overlay_open(&daemon->overlay, &options, daemon->why, sizeof(daemon->why));
}

static int mount_portable(struct daemon *daemon)
{
	struct files_point point = { .path = daemon->options.mount_point,
				     .directory = daemon->options.mount_fd,
				     .above = daemon->options.above_fd,
				     .connection = daemon->succession.parts[OVERLAY_FILES] };
	int rc;

	cache_set_observed(daemon->cache, false);
	control_set_mode(daemon->control, "portable");
	rc = files_mount(daemon->files, &point, false);
	if (!rc && !daemon->is_successor)
		supervisor_keep(OVERLAY_FILES, files_connection(daemon->files),
				files_get_mount(daemon->files));
	return rc;
}

static void mount_all(struct daemon *daemon)
{
	bool must = !strcmp(daemon->options.mode, "native");
	int rc = -ENOTSUP;

	if (must || !strcmp(daemon->options.mode, "auto")) {
		rc = mount_native(daemon);
		if (rc && must)
			give_up(daemon, "mode=native", rc, daemon->why);
	}
	if (rc) {
		rc = mount_portable(daemon);
		if (rc)
			give_up(daemon, daemon->options.mount_point, rc, NULL);
	}
	close(daemon->options.mount_fd); /* or what it is in would be busy */
	assert(daemon->heritage);
	daemon->heritage->is_native = daemon->overlay;
}

static void take_over_all(struct daemon *daemon)
{
	int rc = daemon->heritage->is_native ? mount_native(daemon) : mount_portable(daemon);

	if (rc)
		give_up(daemon, "taking over", rc, daemon->why);
	cache_settle(daemon->cache);
}

static void unmount_all(struct daemon *daemon)
{
	if (daemon->overlay)
		overlay_close(daemon->overlay);
	else
		files_unmount(daemon->files);
}

/* --- serving -----------------------------------------------------------------------------------*/

static void start_threads(struct daemon *daemon)
{
	int rc = thread_start(&daemon->signals, "shade-signals", wait_for_signal, daemon);

	if (!rc)
		rc = scan_start(daemon->scan, daemon->overlay);
	if (!rc && daemon->predict)
		rc = predict_start(daemon->predict);
	if (rc) {
		unmount_all(daemon);
		give_up(daemon, "starting threads", rc, NULL);
	}
}

static void stop(struct daemon *daemon)
{
	struct thread limit;
	bool limited = !thread_start(&limit, "shade-end", limit_the_end, daemon);

	scan_stop(daemon->scan);
	predict_stop(daemon->predict);
	store_stop(daemon->store);
	cache_stop(daemon->cache);
	control_stop(daemon->control);
	predict_end(daemon->predict);
	unmount_all(daemon);
	control_close_all(daemon->control);
	thread_interrupt(&daemon->signals, SIGTERM);
	thread_join(&daemon->signals);
	scan_destroy(daemon->scan);
	cache_join(daemon->cache);
	store_close(daemon->store);
	lock_acquire(&daemon->end_lock);
	daemon->ended = true;
	cond_wake_all(&daemon->end_changed);
	lock_release(&daemon->end_lock);
	if (limited)
		thread_join(&limit);
}

/* In the daemon alone: the supervisor never gets here. */
static int serve(struct daemon *daemon)
{
	char *line;

	assert(daemon->heritage);
	options_keep_memory(&daemon->options);
	lock_init(&daemon->end_lock, LOCK_END);
	cond_init(&daemon->end_changed);
	atomic_store(&daemon->heritage->can_notice, !supervisor_watch());
	start_cache(daemon);
	if (daemon->is_successor)
		take_over_all(daemon);
	else
		mount_all(daemon);
	start_threads(daemon);
	line = daemon->is_successor ? NULL : describe(daemon);
	supervisor_ready();
	greet(daemon, line);
	free(line);

	if (wait_for_end(daemon, END_FOR_SUCCESSOR) == END_FOR_SUCCESSOR)
		make_way(daemon); /* returns if the mount is to end all the same */
	supervisor_ending();
	stop(daemon);
	overlay_free(daemon->overlay);
	files_destroy(daemon->files);
	control_destroy(daemon->control);
	predict_destroy(daemon->predict);
	cache_destroy(daemon->cache);
	options_free(&daemon->options);
	return 0;
}

static int run(struct daemon *daemon)
{
	struct supervisor_options options = { .options = &daemon->options,
					      .forked = forget_report,
					      .context = daemon };
	int rc = estate_create(&daemon->estate);

	if (rc)
		give_up(daemon, "memory for what outlives the daemon", rc, NULL);
	daemon->heritage = estate_front(daemon->estate);
	options.estate = daemon->estate;
	block_signals();
	supervisor_run(&options, &daemon->succession);
	daemon->is_successor = daemon->succession.is_successor;
	return serve(daemon);
}

/* The process was another version of the program, whose daemon has ended by now. */
static int go_on(struct daemon *daemon, const struct handover *handover, char **argv)
{
	struct supervisor_options options = { .options = &daemon->options, .context = daemon };
	int rc;

	options_take(&daemon->options, handover, argv);
	log_setup(daemon->options.log, !daemon->options.foreground);
	rc = estate_take(&daemon->estate, &handover->estate, false);
	if (rc == -EEXIST)
		upgrade_try_again(argv);
	daemon->is_successor = true;
	if (rc)
		give_up(daemon, "going on with what another version has left", rc, NULL);
	daemon->heritage = estate_front(daemon->estate);
	options.estate = daemon->estate;
	block_signals();
	supervisor_go_on(&options, handover, &daemon->succession);
	return serve(daemon);
}

int main(int argc, char **argv)
{
	static struct daemon daemon = { .report = -1 };
	const struct handover *handover;
	int report[2];
	pid_t child;

	background_open_files();
	if (upgrade_is_check(argc, argv))
		return upgrade_check(argv);
	handover = upgrade_inherited();
	if (handover)
		return go_on(&daemon, handover, argv);
	overlay_clean_up();
	options_parse(&daemon.options, argc, argv);
	if (daemon.options.foreground) {
		log_setup(daemon.options.log, false);
		return run(&daemon);
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
		return background_wait_for_child(report[0]);
	}
	close(report[0]);
	daemon.report = report[1];
	setsid();
	if (chdir("/"))
		perror("shadefs: chdir");
	log_setup(daemon.options.log, true);
	/* If the mount fails, libfuse prints why to standard error: the parent is to get that, too.
	 */
	dup2(report[1], STDERR_FILENO);
	return run(&daemon);
}
