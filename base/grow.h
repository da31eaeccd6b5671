/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Arrays that grow at their end. sched/array.h is for those that need huge pages. */
#ifndef SHADE_GROW_H
#define SHADE_GROW_H

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define GROW_LEAST 16 /* elements of the first allocation */

/* The work of grow(), on an array whose elements have `size` bytes. */
static inline int grow_array(void **array, size_t *room, size_t room_max, size_t used, size_t more,
			     size_t size)
{
	size_t need, next, bytes;
	void *grown;

	assert(used <= *room && size);
	if (__builtin_add_overflow(used, more, &need) || need > room_max)
		return -ENOMEM;
	if (need <= *room)
		return 0;
	if (__builtin_add_overflow(*room, *room / 2, &next) || next > room_max)
		next = room_max;
	if (next < GROW_LEAST && room_max >= GROW_LEAST)
		next = GROW_LEAST;
	if (next < need)
		next = need;
	if (__builtin_mul_overflow(next, size, &bytes))
		return -ENOMEM;
	grown = realloc(*array, bytes);
	if (!grown)
		return -ENOMEM;
	*array = grown;
	*room = next;
	return 0;
}

/*
 * grow(ARRAY, ROOM, USED, MORE): makes room for MORE elements after the first USED ones. ARRAY is a
 * pointer to elements, NULL at first; ROOM is an unsigned variable of any width, 0 at first, that
 * says how many fit. Both are changed. The room grows by half, so that adding one at a time copies
 * each element about three times. 0, or -ENOMEM, and then nothing has changed.
 */
#define grow(array, room, used, more)                                                              \
	({                                                                                         \
		_Static_assert((__typeof__(room))-1 > 0, "the room of an array is unsigned");      \
		void *grow_array_ = (array);                                                       \
		size_t grow_room_ = (room);                                                        \
		int grow_rc_ = grow_array(&grow_array_, &grow_room_, (__typeof__(room))-1, (used), \
					  (more), sizeof(*(array)));                               \
                                                                                                   \
		(array) = grow_array_;                                                             \
		(room) = (__typeof__(room))grow_room_;                                             \
		grow_rc_;                                                                          \
	})

#endif
