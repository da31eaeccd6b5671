/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Comes to a bad end where no check can see it, once the process is to go on with a mount; or
 * SLOW: takes its time for the check, and ends well. */
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void before_main(void)
{
#ifdef SLOW
	if (!getenv("SHADEFS_HANDOVER"))
		sleep(2);
#else
	if (!getenv("SHADEFS_HANDOVER"))
		return;
#ifdef HANGS
	for (;;)
		pause();
#endif
	abort();
#endif
}
