/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The kernel as the cache meets it: names that it remembers, inodes that it knows, pages that it
 * has, folios that READs lock, and notifications that wait for those locks. And the part of the
 * FUSE front end that passes requests on.
 *
 * A LOOKUP holds its directory's lock until it is answered, together with other LOOKUPs; the
 * invalidation of a name holds it alone, and LOOKUPs that come while it waits wait behind it. Two
 * LOOKUPs of one name are one.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "cache/internal.h"
#include "world.h"

#define INODES_MAX 1024
#define EVENTS_MAX 4096
#define READ_PAGES 3 /* of one READ, at most */

struct page {
	bool present, locked;
	struct stamp stamp;
};

struct inode {
	struct node *node; /* NULL: a free entry */
	uint64_t ino;	   /* of the file or directory at the source */
	uint32_t generation;
	uint64_t lookups;
	unsigned opens;
	unsigned requests; /* READs and OPENs under way */
	uint64_t stale_ms; /* since when its name was seen to mean a node without one; 0: it does
			      not */
	struct page pages[PAGES_MAX];
};

/* A name that the kernel remembers. */
struct dentry {
	struct inode *inode; /* NULL: it does not */
	uint64_t until_ms;
	bool asked; /* a LOOKUP is under way */
};

/* A directory's lock, as the kernel has it. */
struct dir_lock {
	unsigned readers;
	unsigned writers; /* who wait, or the one who has it */
	bool written;
};

struct event {
	const struct node *node;
	uint32_t generation;
	uint32_t job;
	bool opened;
};

static struct inode inodes[INODES_MAX];
static struct dentry dir_names[DIRS], file_names[FILES];
static struct dir_lock dir_locks[DIRS + 1];
static struct event events[EVENTS_MAX];
static unsigned event_first, event_count;
static uint64_t pages_present;
static bool ended;

void kernel_reset(void)
{
	memset(inodes, 0, sizeof(inodes));
	memset(dir_names, 0, sizeof(dir_names));
	memset(file_names, 0, sizeof(file_names));
	memset(dir_locks, 0, sizeof(dir_locks));
	event_first = event_count = 0;
	pages_present = 0;
	ended = false;
}

void kernel_end(void)
{
	ended = true;
	fiber_wake(&events);
}

uint64_t kernel_pages(void)
{
	return pages_present;
}

/* --- inodes and pages ---------------------------------------------------------------------------
 */

static struct inode *find_inode(const struct node *node)
{
	for (struct inode *inode = inodes; inode < inodes + INODES_MAX; inode++)
		if (inode->node == node)
			return inode;
	return NULL;
}

static struct inode *make_inode(struct node *node)
{
	struct inode *inode = find_inode(node);

	if (!inode) {
		inode = find_inode(NULL);
		if (!inode)
			fail_run("more than %d inodes", INODES_MAX);
		*inode = (struct inode){ .node = node, .ino = node->attr.ino };
	}
	if (inode->ino != node->attr.ino)
		fail_run("%s has become another file or directory", node->name);
	inode->generation = (uint32_t)(node_slot(node) + 1);
	inode->lookups++;
	return inode;
}

static bool counts(const struct inode *inode)
{
	return !cache_is_large(world.cache, inode->node);
}

static void set_page(struct inode *inode, unsigned number, const struct stamp *stamp)
{
	struct page *page = &inode->pages[number];

	if (!page->present && counts(inode))
		pages_present++;
	page->present = true;
	page->stamp = *stamp;
}

static void clear_page(struct inode *inode, unsigned number)
{
	struct page *page = &inode->pages[number];

	if (page->present && counts(inode))
		pages_present--;
	page->present = false;
}

static void wait_unlocked(const struct page *page)
{
	while (page->locked)
		fiber_wait(page, "a folio lock");
}

static unsigned page_count(const struct node *node)
{
	return (unsigned)((node->attr.size + PAGE - 1) / PAGE);
}

/* Forgets an inode that nobody uses; its pages go with it. */
static void forget(struct inode *inode)
{
	struct node *node = inode->node;
	uint64_t lookups = inode->lookups;

	for (unsigned i = 0; i < PAGES_MAX; i++)
		clear_page(inode, i);
	for (int i = 0; i < FILES; i++)
		if (file_names[i].inode == inode)
			file_names[i].inode = NULL;
	for (int i = 0; i < DIRS; i++)
		if (dir_names[i].inode == inode)
			dir_names[i].inode = NULL;
	*inode = (struct inode){ 0 };
	cache_forget(world.cache, node, lookups);
}

static bool has_locked_page(const struct inode *inode)
{
	for (unsigned i = 0; i < PAGES_MAX; i++)
		if (inode->pages[i].locked)
			return true;
	return false;
}

void kernel_reclaim(void)
{
	struct inode *inode = &inodes[draw(INODES_MAX)];
	unsigned tries = INODES_MAX;

	while (tries-- && (!inode->node || !node_is_file(inode->node)))
		inode = &inodes[(inode - inodes + 1) % INODES_MAX];
	if (!inode->node || !node_is_file(inode->node))
		return;
	if (one_in(2)) {
		unsigned number = draw(PAGES_MAX);

		if (!inode->pages[number].locked)
			clear_page(inode, number);
	} else if (!inode->opens && !inode->requests && !has_locked_page(inode)) {
		forget(inode);
	}
}

/* --- names --------------------------------------------------------------------------------------
 */

static struct dentry *dentry_of(int dir, const char *name)
{
	return name ? &file_names[atoi(name + 1)] : &dir_names[dir];
}

static void lock_dir_shared(struct dir_lock *lock)
{
	while (lock->writers)
		fiber_wait(lock, "a directory's lock");
	lock->readers++;
}

static void unlock_dir_shared(struct dir_lock *lock)
{
	lock->readers--;
	fiber_wake(lock);
}

static void lock_dir(struct dir_lock *lock)
{
	lock->writers++;
	while (lock->readers || lock->written)
		fiber_wait(lock, "a directory's lock, alone");
	lock->written = true;
}

static void unlock_dir(struct dir_lock *lock)
{
	lock->writers--;
	lock->written = false;
	fiber_wake(lock);
}

static bool is_remembered(const struct dentry *dentry)
{
	return dentry->inode && dentry->until_ms >= clock_now_ms();
}

void kernel_check_names(void)
{
	for (int i = 0; i < FILES; i++) {
		struct inode *inode = is_remembered(&file_names[i]) ? file_names[i].inode : NULL;

		if (!inode)
			continue;
		if (!inode->node->detached)
			inode->stale_ms = 0;
		else if (!inode->stale_ms)
			inode->stale_ms = clock_now_ms();
		else if (clock_now_ms() > inode->stale_ms + world.plan.deadline_ms / 2)
			fail_run("the kernel still knows %s by its old version", files[i].name);
	}
}

struct parked {
	struct tree_wait wait;
	bool answered;
	int rc;
};

static void unpark(struct tree_wait *wait, int rc)
{
	struct parked *parked = (struct parked *)wait;

	if (parked->answered)
		fail_run("a LOOKUP is answered twice");
	parked->answered = true;
	parked->rc = rc;
	fiber_wake(parked);
}

static bool is_parked(const struct tree_wait *wait, void *parked)
{
	return wait == parked;
}

/* Waits until the directory was read; some are killed meanwhile. */
static int await_dir(struct node *dir)
{
	struct parked parked = { .wait = { .ready = unpark, .key = (uintptr_t)&parked } };
	int rc = tree_await(world.tree, dir, clock_now_ms(), &parked.wait);

	if (rc != 1)
		return rc;
	if (world.plan.interrupts && one_in(10)) {
		fiber_sleep_ms(draw(3));
		if (!parked.answered &&
		    tree_take_wait(world.tree, parked.wait.key, is_parked, &parked.wait))
			unpark(&parked.wait, -EINTR);
	}
	while (!parked.answered)
		fiber_wait(&parked, "a LOOKUP");
	return parked.rc;
}

/* Who may enter a directory may look up what is in that one, and not in another that has its name
 * by now. */
static void check_parent(const struct node *node)
{
	const struct node *dir = node->parent;

	if (dir->parent && !source_was_in(node->attr.ino, dir->attr.ino))
		fail_run("%s is told to be in a directory that never had it", node->name);
}

/* What the kernel remembers of a directory goes with that. */
static void forget_names_in(int dir)
{
	for (int i = 0; i < FILES; i++)
		if (files[i].dir == dir)
			file_names[i].inode = NULL;
}

/* A LOOKUP, as fuse/files.c handles it. */
static int ask(struct node *parent, const char *name, struct dentry *dentry, bool own)
{
	struct node *node;
	unsigned turn;
	int rc = tree_lookup(world.tree, parent, name, clock_now_ms(), !own, &node, &turn);

	if (rc == -EAGAIN) {
		rc = await_dir(parent);
		if (!rc)
			rc = tree_lookup(world.tree, parent, name, clock_now_ms(), false, &node,
					 &turn);
	}
	if (rc) {
		dentry->inode = NULL;
		return rc;
	}
	check_parent(node);
	if (one_in(4))
		fiber_yield(); /* the answer is on its way */
	if (node_is_dir(node) && find_inode(node) != dentry->inode)
		forget_names_in(node->name[1] - '0');
	dentry->inode = make_inode(node);
	dentry->until_ms =
		world.plan.observed ? UINT64_MAX : clock_now_ms() + world.plan.staleness_ms;
	tree_replied(world.tree, turn);
	return 0;
}

/* A step of a path: the name of a directory in the root, or of a file in a directory. */
static int step(struct node *parent, int dir, const char *name, bool own, struct inode **out)
{
	struct dentry *dentry = dentry_of(dir, name);
	struct dir_lock *lock = &dir_locks[name ? dir : DIRS];
	char text[8];
	int rc = 0;

	if (is_remembered(dentry)) {
		*out = dentry->inode;
		return 0;
	}
	snprintf(text, sizeof(text), "d%d", dir);
	lock_dir_shared(lock);
	while (dentry->asked)
		fiber_wait(dentry, "another LOOKUP of the name");
	if (!is_remembered(dentry)) {
		dentry->asked = true;
		rc = ask(parent, name ? name : text, dentry, own);
		dentry->asked = false;
		fiber_wake(dentry);
	}
	*out = dentry->inode;
	unlock_dir_shared(lock);
	if (!rc && !*out)
		rc = -ENOENT; /* invalidated at once */
	return rc;
}

/* Holds the inode by counting a request. */
static int look_up(int dir, const char *name, bool own, struct inode **out)
{
	struct inode *inode;
	int rc = step(tree_root(world.tree), dir, NULL, own, &inode);

	if (!rc)
		rc = step(inode->node, dir, name, own, &inode);
	if (rc)
		return rc;
	inode->requests++;
	*out = inode;
	return 0;
}

/* --- what the cache tells the kernel ------------------------------------------------------------
 */

static int kernel_store(void *context, struct node *node, const void *data, size_t size,
			uint64_t offset)
{
	struct inode *inode = find_inode(node);
	size_t refused_at = SIZE_MAX;
	int rc = 0;

	(void)context;
	if (!inode)
		return -ENOENT;
	if (offset % PAGE)
		fail_run("a store that does not begin with a page");
	if (world.plan.stores_fail && one_in(8))
		refused_at = (size_t)draw(PAGES_MAX) * PAGE;
	inode->requests++; /* the kernel holds it meanwhile */
	for (size_t at = 0; at < size && !rc; at += PAGE) {
		unsigned number = (unsigned)((offset + at) / PAGE);
		struct stamp stamp = { 0 };
		size_t left = size - at;

		wait_unlocked(&inode->pages[number]);
		if (at >= refused_at) {
			rc = -ENOMEM;
			continue;
		}
		memcpy(&stamp, (const char *)data + at,
		       left < sizeof(stamp) ? left : sizeof(stamp));
		set_page(inode, number, &stamp);
		if (one_in(4))
			fiber_yield();
	}
	inode->requests--;
	return rc;
}

static int kernel_forget_name(void *context, struct node *node)
{
	int dir = node->parent->parent ? node->parent->name[1] - '0' : DIRS;
	struct dentry *dentry = dentry_of(node->name[1] - '0', dir == DIRS ? NULL : node->name);

	(void)context;
	tree_wait_for_replies(world.tree);
	lock_dir(&dir_locks[dir]);
	dentry->inode = NULL;
	unlock_dir(&dir_locks[dir]);
	return 0;
}

static int kernel_drop(void *context, struct node *node)
{
	struct inode *inode;

	(void)context;
	if (node_is_dir(node))
		tree_wait_for_replies(world.tree);
	inode = find_inode(node);
	if (!inode)
		return -ENOENT;
	inode->requests++;
	for (unsigned i = 0; i < PAGES_MAX; i++) {
		wait_unlocked(&inode->pages[i]);
		clear_page(inode, i);
		if (one_in(8))
			fiber_yield();
	}
	inode->requests--;
	return 0;
}

static int kernel_probe(void *context, struct node *node, uint64_t offset, struct probe *probe)
{
	const struct inode *inode = find_inode(node);

	(void)context;
	if (!inode)
		return -ENOENT;
	cache_probed(probe, node, inode->pages[offset / PAGE].present);
	return 0;
}

static int kernel_introduce(void *context, struct node *node)
{
	struct inode *inode;
	int rc = look_up(node->parent->name[1] - '0', node->name, true, &inode);

	(void)context;
	if (!rc)
		inode->requests--;
	return rc;
}

const struct page_cache_kernel kernel_ops = { .store = kernel_store,
					      .drop = kernel_drop,
					      .probe = kernel_probe,
					      .forget_name = kernel_forget_name,
					      .introduce = kernel_introduce };

/* --- requests -----------------------------------------------------------------------------------
 */

struct request {
	struct waiter waiter;
	struct inode *inode;
	unsigned first, count; /* pages of a READ */
	bool direct;
	bool answered;
	int rc;
	struct stamp got[READ_PAGES];
};

static void answer(struct waiter *waiter, int rc, const void *data, size_t size)
{
	struct request *request = (struct request *)waiter;

	if (request->answered)
		fail_run("a request is answered twice");
	request->answered = true;
	request->rc = rc;
	for (unsigned i = 0; !rc && !waiter->opens && (size_t)i * PAGE < size; i++) {
		size_t at = (size_t)i * PAGE, left = size - at;

		memcpy(&request->got[i], (const char *)data + at,
		       left < sizeof(struct stamp) ? left : sizeof(struct stamp));
		if (!request->direct)
			set_page(request->inode, request->first + i, &request->got[i]);
	}
	for (unsigned i = 0; !waiter->opens && !request->direct && i < request->count; i++) {
		request->inode->pages[request->first + i].locked = false;
		fiber_wake(&request->inode->pages[request->first + i]);
	}
	fiber_wake(request);
}

static bool is_request(const struct waiter *waiter, void *request)
{
	return waiter == request;
}

/* Waits for the answer; some are interrupted. */
static int wait_for_answer(struct request *request)
{
	if (world.plan.interrupts && one_in(10)) {
		fiber_sleep_ms(draw(3));
		if (!request->answered && cache_take_waiter(world.cache, request->waiter.key,
							    is_request, &request->waiter))
			answer(&request->waiter, -EINTR, NULL, 0);
	}
	while (!request->answered)
		fiber_wait(request, request->waiter.opens ? "an OPEN" : "a READ");
	return request->rc;
}

static int open_inode(struct inode *inode, uint32_t job)
{
	struct request request = { .waiter = { .answer = answer,
					       .opens = true,
					       .job = job,
					       .key = (uintptr_t)&request },
				   .inode = inode };

	if (world.plan.observed)
		return 0;
	cache_open(world.cache, inode->node, &request.waiter);
	return wait_for_answer(&request);
}

static int send_read(struct inode *inode, unsigned first, unsigned count,
		     const struct reader *reader, struct stamp *got)
{
	bool direct = reader->direct;
	struct request request = { .waiter = { .answer = answer,
					       .key = (uintptr_t)&request,
					       .job = reader->job,
					       .offset = (uint64_t)first * PAGE,
					       .size = (size_t)count * PAGE,
					       .direct = direct },
				   .inode = inode,
				   .first = first,
				   .count = count,
				   .direct = direct };
	int rc;

	for (unsigned i = 0; !direct && i < count; i++)
		inode->pages[first + i].locked = true;
	cache_read(world.cache, inode->node, &request.waiter);
	rc = wait_for_answer(&request);
	memcpy(got, request.got, count * sizeof(*got));
	return rc;
}

/* How many pages from `first` on the kernel would ask for at once. */
static unsigned read_ahead(const struct inode *inode, unsigned first)
{
	unsigned most = 1 + draw(READ_PAGES), count = 1;

	while (count < most && first + count < page_count(inode->node) &&
	       !inode->pages[first + count].present && !inode->pages[first + count].locked)
		count++;
	return count;
}

static void check_stamp(const struct node *node, unsigned page, const struct stamp *stamp)
{
	uint64_t left = node->attr.size - (uint64_t)page * PAGE;

	if (left < sizeof(*stamp))
		return; /* too few bytes to tell */
	if (stamp->file == node->attr.ino && stamp->version == source_version(&node->attr))
		return;
	if (!source_explains_mixture(source_version(&node->attr), stamp))
		fail_run("%s: page %u is of version %llu of file %llu instead of %llu of %llu",
			 node->name, page, (unsigned long long)stamp->version,
			 (unsigned long long)stamp->file,
			 (unsigned long long)source_version(&node->attr),
			 (unsigned long long)node->attr.ino);
}

static int read_page(struct inode *inode, unsigned number, const struct reader *reader)
{
	struct page *page = &inode->pages[number];
	struct stamp got[READ_PAGES] = { 0 };
	int rc;

	if (reader->direct) {
		rc = send_read(inode, number, 1, reader, got);
		if (!rc)
			check_stamp(inode->node, number, &got[0]);
		return rc;
	}
	wait_unlocked(page);
	if (!page->present) {
		rc = send_read(inode, number, read_ahead(inode, number), reader, got);
		if (rc)
			return rc;
		check_stamp(inode->node, number, &got[0]);
		return 0;
	}
	check_stamp(inode->node, number, &page->stamp);
	return 0;
}

/* --- accesses that are observed -----------------------------------------------------------------
 */

static void note(const struct inode *inode, bool opened, uint32_t job)
{
	if (!world.plan.observed || event_count == EVENTS_MAX)
		return; /* an overflow: lost */
	events[(event_first + event_count++) % EVENTS_MAX] =
		(struct event){ inode->node, inode->generation, job, opened };
	fiber_wake(&events);
}

void kernel_tell_accesses(void *unused)
{
	(void)unused;
	while (!ended) {
		struct event event = events[event_first];

		if (!event_count) {
			fiber_wait(&events, "accesses");
			continue;
		}
		if (one_in(10))
			fiber_sleep_ms(1 + draw(3));
		event_first = (event_first + 1) % EVENTS_MAX;
		event_count--;
		if (event.generation && event.opened)
			cache_saw_open(world.cache, event.node, event.generation - 1, event.job, 1);
		else if (event.generation && !one_in(100)) /* the kernel merges events */
			cache_saw_close(world.cache, event.node, event.generation - 1);
	}
	world.helpers_left--;
}

/* --- a reader -----------------------------------------------------------------------------------
 */

/* Like the kernel: a name whose file is stale is looked up once more, and so is the whole path if
 * its directory is. */
static int open_name(int dir, const char *name, uint32_t job, struct inode **out)
{
	int rc = -ESTALE;

	for (int tries = 0; rc == -ESTALE && tries < 2; tries++) {
		rc = look_up(dir, name, false, out);
		if (rc == -ESTALE)
			dentry_of(dir, NULL)->inode = dentry_of(dir, name)->inode = NULL;
		if (rc)
			continue;
		rc = open_inode(*out, job);
		if (!rc)
			(*out)->opens++;
		(*out)->requests--;
		if (rc == -ESTALE && dentry_of(dir, name)->inode == *out)
			dentry_of(dir, name)->inode = NULL;
	}
	return rc;
}

/* In portable mode an open sees no version that is older than `staleness`, give or take the time
 * that questions to the source take. In native mode a thread reads directories again in time,
 * which this world does not promise while they hang. */
static void check_age(const struct node *node, int dir, uint64_t began_ms)
{
	uint64_t until_ms = source_superseded_ms(source_version(&node->attr));
	uint64_t allowed_ms = world.plan.staleness_ms + world.plan.deadline_ms;

	if (!world.plan.observed && !source_dir_hung(dir, began_ms) && until_ms != UINT64_MAX &&
	    until_ms + allowed_ms < began_ms)
		fail_run("%s: version %llu was opened %llu ms after the source had it", node->name,
			 (unsigned long long)source_version(&node->attr),
			 (unsigned long long)(began_ms - until_ms));
}

int kernel_read_file(int dir, const char *name, const struct reader *reader)
{
	uint64_t began_ms = clock_now_ms();
	struct inode *inode;
	int rc = open_name(dir, name, reader->job, &inode);

	if (rc)
		return rc;
	check_age(inode->node, dir, began_ms);
	note(inode, true, reader->job);
	for (unsigned i = 0; !rc && i < page_count(inode->node); i++) {
		rc = read_page(inode, i, reader);
		if (one_in(4))
			fiber_yield();
	}
	if (reader->hold_ms)
		fiber_sleep_ms(reader->hold_ms);
	inode->opens--;
	note(inode, false, reader->job);
	if (!world.plan.observed)
		cache_release(world.cache, inode->node);
	return rc;
}
