/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Handles are listed, since a mount that is torn down under its users never releases. */
#include "handle.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include <utlist.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct handle *handles; /* lock */

struct handle *handle_new(void)
{
	struct handle *handle = calloc(1, sizeof(*handle));

	if (!handle)
		return NULL;
	handle->fd = -1;
	pthread_mutex_lock(&lock);
	DL_APPEND(handles, handle);
	pthread_mutex_unlock(&lock);
	return handle;
}

void handle_free(struct handle *handle)
{
	pthread_mutex_lock(&lock);
	DL_DELETE(handles, handle);
	pthread_mutex_unlock(&lock);
	if (handle->fd >= 0)
		close(handle->fd);
	if (handle->dir)
		closedir(handle->dir);
	free(handle->path);
	free(handle->text);
	free(handle);
}

void handle_free_all(void)
{
	while (handles)
		handle_free(handles);
}
