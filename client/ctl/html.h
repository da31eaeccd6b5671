/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Text in a page: whatever others chose to be named, it is shown and does nothing. */
#ifndef SHADE_CTL_HTML_H
#define SHADE_CTL_HTML_H

#include <stddef.h>
#include <stdio.h>

/* Text, or the value of a quoted attribute. What is not UTF-8, and control characters, become
 * U+FFFD. */
void html_text(FILE *out, const char *text);
void html_bytes(FILE *out, const char *text, size_t size);
/* How many characters it has. */
size_t html_length(const char *text);

#endif
