/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/upgrade.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/threads.h"
#include "daemon/format.h"
#include "daemon/handover.h"
#include "daemon/heritage.h"
#include "daemon/options.h"
#include "fail.h"
#include "fuse/shade.h"

/* Of a check; another program, or one before this option, refuses it, or does not say CAN_GO_ON. */
#define OPTION "--check-upgrade"
#define CAN_GO_ON "can go on with the mount: version "
/* Of the exec itself, whose command line stays what it was. Both have DESCRIPTOR.TRY. */
#define ENVIRONMENT "SHADEFS_HANDOVER"
#define TRIES 16     /* to have the estate where it was */
#define READS_MAX 64 /* at a time, of what somebody may print for ever */

/* --- the check, as the supervisor sees it ------------------------------------------------------*/

void check_init(struct check *check)
{
	*check = (struct check){ .program = -1, .output = -1 };
}

static void close_once(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* Signals and limits are as for any other program; no descriptor but these outlives the exec. */
__attribute__((noreturn)) static void become_check(int program, int output, int state, int estate,
						   const char *name)
{
	const struct rlimit no_core = { 0, 0 };
	char first[4096], where[32];
	char option[] = OPTION, *argv[] = { first, option, where, NULL };
	int null = open("/dev/null", O_RDONLY);
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)setpgid(0, 0); /* what it starts ends with it */
	(void)setrlimit(RLIMIT_CORE, &no_core);
	signal(SIGPIPE, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	dup2(null, STDIN_FILENO);
	dup2(output, STDOUT_FILENO);
	dup2(output, STDERR_FILENO);
	(void)fcntl(state, F_SETFD, 0);
	(void)fcntl(estate, F_SETFD, 0);
	(void)fcntl(program, F_SETFD, 0); /* a script is read by it */
	snprintf(first, sizeof(first), "%s", name);
	snprintf(where, sizeof(where), "%d.0", state);
	fexecve(program, argv, environ);
	dprintf(STDOUT_FILENO, "it cannot be started: %s\n", strerror(errno));
	_exit(127);
}

/* A copy of the state in which the estate is for reading only, or a negative errno. */
static int write_for_check(const struct handover *handover, int *estate)
{
	struct handover copy = *handover;
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", handover->estate.fd);
	*estate = open(path, O_RDONLY | O_CLOEXEC);
	if (*estate < 0)
		return -errno;
	copy.estate.fd = *estate;
	return handover_write(&copy);
}

static int fork_check(struct check *check, const struct handover *handover)
{
	int ends[2] = { -1, -1 }, estate = -1;
	int state = write_for_check(handover, &estate), rc = state < 0 ? state : 0;

	if (!rc && pipe2(ends, O_CLOEXEC))
		rc = -errno;
	if (!rc) {
		check->pid = fork();
		if (check->pid == 0)
			become_check(check->program, ends[1], state, estate, handover->program);
		rc = check->pid < 0 ? -errno : 0;
	}
	close_once(&estate);
	close_once(&state);
	close_once(&ends[1]);
	if (rc) {
		close_once(&ends[0]);
		check->pid = 0;
		return rc;
	}
	(void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
	check->output = ends[0];
	return 0;
}

int check_start(struct check *check, const struct handover *handover, char why[UPGRADE_WHY])
{
	int rc = 0;

	check_init(check);
	check->program = open(handover->program, O_PATH | O_CLOEXEC);
	if (check->program < 0)
		rc = -errno;
	else
		rc = fork_check(check, handover);
	if (rc) {
		snprintf(why, UPGRADE_WHY, "%s: %s", handover->program, strerror(-rc));
		close_once(&check->program);
		return rc;
	}
	check->until_ms = clock_now_ms() + UPGRADE_CHECK_MS;
	return 0;
}

static void read_output(struct check *check)
{
	size_t half = sizeof(check->text) / 2;
	ssize_t got = 1;

	for (unsigned i = 0; i < READS_MAX && got > 0; i++) {
		if (check->length > half) {
			memmove(check->text, check->text + half, check->length - half);
			check->length -= half;
		}
		got = read(check->output, check->text + check->length,
			   sizeof(check->text) - 1 - check->length);
		check->length += got > 0 ? (size_t)got : 0;
	}
	check->text[check->length] = 0;
	if (!got)
		close_once(&check->output);
}

/* Its last line, without control characters, and without the name that programs begin it with. */
static const char *last_line(struct check *check, const char *program)
{
	const char *name = strrchr(program, '/'), *line;
	size_t length;

	while (check->length && isspace((unsigned char)check->text[check->length - 1]))
		check->text[--check->length] = 0;
	line = strrchr(check->text, '\n');
	line = line ? line + 1 : check->text;
	name = name ? name + 1 : program;
	length = strlen(name);
	for (char *at = check->text; *at; at++)
		if (iscntrl((unsigned char)*at))
			*at = '?';
	if (!strncmp(line, name, length) && !strncmp(line + length, ": ", 2))
		line += length + 2;
	return line;
}

static enum check_result judge(struct check *check, int status, const char *program,
			       char why[UPGRADE_WHY])
{
	const char *line = last_line(check, program);
	bool says_yes = !strncmp(line, CAN_GO_ON, strlen(CAN_GO_ON));

	if (WIFSIGNALED(status))
		snprintf(why, UPGRADE_WHY, "%s is refused: it died of signal %d when it was tried",
			 program, WTERMSIG(status));
	else if (!WEXITSTATUS(status) && says_yes)
		snprintf(why, UPGRADE_WHY, "%s", line + strlen(CAN_GO_ON));
	else if (WEXITSTATUS(status) && !says_yes && *line)
		snprintf(why, UPGRADE_WHY, "%.150s is refused: %.230s", program, line);
	else
		snprintf(why, UPGRADE_WHY,
			 "%s is refused: it is no shadefs that can go on with a mount", program);
	if (!WIFSIGNALED(status) && !WEXITSTATUS(status) && says_yes)
		return CHECK_PASSED;
	close_once(&check->program);
	return CHECK_REFUSED;
}

enum check_result check_look(struct check *check, const char *program, char why[UPGRADE_WHY])
{
	bool is_wanted = check->until_ms;
	int status;

	if (check->output >= 0)
		read_output(check);
	if (check->pid && waitpid(check->pid, &status, WNOHANG) == check->pid) {
		check->pid = 0;
		check->until_ms = 0;
		if (check->output >= 0)
			read_output(check);
		close_once(&check->output);
		return is_wanted ? judge(check, status, program, why) : CHECK_RUNS;
	}
	if (!is_wanted || clock_now_ms() < check->until_ms)
		return CHECK_RUNS;
	check_end(check);
	snprintf(why, UPGRADE_WHY, "%s is refused: it has said nothing for %d s when it was tried",
		 program, UPGRADE_CHECK_MS / 1000);
	return CHECK_REFUSED;
}

void check_end(struct check *check)
{
	if (check->pid) {
		kill(-check->pid, SIGKILL);
		kill(check->pid, SIGKILL); /* it may not have made its group yet */
	}
	check->until_ms = 0;
	close_once(&check->output);
	close_once(&check->program);
}

/* --- the exec ----------------------------------------------------------------------------------*/

/* The state's descriptor, and how often it was tried. */
static void name_state(char text[32], int state, unsigned tries)
{
	snprintf(text, 32, "%d.%u", state, tries);
}

int upgrade_become(const struct check *check, const struct handover *handover, char **shown)
{
	int state = handover_write(handover), rc;
	char text[32];

	if (state < 0)
		return state;
	name_state(text, state, 0);
	(void)fcntl(state, F_SETFD, 0);
	handover_keep_open(handover, true);
	if (setenv(ENVIRONMENT, text, true)) {
		rc = -errno;
	} else {
		/* If the other program does not begin to supervise, nobody would: it dies, and the
		 * watchdog ends the connections. */
		alarm(UPGRADE_BEGIN_S);
		fexecve(check->program, shown, environ);
		rc = -errno;
		alarm(0);
	}
	unsetenv(ENVIRONMENT);
	handover_keep_open(handover, false);
	close(state);
	return rc;
}

/* --- the new program ---------------------------------------------------------------------------*/

static bool parse_state(const char *text, int *state, unsigned *tries)
{
	return text && sscanf(text, "%d.%u", state, tries) == 2 && *state > STDERR_FILENO;
}

bool upgrade_is_check(int argc, char **argv)
{
	return argc == 3 && !strcmp(argv[1], OPTION);
}

static const char *strerror_of(int rc)
{
	return rc == -EPROTO ? "it would agree upon something else with the kernel than what was "
			       "agreed upon when this was mounted"
			     : strerror(-rc);
}

/* What the estate says, which is for reading only. */
static void check_estate(struct estate *estate, const struct options *options)
{
	const struct heritage *heritage = estate_front(estate);
	int rc = files_check(&heritage->files, heritage->is_native, options->allow_other);

	if (!rc && heritage->is_native)
		rc = shade_check(&heritage->overlay.control);
	if (rc)
		give_up("%s", strerror_of(rc));
}

int upgrade_check(char **argv)
{
	static struct options options;
	const struct handover *handover;
	char format[FORMAT_MAX], why[256], again[32];
	struct estate *estate;
	unsigned tries;
	int state, rc;

	if (!parse_state(argv[2], &state, &tries))
		give_up("%s is for shadefs itself; see shadectl upgrade", OPTION);
	must_do(handover_read_format(state, format), "what is handed over");
	if (!format_is_same(format, why, sizeof(why)))
		give_up("it keeps its state in another way, so unmount and mount again instead: %s",
			why);
	must_do(handover_read(state, &handover), "what is handed over");
	rc = estate_take(&estate, &handover->estate, true);
	if (rc == -EEXIST && tries < TRIES) {
		name_state(again, state, tries + 1);
		execv("/proc/self/exe", (char *[]){ argv[0], argv[1], again, NULL });
	}
	must_do(rc, "what outlives the daemon");
	options_take(&options, handover, NULL);
	check_estate(estate, &options);
	printf(CAN_GO_ON "%s\n", format_program());
	return 0;
}

static int inherited = -1; /* the state */
static unsigned inherited_tries;

const struct handover *upgrade_inherited(void)
{
	const struct handover *handover;
	char format[FORMAT_MAX], why[256];

	if (!parse_state(getenv(ENVIRONMENT), &inherited, &inherited_tries))
		return NULL;
	unsetenv(ENVIRONMENT);
	if (handover_read_format(inherited, format) || !format_is_same(format, why, sizeof(why)) ||
	    handover_read(inherited, &handover) || handover->supervisor != getpid())
		give_up("what %s names is not for this process", ENVIRONMENT);
	return handover;
}

void upgrade_try_again(char **shown)
{
	char text[32];

	name_state(text, inherited, inherited_tries + 1);
	if (inherited_tries < TRIES && !setenv(ENVIRONMENT, text, true))
		execv("/proc/self/exe", shown);
	unsetenv(ENVIRONMENT);
}

void upgrade_has_begun(void)
{
	alarm(0);
	close(inherited);
	inherited = -1;
}
