/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/tier.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "control/control.h"
#include "fail.h"
#include "number.h"
#include "tier/tier.h"

#define FILE_MAX 4096	/* bytes of a file with a secret */
#define SECRET_LEAST 16 /* bytes */

/* --- lists of options --------------------------------------------------------------------------*/

bool tier_continues(const char *rest)
{
	size_t size = strcspn(rest, ",");
	const char *colon = memrchr(rest, ':', size);
	uint64_t port;

	return colon && !memchr(rest, '=', size) &&
	       !number_whole(colon + 1, size - (size_t)(colon + 1 - rest), &port);
}

void tier_hide_password(const char *item, char *shown)
{
	const char *password;
	size_t size;

	if (strncmp(item, "tier=", 5) != 0)
		return;
	password = url_find_password(item + 5, &size);
	memset(shown + (password - item), '*', size);
}

/* --- values ------------------------------------------------------------------------------------*/

void tier_set_url(struct tier_settings *settings, const char *text)
{
	const char *why;
	int rc;

	url_free(&settings->url);
	rc = url_parse(text, &settings->url, &why);
	if (rc == -ENOMEM)
		give_up("out of memory");
	if (rc)
		give_up("option tier %s", why); /* not its value, which may have a password */
}

void tier_set_volume(struct tier_settings *settings, const char *text)
{
	char escaped[VALUE_VOLUME_MAX + 1];

	if (value_volume(text, escaped))
		give_up("option volume takes a name of at most %d characters", VALUE_VOLUME_MAX);
	free(settings->volume);
	settings->volume = must(strdup(text));
}

/* Without the ends of lines at its end. */
static char *read_secret(const char *option, const char *path, size_t *size)
{
	char *text = must(calloc(1, FILE_MAX + 2));
	FILE *file = fopen(path, "re");

	if (!file)
		give_up("option %s: %s: %s", option, path, strerror(errno));
	*size = fread(text, 1, FILE_MAX + 1, file);
	if (ferror(file))
		give_up("option %s: %s: %s", option, path, strerror(errno));
	fclose(file);
	if (*size > FILE_MAX)
		give_up("option %s: %s has more than %d bytes", option, path, FILE_MAX);
	while (*size && (text[*size - 1] == '\n' || text[*size - 1] == '\r'))
		text[--*size] = 0;
	return text;
}

/* The environment is for everybody with the same user to read, so its copy there goes. */
static char *take_environment(void)
{
	char *value = getenv(TIER_ENVIRONMENT), *copy;

	if (!value)
		return NULL;
	copy = must(strdup(value));
	explicit_bzero(value, strlen(value));
	unsetenv(TIER_ENVIRONMENT);
	return copy;
}

static void complete_password(struct tier_settings *settings)
{
	char *environment = take_environment();
	size_t size;

	if (settings->password_file && settings->url.password)
		give_up("option tier_password: the tier's address has a password, too");
	if (settings->password_file) {
		settings->url.password =
			read_secret("tier_password", settings->password_file, &size);
		if (!size || strlen(settings->url.password) != size || size > ENGINE_PASSWORD_MAX)
			give_up("option tier_password: %s has no password of 1 to %d characters",
				settings->password_file, ENGINE_PASSWORD_MAX);
	}
	if (environment && *environment && !settings->url.password) {
		if (strlen(environment) > ENGINE_PASSWORD_MAX)
			give_up(TIER_ENVIRONMENT " has more than %d characters",
				ENGINE_PASSWORD_MAX);
		settings->url.password = must(strdup(environment));
	}
	if (environment)
		explicit_bzero(environment, strlen(environment));
	free(environment);
}

void tier_complete(struct tier_settings *settings, const char *volume)
{
	if (!settings->url.seed_count) {
		if (settings->key_file || settings->password_file)
			give_up("options tier_key and tier_password need tier=redis://HOST:PORT");
		return;
	}
	if (!settings->volume && volume)
		tier_set_volume(settings, volume);
	if (!settings->volume)
		give_up("option tier needs volume=NAME, which all nodes call the source");
	complete_password(settings);
	if (settings->url.user && !settings->url.password)
		give_up("option tier has a user and no password; see tier_password");
	if (!settings->key_file)
		return;
	settings->secret = read_secret("tier_key", settings->key_file, &settings->secret_size);
	if (settings->secret_size < SECRET_LEAST)
		give_up("option tier_key: %s has less than %d bytes", settings->key_file,
			SECRET_LEAST);
}

void tier_free(struct tier_settings *settings)
{
	url_free(&settings->url);
	if (settings->secret)
		explicit_bzero(settings->secret, settings->secret_size);
	free(settings->secret);
	free(settings->volume);
	free(settings->key_file);
	free(settings->password_file);
	*settings = (struct tier_settings){ 0 };
}

void tier_show_url(const struct tier_settings *settings, FILE *out)
{
	const struct url *url = &settings->url;

	fputs(url->seed_count ? "redis://" : "-", out);
	for (unsigned i = 0; i < url->seed_count; i++) {
		bool v6 = strchr(url->seeds[i].host, ':');

		fprintf(out, "%s%s%s%s:%u", i ? "," : "", v6 ? "[" : "", url->seeds[i].host,
			v6 ? "]" : "", url->seeds[i].port);
	}
}

/* --- the store ---------------------------------------------------------------------------------*/

int tier_open(struct store **store, const struct tier_settings *settings)
{
	struct tier_options options = { .seeds = settings->url.seeds,
					.seed_count = settings->url.seed_count,
					.user = settings->url.user,
					.password = settings->url.password,
					.secret = settings->secret,
					.secret_size = settings->secret_size,
					.volume = settings->volume,
					.timeout_ms = (uint64_t)(settings->timeout_s * 1000) };

	return options.seed_count ? store_tier_open(store, *store, &options) : 0;
}

/* --- reports -----------------------------------------------------------------------------------*/

static void print_count(FILE *out, bool metrics, const char *name, uint64_t value, const char *help)
{
	struct control_figure figure = {
		.kind = CONTROL_COUNTER, .name = name, .value = (double)value, .help = help
	};

	control_print_figure(out, metrics, &figure);
}

/* Whole microseconds: more would be noise. */
static void print_time(FILE *out, bool metrics, const char *name, double us, const char *help)
{
	struct control_figure figure = { .kind = CONTROL_GAUGE,
					 .name = name,
					 .value = (double)(uint64_t)(us + 0.5),
					 .help = help };

	control_print_figure(out, metrics, &figure);
}

static void print_servers(FILE *out, const struct tier_stats *stats)
{
	for (unsigned i = 0; i < stats->server_count; i++) {
		const struct engine_server_stats *server = &stats->servers[i];

		fprintf(out,
			"tier_node_%s_up %d\ntier_node_%s_hits %" PRIu64
			"\ntier_node_%s_misses %" PRIu64 "\ntier_node_%s_puts %" PRIu64
			"\ntier_node_%s_errors %" PRIu64 "\n",
			server->name, server->up, server->name, server->hits, server->name,
			server->misses, server->name, server->puts, server->name, server->errors);
	}
}

static uint64_t figure_of(const struct engine_server_stats *server, unsigned which)
{
	const uint64_t figures[] = { server->up, server->hits, server->misses, server->puts,
				     server->errors };

	return figures[which];
}

/* Names of hosts have no quotes and backslashes: they were resolved. */
static void print_server_metrics(FILE *out, const struct tier_stats *stats)
{
	static const struct {
		enum control_figure_kind kind;
		const char *name, *help;
	} figures[] = {
		{ CONTROL_GAUGE, "tier_node_up", "Whether a server of the tier is asked." },
		{ CONTROL_COUNTER, "tier_node_hits", "Files found at a server." },
		{ CONTROL_COUNTER, "tier_node_misses", "Files not found at a server." },
		{ CONTROL_COUNTER, "tier_node_puts", "Files given to a server." },
		{ CONTROL_COUNTER, "tier_node_errors", "Errors of a server." },
	};

	for (unsigned which = 0; which < 5; which++) {
		control_print_head(out, figures[which].kind, figures[which].name,
				   figures[which].help);
		for (unsigned i = 0; i < stats->server_count; i++)
			fprintf(out, "shadefs_%s%s{node=\"%s\"} %" PRIu64 "\n", figures[which].name,
				which ? "_total" : "", stats->servers[i].name,
				figure_of(&stats->servers[i], which));
	}
}

void tier_print(struct store *store, FILE *out, bool metrics)
{
	struct tier_stats *stats = malloc(sizeof(*stats));

	if (!stats)
		return;
	store_tier_stats(store, stats);
	print_count(out, metrics, "tier_hits", stats->hits, "Files found in the tier.");
	print_count(out, metrics, "tier_misses", stats->misses, "Files not found in the tier.");
	print_count(out, metrics, "tier_puts", stats->puts, "Files given to the tier.");
	print_count(out, metrics, "tier_puts_spared", stats->puts_spared,
		    "Files not given: as much as they are worth is evicted.");
	print_count(out, metrics, "tier_puts_dropped", stats->puts_dropped,
		    "Files not given: too many waited, or no server took them.");
	print_count(out, metrics, "tier_errors", stats->errors, "Errors of servers of the tier.");
	print_count(out, metrics, "tier_fallbacks", stats->fallbacks,
		    "Reads that the source got instead of the tier.");
	print_count(out, metrics, "tier_ratings", stats->ratings,
		    "Times to live that were set anew.");
	print_time(out, metrics, "tier_hit_us", stats->hit_us, "Time of a hit in the tier.");
	print_time(out, metrics, "tier_miss_us", stats->miss_us, "Time of a miss in the tier.");
	print_time(out, metrics, "tier_source_us", stats->source_us,
		   "Time of a read at the source.");
	if (metrics)
		print_server_metrics(out, stats);
	else
		print_servers(out, stats);
	free(stats);
}
