/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * slowfs: a slow and faulty remote for tests and demos. It shows a directory through FUSE,
 * read-only, with delays, limited bandwidth and faults on demand, and it counts what is
 * asked of it. All of that is set with -o, or live through the file .slowfs in the root of
 * the mount (control.c has its language).
 *
 * Reading order: this file; ops*.c, the FUSE handlers; pace.c, time; arm.c, seeks; rule.c, faults;
 * node.c and source.c, the files behind; watch.c, the end.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arm.h"
#include "handle.h"
#include "node.h"
#include "ops.h"
#include "pace.h"
#include "setting.h"
#include "source.h"
#include "watch.h"

#define EXIT_USAGE 2

struct options {
	bool foreground;
	bool allow_other;
	const char *source;
	char mountpoint[PATH_MAX];
};

static void print_usage(FILE *out)
{
	fputs("usage: slowfs [-f] [-o OPTION[,OPTION...]] SOURCE MOUNTPOINT\n"
	      "  -f                 stay in the foreground\n"
	      "  -o delay_us=N      microseconds that each open of a file takes longer\n"
	      "  -o read_delay_us=N microseconds that each read request takes longer\n"
	      "  -o meta_delay_us=N microseconds that each lookup, getattr, readdir takes longer\n"
	      "  -o bandwidth=N     bytes a second over all reads (K, M, G; 0: no limit)\n"
	      "  -o seek_us=N       microseconds that one disk arm needs to a file that is not "
	      "next,\n"
	      "                     by inode, in the directory of the one that was read last\n"
	      "  -o pass_us=N       microseconds to pass over a file of that directory instead, "
	      "if\n"
	      "                     that is sooner (0: the arm does not)\n"
	      "  -o timeout=SECONDS how long the kernel may keep names and attributes (0)\n"
	      "  -o direct_io=0     let the kernel keep the data of a file until its next open\n"
	      "  -o keep_cache=1    and beyond it, as long as the kernel has room\n"
	      "  -o allow_other     let other users in, by the modes of the files\n"
	      "MOUNTPOINT/.slowfs shows counters, settings and faults, and takes lines of text:\n"
	      "  set OPTION VALUE; fault KIND[,count=N][,after=BYTES] PATH; watch PATH;\n"
	      "  clear PATH; clear all; reset (the counters)\n"
	      "  KIND: eio estale short hang change eioopen estaleopen hangopen, or once-KIND\n",
	      out);
}

static int parse_option(struct options *options, char *text)
{
	char *name = strsep(&text, "=");
	enum setting setting;
	uint64_t value;
	int ret;

	if (!text && !strcmp(name, "allow_other")) {
		options->allow_other = true;
		return 0;
	}
	ret = setting_parse(name, text ? text : "", &setting, &value);
	if (ret == -ENOENT)
		fprintf(stderr, "slowfs: there is no option %s.\n", name);
	else if (ret)
		fprintf(stderr, "slowfs: the option %s cannot be '%s'.\n", name, text ? text : "");
	else
		setting_store(setting, value);
	return ret;
}

/* The full path, since a daemon changes its directory. FUSE would take a file as well, and
 * make a mount of it that nobody can use. */
static int find_mountpoint(struct options *options, const char *text)
{
	struct stat st;

	if (!realpath(text, options->mountpoint) || stat(options->mountpoint, &st))
		fprintf(stderr, "slowfs: cannot mount on %s: %s.\n", text, strerror(errno));
	else if (!S_ISDIR(st.st_mode))
		fprintf(stderr, "slowfs: cannot mount on %s: %s.\n", text, strerror(ENOTDIR));
	else
		return 0;
	return EXIT_FAILURE;
}

/* Returns 0, or the exit status after a message, or -1 if the program has done its work. */
static int parse_arguments(struct options *options, int argc, char **argv)
{
	char *option;
	int letter;

	while ((letter = getopt(argc, argv, "fho:")) != -1) {
		switch (letter) {
		case 'f':
			options->foreground = true;
			break;
		case 'h':
			print_usage(stdout);
			return -1;
		case 'o':
			while ((option = strsep(&optarg, ",")))
				if (parse_option(options, option))
					return EXIT_USAGE;
			break;
		default:
			print_usage(stderr);
			return EXIT_USAGE;
		}
	}
	if (argc - optind != 2) {
		print_usage(stderr);
		return EXIT_USAGE;
	}
	options->source = argv[optind];
	return find_mountpoint(options, argv[optind + 1]);
}

static struct fuse_session *new_session(const struct options *options)
{
	char name[] = "slowfs", flag[] = "-o";
	/* The modes of the files must keep strangers out, since the server will not. */
	char mount[] = "fsname=slowfs,subtype=slowfs,allow_other,default_permissions";
	char *argv[] = { name, flag, mount, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(3, argv);
	struct fuse_session *session;

	if (!options->allow_other)
		*strstr(mount, ",allow_other") = '\0';
	session = fuse_session_new(&args, ops_table(), sizeof(*ops_table()), NULL);
	fuse_opt_free_args(&args);
	return session;
}

/* libfuse would stop at 10 threads, and so at 10 requests that wait. */
static int run_loop(struct fuse_session *session)
{
	struct fuse_loop_config *config = fuse_loop_cfg_create();
	int ret;

	if (!config)
		return -ENOMEM;
	fuse_loop_cfg_set_max_threads(config, OPS_THREADS);
	ret = fuse_session_loop_mt(session, config);
	fuse_loop_cfg_destroy(config);
	return ret;
}

/* Mounts and serves until the end. Returns the exit status. */
static int serve(const struct options *options, int ready_fd)
{
	struct fuse_session *session;
	struct watch *watch;
	int status = EXIT_FAILURE, ended;

	watch_block_signals();
	session = new_session(options);
	if (!session) {
		fprintf(stderr, "slowfs: cannot start a FUSE session.\n");
		return EXIT_FAILURE;
	}
	if (fuse_session_mount(session, options->mountpoint)) {
		fprintf(stderr, "slowfs: cannot mount on %s.\n", options->mountpoint);
		goto destroy;
	}
	watch = watch_start(session, options->mountpoint, ready_fd);
	if (!watch)
		goto unmount;
	ended = run_loop(session);
	/* An abort while a request is being taken: as good an end as any. */
	if (ended < 0 && ended != -ECONNABORTED)
		fprintf(stderr, "slowfs: the FUSE session broke.\n");
	else
		status = EXIT_SUCCESS;
	if (!watch_stop(watch))
		status = EXIT_FAILURE;
unmount:
	fuse_session_unmount(session);
destroy:
	fuse_session_destroy(session);
	return status;
}

/* The parent leaves when the mount answers, or with the child's failure. */
static int wait_for_child(int ready_fd, pid_t child)
{
	char byte;
	int status;

	if (read(ready_fd, &byte, 1) == 1)
		return EXIT_SUCCESS;
	if (waitpid(child, &status, 0) != child || !WIFEXITED(status))
		fprintf(stderr, "slowfs: the background process died.\n");
	return EXIT_FAILURE;
}

static int serve_in_background(const struct options *options)
{
	int ready[2];
	pid_t child;

	if (pipe2(ready, O_CLOEXEC)) {
		fprintf(stderr, "slowfs: cannot make a pipe: %s.\n", strerror(errno));
		return EXIT_FAILURE;
	}
	child = fork();
	if (child < 0) {
		fprintf(stderr, "slowfs: cannot go to the background: %s.\n", strerror(errno));
		return EXIT_FAILURE;
	}
	if (child) {
		close(ready[1]);
		return wait_for_child(ready[0], child);
	}
	close(ready[0]);
	setsid();
	if (chdir("/"))
		return EXIT_FAILURE;
	return serve(options, ready[1]);
}

/* Each open file of a client is one here, and short delays should be kept to. */
static void prepare_process(void)
{
	struct rlimit files;

	if (!getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	prctl(PR_SET_TIMERSLACK, 1);
}

int main(int argc, char **argv)
{
	struct options options = { .foreground = false };
	int ret;

	ret = parse_arguments(&options, argc, argv);
	if (ret)
		return ret < 0 ? EXIT_SUCCESS : ret;
	ret = source_init(options.source);
	if (ret) {
		fprintf(stderr, "slowfs: cannot show %s: %s.\n", options.source, strerror(-ret));
		return EXIT_FAILURE;
	}
	ret = pace_init();
	if (ret) {
		fprintf(stderr, "slowfs: cannot tell the time: %s.\n", strerror(-ret));
		return EXIT_FAILURE;
	}
	prepare_process();
	ret = options.foreground ? serve(&options, -1) : serve_in_background(&options);
	handle_free_all();
	node_destroy();
	arm_destroy();
	rule_destroy();
	pace_destroy();
	source_destroy();
	return ret;
}
