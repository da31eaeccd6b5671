/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Verbs of one command each: they set something, or without a word print what it is. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "call.h"
#include "list.h"
#include "say.h"

static int print_stat(struct call *call, const char *key)
{
	struct pair pair;
	char *stats;
	int code = call_read(call, "stats", &stats);

	if (code)
		return code;
	if (pair_find(stats, key, &pair))
		printf("%.*s\n", (int)pair.value_length, pair.value);
	else
		code = say(EXIT_FAILED, "the mount does not say: its stats have no %s", key);
	free(stats);
	return code;
}

static bool is_word(const char *text)
{
	for (const char *at = text; *at; at++)
		if (!isgraph((unsigned char)*at))
			return false;
	return *text;
}

static int set_word(struct call *call)
{
	if (!is_word(call->words[0]))
		return say(EXIT_USAGE, "%s takes one word, not '%s'", call->verb, call->words[0]);
	return call_command(call, "%s %s", call->verb, call->words[0]);
}

int verb_epoch(struct call *call)
{
	if (!call->count)
		return print_stat(call, "epoch");
	if (!call_is_number(call->words[0]))
		return say(EXIT_USAGE, "an epoch is a whole number, not '%s'", call->words[0]);
	return set_word(call);
}

int verb_capacity(struct call *call)
{
	return call->count ? set_word(call) : print_stat(call, "capacity_bytes");
}

int verb_policy(struct call *call)
{
	return call->count ? set_word(call) : print_stat(call, "policy");
}

int verb_rescan(struct call *call)
{
	return call_command(call, "rescan");
}

/* A job that is in use stays, without its orders and scores. */
int verb_forget(struct call *call)
{
	char folder[512];
	int code, fd;

	if (!call->count)
		return call_command(call, "forget");
	if (strpbrk(call->words[0], "/\n") || strlen(call->words[0]) > 200)
		return say(EXIT_USAGE, "'%s' cannot be the name of a job", call->words[0]);
	code = call_command(call, "forget %s", call->words[0]);
	snprintf(folder, sizeof(folder), "jobs/%s", call->words[0]);
	fd = code ? -1 : mount_file(call->mount, folder);
	if (fd < 0)
		return code;
	close(fd);
	say_line(stdout,
		 "the orders and scores of job %s are forgotten; the job stays while a process "
		 "uses it",
		 call->words[0]);
	return code;
}

int verb_paths(struct call *call)
{
	return commands_send_paths(call, NULL);
}
