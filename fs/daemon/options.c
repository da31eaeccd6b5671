/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A wrong option ends the daemon with give_up(), which exits with 1: that is what mount(8) expects
 * of a helper, while the other commands exit with 2. */
#include "daemon/options.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/format.h"
#include "daemon/handover.h"
#include "fail.h"
#include "number.h"
#include "shade/sched.h"
#include "size.h"

#define MEGABYTE ((uint64_t)1 << 20)
#define GIGABYTE 1073741824.0

/* --- values ------------------------------------------------------------------------------------*/

/* "8G", "512M" or "40%"; a share is of `whole`. 0 or -EINVAL. */
static int parse_size(const char *text, uint64_t whole, uint64_t *bytes)
{
	struct size size;

	if (size_parse(text, strlen(text), &size))
		return -EINVAL;
	*bytes = size.share > 0 ? (uint64_t)((double)whole * size.share) : size.bytes;
	return *bytes ? 0 : -EINVAL;
}

/* --- the values of each option -----------------------------------------------------------------*/

static double seconds(const char *name, const char *text)
{
	double value;

	if (number_real(text, strlen(text), &value) || !(value >= 0 && value <= 1e9))
		give_up("option %s takes seconds, not '%s'", name, text);
	return value;
}

static unsigned whole(const char *name, const char *text, uint64_t least, uint64_t most)
{
	uint64_t value;

	if (number_whole(text, strlen(text), &value) || value < least || value > most)
		give_up("option %s takes a number from %llu to %llu, not '%s'", name,
			(unsigned long long)least, (unsigned long long)most, text);
	return (unsigned)value;
}

/* Sizes depend on each other, so complete_sizes() parses them when all options are known. */
static void set_capacity(struct options *options, const char *text)
{
	options->raw.capacity = text;
}

static void set_inflight(struct options *options, const char *text)
{
	options->raw.inflight = text;
}

static void set_prefetch(struct options *options, const char *text)
{
	options->raw.prefetch = text;
}

static void set_policy(struct options *options, const char *text)
{
	for (unsigned i = 0; sched_policy_name(i); i++)
		if (!strcmp(sched_policy_name(i), text)) {
			options->policy = sched_policy_name(i);
			return;
		}
	give_up("option policy: there is no policy '%s'; shadefs --help lists them", text);
}

static void set_mode(struct options *options, const char *text)
{
	if (strcmp(text, "auto") && strcmp(text, "portable") && strcmp(text, "native"))
		give_up("option mode takes auto, native or portable, not '%s'", text);
	options->mode = text;
}

static void set_threads(struct options *options, const char *text)
{
	options->threads = whole("threads", text, 1, 1024);
}

/* In the background the daemon has another working directory. */
static void set_path(const struct options *options, char **path, const char *text)
{
	free(*path);
	if (*text == '/')
		*path = strdup(text);
	else if (asprintf(path, "%s/%s", options->directory, text) < 0)
		*path = NULL;
	if (!*path)
		give_up("out of memory");
}

static void set_manifest(struct options *options, const char *text)
{
	set_path(options, &options->manifest, text);
}

static void set_tier(struct options *options, const char *text)
{
	tier_set_url(&options->tier, text);
}

static void set_tier_key(struct options *options, const char *text)
{
	set_path(options, &options->tier.key_file, text);
}

static void set_tier_password(struct options *options, const char *text)
{
	set_path(options, &options->tier.password_file, text);
}

static void set_tier_timeout(struct options *options, const char *text)
{
	options->tier.timeout_s = seconds("tier_timeout", text);
	if (options->tier.timeout_s < 0.001)
		give_up("option tier_timeout takes at least 0.001 seconds");
}

static void set_volume(struct options *options, const char *text)
{
	tier_set_volume(&options->tier, text);
}

static void set_staleness(struct options *options, const char *text)
{
	options->staleness_s = seconds("staleness", text);
}

static void set_deadline(struct options *options, const char *text)
{
	options->deadline_s = seconds("deadline", text);
	if (options->deadline_s < 0.001)
		give_up("option deadline takes 0.001 seconds or more");
}

static void set_job_grace(struct options *options, const char *text)
{
	options->job_grace_s = seconds("job_grace", text);
}

static void set_predict(struct options *options, const char *text)
{
	predict_set_mode(&options->predict, text);
}

static void set_predict_seed(struct options *options, const char *text)
{
	predict_set_seeds(&options->predict, text);
}

static void set_uid(struct options *options, const char *text)
{
	options->uid = whole("uid", text, 0, UINT32_MAX);
}

static void set_gid(struct options *options, const char *text)
{
	options->gid = whole("gid", text, 0, UINT32_MAX);
}

static void set_nfsport(struct options *options, const char *text)
{
	options->nfs_port = whole("nfsport", text, 1, UINT16_MAX);
}

static void set_mountport(struct options *options, const char *text)
{
	options->mount_port = whole("mountport", text, 1, UINT16_MAX);
}

static void set_connections(struct options *options, const char *text)
{
	options->connections = whole("connections", text, 1, NFS_CONNECTIONS_MAX);
}

static void set_group(struct options *options, const char *text)
{
	struct group *group = getgrnam(text);

	if (!group)
		give_up("option group: there is no group '%s'", text);
	options->group_name = text;
	options->group = group->gr_gid;
}

static void set_allow_other(struct options *options, const char *text)
{
	(void)text;
	options->allow_other = true;
}

static void set_nonempty(struct options *options, const char *text)
{
	(void)text;
	options->nonempty = true;
}

static void set_log(struct options *options, const char *text)
{
	if (log_level_find(text, &options->log))
		give_up("option log takes error, warning, info or debug, not '%s'", text);
}

/* --- the table ------------------------------------------------------------------------------- */

#define SHOW(name, format, value)                                                                  \
	static void show_##name(const struct options *o, FILE *out)                                \
	{                                                                                          \
		fprintf(out, format, value);                                                       \
	}

SHOW(capacity, "%llu", (unsigned long long)o->capacity_bytes)
SHOW(inflight, "%llu", (unsigned long long)o->inflight_bytes)
SHOW(prefetch, "%llu", (unsigned long long)o->prefetch_bytes)
SHOW(policy, "%s", o->policy)
SHOW(mode, "%s", o->mode)
SHOW(threads, "%u", o->threads)
SHOW(manifest, "%s", o->manifest ? o->manifest : "-")
SHOW(staleness, "%g", o->staleness_s)
SHOW(deadline, "%g", o->deadline_s)
SHOW(job_grace, "%g", o->job_grace_s)
SHOW(predict, "%s", o->predict.off ? "off" : "auto")
SHOW(group, "%s", o->group_name ? o->group_name : "-")
SHOW(allow_other, "%d", o->allow_other)
SHOW(nonempty, "%d", o->nonempty)
SHOW(uid, "%u", o->uid)
SHOW(gid, "%u", o->gid)
SHOW(nfsport, "%u", o->nfs_port)
SHOW(mountport, "%u", o->mount_port)
SHOW(connections, "%u", o->connections)
SHOW(log, "%s", log_level_name(o->log))
SHOW(tier_key, "%s", o->tier.key_file ? o->tier.key_file : "-")
SHOW(tier_password, "%s", o->tier.password_file ? o->tier.password_file : "-")
SHOW(tier_timeout, "%g", o->tier.timeout_s)
SHOW(volume, "%s", o->tier.volume ? o->tier.volume : "-")

static void show_tier(const struct options *options, FILE *out)
{
	tier_show_url(&options->tier, out);
}

static void show_predict_seed(const struct options *options, FILE *out)
{
	predict_show_seeds(&options->predict, out);
}

static const struct row {
	const char *name;
	const char *value; /* in --help; NULL: takes none */
	void (*set)(struct options *options, const char *text);
	void (*show)(const struct options *options, FILE *out);
	const char *help[2];
} rows[] = {
	{ "capacity",
	  "SIZE|N%",
	  set_capacity,
	  show_capacity,
	  { "memory for files: 8G, or a share of RAM or of the cgroup's",
	    "limit, whichever is less (default 40%)" } },
	{ "inflight",
	  "SIZE|N%",
	  set_inflight,
	  show_inflight,
	  { "the part of it for files being fetched (default a quarter of",
	    "the capacity, at most 256M)" } },
	{ "prefetch",
	  "SIZE|N%",
	  set_prefetch,
	  show_prefetch,
	  { "files fetched ahead of a known order (default as inflight)" } },
	{ "policy",
	  "NAME",
	  set_policy,
	  show_policy,
	  { "which files stay in memory, see below (default shade)" } },
	{ "mode",
	  "MODE",
	  set_mode,
	  show_mode,
	  { "native (root), portable, or auto: native where it works,",
	    "else portable (default auto)" } },
	{ "threads",
	  "N",
	  set_threads,
	  show_threads,
	  { "requests that may wait for the source at a time (default 64)" } },
	{ "manifest",
	  "FILE",
	  set_manifest,
	  show_manifest,
	  { "the file that keeps the list of files from mount to mount" } },
	{ "staleness",
	  "SECONDS",
	  set_staleness,
	  show_staleness,
	  { "how old names and versions may be (default 3600)" } },
	{ "deadline",
	  "SECONDS",
	  set_deadline,
	  show_deadline,
	  { "how long a file or a directory may take to be fetched (default 30)" } },
	{ "job_grace",
	  "SECONDS",
	  set_job_grace,
	  show_job_grace,
	  { "how long a training may be gone before its job ends (default 60)" } },
	{ "predict",
	  "auto|off",
	  set_predict,
	  show_predict,
	  { "recognise the shuffles of loaders that announce nothing" } },
	{ "predict_seed",
	  "N[:N...]",
	  set_predict_seed,
	  show_predict_seed,
	  { "more seeds to try, besides 0 to 1000 and 1234" } },
	{ "group",
	  "NAME",
	  set_group,
	  show_group,
	  { "who may use .shade besides the user who mounts" } },
	{ "allow_other",
	  NULL,
	  set_allow_other,
	  show_allow_other,
	  { "other users may read, as far as permissions let them" } },
	{ "nonempty",
	  NULL,
	  set_nonempty,
	  show_nonempty,
	  { "the mount point may have files, which the mount hides" } },
	{ "uid",
	  "N",
	  set_uid,
	  show_uid,
	  { "nfs://: who asks the server (default the user who mounts)" } },
	{ "gid", "N", set_gid, show_gid, { "nfs://: and in which group (default theirs)" } },
	{ "nfsport",
	  "PORT",
	  set_nfsport,
	  show_nfsport,
	  { "nfs://: where the server listens (default 2049)" } },
	{ "mountport",
	  "PORT",
	  set_mountport,
	  show_mountport,
	  { "nfs://: and its mount daemon (default: its portmapper is asked)" } },
	{ "connections",
	  "N",
	  set_connections,
	  show_connections,
	  { "nfs://: connections to the server (default 4)" } },
	{ "tier",
	  "redis://HOST:PORT",
	  set_tier,
	  show_tier,
	  { "a Redis Cluster, or one server, that all nodes share what",
	    "they have read in; more of its servers follow as ,HOST:PORT" } },
	{ "tier_key",
	  "FILE",
	  set_tier_key,
	  show_tier_key,
	  { "a secret that all nodes have: nobody else's values are taken" } },
	{ "tier_password",
	  "FILE",
	  set_tier_password,
	  show_tier_password,
	  { "the password of the tier, in a file" } },
	{ "tier_timeout",
	  "SECONDS",
	  set_tier_timeout,
	  show_tier_timeout,
	  { "how long the tier may take to answer (default 0.5)" } },
	{ "volume",
	  "NAME",
	  set_volume,
	  show_volume,
	  { "what all nodes that share a tier call the source" } },
	{ "log",
	  "LEVEL",
	  set_log,
	  show_log,
	  { "error, warning, info or debug (default warning)" } },
};

#define ROWS (sizeof(rows) / sizeof(rows[0]))

/* Options that mount(8) passes along and that mean nothing for a filesystem which is read-only and
 * has neither devices nor set-user-ID programs. */
static bool is_ignored(const char *name)
{
	static const char *const ignored[] = {
		"ro",	      "rw",	    "dev",	   "nodev",	    "suid",
		"nosuid",     "exec",	    "auto",	   "noauto",	    "user",
		"nouser",     "users",	    "owner",	   "_netdev",	    "nofail",
		"defaults",   "atime",	    "noatime",	   "diratime",	    "nodiratime",
		"relatime",   "norelatime", "strictatime", "nostrictatime", "lazytime",
		"nolazytime", "sync",	    "async",	   "dirsync",	    "mand",
		"nomand",     "iversion",   "noiversion",  "nosymfollow",   "silent",
		"loud"
	};

	for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
		if (!strcmp(ignored[i], name))
			return true;
	return !strncmp(name, "x-", 2) || !strncmp(name, "comment=", 8);
}

static void set_option(struct options *options, char *item)
{
	char *value = strchr(item, '=');

	if (!*item || is_ignored(item))
		return;
	if (!strcmp(item, "noexec")) {
		options->noexec = true;
		return;
	}
	if (value)
		*value++ = 0;
	for (size_t i = 0; i < ROWS; i++) {
		if (strcmp(rows[i].name, item))
			continue;
		if (rows[i].value && (!value || !*value))
			give_up("option %s needs a value: %s=%s", item, item, rows[i].value);
		if (!rows[i].value && value)
			give_up("option %s takes no value", item);
		options->given |= 1u << i;
		rows[i].set(options, value);
		return;
	}
	if (!options->sloppy)
		give_up("option %s is unknown; shadefs --help lists them", item);
}

/* The next option of a list. The value of tier= has commas itself. */
static char *next_item(char **rest)
{
	char *item = strsep(rest, ",");

	if (!item || strncmp(item, "tier=", 5) != 0)
		return item;
	while (*rest && tier_continues(*rest)) {
		(*rest)[-1] = ',';
		(void)strsep(rest, ",");
	}
	return item;
}

/* Parses a copy, so that ps(1) shows the command as it was given, but for passwords. Options point
 * into the copy. */
static void set_options(struct options *options, char *text)
{
	struct option_text *copy = malloc(sizeof(*copy) + strlen(text) + 1);
	char *rest, *item;

	if (!copy)
		give_up("out of memory");
	strcpy(copy->text, text);
	copy->next = options->texts;
	options->texts = copy;
	rest = copy->text;
	while ((item = next_item(&rest))) {
		tier_hide_password(item, text + (item - copy->text));
		set_option(options, item);
	}
}

/* --- defaults and checks -----------------------------------------------------------------------*/

static void size_option(const char *name, const char *text, uint64_t whole, uint64_t *bytes)
{
	if (text && parse_size(text, whole, bytes))
		give_up("option %s takes a size (8G, 512M) or a share (40%%), not '%s'", name,
			text);
}

/* Not refused: a table of mounts may be for many machines, of which one has less, and what the
 * kernel takes from memory costs speed alone. */
static void warn_of_memory(const struct options *options, uint64_t memory)
{
	const char *which;

	if (options->capacity_bytes <= memory)
		return;
	(void)options_memory(&which);
	fprintf(stderr,
		"shadefs: option capacity is %.1f GiB, more than the %.1f GiB of the %s: the "
		"kernel "
		"will take files from memory as it likes\n",
		(double)options->capacity_bytes / GIGABYTE, (double)memory / GIGABYTE, which);
}

static void complete_sizes(struct options *options)
{
	const char *capacity = options->raw.capacity;
	uint64_t memory = options_memory(&options->capacity_from);

	options->capacity_bytes = memory / 5 * 2;
	size_option("capacity", capacity, memory, &options->capacity_bytes);
	if (capacity && capacity[strlen(capacity) - 1] != '%')
		options->capacity_from = "option";
	if (options->capacity_bytes < MEGABYTE)
		give_up("option capacity is less than 1M");
	warn_of_memory(options, memory);
	options->inflight_bytes = options->capacity_bytes / 4;
	if (options->inflight_bytes > 256 * MEGABYTE)
		options->inflight_bytes = 256 * MEGABYTE;
	size_option("inflight", options->raw.inflight, options->capacity_bytes,
		    &options->inflight_bytes);
	if (options->inflight_bytes > options->capacity_bytes / 2)
		give_up("option inflight is more than half of the capacity");
	/* What is fetched ahead takes room from what is kept. */
	options->prefetch_bytes = options->inflight_bytes;
	size_option("prefetch", options->raw.prefetch, options->capacity_bytes,
		    &options->prefetch_bytes);
}

/* The server is not asked yet: the daemon does that. */
static void complete_url(struct options *options, const char *source)
{
	const char *wrong = nfs_url_parse(source, &options->url);

	if (wrong)
		give_up("source %s: %s", source, wrong);
	if (options->url.port && options->nfs_port && options->nfs_port != options->url.port)
		give_up("source %s has another port than the option nfsport", source);
	if (options->url.port)
		options->nfs_port = options->url.port;
	if (!options->nfs_port)
		options->nfs_port = NFS_PORT;
	options->source_fd = -1;
	options->source = strdup(source);
	if (!options->source)
		give_up("out of memory");
}

/* Options that mean nothing for a directory say so in --help. */
static bool is_of_nfs(const struct row *row)
{
	return nfs_url_is(row->help[0]);
}

static void complete_source(struct options *options, const char *source)
{
	if (nfs_url_is(source)) {
		complete_url(options, source);
		return;
	}
	for (size_t i = 0; i < ROWS; i++)
		if (is_of_nfs(&rows[i]) && options->given & 1u << i)
			give_up("option %s needs a source nfs://SERVER/EXPORT", rows[i].name);
	options->source_fd = paths_open("source", source);
	options->source = paths_name(options->source_fd);
}

/* All nodes that mount an export call it the same, unless they are told the server's name in
 * different ways: then volume= helps. */
static void complete_tier(struct options *options)
{
	char *volume = NULL;

	if (options->source_fd < 0 && asprintf(&volume, "%s:%u%s", options->url.server,
					       options->nfs_port, options->url.path) < 0)
		give_up("out of memory");
	tier_complete(&options->tier, volume);
	free(volume);
}

/* --- the command line --------------------------------------------------------------------------*/

static void print_help(void)
{
	puts("usage: shadefs [-f] [-o OPTION[,OPTION...]] SOURCE MOUNTPOINT\n"
	     "       shadefs --help | --version\n"
	     "\n"
	     "A read-only view of SOURCE whose files are kept in memory by importance.\n"
	     "  -f                  run in the foreground\n"
	     "\n"
	     "options:");
	for (size_t i = 0; i < ROWS; i++) {
		char left[64];

		snprintf(left, sizeof(left), "%s%s%s", rows[i].name, rows[i].value ? "=" : "",
			 rows[i].value ? rows[i].value : "");
		printf("  %-19s %s\n", left, rows[i].help[0]);
		if (rows[i].help[1])
			printf("  %-19s %s\n", "", rows[i].help[1]);
	}
	puts("\npolicies:");
	for (unsigned i = 0; sched_policy_name(i); i++)
		printf("  %-19s %s\n", sched_policy_name(i), sched_policy_summary(i));
}

/* mount -N: enters the mount namespace that a file stands for. */
static void enter_namespace(struct options *options, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || setns(fd, CLONE_NEWNS))
		give_up("namespace %s: %s", path, strerror(errno));
	close(fd);
	options->again.is_elsewhere = true;
}

/* mount(8) calls us as mount.TYPE SOURCE MOUNTPOINT [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE].
 * Its -f means that everything is to be done but the mount. */
static void take_flags(struct options *options, int argc, char **argv)
{
	const char *name = strrchr(argv[0], '/');
	bool by_mount = !strncmp(name ? name + 1 : argv[0], "mount.", 6);
	int c;

	while ((c = getopt(argc, argv, by_mount ? "fnsvN:o:t:" : "fnsvo:")) != -1) {
		if (c == 'f' && by_mount)
			options->fake = true;
		else if (c == 'f')
			options->foreground = true;
		else if (c == 's' && by_mount)
			options->sloppy = true;
		else if (c == 'N')
			enter_namespace(options, optarg);
		else if (c == 'o')
			set_options(options, optarg);
		else if (c == '?')
			exit(1);
	}
}

static void set_defaults(struct options *options)
{
	*options = (struct options){ .threads = 64,
				     .staleness_s = 3600,
				     .deadline_s = 30,
				     .job_grace_s = 60,
				     .policy = sched_policy_name(0),
				     .mode = "auto",
				     .connections = NFS_CONNECTIONS,
				     .uid = geteuid(),
				     .gid = getegid(),
				     .log = LOG_WARNINGS,
				     .tier.timeout_s = 0.5 };
}

/* A password goes from both while they are parsed. */
static void remember(struct options *options, char *const *words, unsigned count)
{
	const char *password = getenv(TIER_ENVIRONMENT);

	options->again.word_count = count;
	options->again.words = must(calloc(count + 1, sizeof(*options->again.words)));
	for (unsigned i = 0; i < count; i++)
		options->again.words[i] = must(strdup(words[i]));
	if (password)
		options->again.password = must(strdup(password));
}

void options_parse(struct options *options, int argc, char **argv)
{
	set_defaults(options);
	if (argc == 2 && !strcmp(argv[1], "--help")) {
		print_help();
		exit(0);
	}
	if (argc == 2 && !strcmp(argv[1], "--version")) {
		printf("shadefs %s\n", format_program());
		exit(0);
	}
	if (!getcwd(options->directory, sizeof(options->directory)))
		strcpy(options->directory, "/");
	remember(options, argv, (unsigned)argc);
	options->again.shown = argv;
	options->again.program = paths_program();
	take_flags(options, argc, argv);
	if (argc - optind != 2)
		give_up("SOURCE and MOUNTPOINT are needed; see shadefs --help");
	complete_sizes(options);
	complete_source(options, argv[optind]);
	paths_complete(options, argv[optind], argv[optind + 1]);
	complete_tier(options);
	if (options->fake)
		exit(0);
}

/* --- of a mount that another version has made --------------------------------------------------*/

static void take_names(struct options *options, const struct handover *handover, const char *source)
{
	if (nfs_url_is(source)) {
		complete_url(options, source);
	} else {
		options->source_fd = handover->source_fd;
		options->source = must(strdup(handover->source));
	}
	options->mount_fd = -1;
	options->mount_point = must(strdup(handover->mount_point));
	options->above_fd = handover->above_fd;
	options->manifest_fd = handover->manifest_fd;
}

void options_take(struct options *options, const struct handover *handover, char **argv)
{
	int count = (int)handover->word_count;
	char **words = must(calloc((size_t)count + 1, sizeof(*words)));

	set_defaults(options);
	if (handover->password && setenv(TIER_ENVIRONMENT, handover->password, true))
		give_up("out of memory");
	remember(options, (char *const *)handover->words, handover->word_count);
	/* Passwords go from the words that are parsed. */
	for (int i = 0; i < count; i++)
		words[i] = must(strdup(handover->words[i]));
	options->again.shown = argv;
	options->again.program = must(strdup(handover->program));
	snprintf(options->directory, sizeof(options->directory), "%s", handover->directory);
	take_flags(options, count, words);
	if (count - optind != 2)
		give_up("SOURCE and MOUNTPOINT are needed; see shadefs --help");
	complete_sizes(options);
	take_names(options, handover, words[optind]);
	complete_tier(options);
	for (int i = 0; i < count; i++)
		free(words[i]);
	free(words);
}

void options_hand_over(const struct options *options, struct handover *handover)
{
	handover->source_fd = options->source_fd;
	handover->above_fd = options->above_fd;
	handover->manifest_fd = options->manifest_fd;
	handover->program = options->again.program;
	handover->directory = options->directory;
	handover->source = options->source;
	handover->mount_point = options->mount_point;
	handover->password = options->again.password;
	handover->word_count = options->again.word_count;
	for (unsigned i = 0; i < options->again.word_count; i++)
		handover->words[i] = options->again.words[i];
}

void options_print(const struct options *options, FILE *out)
{
	fprintf(out, "source %s # command line\nmount_point %s # command line\n", options->source,
		options->mount_point);
	for (size_t i = 0; i < ROWS; i++) {
		const char *from = options->given & 1u << i ? "option" : "default";

		if (rows[i].show == show_capacity)
			from = options->capacity_from;
		else if (rows[i].show == show_policy && options->policy_from)
			from = options->policy_from;
		fprintf(out, "%s ", rows[i].name);
		rows[i].show(options, out);
		fprintf(out, " # %s\n", from);
	}
}

void options_free(struct options *options)
{
	struct option_text *text;

	while ((text = options->texts)) {
		options->texts = text->next;
		free(text);
	}
	for (unsigned i = 0; i < options->again.word_count; i++)
		free(options->again.words[i]);
	free(options->again.words);
	free(options->again.program);
	free(options->again.password);
	close(options->above_fd);
	free(options->source);
	free(options->mount_point);
	free(options->manifest);
	tier_free(&options->tier);
}
