/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the kernel is told of a node: its attributes, and for how long they hold. */
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/threads.h"
#include "fuse/internal.h"

/* Before 1970 the seconds are negative, and the nanoseconds still count upwards. */
static struct timespec time_from(__int128 ns)
{
	long rest = (long)(ns % 1000000000);

	rest += rest < 0 ? 1000000000 : 0;
	return (struct timespec){ .tv_sec = (time_t)((ns - rest) / 1000000000), .tv_nsec = rest };
}

/* No device can be opened through the mount, but its number is seen. An overlay takes the character
 * device 0/0 for a mark that hides a name; no driver has that number, so another one that no driver
 * has is shown for it. */
static dev_t device_of(const struct store_attr *attr)
{
	if (!store_is_device(attr))
		return 0;
	return S_ISCHR(attr->mode) && !attr->size ? makedev(0, 1) : (dev_t)attr->size;
}

struct stat entry_stat(const struct store_attr *attr)
{
	uint64_t size = store_is_device(attr) ? 0 : attr->size;

	return (struct stat){
		.st_rdev = device_of(attr),
		.st_ino = store_shown_ino(attr),
		.st_mode = attr->mode,
		.st_nlink = attr->nlink,
		.st_uid = attr->uid,
		.st_gid = attr->gid,
		.st_size = (off_t)size,
		.st_blksize = 4096,
		.st_blocks = (blkcnt_t)((size + 511) / 512),
		.st_mtim = time_from(store_mtime(attr)),
		.st_ctim = time_from(store_ctime(attr)),
		.st_atim = time_from(store_mtime(attr)),
	};
}

/* In native mode names never time out; the kernel is told of changes instead. An overlay answers
 * ESTALE for ever once a name below it means another file. */
double entry_timeout(const struct files *files)
{
	return files->native ? 1e9 : files->options.staleness_s;
}

/* A file's generation is its slot, by which native/fanotify.c finds the node; 0: no slot.
 *
 * An overlay keeps the permissions of a directory that somebody is in, as the current directory or
 * with a descriptor, for as long as it is in use, and lets everybody enter by these. If fewer may
 * enter, the directory gets another generation, as if its number were used again for another: when
 * the kernel looks up the name, it takes the inode that it has out of use, and the overlay's gives
 * errors from then on. Read the generation before the attributes, which must not be older. */
uint32_t entry_generation(const struct node *node)
{
	uint32_t closings = node_closings(node);

	return closings ? UINT32_MAX - closings : node_slot(node) + 1;
}

/* What was told of a directory too long ago holds for this answer alone: who may enter may have
 * changed since. */
static double timeout_of(const struct files *files, const struct node *node)
{
	const struct tree *tree = cache_tree(files->options.cache);

	if (!files->native && node->parent && tree_is_old(tree, node->parent, clock_now_ms()))
		return 0;
	return entry_timeout(files);
}

struct fuse_entry_param entry_make(const struct files *files, const struct node *node,
				   const struct store_attr *attr)
{
	double timeout = timeout_of(files, node);

	return (struct fuse_entry_param){ .ino = ino_of(files, node),
					  .generation = entry_generation(node),
					  .attr = entry_stat(attr),
					  .attr_timeout = timeout,
					  .entry_timeout = timeout };
}
