/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A source: three directories of small and large files. Some time another directory, with files of
 * its own, has the name of one. Reads take time, bytes are copied when a
 * read ends, and if the file has changed meanwhile some pages are of the old version. A file that
 * is written in place has its new date at once, and its new bytes some time later. The version
 * check is the real one, store_read_outcome(). As in the daemon, one thread ends all reads.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/threads.h"
#include "cache/internal.h"
#include "world.h"

#define READS_MAX 64
#define VERSIONS_MAX 65536
#define HOMES_MAX 8192
#define DIR_BITS 8 /* store_dir.fd: the number of a directory in these, its inode number above */
#define WRITE_MS_MAX 240 /* less than the time for which the cache takes a version for young */

struct pending {
	struct store_read *read;
	struct file *file;
	struct stamp begun; /* what the file was when the read began */
	uint64_t due_ms;
	bool cancelled;
};

struct file files[FILES];
bool dir_hangs[DIRS];
static uint64_t dir_hung_ms[DIRS]; /* when it last began or ended to hang; 0: never */
bool page_counts[PAGES_MAX + 1];
static struct store_attr dir_attrs[DIRS + 1]; /* the last is the root */
static struct pending pending[READS_MAX];
static uint64_t last_number, last_change;
static uint64_t superseded_ms[VERSIONS_MAX]; /* by version; 0: it is current */
static struct writing {
	struct stamp before; /* what was there until it is complete */
	uint64_t until_ms;
} writings[VERSIONS_MAX]; /* by version; 0: it was complete when it came into being */
static struct home {
	uint64_t file, dir; /* inode numbers: the file was in the directory */
} homes[HOMES_MAX];
static unsigned home_count;
static bool closing;
static struct thread ender;

/* --- files --------------------------------------------------------------------------------------
 */

static uint64_t next_number(void)
{
	return ++last_number;
}

/* A date, with the number of the version in its last digits. */
static int64_t next_version(void)
{
	if (++last_change == VERSIONS_MAX)
		fail_run("more than %d versions", VERSIONS_MAX);
	superseded_ms[last_change] = 0;
	writings[last_change] = (struct writing){ 0 };
	return clock_date_ms() * 1000000 + (int64_t)last_change;
}

uint64_t source_version(const struct store_attr *attr)
{
	return (uint64_t)attr->ctime_ns % 1000000;
}

static void touch_dir(int dir)
{
	dir_attrs[dir].mtime_ns = dir_attrs[dir].ctime_ns = next_version();
}

static struct stamp stamp_of(const struct file *file)
{
	return (struct stamp){ file->attr.ino, source_version(&file->attr) };
}

/* What a file was until now is history. */
static void supersede(struct file *file)
{
	superseded_ms[source_version(&file->attr)] = clock_now_ms();
	file->faulty_ms = clock_now_ms();
}

bool source_was_in(uint64_t file, uint64_t dir)
{
	for (unsigned i = home_count; i-- > 0;)
		if (homes[i].file == file && homes[i].dir == dir)
			return true;
	return false;
}

static void note_home(const struct file *file)
{
	if (source_was_in(file->attr.ino, dir_attrs[file->dir].ino))
		return;
	if (home_count == HOMES_MAX)
		fail_run("more than %d files", HOMES_MAX);
	homes[home_count++] = (struct home){ file->attr.ino, dir_attrs[file->dir].ino };
}

static uint64_t draw_size(const struct file *file)
{
	uint64_t pages = file - files < world.plan.large ? 8 + draw(PAGES_MAX - 8) : draw(5);

	return pages * PAGE - (pages && one_in(2) ? draw(PAGE - 1) : 0);
}

static void write_version(struct file *file, bool new_inode)
{
	supersede(file);
	if (new_inode)
		file->attr.ino = next_number();
	file->attr.size = draw_size(file);
	page_counts[(file->attr.size + PAGE - 1) / PAGE] = true;
	file->attr.mtime_ns = file->attr.ctime_ns = next_version();
	file->attr.mode = S_IFREG | 0644;
	file->attr.nlink = 1;
	note_home(file);
}

static bool is_being_written(const struct file *file)
{
	return writings[source_version(&file->attr)].until_ms > clock_now_ms();
}

static void write_in_place(struct file *file)
{
	struct stamp before = stamp_of(file);

	write_version(file, false);
	writings[source_version(&file->attr)] =
		(struct writing){ before, clock_now_ms() + draw(WRITE_MS_MAX) };
}

static void reset(void)
{
	memset(files, 0, sizeof(files));
	memset(dir_hangs, 0, sizeof(dir_hangs));
	memset(dir_hung_ms, 0, sizeof(dir_hung_ms));
	memset(page_counts, 0, sizeof(page_counts));
	memset(pending, 0, sizeof(pending));
	last_number = last_change = 0;
	home_count = 0;
	closing = false;
	for (int dir = 0; dir <= DIRS; dir++) {
		dir_attrs[dir] = (struct store_attr){ .ino = next_number(),
						      .mode = S_IFDIR | 0755,
						      .nlink = 2 };
		touch_dir(dir);
	}
	for (int i = 0; i < FILES; i++) {
		files[i].dir = i % DIRS;
		snprintf(files[i].name, sizeof(files[i].name), "f%02d", i);
		files[i].exists = true;
		write_version(&files[i], true);
		files[i].faulty_ms = 0;
	}
}

struct file *source_find(const char *path)
{
	char *slash = strchr(path, '/');

	for (int i = 0; slash && i < FILES; i++)
		if (files[i].dir == atoi(path + 1) && !strcmp(files[i].name, slash + 1))
			return &files[i];
	return NULL;
}

/* Another directory takes the name of one, and has files of its own. */
static void replace_dir(int dir)
{
	if (dir_hangs[dir])
		return;
	for (int i = 0; i < FILES; i++)
		if (files[i].dir == dir && (files[i].hangs || is_being_written(&files[i])))
			return;
	dir_attrs[dir].ino = next_number();
	touch_dir(dir);
	touch_dir(DIRS);
	for (int i = 0; i < FILES; i++)
		if (files[i].dir == dir && files[i].exists)
			write_version(&files[i], true);
}

void source_change(void)
{
	struct file *file = &files[draw(FILES)], *other;

	if (one_in(20)) {
		replace_dir(file->dir);
		return;
	}
	/* Each version of a file that hangs would hold what one file may hold. */
	if (file->hangs || is_being_written(file))
		return;
	switch (draw(6)) {
	case 0: /* removed or made */
		file->exists = !file->exists;
		if (file->exists)
			write_version(file, true);
		else
			supersede(file);
		touch_dir(file->dir);
		break;
	case 1: /* another file takes its name */
		file->exists = true;
		write_version(file, true);
		touch_dir(file->dir);
		break;
	case 2: /* two files change places */
		other = &files[draw(FILES)];
		if (file->exists && other->exists && file != other && !other->hangs &&
		    !is_being_written(other)) {
			struct store_attr attr = file->attr;

			supersede(file);
			supersede(other);
			file->attr = other->attr;
			other->attr = attr;
			file->attr.ctime_ns = next_version();
			other->attr.ctime_ns = next_version();
			note_home(file);
			note_home(other);
			touch_dir(other->dir);
		}
		touch_dir(file->dir);
		break;
	default: /* the directory does not tell */
		write_in_place(file);
	}
	file->faulty_ms = clock_now_ms();
}

/* --- faults ------------------------------------------------------------------------------------
 */

static void calm_files(void)
{
	for (int i = 0; i < FILES; i++) {
		if (files[i].hangs)
			files[i].faulty_ms = clock_now_ms();
		files[i].hangs = false;
	}
}

static void set_dir_hangs(int dir, bool hangs)
{
	if (dir_hangs[dir] != hangs)
		dir_hung_ms[dir] = clock_now_ms();
	dir_hangs[dir] = hangs;
	fiber_wake(&dir_hangs[dir]);
}

void source_fault(void)
{
	struct file *file = &files[draw(FILES)];
	int dir = (int)draw(DIRS);

	if (world.plan.hangs && one_in(2)) {
		bool hung = file->hangs;

		calm_files(); /* one file at a time: it must not delay others */
		file->hangs = !hung;
		file->faulty_ms = clock_now_ms();
		fiber_wake(&pending);
	}
	if (world.plan.dirs_hang && one_in(3))
		set_dir_hangs(dir, !dir_hangs[dir]);
}

void source_calm(void)
{
	calm_files();
	for (int dir = 0; dir < DIRS; dir++)
		set_dir_hangs(dir, false);
	fiber_wake(&pending);
}

uint64_t source_superseded_ms(uint64_t version)
{
	return superseded_ms[version] ? superseded_ms[version] : UINT64_MAX;
}

bool source_explains_mixture(uint64_t version, const struct stamp *stamp)
{
	const struct plan *plan = &world.plan;
	const struct writing *writing = &writings[version];
	uint64_t patience_ms = 400 + 20 * (uint64_t)plan->latency_ms;

	/* What is too young to be kept is dropped, and that may wait for what hangs. */
	if (plan->hangs || plan->dirs_hang)
		patience_ms += (plan->readers + plan->holders + 2) * plan->deadline_ms;
	return stamp->file == writing->before.file && stamp->version == writing->before.version &&
	       clock_now_ms() < writing->until_ms + patience_ms;
}

bool source_dir_hung(int dir, uint64_t since_ms)
{
	return dir_hangs[dir] || (dir_hung_ms[dir] && dir_hung_ms[dir] + world.plan.staleness_ms +
								      2 * world.plan.deadline_ms >=
							      since_ms);
}

bool source_explains(const struct file *file, uint64_t since_ms)
{
	return !file || !file->exists || file->hangs || world.plan.faults ||
	       source_dir_hung(file->dir, since_ms) ||
	       file->faulty_ms + world.plan.staleness_ms + 2 * world.plan.deadline_ms >= since_ms;
}

bool source_may_delay(const struct file *file, uint64_t since_ms)
{
	return !file || file->hangs || dir_hangs[file->dir] || dir_hung_ms[file->dir] >= since_ms ||
	       file->faulty_ms >= since_ms || file->faulty_ms + world.plan.deadline_ms >= since_ms;
}

/* --- the backend --------------------------------------------------------------------------------
 */

static void wait_a_while(int dir)
{
	if (world.plan.latency_ms)
		fiber_sleep_ms(draw(world.plan.latency_ms + 1));
	else
		fiber_yield();
	while (dir < DIRS && dir_hangs[dir])
		fiber_wait(&dir_hangs[dir], "a directory that hangs");
}

static int dir_number(const char *path)
{
	return *path ? atoi(path + 1) : DIRS;
}

static int fake_stat(struct store *store, const char *path, struct store_attr *attr)
{
	const struct file *file = source_find(path);

	(void)store;
	wait_a_while(dir_number(path));
	if (strchr(path, '/') && (!file || !file->exists))
		return -ENOENT;
	*attr = file ? file->attr : dir_attrs[dir_number(path)];
	return 0;
}

static int fake_open_dir(struct store_dir *dir, const char *path, const struct store_attr *expected,
			 struct store_attr *attr)
{
	int number = dir_number(path);

	wait_a_while(number);
	*attr = dir_attrs[number];
	if (!store_same_file(attr, expected))
		return -ESTALE;
	dir->fd = (int)attr->ino << DIR_BITS | number;
	return 0;
}

/* A directory that has lost its name is an empty one, or the source does not know it any more. */
static bool is_replaced(const struct store_dir *dir)
{
	return dir_attrs[dir->fd & ((1 << DIR_BITS) - 1)].ino != (uint64_t)(dir->fd >> DIR_BITS);
}

static void fake_close_dir(struct store_dir *dir)
{
	dir->fd = -1;
}

/* A name is looked at after it was read: what has gone meanwhile is left out. */
static int fake_list(struct store_dir *open, store_entry *entry, void *context)
{
	int dir = open->fd & ((1 << DIR_BITS) - 1), rc = 0;
	char name[16];

	wait_a_while(dir);
	if (is_replaced(open))
		return one_in(2) ? 0 : -ESTALE;
	for (int i = 0; dir == DIRS && !rc && i < DIRS; i++) {
		snprintf(name, sizeof(name), "d%d", i);
		rc = entry(context, name, &dir_attrs[i], 0);
	}
	for (int i = 0; dir < DIRS && !rc && i < FILES; i++) {
		if (one_in(8))
			fiber_yield();
		if (files[i].dir == dir && files[i].exists && !is_replaced(open))
			rc = entry(context, files[i].name, &files[i].attr, 0);
	}
	return rc;
}

static void fake_read(struct store *store, struct store_read *read)
{
	struct file *file = source_find(read->path);
	struct pending *at = pending;

	(void)store;
	while (at->read)
		if (++at == pending + READS_MAX)
			fail_run("more than %d reads at a time", READS_MAX);
	if (!file)
		fail_run("the path %s was never at the source", read->path);
	for (const struct pending *p = pending; p < pending + READS_MAX; p++)
		if (p->read && p->file == file && read->buffer && p->read->buffer &&
		    read->expected->size <= world.cache->range_bytes &&
		    store_same_version(p->read->expected, read->expected))
			fail_run("a second fetch of %s while the first is under way", read->path);
	*at = (struct pending){ .read = read,
				.file = file,
				.begun = stamp_of(file),
				.due_ms = clock_now_ms() + draw(world.plan.latency_ms + 1),
				.cancelled = read->cancelled };
	read->progress = at;
	fiber_wake(&pending);
}

static void fake_cancel(struct store *store, struct store_read *read)
{
	struct pending *at = read->progress;

	(void)store;
	if (at)
		at->cancelled = true;
	read->cancelled = true;
	fiber_wake(&pending);
}

static size_t draw_page(const struct store_read *read)
{
	return (size_t)draw((uint32_t)(read->size / PAGE) + 2) * PAGE;
}

/* Copies pages; up to a drawn one they are what they were when the read began, and from another
 * drawn one on they are what they were before a write that is under way. */
static void fill(const struct pending *at, size_t bytes)
{
	const struct file *file = at->file;
	struct stamp now = stamp_of(file);
	size_t old_until = draw_page(at->read);
	size_t old_from = is_being_written(file) ? draw_page(at->read) : SIZE_MAX;

	memset(at->read->buffer, 0, bytes);
	for (size_t offset = 0; offset < bytes; offset += PAGE) {
		const struct stamp *stamp = offset < old_until ? &at->begun : &now;
		size_t room = at->read->size - offset;

		if (offset >= old_from && stamp->version == now.version)
			stamp = &writings[now.version].before;

		memcpy((char *)at->read->buffer + offset, stamp,
		       room < sizeof(*stamp) ? room : sizeof(*stamp));
	}
}

static int outcome(struct pending *at)
{
	struct store_read *read = at->read;
	struct store_attr found = at->file->attr;
	uint64_t left = read->offset < found.size ? found.size - read->offset : 0;
	size_t bytes = left < read->size ? left : read->size;

	if (at->cancelled)
		return -ETIMEDOUT;
	if (!at->file->exists)
		return -ENOENT;
	if (world.plan.faults && one_in(12))
		return one_in(2) ? -EIO : -ENOMEM;
	if (world.plan.faults && one_in(12))
		bytes = 0; /* a source that promised more */
	if (read->buffer)
		fill(at, bytes);
	return store_read_outcome(read, &found, read->buffer ? bytes : 0);
}

static bool is_due(const struct pending *at)
{
	if (at->cancelled && !(world.plan.deaf && at->file->hangs))
		return true;
	return !at->file->hangs && at->due_ms <= clock_now_ms();
}

/* One that is due, any of them. */
static struct pending *choose_due(void)
{
	struct pending *due[READS_MAX];
	unsigned count = 0;

	for (struct pending *at = pending; at < pending + READS_MAX; at++)
		if (at->read && is_due(at))
			due[count++] = at;
	return count ? due[draw(count)] : NULL;
}

static bool any_pending(void)
{
	for (const struct pending *at = pending; at < pending + READS_MAX; at++)
		if (at->read && !at->file->hangs)
			return true;
	return false;
}

static void end_reads(void *unused)
{
	struct pending *at;

	(void)unused;
	while (!closing) {
		at = choose_due();
		if (at) {
			struct store_read *read = at->read;
			int rc = outcome(at);

			*at = (struct pending){ 0 };
			read->done(read, rc);
		} else if (any_pending()) {
			fiber_sleep_ms(1);
		} else {
			fiber_wait(&pending, "reads");
		}
	}
}

static void fake_close(struct store *store)
{
	(void)store;
	closing = true;
	fiber_wake(&pending);
	thread_join(&ender);
	for (const struct pending *at = pending; at < pending + READS_MAX; at++)
		if (at->read)
			fail_run("the store is closed while %s is read", at->read->path);
}

/* Takes some of them. A version that nobody has any more may still be rated. */
static size_t fake_rate(struct store *store, const struct store_rating *ratings, size_t count)
{
	(void)store;
	for (size_t i = 0; i < count; i++) {
		if (!(ratings[i].worth >= 0 && ratings[i].worth <= 1))
			fail_run("a file is worth %g", (double)ratings[i].worth);
		if (!source_version(&ratings[i].attr) ||
		    source_version(&ratings[i].attr) > last_change)
			fail_run("a version is rated that never was");
	}
	return draw((uint32_t)count + 1);
}

struct store *source_open(void)
{
	static const struct store_ops ops = { .stat = fake_stat,
					      .open_dir = fake_open_dir,
					      .list = fake_list,
					      .close_dir = fake_close_dir,
					      .read = fake_read,
					      .cancel = fake_cancel,
					      .close = fake_close,
					      .rate = fake_rate };
	static struct store store = { .ops = &ops };

	reset();
	(void)thread_start(&ender, "store", end_reads, NULL);
	return &store;
}
