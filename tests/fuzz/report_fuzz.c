/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Any text as what a mount says of itself: its table of epochs, its counters and its name. Figures
 * that are found are finite and not negative, shares are at most 1; and whatever it is, the page
 * that shows it has the elements that shadectl made, and no others.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "report.h"

const char fuzz_name[] = "report";

static void check_epoch(const struct report_epoch *epoch)
{
	static const enum report_rate shares[] = { RATE_WAITING, RATE_LIMITED };

	for (unsigned i = 0; i < COLUMNS; i++)
		fuzz_require(isnan(epoch->values[i]) ||
				     (isfinite(epoch->values[i]) && epoch->values[i] >= 0),
			     "a figure is finite and not negative, or missing");
	fuzz_require(epoch->values[COLUMN_ACCESSES] > 0, "an epoch has accesses");
	for (unsigned i = 0; i < sizeof(shares) / sizeof(shares[0]); i++)
		fuzz_require(!(report_rate(epoch, shares[i]) > 1), "a share is at most 1");
}

static bool is_element(const char *name, size_t length)
{
	static const char *const known[] = {
		"html", "head", "meta", "link",	  "title",	"style", "body",  "main", "header",
		"h1",	"h2",	"p",	"b",	  "i",		"br",	 "div",	  "span", "section",
		"ul",	"li",	"svg",	"figure", "figcaption", "table", "thead", "tr",	  "th",
		"td",	"text", "line", "path",	  "circle",	"rect",	 "script"
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strlen(known[i]) == length && !memcmp(known[i], name, length))
			return true;
	return false;
}

/* The end of the tag that begins at `at`: quotes in it are in pairs. */
static const char *check_tag(const char *at)
{
	const char *name = at + 1 + (at[1] == '/');
	char quote = 0;

	fuzz_require(is_element(name, strspn(name, "abcdefghijklmnopqrstuvwxyz12")),
		     "an element is one of ours");
	for (; *at && (quote || *at != '>'); at++) {
		fuzz_require(quote || !strchr("<", *at) || at[1] == '/' || at == name - 1,
			     "a tag has no other in it");
		if (!quote && (*at == '\'' || *at == '"'))
			quote = *at;
		else if (*at == quote)
			quote = 0;
	}
	fuzz_require(*at == '>', "a tag ends");
	return at;
}

static void check_page(const char *page)
{
	unsigned scripts = 0;

	fuzz_require(!strncmp(page, "<!DOCTYPE html>", 15), "it begins as a page");
	for (const char *at = page + 15; (at = strchr(at, '<'));) {
		scripts += !strncmp(at, "<script", 7);
		at = check_tag(at);
	}
	fuzz_require(scripts == 1, "there is one script, which is data");
	fuzz_require(!strstr(page, "='nan") && !strstr(page, "='-nan") && !strstr(page, "='inf"),
		     "nothing is drawn where there is no place");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct report *report = calloc(1, sizeof(*report));
	char *text = malloc(size + 1), *page = NULL;
	size_t length;
	FILE *out;

	fuzz_require(report && text, "there is memory");
	memcpy(text, data, size);
	text[size] = '\0';
	report->epoch_count = report_parse_epochs(text, report->epochs, REPORT_EPOCHS_MAX);
	for (unsigned i = 0; i < report->epoch_count; i++)
		check_epoch(&report->epochs[i]);
	report->stats = report->config = text;
	report->mount_point = text;
	snprintf(report->advice, sizeof(report->advice), "%s", text);
	histogram_clear(&report->scores);
	for (size_t i = 0; i < size; i++)
		histogram_add(&report->scores, data[i], data[i] % 2);
	out = open_memstream(&page, &length);
	fuzz_require(out, "there is memory");
	report_print(report, out);
	fclose(out);
	check_page(page);
	free(page);
	free(text);
	free(report);
	return 0;
}

size_t fuzz_make(struct fuzz_random *random, uint8_t *data)
{
	static const struct fuzz_part parts[] = {
		FUZZ_PART("epoch accesses hits begin_ms end_ms waiting_ms limited_ms samples\n"),
		FUZZ_PART("samples distinct backend_bytes accesses uses running\n"),
		FUZZ_PART("1 100 50 0 1000 200 100 30\n"),
		FUZZ_PART("2 1e308 1e308 5 1e308 0.5 nan inf\n"),
		FUZZ_PART("3 -1 x <script> 7 8 9 10\n"),
		FUZZ_PART("accesses 5\n"),
		FUZZ_PART("capacity_bytes 1e999\n"),
		FUZZ_PART("hits -inf\n"),
		FUZZ_PART("recognised </script><script>\n"),
		FUZZ_PART("source '\"><b onclick='\n"),
		FUZZ_PART("\xff\xe2\x80\xae<!--"),
		FUZZ_PART(" "),
		FUZZ_PART("\n"),
		FUZZ_PART("12345678901234567890 "),
		FUZZ_PART("0 "),
	};

	return fuzz_join(random, parts, sizeof(parts) / sizeof(parts[0]), 40, data);
}
