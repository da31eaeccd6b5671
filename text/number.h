/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Numbers as people write them. Nothing here prints or exits; option.h does that for commands. */
#ifndef SHADE_NUMBER_H
#define SHADE_NUMBER_H

#include <stddef.h>
#include <stdint.h>

/* libshade contains these functions; a program that links it statically may have the same names. */
#define number_whole shade_number_whole
#define number_real shade_number_real

/* Digits and nothing else: no sign, no blank. 0; -EINVAL: something else; -ERANGE: more than 64
 * bits. */
int number_whole(const char *text, size_t length, uint64_t *value);

/* A decimal number with or without a sign, a point and an exponent, of at most 63 characters. 0;
 * -EINVAL: something else, such as 0x10, inf and nan; -ERANGE: too large to be finite. */
int number_real(const char *text, size_t length, double *value);

#endif
