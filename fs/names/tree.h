/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The namespace in RAM: what the source has, as nodes.
 *
 * A directory is read completely when it is first used, and again when it is older than
 * `staleness`. When it is half as old it is read again, too, but nobody waits for that.
 *
 * The tree has threads of its own that read directories. Whoever needs a directory that is being
 * read waits for it, but not for ever: if the source has told of no name for `deadline`, the
 * reading is late. Until a late reading ends, what is known of the directory is the answer at once,
 * and ETIMEDOUT if nothing is known.
 *
 * The tree's lock guards names and the life of nodes. It is never held while the source is asked,
 * so a source that hangs delays only those who need what hangs.
 */
#ifndef SHADE_TREE_H
#define SHADE_TREE_H

#include "base/format.h"
#include "base/keyed.h"
#include "names/node.h"

#define TREE_TAKEN ".shade" /* at the top: shadefs has this name, and hides the source's */

struct tree;
struct manifest;
struct estate;

/* What the tree tells as files come and go. Called with the tree's lock held. */
struct tree_events {
	/* `is_new`: its directory was known before, and did not have it. */
	void (*file_added)(void *context, struct node *node, bool is_new);
	void (*file_replaced)(void *context, struct node *old, struct node *fresh);
	void (*file_removed)(void *context, struct node *node);
	/* A directory that was known has other names, or other versions behind them. */
	void (*dir_changed)(void *context, struct node *dir);
	/* Others may enter a directory than before: the kernel must look up its name again. */
	void (*owner_changed)(void *context, struct node *dir);
};

struct tree_options {
	uint64_t staleness_ms;
	uint64_t deadline_ms; /* how long a reading may go without a name from the source */
	unsigned readers;     /* directories that are read at a time, at most */
	const struct tree_events *events;
	void *context;	       /* of the events */
	struct estate *estate; /* where nodes are; NULL: in one of the tree's own */
	bool is_successor;     /* they are there already */
};

int tree_open(struct tree **out, struct store *store, const struct tree_options *options);
/* No directory is read from now on: all who wait get -ESHUTDOWN. */
void tree_stop(struct tree *tree);
/* After tree_stop(): waits for the threads that read directories; they may wait for the source. */
void tree_join(struct tree *tree);
/* After tree_join(). */
void tree_close(struct tree *tree);
struct node *tree_root(struct tree *tree);

/* --- waiting for a directory --------------------------------------------------------------- */

/* A request that waits for a directory and holds no thread meanwhile. */
struct tree_wait {
	struct keyed keyed; /* the tree's own */
	/* Called once, with no lock held. 0: the directory was read, or its reading is late, and
	 * what is known of it is the answer; or a negative errno. */
	void (*ready)(struct tree_wait *wait, int rc);
	uint64_t key;			  /* what tree_take_wait() finds it by */
	int rc;				  /* the tree's own */
	struct tree_wait *next, **before; /* the tree's own */
};

/* Has a directory read if it is unknown or too old. 0: what is known of it is the answer; 1:
 * `ready` will be called; or a negative errno. */
int tree_await(struct tree *tree, struct node *dir, uint64_t now_ms, struct tree_wait *wait);
/* The same for a caller with a thread of its own, which waits. 0 or a negative errno. */
int tree_await_here(struct tree *tree, struct node *dir, uint64_t now_ms);
/* Takes a request with this key out that `is` recognises; `ready` will not be called. NULL: there
 * is none. */
typedef bool tree_wait_match(const struct tree_wait *wait, void *context);
struct tree_wait *tree_take_wait(struct tree *tree, uint64_t key, tree_wait_match *is,
				 void *context);
/* Calls `ready` for those whose directory is late. Call it every few milliseconds. */
void tree_answer_late(struct tree *tree, uint64_t now_ms);

/* --- names --------------------------------------------------------------------------------- */

/* Finds a name; on success the node counts one more lookup of the kernel's. Never waits: if `fresh`
 * and the directory has to be read first, it returns -EAGAIN, and tree_await() is next; else what
 * is known is the answer, and -ETIMEDOUT if nothing is known of the directory. */
int tree_lookup(struct tree *tree, struct node *parent, const char *name, uint64_t now_ms,
		bool fresh, struct node **out, unsigned *turn);
/* The kernel forgets `count` lookups. If these are all, `last` is called with the tree's lock held;
 * after that the node may be gone from memory. */
void tree_forget(struct tree *tree, struct node *node, uint64_t count,
		 void (*last)(void *context, struct node *node), void *context);

/* The attributes of a file never change; those of a directory change when it is read again. */
void tree_get_attr(struct tree *tree, const struct node *node, struct store_attr *attr);

/* Whether the source was last asked about a directory longer than `staleness` ago. */
bool tree_is_old(const struct tree *tree, const struct node *dir, uint64_t now_ms);
/* Asks the source for those of a directory, for a caller with a thread of its own, which waits.
 * False: it did not tell before the deadline, has another directory there, or is being asked
 * already, and this is what is known. */
bool tree_ask_attr(struct tree *tree, struct node *dir, uint64_t now_ms, struct store_attr *attr);

/* Whether names have come, or permissions of directories or the root have changed, since the last
 * call: the kernel may remember that a name does not exist, or who may enter. */
bool tree_has_news(struct tree *tree);
/* From now on, directories that fewer may enter than before are closed: node_closings() changes,
 * and they count as orphans until the kernel has forgotten what it knew of them. */
void tree_set_closing(struct tree *tree);
/* The kernel has looked up the name of a directory again whose permissions have changed: this is
 * news, too. */
void tree_name_renewed(struct tree *tree);
/* How many nodes have lost their names, or were closed to some users, while the kernel still knows
 * them as they were. */
uint64_t tree_orphans(struct tree *tree);
/* How many names are left out because the source fails to tell of them. */
uint64_t tree_left_out(struct tree *tree);
/* Whether reading a directory failed because of the directory alone, and not of the source: it may
 * be closed to the daemon, or a dead file system that is mounted inside the source. */
bool tree_is_unreadable(struct tree *tree, const struct node *dir, int rc);
/* After -ESTALE, for a caller with a thread of its own, which waits: whether the path of a
 * directory leads to another one by now, and it was no failure of the source. The caller holds it.
 */
bool tree_is_displaced(struct tree *tree, struct node *dir);

/* A cursor in a listing points after a child. It stays right if the directory is read again
 * meanwhile and others come or go: no name is left out or told twice. Below 2^63 - 3. */
#define TREE_BEGIN UINT64_MAX
uint64_t tree_cursor_after(const struct node *child, uint32_t index);

/* The kernel is about to list a directory. True: the listing that it remembers is still right. */
bool tree_begin_listing(struct tree *tree, struct node *dir, uint64_t now_ms);
/* Calls `entry` for the children of a directory, from TREE_BEGIN or a cursor on, until that returns
 * false. With `counts`, each child that `entry` took counts as a lookup. `fresh` is as for
 * tree_lookup(), but a listing that goes on takes the directory as it is known. */
int tree_children(struct tree *tree, struct node *dir, uint64_t from, uint64_t now_ms, bool fresh,
		  bool counts, bool (*entry)(void *context, struct node *child, uint32_t index),
		  void *context, unsigned *turn);
/* A caller that got a `turn` from tree_lookup() or tree_children() must call this when the kernel
 * has the answer, so that a later notification about the name does not arrive before it.
 * tree_children() takes NULL. */
void tree_replied(struct tree *tree, unsigned turn);
/* Waits until all answers have arrived that were begun before. */
void tree_wait_for_replies(struct tree *tree);

/* Finds a node by its path below the root, and holds it. The kernel does not learn of it. Waits for
 * directories like tree_await_here(). */
int tree_find(struct tree *tree, const char *path, uint64_t now_ms, struct node **out);

/* Takes back a hold without acquiring the tree's lock: tree_reap() frees the node later. */
void tree_release(struct tree *tree, struct node *node);
/* Frees what was released and is not needed any more. Call it now and then. */
void tree_reap(struct tree *tree);

/* The source seems to have another version than this node: its directory is read again at the
 * next lookup. */
void tree_mark_stale(struct tree *tree, struct node *node);
/* Whether that happened since the last call. */
bool tree_is_doubted(struct tree *tree);

/* Directories whose version is in the manifest are taken from there instead of being read,
 * the first time that they are used. The tree holds it. NULL: no more. */
void tree_set_manifest(struct tree *tree, struct manifest *manifest);

/* Shows all nodes that there are, without names too. Called with the tree's lock held. */
void tree_for_all(struct tree *tree, void (*visit)(void *context, struct node *node),
		  void *context);
/* A successor has found out that the kernel does not know a node that has lost its name. */
void tree_is_forgotten(struct tree *tree, struct node *node);

/* For tree_visit(): a directory that is known, when the source was asked about it, and, if that
 * returns true, each of its children. Called with the tree's lock held. */
struct tree_visitor {
	bool (*dir)(void *context, const char *path, const struct store_attr *attr,
		    uint64_t checked_ms);
	void (*entry)(void *context, const char *name, const struct store_attr *attr);
};

/* Shows all directories as they are known, without asking the source; parents first, then sorted
 * by name. Directories of which something is known to have changed are left out. */
int tree_visit(struct tree *tree, const struct tree_visitor *visitor, void *context,
	       const _Atomic bool *stop);

/* Reads all known directories again that were last read more than `age_ms` ago; 0: all. Lookups
 * wait only for directories that they need. A directory that takes longer than `patience_ms` is
 * read on while the walk continues without it. `stop` ends it early. */
#define TREE_PATIENT UINT64_MAX
int tree_refresh(struct tree *tree, uint64_t now_ms, uint64_t age_ms, uint64_t patience_ms,
		 const _Atomic bool *stop);

/* What nodes are like that a daemon leaves. */
extern const struct format_line tree_format[];

#endif
