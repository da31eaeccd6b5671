/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What all commands read text with (text/), and the headers of base/. */
#include <criterion/criterion.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "escape.h"
#include "fnv.h"
#include "grow.h"
#include "mountinfo.h"
#include "number.h"
#include "option.h"
#include "size.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);

static bool no_memory;

void *__wrap_realloc(void *old, size_t size)
{
	return no_memory ? NULL : __real_realloc(old, size);
}

/* --- escapes ---------------------------------------------------------------------------------- */

Test(escape, writes_each_form)
{
	static const char name[] = "a b\\c\n\177\xc3\xa4";
	static const struct {
		unsigned form;
		const char *text;
	} forms[] = {
		{ ESCAPE_LINE, "a b\\\\c\\012\\177\xc3\xa4" }, /* .shade/samples */
		{ ESCAPE_SPACE | ESCAPE_HIGH, "a\\040b\\\\c\\012\\177\\303\\244" }, /* control */
		{ ESCAPE_SPACE | ESCAPE_HIGH | ESCAPE_OCTAL,
		  "a\\040b\\134c\\012\\177\\303\\244" }, /* the manifest */
		{ ESCAPE_ALL, "\\141\\040\\142\\\\\\143\\012\\177\\303\\244" },
		{ ESCAPE_SPACE | ESCAPE_OCTAL, "a\\040b\\134c\\012\\177\xc3\xa4" }, /* slowfs */
	};

	for (size_t i = 0; i < COUNT(forms); i++) {
		char text[ESCAPE_MAX * sizeof(name) + 1], back[sizeof(name)];
		char *end = escape_text(text, name, strlen(name), forms[i].form);

		cr_assert_str_eq(text, forms[i].text);
		cr_assert_eq(end, text + strlen(text));
		cr_assert_eq(unescape_text(back, sizeof(back), text, strlen(text), forms[i].form),
			     (ssize_t)strlen(name));
		cr_assert_str_eq(back, name);
	}
}

Test(escape, every_byte_comes_back)
{
	char all[256], text[4 * 255 + 1], back[256];

	for (int i = 0; i < 255; i++)
		all[i] = (char)(i + 1);
	all[255] = '\0';
	for (unsigned form = 0; form < 16; form++) {
		escape_text(text, all, 255, form);
		cr_assert_eq(unescape_text(back, sizeof(back), text, strlen(text), form), 255);
		cr_assert_str_eq(back, all);
		/* In place as well. */
		cr_assert(unescape_in_place(text, form));
		cr_assert_str_eq(text, all);
	}
}

Test(escape, prints_long_names)
{
	char name[1001], text[4 * 1000 + 1], *printed = NULL;
	size_t size;
	FILE *out = open_memstream(&printed, &size);

	memset(name, '\t', 1000);
	name[1000] = '\0';
	escape_text(text, name, 1000, ESCAPE_LINE);
	escape_print(out, name, ESCAPE_LINE);
	fclose(out);
	cr_assert_str_eq(printed, text);
	free(printed);
}

Test(escape, refuses_what_is_none)
{
	static const struct {
		const char *text;
		unsigned form;
		ssize_t rc;
	} bad[] = {
		{ "a\\", 0, -EINVAL },
		{ "\\1", 0, -EINVAL },
		{ "\\12", 0, -EINVAL },
		{ "\\128", 0, -EINVAL },
		{ "\\a00", 0, -EINVAL },
		{ "\\\\", ESCAPE_OCTAL, -EINVAL },
		{ "\\000", 0, -ERANGE },
		{ "\\400", 0, -ERANGE },
		{ "\\777", ESCAPE_OCTAL, -ERANGE },
		{ "abcd", 0, -ENAMETOOLONG },
		{ "abc\\040", 0, -ENAMETOOLONG },
	};
	char to[4];

	for (size_t i = 0; i < COUNT(bad); i++)
		cr_assert_eq(unescape_text(to, sizeof(to), bad[i].text, strlen(bad[i].text),
					   bad[i].form),
			     bad[i].rc, "%s", bad[i].text);
	cr_assert_eq(unescape_text(to, sizeof(to), "a\0b", 3, 0), -ERANGE);
	cr_assert_eq(unescape_text(to, sizeof(to), "abc", 3, 0), 3);
	/* Bytes after the end do not complete an escape. */
	cr_assert_eq(unescape_text(to, sizeof(to), "\\0401", 3, 0), -EINVAL);
	cr_assert_eq(unescape_text(to, sizeof(to), "\\\\", 1, 0), -EINVAL);
}

/* --- numbers and sizes ------------------------------------------------------------------------ */

static int whole(const char *text, uint64_t *value)
{
	return number_whole(text, strlen(text), value);
}

static int real(const char *text, double *value)
{
	return number_real(text, strlen(text), value);
}

Test(number, whole)
{
	static const char *const bad[] = { "",	  " 1",	 "1 ",	"+1",  "-1",
					   "1.0", "0x1", "1e3", "1\n", "99999999999999999999x" };
	uint64_t value = 7;

	for (size_t i = 0; i < COUNT(bad); i++)
		cr_assert_eq(whole(bad[i], &value), -EINVAL, "%s", bad[i]);
	cr_assert_eq(whole("18446744073709551616", &value), -ERANGE);
	cr_assert_eq(whole("99999999999999999999", &value), -ERANGE);
	cr_assert_eq(value, 7);
	cr_assert(!whole("18446744073709551615", &value) && value == UINT64_MAX);
	cr_assert(!whole("007", &value) && value == 7);
	cr_assert(!number_whole("123", 2, &value) && value == 12);
}

Test(number, real)
{
	static const char *const bad[] = { "",	  " 1", "1 ", "0x1p3", "nan", "inf", "-inf",
					   "1,5", "1e", "e1", "--1",   ".",   "1.5x" };
	char digits[65];
	double value = 7;

	for (size_t i = 0; i < COUNT(bad); i++)
		cr_assert_eq(real(bad[i], &value), -EINVAL, "%s", bad[i]);
	cr_assert_eq(real("1e400", &value), -ERANGE);
	memset(digits, '1', 64);
	cr_assert_eq(number_real(digits, 64, &value), -EINVAL);
	cr_assert_eq(value, 7.0);
	cr_assert(!number_real(digits, 63, &value) && value > 1e62);
	cr_assert(!real("-1.5e2", &value) && value == -150);
	cr_assert(!real("1e-999", &value) && value == 0);
	cr_assert(!real(".5", &value) && value == 0.5);
	cr_assert(!number_real("1.25", 3, &value) && value == 1.2);
}

Test(size, sizes)
{
	static const struct {
		const char *text;
		uint64_t bytes;
		double share;
	} good[] = { { "0", 0, 0 },	      { "4096", 4096, 0 },
		     { "1k", 1024, 0 },	      { "512M", 512u << 20, 0 },
		     { "2T", 2ull << 40, 0 }, { "18446744073709551615", UINT64_MAX, 0 },
		     { "100%", 0, 1 },	      { "12.5%", 0, 0.125 } };
	static const char *const bad[] = { "",	     "%",    "-1",  "1.5G",	"-5%",
					   "1e999%", "1KB",  "KK",  "0x1",	"+1",
					   " 1",     "1%%",  "5%G", "1e-999%",	"101%",
					   "0%",     "nan%", "G",   "16777216T" };
	struct size size;

	for (size_t i = 0; i < COUNT(good); i++) {
		cr_assert_eq(size_parse(good[i].text, strlen(good[i].text), &size), 0);
		cr_assert(size.bytes == good[i].bytes && size.share == good[i].share, "%s",
			  good[i].text);
	}
	for (size_t i = 0; i < COUNT(bad); i++)
		cr_assert_eq(size_parse(bad[i], strlen(bad[i]), &size), -EINVAL, "%s", bad[i]);
	cr_assert(!size_parse("8G9", 2, &size) && size.bytes == (uint64_t)8 << 30);
	cr_assert_eq(size_parse("8\0", 2, &size), -EINVAL);
}

/* --- the command line ------------------------------------------------------------------------- */

static const struct option options[] = { { "name", required_argument, NULL, 'n' },
					 { "flag", no_argument, NULL, 'f' },
					 { NULL, 0, NULL, 0 } };

/* Runs `body` in a child, and leaves what it said in `said`. Returns its exit code. */
static int said_by(void (*body)(const char *argument), const char *argument, char said[512])
{
	int pipes[2], status;
	ssize_t length;
	char *sanitizer;
	pid_t child;

	cr_assert_eq(pipe(pipes), 0);
	child = fork();
	if (!child) {
		dup2(pipes[1], STDERR_FILENO);
		program_invocation_short_name = (char[]){ "tool" };
		body(argument);
		_exit(0);
	}
	close(pipes[1]);
	length = read(pipes[0], said, 511);
	said[length > 0 ? length : 0] = '\0';
	/* On a busy machine LeakSanitizer has a word about threads at the end of a child. */
	sanitizer = strstr(said, "\n==");
	if (sanitizer)
		sanitizer[1] = '\0';
	close(pipes[0]);
	waitpid(child, &status, 0);
	return WEXITSTATUS(status);
}

static void take_options(const char *argument)
{
	char command[] = "verb", before[] = "--flag", word[64];
	char *argv[] = { command, before, word, NULL };

	strcpy(word, argument);
	while (option_next(3, argv, ":", options) != -1)
		;
	option_end(3, argv);
}

Test(option, names_what_it_refuses)
{
	static const struct {
		const char *word, *said;
	} bad[] = {
		{ "--other", "tool: verb takes no option '--other'; tool --help lists them\n" },
		{ "--flag=1", "tool: verb takes no option '--flag=1'; tool --help lists them\n" },
		{ "-x", "tool: verb takes no option '-x'; tool --help lists them\n" },
		{ "-xy", "tool: verb takes no option '-xy'; tool --help lists them\n" },
		{ "--name", "tool: --name needs a value\n" },
		{ "word", "tool: verb takes no word 'word'; tool --help tells more\n" },
	};
	char said[512];

	for (size_t i = 0; i < COUNT(bad); i++) {
		cr_assert_eq(said_by(take_options, bad[i].word, said), 2);
		cr_assert_str_eq(said, bad[i].said);
	}
	cr_assert_eq(said_by(take_options, "--name=1", said), 0);
	cr_assert_str_eq(said, "");
}

static void take_whole(const char *text)
{
	_exit((int)option_whole("--count", text, 3, 100));
}

static void take_real(const char *text)
{
	_exit((int)option_real("--rate", text, 3, 1e7));
}

Test(option, bounds)
{
	char said[512];

	cr_assert_eq(said_by(take_whole, "100", said), 100);
	cr_assert_eq(said_by(take_whole, "3", said), 3);
	cr_assert_eq(said_by(take_whole, "1.5", said), 2);
	cr_assert_str_eq(said, "tool: --count takes a whole number, not '1.5'\n");
	cr_assert_eq(said_by(take_whole, "101", said), 2);
	cr_assert_str_eq(said, "tool: --count takes a number from 3 to 100, not 101\n");
	cr_assert_eq(said_by(take_whole, "99999999999999999999", said), 2);
	cr_assert_str_eq(said,
			 "tool: --count takes a number from 3 to 100, not 99999999999999999999\n");
	cr_assert_eq(said_by(take_real, "4.5", said), 4);
	cr_assert_eq(said_by(take_real, "inf", said), 2);
	cr_assert_str_eq(said, "tool: --rate takes a number from 3 to 10000000, not 'inf'\n");
}

/* --- mounts ----------------------------------------------------------------------------------- */

static const char mounts[] =
	"21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
	"36 21 0:30 / /mnt/a\\040b rw - fuse.shadefs /nfs/x\\134y ro,user_id=0\n"
	"this is another format\n"
	"37 21 0:31 / /mnt/a\\040b rw master:1 propagate_from:2 - overlay shadefs ro,lowerdir=/l\n"
	"38 21 0:32 / /no\\9escape rw - tmpfs tmpfs rw\n"
	"39 21 0:33 / /last rw - tmpfs tmpfs rw";

static struct mountinfo read_mounts(void)
{
	return (struct mountinfo){ .file = fmemopen((void *)mounts, strlen(mounts), "r") };
}

Test(mountinfo, takes_lines_apart)
{
	struct mountinfo info = read_mounts();

	cr_assert_eq(mountinfo_next(&info), 1);
	cr_assert(info.id == 21 && !strcmp(info.device, "8:1") && !strcmp(info.point, "/"));
	cr_assert(!strcmp(info.type, "ext4") && !strcmp(info.source, "/dev/sda1"));
	cr_assert_eq(mountinfo_next(&info), 1);
	cr_assert(info.id == 36 && !strcmp(info.point, "/mnt/a b"));
	cr_assert(!strcmp(info.type, "fuse.shadefs") && !strcmp(info.source, "/nfs/x\\y"));
	cr_assert_str_eq(info.options, "ro,user_id=0");
	cr_assert(strstr(info.line, "/mnt/a\\040b") && !strchr(info.line, '\n'));
	cr_assert_eq(mountinfo_next(&info), 1);
	cr_assert(info.id == 37 && !strcmp(info.type, "overlay"));
	cr_assert_str_eq(info.options, "ro,lowerdir=/l");
	cr_assert_eq(mountinfo_next(&info), 1);
	cr_assert(info.id == 39 && !strcmp(info.point, "/last"));
	cr_assert_eq(mountinfo_next(&info), 0);
	mountinfo_close(&info);
	mountinfo_close(&info);
}

Test(mountinfo, survives_without_memory)
{
	struct mountinfo info = read_mounts();

	no_memory = true;
	cr_assert_eq(mountinfo_next(&info), -ENOMEM);
	no_memory = false;
	cr_assert_eq(mountinfo_next(&info), 1);
	mountinfo_close(&info);
}

Test(mountinfo, finds_what_is_mounted)
{
	struct mountinfo info;

	cr_assert_eq(mountinfo_find(&info, "/"), 1);
	cr_assert(info.id && !strcmp(info.point, "/") && *info.type);
	mountinfo_close(&info);
	cr_assert_eq(mountinfo_find(&info, "/nothing is mounted here"), 0);
}

/* --- base/ ------------------------------------------------------------------------------------ */

Test(grow, keeps_what_is_there)
{
	uint64_t *numbers = NULL;
	uint16_t room = 0, used = 0, allocations = 0, before;

	cr_assert_eq(grow(numbers, room, 0, 0), 0);
	cr_assert(!numbers && !room);
	for (; used < 10000; used++) {
		before = room;
		cr_assert_eq(grow(numbers, room, used, 1), 0);
		cr_assert(room > used);
		allocations = (uint16_t)(allocations + (room != before));
		numbers[used] = used;
	}
	cr_assert_leq(allocations, 18);
	for (uint16_t i = 0; i < used; i++)
		cr_assert_eq(numbers[i], i);
	/* At once, and by as much as is asked for. */
	cr_assert_eq(grow(numbers, room, used, 40000), 0);
	cr_assert_geq(room, 50000);
	/* The room has 16 bits. */
	cr_assert_eq(grow(numbers, room, used, UINT16_MAX - 10000), 0);
	cr_assert_eq(room, UINT16_MAX);
	cr_assert_eq(grow(numbers, room, used, UINT16_MAX - 9999), -ENOMEM);
	cr_assert(room == UINT16_MAX && numbers[9999] == 9999);
	free(numbers);
}

Test(grow, a_failure_changes_nothing)
{
	uint64_t *numbers = NULL, *old;
	size_t room = 0;

	cr_assert_eq(grow(numbers, room, 0, 1), 0);
	cr_assert_eq(room, GROW_LEAST);
	old = numbers;
	cr_assert_eq(grow(numbers, room, 1, SIZE_MAX), -ENOMEM);
	cr_assert_eq(grow(numbers, room, 1, SIZE_MAX / 8), -ENOMEM);
	no_memory = true;
	cr_assert_eq(grow(numbers, room, GROW_LEAST, 1), -ENOMEM);
	cr_assert_eq(grow(numbers, room, 0, GROW_LEAST), 0);
	no_memory = false;
	cr_assert(numbers == old && room == GROW_LEAST);
	free(numbers);
}

/* The test vectors of the hash's authors. */
Test(fnv, known_answers)
{
	cr_assert_eq(fnv32_add(FNV32_BEGIN, "", 0), 0x811c9dc5u);
	cr_assert_eq(fnv32_add(FNV32_BEGIN, "a", 1), 0xe40c292cu);
	cr_assert_eq(fnv32_add(FNV32_BEGIN, "foobar", 6), 0xbf9cf968u);
	cr_assert_eq(fnv64_add(FNV64_BEGIN, "", 0), 0xcbf29ce484222325u);
	cr_assert_eq(fnv64_add(FNV64_BEGIN, "a", 1), 0xaf63dc4c8601ec8cu);
	cr_assert_eq(fnv64_add(fnv64_add(FNV64_BEGIN, "foo", 3), "bar", 3), 0x85944171f73967e8u);
}
