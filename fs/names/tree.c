/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/threads.h"
#include "names/manifest.h"
#include "names/tree_internal.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

/* --- nodes --------------------------------------------------------------------------------- */

static struct node *node_new(struct node *parent, const char *name, const struct store_attr *attr,
			     uint64_t now_ms)
{
	size_t length = strlen(name), size = offsetof(struct node, name) + length + 1;
	struct node *node = calloc(1, size > sizeof(*node) ? size : sizeof(*node));

	if (!node)
		return NULL;
	memcpy(node->name, name, length + 1);
	node->parent = parent;
	node->attr = *attr;
	node->type = attr->mode & 0170000;
	node->checked_ms = now_ms;
	node->slot = SLOT_NONE;
	if (parent)
		node_hold(parent);
	return node;
}

void node_hold(struct node *node)
{
	atomic_fetch_add(&node->holders, 1);
}

/* Frees nodes that have no name and that nobody knows, up to the root. Tree lock held. */
static void free_if_unused_locked(struct tree *tree, struct node *node)
{
	while (node && node->detached && !node->lookups && !atomic_load(&node->holders)) {
		struct node *parent = node->parent;

		assert(node != tree->root);
		free(node->children);
		free(node);
		if (parent)
			atomic_fetch_sub(&parent->holders, 1);
		node = parent;
	}
}

void tree_release(struct tree *tree, struct node *node)
{
	if (atomic_fetch_add(&node->released, 1) > 0)
		return; /* it is in the list already */
	lock_acquire(&tree->release_lock);
	node->next_released = tree->released;
	tree->released = node;
	lock_release(&tree->release_lock);
}

void tree_reap(struct tree *tree)
{
	struct node *node;

	lock_acquire(&tree->release_lock);
	node = tree->released;
	tree->released = NULL;
	lock_release(&tree->release_lock);
	if (!node)
		return;
	lock_acquire(&tree->lock);
	for (struct node *next; node; node = next) {
		next = node->next_released;
		atomic_fetch_sub(&node->holders, atomic_exchange(&node->released, 0));
		free_if_unused_locked(tree, node);
	}
	lock_release(&tree->lock);
}

static void lose_name_locked(struct tree *tree, struct node *node)
{
	node->detached = true;
	atomic_store(&node->stale, true);
	tree->ghosts += node->lookups > 0;
#ifdef __SANITIZE_ADDRESS__
	__lsan_ignore_object(node); /* unmounted, the kernel never says that it has forgotten it */
#endif
}

/* A node loses its name, and with a directory all below. */
static void detach_locked(struct tree *tree, struct node *node)
{
	if (node_is_dir(node)) {
		for (uint32_t i = 0; i < node->child_count; i++)
			detach_locked(tree, node->children[i]);
		node->child_count = 0;
	}
	lose_name_locked(tree, node);
	tree_remember_name_locked(tree, node);
	if (node_is_file(node))
		tree->events->file_removed(tree->context, node);
	else
		tree->events->dir_changed(tree->context, node);
	free_if_unused_locked(tree, node);
}

/* --- directories ----------------------------------------------------------------------------- */

/* What the source has in a directory, as nodes that nobody knows yet. */
struct listing {
	struct node *dir;
	uint64_t now_ms;
	struct node **children;
	uint32_t count, room;
};

static int by_name(const void *a, const void *b)
{
	return strcmp((*(struct node *const *)a)->name, (*(struct node *const *)b)->name);
}

uint32_t tree_number_of(const struct node *dir, const char *name)
{
	uint32_t from = 0, to = dir->child_count;

	while (from < to) {
		uint32_t middle = from + (to - from) / 2;

		if (strcmp(dir->children[middle]->name, name) < 0)
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

static struct node *find_child(const struct node *dir, const char *name)
{
	uint32_t number = tree_number_of(dir, name);

	if (number == dir->child_count || strcmp(dir->children[number]->name, name))
		return NULL;
	return dir->children[number];
}

static int add_entry(void *context, const char *name, const struct store_attr *attr)
{
	struct listing *listing = context;
	struct node *node;

	if (!listing->dir->parent && !strcmp(name, TREE_TAKEN))
		return 0;
	if (listing->count == listing->room) {
		uint32_t room = listing->room ? listing->room * 2 : 16;
		struct node **grown = realloc(listing->children, room * sizeof(struct node *));

		if (!grown)
			return -ENOMEM;
		listing->children = grown;
		listing->room = room;
	}
	node = node_new(listing->dir, name, attr, listing->now_ms);
	if (!node)
		return -ENOMEM;
	listing->children[listing->count++] = node;
	return 0;
}

/* One that nobody has seen. */
static void discard(struct node *node)
{
	atomic_fetch_sub(&node->parent->holders, 1);
	free(node);
}

static void drop_listing(struct listing *listing)
{
	for (uint32_t i = 0; i < listing->count; i++)
		discard(listing->children[i]);
	free(listing->children);
}

/* A name that is made anew while the source is listed may come twice. Sorted. */
static void leave_out_twins(struct listing *listing)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < listing->count; i++) {
		struct node *node = listing->children[i];

		if (count && !by_name(&listing->children[count - 1], &node))
			discard(node);
		else
			listing->children[count++] = node;
	}
	listing->count = count;
}

/* Complete. */
static int close_listing(struct listing *listing)
{
	if (!listing->children) {
		listing->children = malloc(sizeof(struct node *)); /* empty, but read */
		if (!listing->children)
			return -ENOMEM;
	}
	qsort(listing->children, listing->count, sizeof(struct node *), by_name);
	leave_out_twins(listing);
	return 0;
}

static int list_source(struct tree *tree, const char *path, struct listing *listing)
{
	int rc = store_list(tree->store, path, add_entry, listing);

	return rc ? rc : close_listing(listing);
}

/* What a manifest says of a directory. */
struct recalling {
	struct tree *tree;
	const char *path;
	struct listing *listing;
};

static int stat_below(struct tree *tree, const char *path, const char *name,
		      struct store_attr *attr)
{
	char *child;
	int rc;

	if (asprintf(&child, "%s%s%s", path, *path ? "/" : "", name) < 0)
		return -ENOMEM;
	rc = store_stat(tree->store, child, attr);
	free(child);
	return rc;
}

/* Files are compared with the source when they are fetched. What never is, is asked about now:
 * directories, whose modes say who may enter, and empty files. */
static int recall_entry(void *context, const char *name, const struct store_attr *attr)
{
	struct recalling *r = context;
	struct store_attr now = *attr;
	int rc = 0;

	if (attr_is_dir(attr) || !attr->size) {
		rc = stat_below(r->tree, r->path, name, &now);
		if (!rc && attr_is_dir(attr) != attr_is_dir(&now))
			rc = -ESTALE;
	}
	return rc ? rc : add_entry(r->listing, name, &now);
}

/* 1: the listing is what the manifest has; 0: it has no such version of the directory, or
 * something in it is not as it says. */
static int recall_listing(struct tree *tree, const struct manifest *manifest, const char *path,
			  const struct store_attr *version, struct listing *listing)
{
	struct recalling recalling = { tree, path, listing };
	int rc = manifest_list(manifest, path, version, recall_entry, &recalling);

	if (rc == 1)
		rc = close_listing(listing) ? -ENOMEM : 1;
	if (rc < 0) {
		drop_listing(listing);
		listing->children = NULL;
		listing->count = listing->room = 0;
	}
	return rc == 1;
}

/* Asks about the directory before reading it, so that it is read again some time if it changes
 * meanwhile. `attr` is known already if `listing->now_ms` says when it was asked for. */
static int read_listing(struct tree *tree, struct listing *listing, const struct manifest *manifest,
			uint64_t now_ms, struct store_attr *attr)
{
	char *path = node_path(listing->dir);
	int rc = path ? 0 : -ENOMEM;

	if (!rc && !listing->now_ms) {
		listing->now_ms = now_ms;
		rc = store_stat(tree->store, path, attr);
	}
	if (!rc && !(manifest && recall_listing(tree, manifest, path, attr, listing)))
		rc = list_source(tree, path, listing);
	free(path);
	return rc;
}

/* Whoever thought that it had changed was wrong, or it was a moment's fault of the source. */
static bool is_unchanged(const struct node *old, const struct node *found)
{
	return node_is_dir(old) ? node_is_dir(found) && old->attr.ino == found->attr.ino
				: store_same_version(&old->attr, &found->attr);
}

static bool has_same_owner(const struct store_attr *a, const struct store_attr *b)
{
	return a->mode == b->mode && a->uid == b->uid && a->gid == b->gid;
}

/* Who may enter it has changed. */
static void tell_of_owner_locked(struct tree *tree, struct node *dir)
{
	atomic_store(&dir->entry_changed, true);
	atomic_store(&tree->news, true);
}

/* A known node is among what was found. A directory's own time is when its children were
 * read; if it is another version they are read again when it is next used. */
static void keep_locked(struct tree *tree, struct node *node, const struct node *found,
			uint64_t now_ms)
{
	atomic_store(&node->stale, false);
	if (!node_is_dir(node)) {
		__atomic_store_n(&node->checked_ms, now_ms, __ATOMIC_RELAXED);
	} else if (!store_same_attr(&node->attr, &found->attr)) {
		if (!has_same_owner(&node->attr, &found->attr))
			tell_of_owner_locked(tree, node);
		node->attr = found->attr;
		__atomic_store_n(&node->checked_ms, node->children ? 0 : now_ms, __ATOMIC_RELAXED);
		if (node->lookups)
			tree->events->dir_changed(tree->context, node);
	}
}

/* Keeps what is known and has not changed, and tells of what is new or replaced. Returns how
 * many were kept. */
static uint32_t adopt_locked(struct tree *tree, struct listing *listing)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < listing->count; i++) {
		struct node *node = listing->children[i];
		struct node *before = find_child(listing->dir, node->name);

		if (!before && listing->dir->children)
			atomic_store(&tree->news, true);
		if (before && is_unchanged(before, node)) {
			keep_locked(tree, before, node, listing->now_ms);
			listing->children[i] = before;
			discard(node);
			kept++;
		} else if (!node_is_file(node)) {
			continue;
		} else if (before && node_is_file(before)) {
			lose_name_locked(tree, before);
			tree->events->file_replaced(tree->context, before, node);
		} else {
			tree->events->file_added(tree->context, node);
		}
	}
	return kept;
}

/* Puts the new children in place; what is not among them any more loses its name. */
static void settle_locked(struct tree *tree, struct listing *listing)
{
	struct node *dir = listing->dir;
	struct node **old = dir->children;
	uint32_t old_count = dir->child_count, at = 0, kept;

	kept = adopt_locked(tree, listing);
	if (old && (kept != old_count || kept != listing->count))
		tree->events->dir_changed(tree->context, dir);
	dir->children = listing->children;
	dir->child_count = listing->count;
	for (uint32_t i = 0; i < old_count; i++) {
		while (at < listing->count && strcmp(dir->children[at]->name, old[i]->name) < 0)
			at++;
		if (at < listing->count && dir->children[at] == old[i])
			continue;
		if (at < listing->count && !strcmp(dir->children[at]->name, old[i]->name) &&
		    node_is_file(old[i]) && node_is_file(dir->children[at])) {
			free_if_unused_locked(tree, old[i]); /* replaced: it has been told */
		} else {
			detach_locked(tree, old[i]);
		}
	}
	free(old);
	__atomic_store_n(&dir->checked_ms, listing->now_ms, __ATOMIC_RELAXED);
}

char *node_path(const struct node *node)
{
	size_t length = 0, at;
	char *path;

	for (const struct node *n = node; n->parent; n = n->parent)
		length += strlen(n->name) + 1;
	path = malloc(length + 1);
	if (!path)
		return NULL;
	at = length ? length - 1 : 0;
	path[at] = 0;
	for (const struct node *n = node; n->parent; n = n->parent) {
		size_t part = strlen(n->name);

		at -= part;
		memcpy(path + at, n->name, part);
		if (at)
			path[--at] = '/';
	}
	return path;
}

/* Another thread may have looked at it after `now_ms`. */
static bool is_old(const struct tree *tree, const struct node *dir, uint64_t now_ms)
{
	uint64_t checked_ms = node_checked_ms(dir);

	return !checked_ms || (checked_ms < now_ms && now_ms - checked_ms > tree->staleness_ms);
}

int tree_read_dir_locked(struct tree *tree, struct node *dir, uint64_t now_ms)
{
	struct manifest *manifest = dir->children ? NULL : tree->manifest;
	struct listing listing = { .dir = dir };
	struct store_attr attr = dir->attr;
	int rc;

	if (dir->reading) {
		while (dir->reading)
			cond_wait(&tree->read, &tree->lock);
		return dir->detached ? -ENOENT : dir->read_rc;
	}
	if (manifest) {
		manifest_hold(manifest);
		/* Its parent was read a moment ago, and it was asked about then. */
		listing.now_ms = is_old(tree, dir, now_ms) ? 0 : node_checked_ms(dir);
	}
	node_hold(dir);
	dir->reading = true;
	lock_release(&tree->lock);
	rc = read_listing(tree, &listing, manifest, now_ms, &attr);
	manifest_put(manifest);
	lock_acquire(&tree->lock);
	dir->reading = false;
	cond_wake_all(&tree->read);
	if (!rc && dir->detached)
		rc = -ENOENT;
	dir->read_rc = (int16_t)rc;
	if (rc) {
		drop_listing(&listing);
	} else {
		if (!has_same_owner(&dir->attr, &attr))
			tell_of_owner_locked(tree, dir);
		if (!store_same_attr(&dir->attr, &attr))
			tree->events->dir_changed(tree->context, dir);
		dir->attr = attr;
		settle_locked(tree, &listing);
	}
	tree_release(tree, dir);
	return rc;
}

/* --- answers that tell of names ------------------------------------------------------------------
 */

static void begin_reply_locked(struct tree *tree, unsigned *turn)
{
	*turn = tree->phase;
	atomic_fetch_add(&tree->replying[tree->phase], 1);
}

void tree_replied(struct tree *tree, unsigned turn)
{
	atomic_fetch_sub(&tree->replying[turn], 1);
}

void tree_wait_for_replies(struct tree *tree)
{
	unsigned before;

	lock_acquire(&tree->lock);
	before = tree->phase;
	tree->phase = !before;
	lock_release(&tree->lock);
	while (atomic_load(&tree->replying[before]))
		clock_sleep_us(20);
}

/* --- finding -------------------------------------------------------------------------------------
 */

/* Makes sure that the children are known, and not too old. May give the lock up. */
static int fresh_dir_locked(struct tree *tree, struct node *dir, uint64_t now_ms)
{
	if (!node_is_dir(dir))
		return -ENOTDIR;
	if (dir->detached)
		return -ENOENT;
	/* Files may have changed without the directory's noticing: look at all. */
	if (!dir->children || is_old(tree, dir, now_ms))
		return tree_read_dir_locked(tree, dir, now_ms);
	return 0;
}

bool tree_is_current(struct tree *tree, const struct node *dir, uint64_t now_ms)
{
	bool current;

	lock_acquire(&tree->lock);
	current = dir->children && !dir->reading && !is_old(tree, dir, now_ms);
	lock_release(&tree->lock);
	return current;
}

int tree_lookup(struct tree *tree, struct node *parent, const char *name, uint64_t now_ms,
		bool may_wait, struct node **out, unsigned *turn)
{
	int rc;

	lock_acquire(&tree->lock);
	rc = may_wait ? fresh_dir_locked(tree, parent, now_ms) : 0;
	if (!rc) {
		struct node *node = find_child(parent, name);

		if (node && may_wait && atomic_load(&node->stale)) {
			rc = tree_read_dir_locked(tree, parent, now_ms);
			node = rc ? NULL : find_child(parent, name);
		}
		if (node) {
			node->lookups++;
			*out = node;
			begin_reply_locked(tree, turn);
		} else if (!rc) {
			rc = -ENOENT;
		}
	}
	lock_release(&tree->lock);
	return rc;
}

void tree_forget(struct tree *tree, struct node *node, uint64_t count,
		 void (*last)(void *context, struct node *node), void *context)
{
	lock_acquire(&tree->lock);
	assert(node->lookups >= count);
	node->lookups -= count;
	if (!node->lookups) {
		tree->ghosts -= node->detached;
		last(context, node);
		free_if_unused_locked(tree, node);
	}
	lock_release(&tree->lock);
}

void tree_get_attr(struct tree *tree, const struct node *node, struct store_attr *attr)
{
	lock_acquire(&tree->lock);
	*attr = node->attr;
	lock_release(&tree->lock);
}

uint64_t tree_ghosts(struct tree *tree)
{
	uint64_t ghosts;

	lock_acquire(&tree->lock);
	ghosts = tree->ghosts;
	lock_release(&tree->lock);
	return ghosts;
}

bool tree_begin_listing(struct tree *tree, struct node *dir, uint64_t now_ms)
{
	uint64_t checked_ms;
	bool kept;

	lock_acquire(&tree->lock);
	checked_ms = node_checked_ms(dir);
	kept = dir->children && dir->listed_ms == checked_ms && !is_old(tree, dir, now_ms);
	dir->listed_ms = checked_ms;
	lock_release(&tree->lock);
	return kept;
}

int tree_children(struct tree *tree, struct node *dir, uint64_t from, uint64_t now_ms,
		  bool may_wait, bool counts,
		  bool (*entry)(void *context, struct node *child, uint32_t index), void *context,
		  unsigned *turn)
{
	int rc = 0;

	lock_acquire(&tree->lock);
	if (may_wait && (from == TREE_BEGIN || !dir->children))
		rc = fresh_dir_locked(tree, dir, now_ms);
	for (uint32_t i = rc ? 0 : tree_find_place_locked(tree, dir, from);
	     !rc && i < dir->child_count; i++) {
		if (!entry(context, dir->children[i], i))
			break;
		dir->children[i]->lookups += counts;
	}
	if (!rc && turn)
		begin_reply_locked(tree, turn);
	lock_release(&tree->lock);
	return rc;
}

/* From a held directory to a held child. */
static int step_down_locked(struct tree *tree, struct node **at, const char *name, uint64_t now_ms)
{
	struct node *dir = *at, *child = NULL;
	int rc = fresh_dir_locked(tree, dir, now_ms);

	if (!rc)
		child = find_child(dir, name);
	if (!child)
		return rc ? rc : -ENOENT;
	node_hold(child);
	*at = child;
	tree_release(tree, dir);
	return 0;
}

int tree_find(struct tree *tree, const char *path, uint64_t now_ms, struct node **out)
{
	char *copy = strdup(path), *rest = copy, *name;
	struct node *at = tree->root;
	int rc = copy ? 0 : -ENOMEM;

	lock_acquire(&tree->lock);
	node_hold(at);
	while (!rc && (name = strsep(&rest, "/")))
		if (*name && strcmp(name, "."))
			rc = step_down_locked(tree, &at, name, now_ms);
	if (rc)
		tree_release(tree, at);
	else
		*out = at;
	lock_release(&tree->lock);
	free(copy);
	return rc;
}

void tree_mark_stale(struct tree *tree, struct node *node)
{
	atomic_store(&node->stale, true);
	__atomic_store_n(&node->parent->checked_ms, 0, __ATOMIC_RELAXED);
	atomic_store(&tree->doubted, true);
}

bool tree_is_doubted(struct tree *tree)
{
	return atomic_exchange(&tree->doubted, false);
}

bool tree_has_news(struct tree *tree)
{
	return atomic_exchange(&tree->news, false);
}

void tree_set_manifest(struct tree *tree, struct manifest *manifest)
{
	struct manifest *before;

	if (manifest)
		manifest_hold(manifest);
	lock_acquire(&tree->lock);
	before = tree->manifest;
	tree->manifest = manifest;
	lock_release(&tree->lock);
	manifest_put(before);
}

/* --- begin and end ------------------------------------------------------------------------------
 */

int tree_open(struct tree **out, struct store *store, uint64_t staleness_ms,
	      const struct tree_events *events, void *context)
{
	struct tree *tree = calloc(1, sizeof(*tree));
	struct store_attr attr;
	int rc;

	if (!tree)
		return -ENOMEM;
	*tree = (struct tree){
		.store = store, .staleness_ms = staleness_ms, .events = events, .context = context
	};
	lock_init(&tree->lock, LOCK_TREE);
	cond_init(&tree->read);
	lock_init(&tree->release_lock, LOCK_RELEASED);
	rc = store_stat(store, "", &attr);
	if (!rc) {
		tree->root = node_new(NULL, "", &attr, 0);
		rc = tree->root ? 0 : -ENOMEM;
	}
	if (rc) {
		lock_destroy(&tree->lock);
		cond_destroy(&tree->read);
		free(tree);
		return rc;
	}
	tree->root->lookups = 1; /* the kernel's, as long as it is mounted */
	*out = tree;
	return 0;
}

static void free_all(struct node *node)
{
	for (uint32_t i = 0; node_is_dir(node) && i < node->child_count; i++)
		free_all(node->children[i]);
	free(node->children);
	free(node);
}

void tree_close(struct tree *tree)
{
	tree_reap(tree);
	manifest_put(tree->manifest);
	tree_forget_names(tree);
	free_all(tree->root);
	lock_destroy(&tree->lock);
	cond_destroy(&tree->read);
	free(tree);
}

struct node *tree_root(struct tree *tree)
{
	return tree->root;
}
