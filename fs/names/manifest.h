/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The manifest: what directories had inside when they were last read, as text.
 *
 *	shadefs manifest 2
 *	d ATTRIBUTES /PATH		a directory, as it was just before it was read
 *	e ATTRIBUTES NAME		what is in it, sorted by name
 *	x ATTRIBUTES NAME		the same, for what is in another file system than the
 *directory end DIRECTORIES ENTRIES MARK	nothing follows; the mark is of all bytes before
 *
 * ATTRIBUTES are inode number, size, modification and change time (nanoseconds), mode (octal),
 * owner, group and links. In names, all but visible ASCII is \nnn (octal), and so is \ itself.
 * Directories are sorted by path, component by component, so each is there once.
 *
 * Which file system that is, is not there: numbers of devices are others after the next boot.
 *
 * A manifest is taken whole or not at all. What it says of a directory counts only if the
 * source still has that version of the directory.
 */
#ifndef SHADE_MANIFEST_H
#define SHADE_MANIFEST_H

#include <stdio.h>

#include "source/store.h"

#define MANIFEST_PATH_MAX 4096		      /* bytes of a path or name, with the end */
#define MANIFEST_SIZE_MAX ((uint64_t)4 << 30) /* bytes of the file */

struct manifest;

struct manifest_fault {
	unsigned long line;
	const char *what;
};

/* Reads a text from malloc(), which is the manifest's from now on, whatever comes of it. 0,
 * -ENOMEM, or -EINVAL with the first fault. The caller holds it once. */
int manifest_parse(struct manifest **out, char *text, size_t size, struct manifest_fault *fault);
void manifest_hold(struct manifest *manifest);
/* One holder less; without any it is freed. NULL is nobody. */
void manifest_put(struct manifest *manifest);

/* What tells one text from another. */
uint64_t manifest_mark(const struct manifest *manifest);

/* Calls `entry` for what a directory had inside, sorted by name, if it was this version. 1; 0: it
 * is not known, or another version; or what `entry` returned, if that was negative. Paths are those
 * of the store. */
int manifest_list(const struct manifest *manifest, const char *path,
		  const struct store_attr *version,
		  int (*entry)(void *context, const char *name, const struct store_attr *attr),
		  void *context);

/* --- writing ---------------------------------------------------------------------------------- */

struct manifest_writer {
	FILE *file; /* its errors are the caller's; NULL: only the mark is wanted */
	uint64_t mark;
	unsigned dev; /* the last directory's */
	unsigned long long dirs, entries;
};

void manifest_begin(struct manifest_writer *writer, FILE *file);
/* In the sequence of the file; entries follow their directory. */
void manifest_add_dir(struct manifest_writer *writer, const char *path,
		      const struct store_attr *attr);
void manifest_add_entry(struct manifest_writer *writer, const char *name,
			const struct store_attr *attr);
void manifest_end(struct manifest_writer *writer);

/* --- from mount to mount: manifest_file.c ------------------------------------------------------
 */

struct tree;

struct manifest_keeper {
	const char *path; /* NULL: there is none */
	int dir;    /* a descriptor of the directory that it is in, which somebody may rename */
	bool known; /* `mark` is that of the file */
	uint64_t mark;
};

/* Gives the tree what the file has. A file that is not there, not one's own or faulty is left
 * alone, with a word in the log. */
void manifest_load(struct manifest_keeper *keeper, struct tree *tree);
/* After a complete scan: the tree needs the old one no more, and the file is replaced if it
 * would be another. `stop` ends it early. */
void manifest_save(struct manifest_keeper *keeper, struct tree *tree, const _Atomic bool *stop);

#endif
