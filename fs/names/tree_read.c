/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reading a directory: what the source has in it becomes nodes, known ones are kept, and the cache
 * is told of what came, was replaced or went.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/threads.h"
#include "grow.h"
#include "names/manifest.h"
#include "names/tree_internal.h"

/* What the source has in a directory, as nodes that nobody knows yet. */
struct listing {
	struct tree *tree;
	struct node *dir;
	const char *path;
	struct reading *reading;
	struct store_attr attr;	 /* the directory's, from before its names were read */
	struct store_dir source; /* if `is_open` */
	bool is_open;
	uint64_t now_ms;
	struct node **children;
	uint32_t count, room;
	/* Names that the source fails to tell of: how many there are now, and whether there were
	 * any when the directory was last read; the first of them, and its negative errno. */
	uint32_t left_out;
	bool known;
	char *left_name;
	int left_rc;
};

int tree_by_name(const void *a, const void *b)
{
	return strcmp((*(struct node *const *)a)->name, (*(struct node *const *)b)->name);
}

uint32_t tree_number_of(const struct node *dir, const char *name)
{
	uint32_t from = 0, to = dir->dir.child_count;

	while (from < to) {
		uint32_t middle = from + (to - from) / 2;

		if (strcmp(dir->dir.children[middle]->name, name) < 0)
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

struct node *tree_find_child(const struct node *dir, const char *name)
{
	uint32_t number = tree_number_of(dir, name);

	assert(dir->dir.children || !dir->dir.child_count);
	if (number == dir->dir.child_count || strcmp(dir->dir.children[number]->name, name))
		return NULL;
	return dir->dir.children[number];
}

static void leave_out(struct listing *listing, const char *name, int rc)
{
	if (!listing->left_out++) {
		listing->left_name = strdup(name);
		listing->left_rc = rc;
	}
}

static int add_entry(void *context, const char *name, const struct store_attr *attr, int rc)
{
	struct listing *listing = context;
	struct node *node;

	atomic_store(&listing->reading->progress_ms, clock_now_ms());
	if (!listing->dir->parent && !strcmp(name, TREE_TAKEN))
		return 0;
	if (rc) {
		leave_out(listing, name, rc);
		return 0;
	}
	if (grow(listing->children, listing->room, listing->count, 1))
		return -ENOMEM;
	node = node_new(listing->tree, listing->dir, name, attr, listing->now_ms);
	if (!node)
		return -ENOMEM;
	listing->children[listing->count++] = node;
	return 0;
}

static void drop_listing(struct listing *listing)
{
	for (uint32_t i = 0; i < listing->count; i++)
		node_discard(listing->tree, listing->children[i]);
	free(listing->children);
}

/* A name that is removed and made again while the source is listed may come twice. The children are
 * sorted. */
static void leave_out_twins(struct listing *listing)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < listing->count; i++) {
		struct node *node = listing->children[i];

		if (count && !tree_by_name(&listing->children[count - 1], &node))
			node_discard(listing->tree, node);
		else
			listing->children[count++] = node;
	}
	listing->count = count;
}

/* The listing is complete: sorts it. An empty one is an array, too. */
static int close_listing(struct listing *listing)
{
	struct node **children;

	if (listing->count)
		qsort(listing->children, listing->count, sizeof(struct node *), tree_by_name);
	leave_out_twins(listing);
	children = realloc(listing->children, tree_children_bytes(listing->count));
	if (!children)
		return -ENOMEM;
	listing->children = children;
	listing->room = listing->count;
	return tree_index_children(children, listing->count);
}

/* Once, and not each time that the directory is read. */
static void log_left_out(const struct listing *listing, const char *path)
{
	char more[64] = "";

	if (!listing->left_out || listing->known || !listing->left_name)
		return;
	if (listing->left_out > 1)
		snprintf(more, sizeof(more), " and %" PRIu32 " others in its directory",
			 listing->left_out - 1);
	log_say(LOG_WARNINGS, "%s%s%s cannot be looked at: %s; it is left out%s", path,
		*path ? "/" : "", listing->left_name, strerror(-listing->left_rc), more);
}

/* Everything that is asked about below a directory is asked through its descriptor. The directory
 * that has its path by now may be another one, which not everybody may enter who may enter this.
 * `attr`: what the source tells of it now. */
static int open_source(struct tree *tree, struct listing *listing, struct store_attr *attr)
{
	struct store_attr expected = listing->attr;
	int rc = store_open_dir(tree->store, listing->path, &expected, &listing->source, attr);

	listing->is_open = !rc;
	return rc;
}

static int list_source(struct listing *listing)
{
	int rc = store_list(&listing->source, add_entry, listing);

	if (!rc)
		log_left_out(listing, listing->path);
	free(listing->left_name);
	return rc ? rc : close_listing(listing);
}

/* What a manifest says of a directory. */
struct recalling {
	struct tree *tree;
	struct listing *listing;
};

static int stat_below(const struct recalling *r, const char *name, struct store_attr *attr)
{
	struct store_attr now;
	int rc = r->listing->is_open ? 0 : open_source(r->tree, r->listing, &now);

	return rc ? rc : store_stat_in(&r->listing->source, name, attr);
}

/* Files are compared with the source when they are fetched, and links when they are read.
 * Directories, whose modes say who may enter, empty files and devices are never fetched, so the
 * source is asked about them now; and about files in another file system than the directory, since
 * no manifest can tell which one that is now. */
static bool needs_asking(const struct store_attr *attr)
{
	return attr_is_dir(attr) || !attr->size || store_is_device(attr) ||
	       attr->dev == STORE_DEV_ELSEWHERE;
}

static int recall_entry(void *context, const char *name, const struct store_attr *attr)
{
	struct recalling *r = context;
	struct store_attr now = *attr;
	int rc = 0;

	if (needs_asking(attr)) {
		rc = stat_below(r, name, &now);
		if (!rc && attr_is_dir(attr) != attr_is_dir(&now))
			rc = -ESTALE;
	}
	return rc ? rc : add_entry(r->listing, name, &now, 0);
}

/* 1: the listing is what the manifest has; 0: it has no such version of the directory, or
 * something in it is not as it says. */
static int recall_listing(struct tree *tree, const struct manifest *manifest,
			  struct listing *listing)
{
	struct recalling recalling = { tree, listing };
	int rc = manifest_list(manifest, listing->path, &listing->attr, recall_entry, &recalling);

	if (rc == 1)
		rc = close_listing(listing) ? -ENOMEM : 1;
	if (rc < 0) {
		drop_listing(listing);
		listing->children = NULL;
		listing->count = listing->room = 0;
	}
	return rc == 1;
}

static bool has_same_owner(const struct store_attr *a, const struct store_attr *b)
{
	return a->mode == b->mode && a->uid == b->uid && a->gid == b->gid;
}

/* Whether somebody who could enter a directory, or list it, may not do so any more. The kernel
 * looks at an access control list only if the mode gives the group some right: if it did not, and
 * now does, a list may forbid what others could do. */
static bool is_closing(const struct store_attr *old, const struct store_attr *now)
{
	return old->uid != now->uid || old->gid != now->gid || old->mode & ~now->mode & 0555 ||
	       (!(old->mode & 0070) && now->mode & 0070 && old->mode & 0007);
}

/* Who may enter the directory holds from now on, even if its listing hangs. */
static void adopt_owner_locked(struct tree *tree, struct node *dir, const struct store_attr *attr)
{
	lock_assert_held(&tree->lock);
	if (dir->detached || has_same_owner(&dir->attr, attr))
		return;
	if (is_closing(&dir->attr, attr))
		node_close_locked(tree, dir);
	atomic_store(&dir->dir.is_torn, true);
	dir->attr.mode = attr->mode;
	dir->attr.uid = attr->uid;
	dir->attr.gid = attr->gid;
	atomic_store(tree->news, true);
	tree->options.events->dir_changed(tree->options.context, dir);
	tree->options.events->owner_changed(tree->options.context, dir);
	atomic_store(&dir->dir.is_torn, false);
}

/* All of a directory's attributes; who may enter is as it was. */
static void set_attr_locked(const struct tree *tree, struct node *dir,
			    const struct store_attr *attr)
{
	lock_assert_held(&tree->lock);
	atomic_store(&dir->dir.is_torn, true);
	dir->attr = *attr;
	atomic_store(&dir->dir.is_torn, false);
}

/* Before its listing is there: only what closes it. Who may enter from now on may find what was
 * never meant for them as long as its old children are known. */
static void adopt_closing_locked(struct tree *tree, struct node *dir, const struct store_attr *attr)
{
	struct store_attr closed = *attr;

	lock_assert_held(&tree->lock);
	if (attr->uid != dir->attr.uid || attr->gid != dir->attr.gid)
		return;
	closed.mode &= dir->attr.mode | ~0777u;
	adopt_owner_locked(tree, dir, &closed);
}

static int ask_about_dir(struct tree *tree, struct listing *listing)
{
	int rc;

	listing->now_ms = clock_now_ms();
	rc = open_source(tree, listing, &listing->attr);
	if (rc)
		return rc;
	atomic_store(&listing->reading->progress_ms, clock_now_ms());
	lock_acquire(&tree->lock);
	adopt_closing_locked(tree, listing->dir, &listing->attr);
	lock_release(&tree->lock);
	return 0;
}

/* Asks about the directory before reading it, so that it is read again some time if it changes
 * meanwhile. `listing->attr` is right already if `listing->now_ms` says when it was asked for; else
 * only which directory that is. */
static int read_listing(struct tree *tree, struct listing *listing, const struct manifest *manifest)
{
	int rc = listing->now_ms ? 0 : ask_about_dir(tree, listing);

	if (rc || (manifest && recall_listing(tree, manifest, listing)))
		return rc;
	if (!listing->is_open)
		rc = ask_about_dir(tree, listing);
	return rc ? rc : list_source(listing);
}

static int read_source(struct tree *tree, struct listing *listing, const struct manifest *manifest)
{
	char *path = node_path(listing->dir);
	int rc;

	if (!path)
		return -ENOMEM;
	listing->path = path;
	rc = read_listing(tree, listing, manifest);
	if (listing->is_open)
		store_close_dir(&listing->source);
	free(path);
	return rc;
}

/* Whether the source still has this version. A node may have been marked stale by mistake, or for a
 * fault of the source that is over. */
static bool is_unchanged(const struct node *old, const struct node *found)
{
	return node_is_dir(old) ? node_is_dir(found) && store_same_file(&old->attr, &found->attr)
				: store_same_version(&old->attr, &found->attr);
}

/* Its times may have changed because its access control list has. The root has no name that the
 * kernel could look up again: native/ reads the list. */
static void tell_of_attr_locked(struct tree *tree, struct node *dir)
{
	lock_assert_held(&tree->lock);
	if (!dir->parent)
		atomic_store(tree->news, true);
	tree->options.events->dir_changed(tree->options.context, dir);
}

/* A known node is among what was found. A directory's own time is when its children were
 * read; if it is another version they are read again when it is next used. */
static void keep_locked(struct tree *tree, struct node *node, const struct node *found,
			uint64_t now_ms)
{
	lock_assert_held(&tree->lock);
	atomic_store(&node->stale, false);
	if (!node_is_dir(node)) {
		node_set_checked_ms(node, now_ms);
	} else if (!store_same_attr(&node->attr, &found->attr)) {
		adopt_owner_locked(tree, node, &found->attr);
		set_attr_locked(tree, node, &found->attr);
		node_set_checked_ms(node, node->dir.children ? 0 : now_ms);
		if (node->lookups)
			tree->options.events->dir_changed(tree->options.context, node);
	}
}

/* Keeps what is known and has not changed, and tells of what is new or replaced. Returns how
 * many were kept. */
static uint32_t adopt_locked(struct tree *tree, struct listing *listing)
{
	bool was_known = listing->dir->dir.children;
	uint32_t kept = 0;

	lock_assert_held(&tree->lock);
	for (uint32_t i = 0; i < listing->count; i++) {
		struct node *node = listing->children[i];
		struct node *before = tree_find_child(listing->dir, node->name);

		if (!before && was_known)
			atomic_store(tree->news, true);
		if (before && is_unchanged(before, node)) {
			keep_locked(tree, before, node, listing->now_ms);
			listing->children[i] = before;
			node_discard(tree, node);
			kept++;
			continue;
		}
		estate_keep(node, ESTATE_NODE);
		if (!node_is_file(node)) {
			continue;
		} else if (before && node_is_file(before)) {
			node_lose_name_locked(tree, before);
			tree->options.events->file_replaced(tree->options.context, before, node);
		} else {
			tree->options.events->file_added(tree->options.context, node, was_known);
		}
	}
	return kept;
}

/* The listing becomes the children; nodes that are not among them any more lose their names. */
static void replace_children_locked(struct tree *tree, struct listing *listing)
{
	struct node *dir = listing->dir;
	struct node **old = dir->dir.children;
	uint32_t old_count = dir->dir.child_count, at = 0, kept;

	lock_assert_held(&tree->lock);
	assert(old || !old_count);
	node_set_checked_ms(dir, 0); /* until it is complete: a successor must read it again */
	kept = adopt_locked(tree, listing);
	if (old && (kept != old_count || kept != listing->count))
		tree->options.events->dir_changed(tree->options.context, dir);
	dir->dir.children = listing->children;
	dir->dir.child_count = listing->count;
	for (uint32_t i = 0; i < old_count; i++) {
		while (at < listing->count && strcmp(dir->dir.children[at]->name, old[i]->name) < 0)
			at++;
		if (at < listing->count && dir->dir.children[at] == old[i])
			continue;
		if (at < listing->count && !strcmp(dir->dir.children[at]->name, old[i]->name) &&
		    node_is_file(old[i]) && node_is_file(dir->dir.children[at])) {
			node_free_if_unused_locked(tree, old[i]); /* replaced: it has been told */
		} else {
			node_detach_locked(tree, old[i]);
		}
	}
	free(old);
	node_set_checked_ms(dir, listing->now_ms);
}

void tree_set_left_out_locked(struct tree *tree, struct node *dir, uint32_t count)
{
	lock_assert_held(&tree->lock);
	tree->left_out -= dir->dir.left_out;
	dir->dir.left_out = (uint16_t)(count < UINT16_MAX ? count : UINT16_MAX);
	tree->left_out += dir->dir.left_out;
}

/* Another thread may have looked at it after `now_ms`. */
bool tree_is_older(const struct node *dir, uint64_t now_ms, uint64_t age_ms)
{
	uint64_t checked_ms = node_checked_ms(dir);

	return !checked_ms || (checked_ms < now_ms && now_ms - checked_ms > age_ms);
}

int tree_read_dir_locked(struct tree *tree, struct reading *reading)
{
	struct node *dir = reading->dir;
	struct manifest *manifest = dir->dir.children ? NULL : tree->manifest;
	struct listing listing = { .tree = tree,
				   .dir = dir,
				   .attr = dir->attr,
				   .reading = reading,
				   .known = dir->dir.left_out };
	int rc;

	lock_assert_held(&tree->lock);
	if (manifest) {
		manifest_hold(manifest);
		/* Its parent was read a moment ago, and it was asked about then. */
		if (!tree_is_older(dir, clock_now_ms(), tree->options.staleness_ms))
			listing.now_ms = node_checked_ms(dir);
	}
	lock_release(&tree->lock);
	rc = read_source(tree, &listing, manifest);
	manifest_put(manifest);
	lock_acquire(&tree->lock);
	if (!rc && dir->detached)
		rc = -ENOENT;
	if (rc) {
		drop_listing(&listing);
		if (rc == -ESTALE)
			tree_mark_stale(tree, dir);
		return rc;
	}
	/* The root is another directory if the source was mounted again. */
	assert(!dir->parent || store_same_file(&dir->attr, &listing.attr));
	adopt_owner_locked(tree, dir, &listing.attr);
	if (!store_same_attr(&dir->attr, &listing.attr))
		tell_of_attr_locked(tree, dir);
	set_attr_locked(tree, dir, &listing.attr);
	tree_set_left_out_locked(tree, dir, listing.left_out);
	replace_children_locked(tree, &listing);
	return 0;
}
