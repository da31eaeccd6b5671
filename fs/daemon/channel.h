/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Messages of a fixed size between two of our processes, each with a descriptor if it has one. */
#ifndef SHADE_CHANNEL_H
#define SHADE_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>

/* Two ends of a channel, which are closed on exec. 0 or a negative errno. */
int channel_open(int ends[2]);
/* Sends a message without waiting, with a copy of `attached` unless that is negative. 0 or a
 * negative errno. */
int channel_send(int channel, const void *message, size_t size, int attached);
/* Receives one without waiting. `attached` gets the descriptor, which is closed on exec, or -1.
 * False: there is none, or it has another size. */
bool channel_receive(int channel, void *message, size_t size, int *attached);

#endif
