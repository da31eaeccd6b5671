/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The command line: one table of options, one initialiser, one check. */
#ifndef SHADE_OPTIONS_H
#define SHADE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/log.h"
#include "daemon/predict.h"
#include "daemon/tier.h"
#include "nfs/store.h"

struct option_text {
	struct option_text *next;
	char text[];
};

struct options {
	/* Names are resolved once, to descriptors for O_PATH: whoever can rename the directories on
	 * the way may have something else there a moment later. The names are for messages. */
	char *source;
	int source_fd;	    /* -1: the source is an NFS export */
	struct nfs_url url; /* of that */
	char *mount_point;  /* absolute */
	int mount_fd;
	int above_fd; /* the directory that it is in */
	bool foreground;
	bool fake;   /* check everything, and mount nothing */
	bool sloppy; /* ignore unknown options */
	uint64_t capacity_bytes;
	const char *capacity_from; /* "option", "cgroup limit" or "RAM" */
	uint64_t inflight_bytes;
	uint64_t prefetch_bytes;
	unsigned threads;
	double staleness_s;
	double deadline_s;
	double job_grace_s;
	const char *policy;
	const char *policy_from; /* NULL: "option" or "default" */
	const char *mode;
	const char *group_name; /* NULL: nobody else may use .shade */
	gid_t group;
	bool allow_other;
	bool nonempty; /* the mount point may have files */
	bool noexec;
	enum log_level log;
	unsigned nfs_port, mount_port; /* 0: the usual one; the portmapper is asked */
	unsigned connections;
	uint32_t uid, gid; /* whom the server takes the daemon for */
	struct tier_settings tier;
	struct predict_settings predict;
	char *manifest;	 /* absolute; NULL: none */
	int manifest_fd; /* its directory; -1: none */

	/* What another version of the program parses again when it goes on with this mount. */
	struct {
		char *program;	   /* the file that was started; NULL: unknown */
		bool is_elsewhere; /* in a mount namespace of somebody else's, where names mean
				      other files */
		char **words;	   /* the command line as it was given, with passwords */
		char **shown;	   /* and without them, as ps(1) shows it; argv itself */
		unsigned word_count;
		char *password; /* of the environment; NULL: there was none */
	} again;

	/* For options.c alone. */
	struct {
		const char *capacity, *inflight, *prefetch;
	} raw;
	unsigned given; /* bit by row of the table */
	struct option_text *texts;
	char directory[4096]; /* the working directory at the start */
};

/* Fills in `options`. If something is wrong, prints one sentence and exits with 1; after --help,
 * --version and a faked mount it exits with 0. */
void options_parse(struct options *options, int argc, char **argv);

/* The same for a mount that another version of the program has made: nothing is looked up again but
 * what the tier needs, and `argv` is what ps(1) shows. */
struct handover;
void options_take(struct options *options, const struct handover *handover, char **argv);
/* Fills in its part of what the next version needs. */
void options_hand_over(const struct options *options, struct handover *handover);

/* The lesser of RAM and the cgroup's limit, and which it is. */
uint64_t options_memory(const char **which);
/* Giving the pages of a buffer back to the kernel after each fetch costs more than reading into it,
 * so malloc() keeps them. What it keeps is part of what `inflight` sets aside. */
void options_keep_memory(const struct options *options);

/* Prints every option with its value and where that came from, a line each. */
void options_print(const struct options *options, FILE *out);

void options_free(struct options *options);

/* --- paths.c, for options.c: what is wrong ends the program with one sentence */

/* A descriptor for O_PATH. `what` is what messages call the directory. */
int paths_open(const char *what, const char *path);
/* The name of an open directory, without links. To be freed. */
char *paths_name(int fd);
/* The file that this process was started from. To be freed; NULL: unknown. */
char *paths_program(void);
/* Everything but the source, which is there already. */
void paths_complete(struct options *options, const char *source, const char *mount_point);

#endif
