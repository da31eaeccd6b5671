/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* nfs://SERVER[:PORT]/EXPORT[/DIR], as people write it. */
#ifndef SHADE_NFS_URL_H
#define SHADE_NFS_URL_H

#include <stdbool.h>
#include <stdint.h>

#define NFS_URL_SERVER_MAX 255
#define NFS_URL_PATH_MAX 1023

struct nfs_url {
	char server[NFS_URL_SERVER_MAX + 1]; /* a name or an address, without brackets */
	uint16_t port;			     /* 0: none was given */
	char path[NFS_URL_PATH_MAX + 1];     /* from / on, without a / at the end */
};

bool nfs_url_is(const char *text);
/* NULL, or what is wrong with it, as the end of a sentence. */
const char *nfs_url_parse(const char *text, struct nfs_url *url);

#endif
