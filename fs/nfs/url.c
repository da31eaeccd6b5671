/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "nfs/url.h"

#include <stddef.h>
#include <string.h>

#include "number.h"

#define SCHEME "nfs://"

bool nfs_url_is(const char *text)
{
	return !strncmp(text, SCHEME, strlen(SCHEME));
}

/* The value of a hexadecimal digit; -1: it is none. */
static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* One character of a path, which may be written as %20. -1: that is no character. */
static int take_char(const char **text)
{
	int high, low;

	if (**text != '%')
		return (unsigned char)*(*text)++;
	high = digit((*text)[1]);
	low = high < 0 ? -1 : digit((*text)[2]);
	if (low < 0 || !(high | low))
		return -1;
	*text += 3;
	return high << 4 | low;
}

/* Whether a part of a path would lead elsewhere. */
static bool is_dots(const char *part, size_t length)
{
	return (length == 1 && part[0] == '.') || (length == 2 && part[0] == '.' && part[1] == '.');
}

static bool has_dots(const char *path)
{
	while (*path) {
		size_t length = strcspn(path, "/");

		if (is_dots(path, length))
			return true;
		path += length + (path[length] == '/');
	}
	return false;
}

static const char *parse_path(const char *text, char *path)
{
	size_t length = 0;

	while (*text) {
		int c;

		if (*text == '?' || *text == '#')
			return "? and # are written as %3F and %23 in it; options go after -o";
		c = take_char(&text);
		if (c < 0)
			return "% is written as %25 in it";
		if (c == '/' && length && path[length - 1] == '/')
			continue;
		if (length == NFS_URL_PATH_MAX)
			return "its path is too long";
		path[length++] = (char)c;
	}
	while (length > 1 && path[length - 1] == '/')
		length--;
	path[length] = 0;
	return has_dots(path) ? "its path must not contain . or .." : NULL;
}

static const char *parse_port(const char *text, size_t length, uint16_t *port)
{
	uint64_t value;

	if (number_whole(text, length, &value) || !value || value > UINT16_MAX)
		return "its port must be a number from 1 to 65535";
	*port = (uint16_t)value;
	return NULL;
}

/* "server", "server:2049", "[::1]" or "[::1]:2049", of `length` characters. */
static const char *parse_server(const char *text, size_t length, struct nfs_url *url)
{
	bool bracket = length && *text == '[';
	const char *end = memchr(text, bracket ? ']' : ':', length);
	size_t size, rest;

	if (bracket && !end)
		return "it has a [ without a ]";
	if (bracket)
		text++, length--;
	size = end ? (size_t)(end - text) : length;
	rest = length - size - bracket;
	if (!size)
		return "it has no server: nfs://SERVER/EXPORT";
	if (size > NFS_URL_SERVER_MAX)
		return "the name of its server is too long";
	if (memchr(text, '@', size) || memchr(text, '%', size))
		return "it has no user or password: see the options uid and gid";
	memcpy(url->server, text, size);
	url->server[size] = 0;
	if (!rest)
		return NULL;
	text += size + bracket;
	if (*text != ':' || memchr(text + 1, ':', rest - 1))
		return "an address with colons is written in brackets: nfs://[::1]/EXPORT";
	return parse_port(text + 1, rest - 1, &url->port);
}

const char *nfs_url_parse(const char *text, struct nfs_url *url)
{
	const char *wrong;
	size_t length;

	*url = (struct nfs_url){ 0 };
	text += strlen(SCHEME);
	length = strcspn(text, "/");
	wrong = parse_server(text, length, url);
	if (!wrong && !text[length])
		wrong = "it has no export: nfs://SERVER/EXPORT";
	return wrong ? wrong : parse_path(text + length, url->path);
}
