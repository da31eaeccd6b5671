/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Names and attributes. The control file is answered at once and counted nowhere, so that
 * a test can look without changing what it sees. */
#include "ops.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "counter.h"
#include "node.h"
#include "pace.h"
#include "setting.h"
#include "source.h"

/* Anything that no file of the source is likely to have. */
#define CONTROL_INODE UINT64_C(0x73736c6f77667300)

static void control_stat(struct stat *st)
{
	memset(st, 0, sizeof(*st));
	st->st_ino = CONTROL_INODE;
	st->st_mode = S_IFREG | 0600;
	st->st_nlink = 1;
	st->st_uid = geteuid();
	st->st_gid = getegid();
}

int ops_entry(struct node *parent, const char *name, struct fuse_entry_param *entry)
{
	struct node *node;
	int ret;

	if (strlen(name) > NAME_MAX)
		return -ENAMETOOLONG;
	memset(entry, 0, sizeof(*entry));
	ret = source_stat_child(parent, name, &entry->attr);
	if (ret)
		return ret;
	node = node_get(parent, name, &entry->attr);
	if (!node)
		return -ENOMEM;
	entry->ino = (uintptr_t)node;
	entry->attr_timeout = entry->entry_timeout = ops_timeout();
	return 0;
}

static void lookup_control(fuse_req_t req)
{
	struct fuse_entry_param entry = { .ino = OPS_CONTROL_ID };

	control_stat(&entry.attr);
	fuse_reply_entry(req, &entry);
}

void ops_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param entry;
	int ret;

	if (ops_is_control(parent, name)) {
		lookup_control(req);
		return;
	}
	counter_add(COUNTER_LOOKUPS, 1);
	pace_delay(setting_load(SETTING_META_DELAY_US));
	ret = ops_entry(ops_node(parent), name, &entry);
	if (ret)
		fuse_reply_err(req, -ret);
	else if (fuse_reply_entry(req, &entry) == -ENOENT)
		node_forget(ops_node(entry.ino), 1); /* nobody waits for it any more */
}

static void forget(fuse_ino_t ino, uint64_t lookups)
{
	if (ino != OPS_CONTROL_ID)
		node_forget(ops_node(ino), lookups);
}

void ops_forget(fuse_req_t req, fuse_ino_t ino, uint64_t lookups)
{
	forget(ino, lookups);
	fuse_reply_none(req);
}

void ops_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		forget(forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}

void ops_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;
	int ret;

	(void)fi;
	if (ino == OPS_CONTROL_ID) {
		control_stat(&st);
		fuse_reply_attr(req, &st, 0);
		return;
	}
	counter_add(COUNTER_GETATTRS, 1);
	pace_delay(setting_load(SETTING_META_DELAY_US));
	ret = source_stat(ops_node(ino), &st);
	if (ret)
		fuse_reply_err(req, -ret);
	else
		fuse_reply_attr(req, &st, ops_timeout());
}

/* A shell that writes to the control file truncates it first: that may be. */
void ops_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		 struct fuse_file_info *fi)
{
	int times = FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW | FUSE_SET_ATTR_CTIME;
	struct stat st;

	(void)attr, (void)fi;
	if (ino != OPS_CONTROL_ID || (to_set & ~(FUSE_SET_ATTR_SIZE | times))) {
		fuse_reply_err(req, EROFS);
		return;
	}
	control_stat(&st);
	fuse_reply_attr(req, &st, 0);
}

void ops_readlink(fuse_req_t req, fuse_ino_t ino)
{
	char target[PATH_MAX + 1];
	int ret = -EINVAL;

	if (ino != OPS_CONTROL_ID)
		ret = source_readlink(ops_node(ino), target, sizeof(target) - 1);
	if (ret < 0) {
		fuse_reply_err(req, -ret);
		return;
	}
	target[ret] = '\0';
	fuse_reply_readlink(req, target);
}

void ops_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct statvfs st;
	int ret;

	(void)ino;
	ret = source_statfs(&st);
	if (ret)
		fuse_reply_err(req, -ret);
	else
		fuse_reply_statfs(req, &st);
}
