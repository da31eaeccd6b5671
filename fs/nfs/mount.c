/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "nfs/mount.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/threads.h"

#define PORTMAPPER_PORT 111
#define START_MS 10000 /* for the first answer */

static void set_port(struct sockaddr_storage *address, uint16_t port)
{
	if (address->ss_family == AF_INET6)
		((struct sockaddr_in6 *)address)->sin6_port = htons(port);
	else
		((struct sockaddr_in *)address)->sin_port = htons(port);
}

__attribute__((format(printf, 3, 4))) static void explain(char *why, size_t room,
							  const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(why, room, format, arguments);
	va_end(arguments);
}

static const char *reason_of(int rc)
{
	return rc == -EPROTONOSUPPORT ? "it does not speak NFSv3" : strerror(-rc);
}

/* --- the portmapper -----------------------------------------------------------------------------
 */

static int find_mount_port(const struct nfs_export *export, uint64_t until_ms, uint16_t *port,
			   char *why, size_t room)
{
	struct socket_call call = { .server = export->server,
				    .server_size = export->server_size,
				    .identity = export->identity,
				    .args = { .procedure = NFS_GETPORT,
					      .program = NFS_MOUNT_PROGRAM },
				    .until_ms = until_ms };
	uint32_t found;
	int rc;

	set_port(&call.server, PORTMAPPER_PORT);
	rc = socket_ask(&call);
	if (rc) {
		explain(why, room,
			"the server's portmapper (port %d): %s; without one, give the option "
			"mountport",
			PORTMAPPER_PORT, reason_of(rc));
		return rc;
	}
	found = xdr_get_number(&call.result);
	if (call.result.bad || !found || found > UINT16_MAX) {
		explain(why, room, "the server's portmapper knows no mount daemon of NFSv3");
		return -EPROTONOSUPPORT;
	}
	*port = (uint16_t)found;
	return 0;
}

/* --- the mount daemon ---------------------------------------------------------------------------
 */

static int ask_for(struct nfs_export *export, const char *path, uint16_t port, uint64_t until_ms,
		   bool *is_answer)
{
	struct socket_call call = { .server = export->server,
				    .server_size = export->server_size,
				    .identity = export->identity,
				    .args = { .procedure = NFS_MOUNT, .name = path },
				    .until_ms = until_ms };
	bool takes;
	int rc;

	set_port(&call.server, port);
	rc = socket_ask(&call);
	*is_answer = !rc || rc == -EACCES || rc == -EPERM || rc == -ENOENT || rc == -ENOTDIR ||
		     rc == -EINVAL || rc == -EIO;
	if (rc)
		return rc;
	takes = nfs_get_mounted(&call.result, &export->handle);
	if (call.result.bad)
		return -EBADMSG;
	return takes ? 0 : -EPROTO;
}

/* A server may export a directory and not what is below it: then the export is mounted, and the
 * rest of the path is looked up. The answer about the whole path is what is reported. */
static int ask_for_any(struct nfs_export *export, uint16_t port, uint64_t until_ms, bool *is_answer)
{
	size_t length = strlen(export->path);
	char path[NFS_URL_PATH_MAX + 1];
	int first = 0;

	memcpy(path, export->path, length + 1);
	for (;;) {
		int rc = ask_for(export, *path ? path : "/", port, until_ms, is_answer);

		export->rest = export->path + length + (export->path[length] == '/');
		if (!rc || !*is_answer)
			return rc;
		first = first ? first : rc;
		while (length && path[length - 1] != '/')
			length--;
		if (!length)
			return first;
		path[--length] = 0;
	}
}

static void explain_mount(int rc, bool is_answer, uint16_t port, char *why, size_t room)
{
	if (!is_answer)
		explain(why, room, "the server's mount daemon (port %u): %s", port, reason_of(rc));
	else if (rc == -EPROTO)
		explain(why, room, "the export wants another way to authenticate than AUTH_SYS");
	else if (rc == -EACCES || rc == -EPERM)
		explain(why, room, "the server does not export it to this machine: %s",
			strerror(-rc));
	else
		explain(why, room, "the server: %s", strerror(-rc));
}

/* Whether the server itself answers: it may be down while its mount daemon is not. */
static int check_server(const struct nfs_export *export, uint64_t until_ms, uint16_t port,
			char *why, size_t room)
{
	struct socket_call call = { .server = export->server,
				    .server_size = export->server_size,
				    .identity = export->identity,
				    .args = { .procedure = NFS_GETATTR, .handle = export->handle },
				    .until_ms = until_ms };
	int rc = socket_ask(&call);

	if (rc)
		explain(why, room, "the server (port %u): %s", port, reason_of(rc));
	return rc;
}

int mount_again(struct nfs_export *export, uint64_t until_ms, char *why, size_t room)
{
	uint16_t port = export->mount_port;
	bool is_answer = true;
	int rc = port ? 0 : find_mount_port(export, until_ms, &port, why, room);

	if (rc)
		return rc;
	rc = ask_for_any(export, port, until_ms, &is_answer);
	if (rc)
		explain_mount(rc, is_answer, port, why, room);
	return rc;
}

/* --- the server ---------------------------------------------------------------------------------
 */

uint64_t mount_patience(const struct nfs_options *options)
{
	return options->deadline_ms < START_MS ? options->deadline_ms : START_MS;
}

int mount_find(struct nfs_export *export, const struct nfs_options *options, char *why, size_t room)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *found, *address;
	uint64_t until_ms;
	int rc = getaddrinfo(options->url->server, NULL, &hints, &found);

	if (rc) {
		explain(why, room, "the server %s: %s", options->url->server, gai_strerror(rc));
		return -EHOSTUNREACH;
	}
	rc = -EHOSTUNREACH;
	for (address = found; address && rc; address = address->ai_next) {
		*export = (struct nfs_export){ .server_size = address->ai_addrlen,
					       .mount_port = options->mount_port,
					       .identity = options->identity,
					       .path = options->url->path };
		memcpy(&export->server, address->ai_addr, address->ai_addrlen);
		set_port(&export->server, options->nfs_port);
		until_ms = clock_now_ms() + mount_patience(options);
		rc = mount_again(export, until_ms, why, room);
		if (!rc)
			rc = check_server(export, until_ms, options->nfs_port, why, room);
	}
	freeaddrinfo(found);
	return rc;
}
