/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/scan.h"

#include <assert.h>
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/threads.h"
#include "names/manifest.h"

#define AGAIN_MS 5000	/* between a scan that failed and the next */
#define IDLE_MS 1000	/* between looks whether the source lives */
#define AUDIT_MS 20	/* native: between looks at what the tree knows */
#define PATIENCE_MS 500 /* native: that one directory may take before the next is looked at */
#define FLUSH_MS 1000	/* between flushes of the overlay */
#define FLUSHES 3	/* after news */

struct scan {
	struct scan_options options;
	struct manifest_keeper manifest;
	struct thread thread, auditor;
	bool started, audits;  /* which of them runs */
	_Atomic bool stopping; /* ends calls of tree and cache functions, too */

	struct lock lock;
	struct cond changed; /* lock: `wanted` or `stopping` */
	bool wanted;	     /* lock */

	int last_rc; /* the scan thread's own: what came of the last numbering */
	/* The auditor's own. */
	uint64_t audited_ms, flushed_ms;
	unsigned flushes; /* so many are due, whether or not there are orphans */
};

/* In native mode the kernel does not ask whether names are still right. Directories are read again
 * in time, so that no name is ever older than `staleness`, and at once if a name is doubted.
 *
 * The overlay keeps names that are in use, so it is flushed until there are no orphans left. It
 * also remembers which names do not exist, and who may enter a directory. An old answer that is on
 * its way during a flush is remembered once more, so news is followed by several flushes. */
static void audit(struct scan *scan)
{
	uint64_t now = clock_now_ms(), staleness = scan->options.staleness_ms;
	struct tree *tree = cache_tree(scan->options.cache);

	if (tree_is_doubted(tree) || now - scan->audited_ms > staleness / 8) {
		(void)tree_refresh(tree, now, staleness / 2, PATIENCE_MS, &scan->stopping);
		scan->audited_ms = now;
		scan->flushed_ms = 0;
	}
	if (tree_has_news(tree)) {
		scan->flushes = FLUSHES;
		scan->flushed_ms = 0;
	}
	if (now - scan->flushed_ms > FLUSH_MS && (scan->flushes || tree_orphans(tree))) {
		scan->options.flush(scan->options.context);
		scan->flushed_ms = now;
		scan->flushes -= scan->flushes > 0;
	}
}

static void audit_always(void *argument)
{
	struct scan *scan = argument;

	scan->audited_ms = clock_now_ms();
	while (!atomic_load(&scan->stopping)) {
		audit(scan);
		lock_acquire(&scan->lock);
		if (!atomic_load(&scan->stopping))
			(void)cond_wait_until(&scan->changed, &scan->lock,
					      clock_now_ms() + AUDIT_MS);
		lock_release(&scan->lock);
	}
}

/* Waits for a moment, for scan_want(), or until `retry_ms`. Whether to number the samples, and
 * whether somebody has asked for that. */
static bool is_wanted(struct scan *scan, uint64_t retry_ms, bool *asked)
{
	uint64_t until = clock_now_ms() + IDLE_MS;

	lock_acquire(&scan->lock);
	if (!scan->wanted && !atomic_load(&scan->stopping))
		(void)cond_wait_until(&scan->changed, &scan->lock,
				      until < retry_ms ? until : retry_ms);
	*asked = scan->wanted;
	scan->wanted = false;
	lock_release(&scan->lock);
	return (*asked || clock_now_ms() >= retry_ms) && !atomic_load(&scan->stopping);
}

/* `again`: names are known already, and the source may have others by now. */
static int number_samples(struct scan *scan, bool again)
{
	struct tree *tree = cache_tree(scan->options.cache);
	int rc = 0;

	if (again)
		rc = tree_refresh(tree, clock_now_ms(), 0, TREE_PATIENT, &scan->stopping);
	if (!rc)
		rc = cache_scan(scan->options.cache, &scan->stopping);
	if (!rc)
		manifest_save(&scan->manifest, tree, &scan->stopping);
	/* A directory that hangs would be told of again and again. */
	if (rc && rc != -ECANCELED && rc != -ESHUTDOWN && rc != scan->last_rc)
		log_say(LOG_ERRORS, "scanning %s: %s", scan->options.source, strerror(-rc));
	scan->last_rc = rc;
	(void)malloc_trim(0); /* tables have grown and left holes */
	return rc;
}

static void run(void *argument)
{
	struct scan *scan = argument;
	uint64_t retry_ms = UINT64_MAX; /* when the source may have recovered */
	bool first = true, asked;

	while (!atomic_load(&scan->stopping)) {
		bool wanted = is_wanted(scan, retry_ms, &asked);

		/* Mounted again, it may have other versions of everything. */
		if (!atomic_load(&scan->stopping) && store_revive(scan->options.store))
			wanted = asked = true;
		if (!wanted)
			continue;
		retry_ms = number_samples(scan, asked && !first) ? clock_now_ms() + AGAIN_MS
								 : UINT64_MAX;
		first = false;
	}
}

void scan_want(struct scan *scan)
{
	lock_acquire(&scan->lock);
	scan->wanted = true;
	cond_wake_all(&scan->changed);
	lock_release(&scan->lock);
}

int scan_create(struct scan **out, const struct scan_options *options)
{
	struct scan *scan = calloc(1, sizeof(*scan));

	assert(options->cache && options->flush);
	if (!scan)
		return -ENOMEM;
	scan->options = *options;
	scan->wanted = true;
	lock_init(&scan->lock, LOCK_SCAN);
	cond_init(&scan->changed);
	scan->manifest.path = options->manifest;
	scan->manifest.dir = options->manifest_fd;
	manifest_load(&scan->manifest, cache_tree(options->cache));
	*out = scan;
	return 0;
}

int scan_start(struct scan *scan, bool native)
{
	int rc;

	assert(!scan->started);
	rc = thread_start(&scan->thread, "shade-scan", run, scan);
	scan->started = !rc;
	if (!rc && native) {
		rc = thread_start(&scan->auditor, "shade-audit", audit_always, scan);
		scan->audits = !rc;
	}
	return rc;
}

void scan_stop(struct scan *scan)
{
	lock_acquire(&scan->lock);
	atomic_store(&scan->stopping, true);
	cond_wake_all(&scan->changed);
	lock_release(&scan->lock);
}

void scan_destroy(struct scan *scan)
{
	assert(!scan->started || atomic_load(&scan->stopping));
	if (scan->started)
		thread_join(&scan->thread);
	if (scan->audits)
		thread_join(&scan->auditor);
	lock_destroy(&scan->lock);
	cond_destroy(&scan->changed);
	free(scan);
}
