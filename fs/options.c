/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <grp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control_parse.h"
#include "shade/sched.h"

#define MEGABYTE ((uint64_t)1 << 20)

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("shadefs: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	exit(1);
}

/* --- values ------------------------------------------------------------------------------------
 */

/* "8G", "512M" or "40%"; a share is of `whole`. 0 or -EINVAL. */
static int parse_size(const char *text, uint64_t whole, uint64_t *bytes)
{
	double share;
	int rc = control_parse_size(text, bytes, &share);

	if (!rc && share > 0)
		*bytes = (uint64_t)((double)whole * share);
	return rc ? rc : *bytes ? 0 : -EINVAL;
}

/* The number in a file, or UINT64_MAX. */
static uint64_t read_limit(const char *path)
{
	unsigned long long value = UINT64_MAX;
	FILE *file = fopen(path, "r");

	if (!file)
		return UINT64_MAX;
	if (fscanf(file, "%llu", &value) != 1)
		value = UINT64_MAX; /* "max" */
	fclose(file);
	return value;
}

/* Of the cgroup that this process is in: version 2 has one hierarchy, "0::/path"; version 1
 * names the controller. Limits of the parents count, too. */
static uint64_t cgroup_limit(void)
{
	FILE *file = fopen("/proc/self/cgroup", "r");
	uint64_t least = UINT64_MAX;
	char line[4096];

	while (file && fgets(line, sizeof(line), file)) {
		bool v2 = !strncmp(line, "0::", 3);
		char *path = strchr(line, ':'), *controllers = path ? path + 1 : NULL;

		path = controllers ? strchr(controllers, ':') : NULL;
		if (!path || (!v2 && !strstr(controllers, "memory")))
			continue;
		path[strcspn(path, "\n")] = 0;
		for (path++; *path; *strrchr(path, '/') = 0) {
			char limit[8192];
			uint64_t value;

			snprintf(limit, sizeof(limit), "/sys/fs/cgroup%s%s/%s", v2 ? "" : "/memory",
				 strcmp(path, "/") ? path : "",
				 v2 ? "memory.max" : "memory.limit_in_bytes");
			value = read_limit(limit);
			least = value < least ? value : least;
		}
	}
	if (file)
		fclose(file);
	return least;
}

uint64_t options_memory(const char **which)
{
	uint64_t ram = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t limit = cgroup_limit();

	*which = limit < ram ? "cgroup limit" : "RAM";
	return limit < ram ? limit : ram;
}

/* --- the table -----------------------------------------------------------------------------------
 */

struct raw {
	const char *capacity, *inflight, *prefetch; /* they depend on each other */
};

static double seconds(const char *name, const char *text)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end || !(value >= 0 && value <= 1e9))
		fail("option %s takes seconds, not '%s'", name, text);
	return value;
}

static void set_threads(struct options *options, const char *text)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (!isdigit((unsigned char)*text) || *end || value < 1 || value > 1024)
		fail("option threads takes a number from 1 to 1024, not '%s'", text);
	options->threads = (unsigned)value;
}

static void set_policy(struct options *options, const char *text)
{
	for (unsigned i = 0; sched_policy_name(i); i++)
		if (!strcmp(sched_policy_name(i), text)) {
			options->policy = sched_policy_name(i);
			return;
		}
	fail("option policy: there is no policy '%s'; shadefs --help lists them", text);
}

static void set_mode(struct options *options, const char *text)
{
	if (!strcmp(text, "native"))
		fail("option mode: native is not there yet; use portable or auto");
	if (strcmp(text, "auto") && strcmp(text, "portable"))
		fail("option mode takes auto or portable, not '%s'", text);
	options->mode = text;
}

static void set_group(struct options *options, const char *text)
{
	struct group *group = getgrnam(text);

	if (!group)
		fail("option group: there is no group '%s'", text);
	options->group_name = text;
	options->group = group->gr_gid;
}

static void set_log(struct options *options, const char *text)
{
	if (log_level_find(text, &options->log))
		fail("option log takes error, warning, info or debug, not '%s'", text);
}

/* What mount(8) passes along and means nothing to a filesystem like this. */
static bool is_ignored(const char *name)
{
	static const char *const ignored[] = { "ro",	  "rw",	      "dev",	"nodev",
					       "suid",	  "nosuid",   "exec",	"noexec",
					       "auto",	  "noauto",   "user",	"nouser",
					       "users",	  "_netdev",  "nofail", "defaults",
					       "noatime", "relatime", "async" };

	for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
		if (!strcmp(ignored[i], name))
			return true;
	return !strncmp(name, "x-", 2);
}

static void set_option(struct options *options, struct raw *raw, char *name, const char *value)
{
	if (!strcmp(name, "allow_other") && !value)
		options->allow_other = true;
	else if (is_ignored(name) && !value)
		return;
	else if (!value)
		fail("option %s is unknown, or needs a value", name);
	else if (!strcmp(name, "capacity"))
		raw->capacity = value;
	else if (!strcmp(name, "inflight"))
		raw->inflight = value;
	else if (!strcmp(name, "prefetch"))
		raw->prefetch = value;
	else if (!strcmp(name, "policy"))
		set_policy(options, value);
	else if (!strcmp(name, "mode"))
		set_mode(options, value);
	else if (!strcmp(name, "threads"))
		set_threads(options, value);
	else if (!strcmp(name, "staleness"))
		options->staleness_s = seconds(name, value);
	else if (!strcmp(name, "deadline"))
		options->deadline_s = seconds(name, value);
	else if (!strcmp(name, "group"))
		set_group(options, value);
	else if (!strcmp(name, "log"))
		set_log(options, value);
	else if (strncmp(name, "x-", 2))
		fail("option %s is unknown; shadefs --help lists them", name);
}

static void set_options(struct options *options, struct raw *raw, char *list)
{
	char *item;

	while ((item = strsep(&list, ","))) {
		char *value = strchr(item, '=');

		if (value)
			*value++ = 0;
		if (*item)
			set_option(options, raw, item, value);
	}
}

/* --- defaults and sense
 * ---------------------------------------------------------------------------- */

static void size_option(const char *name, const char *text, uint64_t whole, uint64_t *bytes)
{
	if (text && parse_size(text, whole, bytes))
		fail("option %s takes a size (8G, 512M) or a share (40%%), not '%s'", name, text);
}

static void complete_sizes(struct options *options, const struct raw *raw)
{
	uint64_t memory = options_memory(&options->capacity_from);

	options->capacity_bytes = memory / 5 * 2;
	size_option("capacity", raw->capacity, memory, &options->capacity_bytes);
	if (raw->capacity && raw->capacity[strlen(raw->capacity) - 1] != '%')
		options->capacity_from = "option";
	if (options->capacity_bytes < MEGABYTE)
		fail("option capacity is less than 1M");
	options->inflight_bytes = options->capacity_bytes / 4;
	if (options->inflight_bytes > 256 * MEGABYTE)
		options->inflight_bytes = 256 * MEGABYTE;
	size_option("inflight", raw->inflight, options->capacity_bytes, &options->inflight_bytes);
	if (options->inflight_bytes > options->capacity_bytes / 2)
		fail("option inflight is more than half of the capacity");
	options->prefetch_bytes = (options->capacity_bytes - options->inflight_bytes) / 2;
	size_option("prefetch", raw->prefetch, options->capacity_bytes, &options->prefetch_bytes);
}

static void complete_paths(struct options *options, const char *source, const char *mount_point)
{
	struct stat stat_buffer;

	options->source = realpath(source, NULL);
	if (!options->source)
		fail("source %s: %s", source, strerror(errno));
	if (stat(options->source, &stat_buffer) || !S_ISDIR(stat_buffer.st_mode))
		fail("source %s is not a directory", source);
	options->mount_point = realpath(mount_point, NULL);
	if (!options->mount_point)
		fail("mount point %s: %s", mount_point, strerror(errno));
	if (stat(options->mount_point, &stat_buffer) || !S_ISDIR(stat_buffer.st_mode))
		fail("mount point %s is not a directory", mount_point);
	if (!strcmp(options->source, options->mount_point))
		fail("source and mount point are the same");
}

static void print_help(void)
{
	fputs("usage: shadefs [-f] [-o OPTION[,OPTION...]] SOURCE MOUNTPOINT\n"
	      "       shadefs --help | --version\n"
	      "\n"
	      "A read-only view of SOURCE whose files are kept in memory by importance.\n"
	      "  -f                  stay in front\n"
	      "\n"
	      "options:\n"
	      "  capacity=SIZE|N%    memory for files: 8G, or a share of RAM or of the cgroup's\n"
	      "                      limit, whichever is less (default 40%)\n"
	      "  inflight=SIZE|N%    the part of it for files on their way (default a quarter of\n"
	      "                      the capacity, at most 256M)\n"
	      "  prefetch=SIZE|N%    files fetched ahead of a known order, at most (default half)\n"
	      "  policy=NAME         who stays, see below (default shade)\n"
	      "  mode=MODE           auto or portable (default auto)\n"
	      "  threads=N           threads that answer the kernel (default 8)\n"
	      "  staleness=SECONDS   how old what is known of the source may be (default 3600)\n"
	      "  deadline=SECONDS    how long a file may take to be fetched (default 30)\n"
	      "  group=NAME          who may use .shade besides the user who mounts\n"
	      "  allow_other         other users may read, as far as permissions let them\n"
	      "  log=LEVEL           error, warning, info or debug (default warning)\n"
	      "\n"
	      "policies:\n",
	      stdout);
	for (unsigned i = 0; sched_policy_name(i); i++)
		printf("  %-19s %s\n", sched_policy_name(i), sched_policy_summary(i));
}

void options_parse(struct options *options, int argc, char **argv)
{
	struct raw raw = { 0 };
	int c;

	*options = (struct options){ .threads = 8,
				     .staleness_s = 3600,
				     .deadline_s = 30,
				     .policy = sched_policy_name(0),
				     .mode = "auto",
				     .log = LOG_WARNINGS };
	if (argc == 2 && !strcmp(argv[1], "--help")) {
		print_help();
		exit(0);
	}
	if (argc == 2 && !strcmp(argv[1], "--version")) {
		puts("shadefs " SHADE_VERSION);
		exit(0);
	}
	/* mount(8) puts options last and adds -s, -n and -v as it likes. */
	while ((c = getopt(argc, argv, "fo:nsv")) != -1) {
		if (c == 'f')
			options->foreground = true;
		else if (c == 'o')
			set_options(options, &raw, optarg);
		else if (c == '?')
			exit(1);
	}
	if (argc - optind != 2)
		fail("say SOURCE and MOUNTPOINT; shadefs --help tells more");
	complete_sizes(options, &raw);
	complete_paths(options, argv[optind], argv[optind + 1]);
}

void options_list(const struct options *o,
		  void (*each)(void *context, const char *name, const char *value,
			       const char *from),
		  void *context)
{
	char text[64];

#define NUMBER(name, format, value, from)                                                          \
	do {                                                                                       \
		snprintf(text, sizeof(text), format, value);                                       \
		each(context, name, text, from);                                                   \
	} while (0)
	each(context, "source", o->source, "command line");
	each(context, "mount_point", o->mount_point, "command line");
	NUMBER("capacity", "%llu", (unsigned long long)o->capacity_bytes, o->capacity_from);
	NUMBER("inflight", "%llu", (unsigned long long)o->inflight_bytes, "option or default");
	NUMBER("prefetch", "%llu", (unsigned long long)o->prefetch_bytes, "option or default");
	each(context, "policy", o->policy, "option or default");
	each(context, "mode", o->mode, "option or default");
	NUMBER("threads", "%u", o->threads, "option or default");
	NUMBER("staleness", "%g", o->staleness_s, "option or default");
	NUMBER("deadline", "%g", o->deadline_s, "option or default");
	each(context, "group", o->group_name ? o->group_name : "-", "option or default");
	each(context, "allow_other", o->allow_other ? "1" : "0", "option or default");
	each(context, "log", log_level_name(o->log), "option or default");
#undef NUMBER
}
