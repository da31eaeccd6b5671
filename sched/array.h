/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Arrays that grow and never take the process down. */
#ifndef SHADE_ARRAY_H
#define SHADE_ARRAY_H

#include <stddef.h>

/* Resizes `*array` to `count` elements of `size` bytes; new ones hold anything. 0, or
 * -ENOMEM with `*array` as it was. */
int array_resize(void **array, size_t count, size_t size);

/* How many elements to make room for when `count` are needed and `room` are not enough:
 * exactly `count` at first, then a quarter more each time. */
size_t array_room(size_t room, size_t count);

/* An array of zeroes, in huge pages where the system allows it; NULL: no memory. */
void *array_new(size_t count, size_t size);

/* The same on a border of cache lines, and holding anything. */
void *array_new_aligned(size_t count, size_t size);

#endif
