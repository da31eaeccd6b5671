/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* That the public header needs nothing but C99. */
#include "shade/client.h"

int header_is_c99(void);

int header_is_c99(void)
{
	return shade_error() == (const char *)0;
}
