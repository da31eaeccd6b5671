/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * shadectl: looks at and steers a mounted shadefs through the files below MNT/.shade. This file
 * has the verbs and options as tables; help and checks are made from them.
 */
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "call.h"
#include "fail.h"
#include "number.h"
#include "option.h"
#include "say.h"

#ifndef SHADE_VERSION
#error "the build says which version this is: -DSHADE_VERSION=..."
#endif

#define NO_LIMIT (-1)

/* Whether a verb needs to talk to the mount. */
enum need { NEEDS_MOUNT, TRIES_MOUNT, NEEDS_NO_MOUNT };

struct verb {
	const char *name;
	const char *words;   /* what follows MNT, for the help */
	const char *summary; /* one line */
	const char *options; /* letters of the option table */
	int most;	     /* words after MNT */
	enum need need;
	int (*run)(struct call *call);
};

static const struct verb verbs[] = {
	{ "status", "", "what the mount is and how it does", "", 0, NEEDS_MOUNT, verb_status },
	{ "stats", "[--json]", "all counters", "j", 0, NEEDS_MOUNT, verb_stats },
	{ "top", "[--once] [--interval S]", "a live screen; q quits", "1i", 0, NEEDS_MOUNT,
	  verb_top },
	{ "report", "[-o FILE]", "a page of HTML with charts, and what to change", "o", 0,
	  NEEDS_MOUNT, verb_report },
	{ "score", "SAMPLE VALUE | -f FILE", "sets the importance of samples", "f", 2, NEEDS_MOUNT,
	  verb_score },
	{ "order", "[EPOCH -f FILE]", "announces what an epoch will read, or prints what is ahead",
	  "f", 1, NEEDS_MOUNT, verb_order },
	{ "epoch", "[N]", "says that epoch N begins, or prints the current one", "", 1, NEEDS_MOUNT,
	  verb_epoch },
	{ "warm", "PATH... | -f LIST [-0] [--timeout S]", "makes files resident and waits for it",
	  "f0t", NO_LIMIT, NEEDS_MOUNT, verb_warm },
	{ "evict", "PATH... | -f LIST [-0]", "drops files from memory", "f0", NO_LIMIT, NEEDS_MOUNT,
	  verb_paths },
	{ "pin", "PATH... | -f LIST [-0]", "keeps files resident whatever else comes", "f0",
	  NO_LIMIT, NEEDS_MOUNT, verb_paths },
	{ "unpin", "PATH... | -f LIST [-0]", "lets them go again", "f0", NO_LIMIT, NEEDS_MOUNT,
	  verb_paths },
	{ "capacity", "[SIZE | N%]", "sets how much memory is used, or prints it in bytes", "", 1,
	  NEEDS_MOUNT, verb_capacity },
	{ "policy", "[NAME]", "sets who stays resident, or prints it", "", 1, NEEDS_MOUNT,
	  verb_policy },
	{ "rescan", "", "looks for files that are new at the source", "", 0, NEEDS_MOUNT,
	  verb_rescan },
	{ "forget", "[JOB]", "forgets what trainings that are gone have said, or what JOB has", "",
	  1, NEEDS_MOUNT, verb_forget },
	{ "upgrade", "", "has the installed version of shadefs go on with the mount", "", 0,
	  NEEDS_MOUNT, verb_upgrade },
	{ "umount", "[--lazy]", "unmounts, or says who keeps the mount busy", "l", 0,
	  NEEDS_NO_MOUNT, verb_umount },
	{ "debug", "", "prints what belongs into a bug report", "", 0, TRIES_MOUNT, verb_debug },
};

#define VERBS (sizeof(verbs) / sizeof(verbs[0]))

static const struct option option_table[] = {
	{ "file", required_argument, NULL, 'f' },
	{ "null", no_argument, NULL, '0' },
	{ "json", no_argument, NULL, 'j' },
	{ "once", no_argument, NULL, '1' },
	{ "interval", required_argument, NULL, 'i' },
	{ "timeout", required_argument, NULL, 't' },
	{ "lazy", no_argument, NULL, 'l' },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },
	{ "output", required_argument, NULL, 'o' },
	{ 0 },
};

static const char option_help[] =
	"  -f, --file FILE   take input from FILE, '-' is standard input: lines of SAMPLE VALUE\n"
	"                    (score), ids (order), or paths as in .shade/samples, a line each\n"
	"  -0, --null        paths in FILE are as they are and end with NUL (find -print0)\n"
	"  -o, --output FILE write the page to FILE instead of standard output\n"
	"      --json        print one JSON object\n"
	"      --once        print one screen and end\n"
	"      --interval S  seconds from screen to screen (1)\n"
	"      --timeout S   give up after S seconds\n"
	"      --lazy        detach now, and unmount when nobody uses it any more\n"
	"  -h, --help        print this, or of a verb its usage\n"
	"  -V, --version     print the version\n";

static void print_help(void)
{
	puts("usage: shadectl VERB MNT [...]\n"
	     "Looks at and steers the shadefs that is mounted at MNT.\n\nverbs:");
	for (size_t i = 0; i < VERBS; i++)
		printf("  %s MNT%s%s\n      %s\n", verbs[i].name, *verbs[i].words ? " " : "",
		       verbs[i].words, verbs[i].summary);
	printf("\noptions:\n%s", option_help);
	puts("\nPATH is absolute, relative to the current directory if that is below MNT, or\n"
	     "relative to MNT. SAMPLE is an id or a PATH. SIZE is in bytes or has a K, M, G or T.\n"
	     "Exit: 0 done, 1 failed, 2 wrong usage or input.");
}

static void print_usage(const struct verb *verb)
{
	printf("usage: shadectl %s MNT%s%s\n%s\n", verb->name, *verb->words ? " " : "", verb->words,
	       verb->summary);
}

static const struct verb *find_verb(const char *name)
{
	for (size_t i = 0; i < VERBS; i++)
		if (!strcmp(verbs[i].name, name))
			return &verbs[i];
	return NULL;
}

static double parse_seconds(const char *option, const char *text)
{
	double seconds;

	if (number_real(text, strlen(text), &seconds) || !(seconds >= 0.01 && seconds <= 1e7))
		fail("--%s takes seconds from 0.01 to 10000000, not '%s'", option, text);
	return seconds;
}

static void set_option(struct options *options, int letter)
{
	switch (letter) {
	case 'f':
		options->file = optarg;
		break;
	case '0':
		options->null = true;
		break;
	case 'j':
		options->json = true;
		break;
	case 'o':
		options->output = optarg;
		break;
	case '1':
		options->once = true;
		break;
	case 'i':
		options->interval = parse_seconds("interval", optarg);
		break;
	case 't':
		options->timeout = parse_seconds("timeout", optarg);
		break;
	case 'l':
		options->lazy = true;
		break;
	}
}

static void print_version(void)
{
	printf("shadectl %s\n", SHADE_VERSION);
}

/* ARGV[0] is the verb. Returns false if the call is already answered by help or version. */
static bool parse_options(const struct verb *verb, int argc, char **argv, struct options *options)
{
	int letter;

	while ((letter = option_next(argc, argv, ":f:o:0hV", option_table)) != -1) {
		if (letter == 'h') {
			print_usage(verb);
			return false;
		}
		if (letter == 'V') {
			print_version();
			return false;
		}
		if (!strchr(verb->options, letter))
			option_refuse(argv, option_table, letter);
		set_option(options, letter);
	}
	return true;
}

static int run_verb(const struct verb *verb, int argc, char **argv)
{
	struct call call = { .verb = verb->name, .options = { .interval = 1 } };
	int code;

	if (!parse_options(verb, argc, argv, &call.options))
		return EXIT_OK;
	if (optind == argc)
		return say(EXIT_USAGE, "%s needs a mount point: shadectl %s MNT %s", verb->name,
			   verb->name, verb->words);
	call.given_mount = argv[optind++];
	call.words = argv + optind;
	call.count = argc - optind;
	if (verb->most != NO_LIMIT && call.count > verb->most)
		return say(EXIT_USAGE, "%s takes no word '%s': shadectl %s MNT %s", verb->name,
			   call.words[verb->most], verb->name, verb->words);
	if (verb->need != NEEDS_NO_MOUNT) {
		call.mount_error = mount_open(call.given_mount, &call.mount);
		if (call.mount_error && verb->need == NEEDS_MOUNT)
			return call_say_no_mount(call.given_mount, call.mount_error);
	}
	code = verb->run(&call);
	mount_close(call.mount);
	return code;
}

/* A full disk or a closed pipe must not pass for success. */
static int finish(int code)
{
	if (fflush(stdout) || ferror(stdout))
		return say(EXIT_FAILED, "could not write the output: %s", strerror(errno));
	return code;
}

/* The mount namespace that a file stands for. 0, or -1 and errno. */
static int enter_namespace(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int rc = fd < 0 ? -1 : setns(fd, CLONE_NEWNS);

	if (fd >= 0)
		close(fd);
	return rc;
}

/* umount(8) calls us as umount.shadefs MNT [-flnrv] [-N NAMESPACE] [-t TYPE]. Only -l has a meaning
 * here: what is mounted is read-only, and no server of ours is waited for. */
static int run_umount_helper(int argc, char **argv)
{
	struct call call = { .verb = "umount" };
	int letter;

	while ((letter = getopt(argc, argv, ":flnrvN:t:")) != -1) {
		if (letter == 'l')
			call.options.lazy = true;
		else if (letter == 'N' && enter_namespace(optarg))
			return say(EXIT_FAILED, "namespace %s: %s", optarg, strerror(errno));
		else if (letter == '?' || letter == ':')
			return say(EXIT_USAGE, "-%c is not known, or needs a value", optopt);
	}
	if (argc - optind != 1)
		return say(EXIT_USAGE, "one mount point is needed");
	call.given_mount = argv[optind];
	return verb_umount(&call);
}

static bool is_umount_helper(const char *program)
{
	const char *slash = strrchr(program, '/');

	return !strcmp(slash ? slash + 1 : program, "umount.shadefs");
}

int main(int argc, char **argv)
{
	const struct verb *verb;

	/* Only LC_CTYPE is the user's, so that numbers keep their decimal point. */
	setlocale(LC_CTYPE, "");
	if (argc && is_umount_helper(argv[0]))
		return finish(run_umount_helper(argc, argv));
	if (argc < 2)
		return say(EXIT_USAGE, "say what to do: shadectl VERB MNT; shadectl --help lists "
				       "the verbs");
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		print_help();
		return finish(EXIT_OK);
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		print_version();
		return finish(EXIT_OK);
	}
	verb = find_verb(argv[1]);
	if (!verb)
		return say(EXIT_USAGE, "there is no verb '%s'; shadectl --help lists them",
			   argv[1]);
	return finish(run_verb(verb, argc - 1, argv + 1));
}
