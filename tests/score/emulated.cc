/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The module with the kernels, for the emulated device. */
#include "emulate.h"

#include "device.cu"

/* Tests turn these knobs by name. Returns the number of fiber switches so far. */
extern "C" __attribute__((visibility("default"))) long emulate_set(const char *what, long value);

long emulate_set(const char *what, long value)
{
	if (!strcmp(what, "seed"))
		emulate::set.random = (uint64_t)value * 2 + 1;
	else if (!strcmp(what, "devices"))
		emulate::set.devices = value;
	else if (!strcmp(what, "fail_in"))
		emulate::set.fail_in = value;
	else if (!strcmp(what, "no_memory_in"))
		emulate::set.no_memory_in = value;
	else if (!strcmp(what, "last_error"))
		emulate::last_error = (int)value;
	else if (!strcmp(what, "skip_barrier"))
		emulate::set.skip_barrier = value;
	else if (strcmp(what, "switches"))
		emulate::die("there is no such knob");
	return emulate::set.switches;
}
