/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Finds the kernels: beside this library, as they are installed, else where the system looks.
 * SHADE_SCORE_DEVICE names another module, for tests.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scorer.h"

#define MODULE "libshade-score-cuda.so"

/* The path of the module beside the file that has this code; "" if that is not known. */
static void beside(char *path, size_t room)
{
	Dl_info info;
	const char *slash;

	*path = 0;
	if (!dladdr(MODULE, &info) || !info.dli_fname)
		return;
	slash = strrchr(info.dli_fname, '/');
	if (slash)
		snprintf(path, room, "%.*s/%s", (int)(slash - info.dli_fname), info.dli_fname,
			 MODULE);
}

static void *open_module(void)
{
	const char *named = secure_getenv("SHADE_SCORE_DEVICE");
	char path[4096];
	void *module;

	if (named)
		return dlopen(named, RTLD_NOW | RTLD_LOCAL);
	beside(path, sizeof(path));
	module = *path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
	return module ? module : dlopen(MODULE, RTLD_NOW | RTLD_LOCAL);
}

int module_open(const struct device_ops **ops)
{
	/* The module is never closed: a CUDA runtime cannot be unloaded cleanly. */
	void *module = open_module(), *symbol;
	device_module_fn entry;

	if (!module)
		return score_fail(-ENODEV, "the CUDA kernels are not installed here (%s)",
				  dlerror());
	symbol = dlsym(module, DEVICE_MODULE_SYMBOL);
	memcpy(&entry, &symbol, sizeof(entry));
	*ops = entry ? entry() : NULL;
	if (!*ops || (*ops)->version != DEVICE_VERSION)
		return score_fail(
			-ENODEV, "the module with the CUDA kernels is of another version of shade");
	return 0;
}
