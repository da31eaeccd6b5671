/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Standard files, and a parent that waits until its child runs in the background. */
#ifndef SHADE_BACKGROUND_H
#define SHADE_BACKGROUND_H

/* First of all. */
void background_open_files(void);
/* From now on nobody reads what the daemon prints. */
void background_close_terminal(void);
/* Prints what the child reports, which ends with a 0 if the mount answers. Returns the exit
 * status. */
int background_wait_for_child(int report);

#endif
